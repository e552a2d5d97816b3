// Command flat measures how the cost of a payment and of a balance depends on the number of
// accounts. It pays in batches of 1,000 and reads balances, among the first 10,000 of a node's
// accounts and among all of them, and prints the processor time of the node per transfer and per
// balance, in rounds. It is called by flat.sh.
//
// Usage: flat -url URL -token FILE -pid PID -accounts N (-fund | [-large] [-rounds 3])
package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	few       = 10_000 // accounts of the small set
	batchSize = 1000
	conns     = 4      // that send batches
	batches   = 100    // of a round
	balances  = 20_000 // of a round
)

// node is the node that is measured.
type node struct {
	url, token string
	pid        int
	run        string // begins the keys of this run
	keys       atomic.Uint64
}

func main() {
	n := &node{run: strconv.FormatInt(time.Now().UnixNano(), 36)}
	flag.StringVar(&n.url, "url", "", "address of the node")
	flag.IntVar(&n.pid, "pid", 0, "its process")
	file := flag.String("token", "", "file with its token")
	accounts := flag.Int("accounts", 1_000_000, "accounts of the large set")
	fund := flag.Bool("fund", false, "open the accounts, and measure nothing")
	large := flag.Bool("large", false, "the large set comes first")
	rounds := flag.Int("rounds", 3, "measured for each figure")
	flag.Parse()
	token, err := os.ReadFile(*file)
	if err == nil {
		n.token = strings.TrimSpace(string(token))
		http.DefaultTransport.(*http.Transport).MaxIdleConnsPerHost = conns
		if *fund {
			err = n.fund(*accounts)
		} else {
			err = n.measure(*accounts, *rounds, *large)
		}
	}
	if err != nil {
		log.Fatal(err)
	}
}

// fund opens the accounts. Each gets enough for all transfers of a measurement.
func (n *node) fund(accounts int) error {
	return n.together(accounts/batchSize, func(i int) error {
		return n.batch(func(k int) string {
			return fmt.Sprintf(`{"op":"issue","to":%q,"asset":"ron","amount_minor":"1000000000"}`, account(i*batchSize+k))
		})
	})
}

func account(i int) string { return "acct/" + strconv.Itoa(i) }

// measure prints a line for each figure and round: the figure, the set and the µs per operation.
func (n *node) measure(accounts, rounds int, large bool) error {
	sets := []int{few, accounts}
	if large {
		sets = []int{accounts, few}
	}
	for _, size := range sets {
		// Each account takes part once before anything is measured.
		err := n.together(size/batchSize, func(i int) error {
			return n.batch(func(k int) string { return transfer(i*batchSize+k, (i*batchSize+k+size/2)%size) })
		})
		if err != nil {
			return err
		}
		name := "1M"
		if size == few {
			name = "10k"
		}
		for range rounds {
			if err := n.timed("batch "+name, batches*batchSize, func() error { return n.pay(size) }); err != nil {
				return err
			}
		}
		for range rounds {
			if err := n.timed("balance "+name, balances, func() error { return n.read(size) }); err != nil {
				return err
			}
		}
	}
	return nil
}

// timed prints the processor time of the node per operation of fn.
func (n *node) timed(figure string, operations int, fn func() error) error {
	begun, err := n.worked()
	if err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err
	}
	ended, err := n.worked()
	if err != nil {
		return err
	}
	_, err = fmt.Printf("%s %.2f\n", figure, float64((ended-begun).Nanoseconds())/1000/float64(operations))
	return err
}

// worked returns the processor time of the node.
func (n *node) worked() (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(raw, []byte(") "))
	fields := strings.Fields(string(rest))
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100), errors.Join(err1, err2)
}

// pay sends batches of transfers between random accounts.
func (n *node) pay(size int) error {
	return n.together(batches, func(int) error {
		return n.batch(func(int) string {
			from := rand.IntN(size)
			return transfer(from, (from+1+rand.IntN(size-1))%size)
		})
	})
}

func transfer(from, to int) string {
	return fmt.Sprintf(`{"op":"transfer","from":%q,"to":%q,"asset":"ron","amount_minor":"1"}`, account(from), account(to))
}

// read reads the balances of random accounts.
func (n *node) read(size int) error {
	return n.together(balances, func(int) error {
		return n.send("GET", "/v1/balance?asset=ron&account="+account(rand.IntN(size)), nil)
	})
}

// together calls fn for each number below most, on a few connections.
func (n *node) together(most int, fn func(i int) error) error {
	var next atomic.Int64
	var all sync.WaitGroup
	errs := make([]error, conns)
	for c := range conns {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(most) && errs[c] == nil; i = next.Add(1) - 1 {
				errs[c] = fn(int(i))
			}
		})
	}
	all.Wait()
	return errors.Join(errs...)
}

// batch sends a batch of independent operations.
func (n *node) batch(op func(k int) string) error {
	body := []byte(`{"mode":"independent","ops":[`)
	for k := range batchSize {
		if k > 0 {
			body = append(body, ',')
		}
		body = append(body, op(k)...)
	}
	return n.send("POST", "/v1/batch", append(body, "]}"...))
}

// send sends a request, again while the node says that it is busy. Every operation must be
// accepted.
func (n *node) send(method, path string, body []byte) error {
	key := fmt.Sprintf("%s-%d", n.run, n.keys.Add(1))
	for {
		r, err := http.NewRequest(method, n.url+path, bytes.NewReader(body))
		if err != nil {
			return err
		}
		r.Header.Set("Authorization", "Bearer "+n.token)
		if body != nil {
			r.Header.Set("Content-Type", "application/json")
			r.Header.Set("Idempotency-Key", key)
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		text, err := io.ReadAll(answer.Body)
		if err := errors.Join(err, answer.Body.Close()); err != nil {
			return err
		}
		switch {
		case answer.StatusCode == http.StatusTooManyRequests || answer.StatusCode == http.StatusServiceUnavailable:
			time.Sleep(5 * time.Millisecond)
		case answer.StatusCode != http.StatusOK || bytes.Contains(text, []byte(`"problem"`)):
			return fmt.Errorf("%s %s: %s: %.300s", method, path, answer.Status, text)
		default:
			return nil
		}
	}
}
