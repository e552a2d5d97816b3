package load

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// caller is one kept connection that asks, and reads answers, with as little work as can be: what
// is measured is the node.
type caller struct {
	addr string
	c    net.Conn
	in   *bufio.Reader
	out  []byte // the request

	// Of the last answer.
	body     []byte
	replayed bool

	next func(out []byte) (request []byte, transfers int)
	told func(body []byte) // nil: nobody wants to know
}

// send sends the request.
func (c *caller) send() (err error) {
	if c.c == nil {
		if c.c, err = net.Dial("tcp", c.addr); err != nil {
			return err
		}
		c.in = bufio.NewReaderSize(c.c, 64<<10)
	}
	_, err = c.c.Write(c.out)
	return err
}

// call sends the request and reads the answer.
func (c *caller) call() (status int, err error) {
	if err := c.send(); err != nil {
		return 0, err
	}
	status, closes, err := c.answer()
	if closes || err != nil {
		c.hangUp()
	}
	return status, err
}

func (c *caller) hangUp() {
	if c.c != nil {
		_ = c.c.Close()
	}
	c.c = nil
}

// answer reads one that says its length.
func (c *caller) answer() (status int, closes bool, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil || len(line) < len("HTTP/1.1 200") {
		return 0, false, fmt.Errorf("%q, %w", line, err)
	}
	status, _ = strconv.Atoi(string(line[9:12]))
	length := -1
	c.replayed = false
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return status, false, err
		}
		line = bytes.TrimRight(line, "\r\n")
		if len(line) == 0 {
			break
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch {
		case bytes.EqualFold(name, []byte("Content-Length")):
			length, _ = strconv.Atoi(string(value))
		case bytes.EqualFold(name, []byte("Connection")):
			closes = bytes.EqualFold(value, []byte("close"))
		case bytes.EqualFold(name, []byte("Idempotent-Replayed")):
			c.replayed = true
		}
	}
	if length < 0 {
		return status, false, fmt.Errorf("an answer %d without a length", status)
	}
	c.body = slices.Grow(c.body[:0], length)[:length]
	_, err = io.ReadFull(c.in, c.body)
	return status, closes, err
}

// againAfter is the pause before a request is asked again: about as long as a commit takes, so that
// what is missing is there.
const againAfter = 2 * time.Millisecond

// insist sends the request until the answer is final. first is the status of the first one.
func (c *caller) insist() (status, first int, err error) {
	begun := time.Now()
	status, err = c.call()
	first = status
	for err == nil && status != 200 && bytes.Contains(c.body,
		[]byte(`"retryable":true`)) && time.Since(begun) < patience {
		<-time.After(againAfter)
		status, err = c.call()
	}
	return status, first, err
}

// tally is what callers saw.
type tally struct {
	transfers int
	again     map[int]int // requests that had to be asked again, by the status they were first answered with
	took      []time.Duration
	lasted    time.Duration
}

// note books an answer that was final.
func (t *tally) note(first int, took time.Duration) {
	if t.took = append(t.took, took); first != 200 {
		if t.again == nil {
			t.again = map[int]int{}
		}
		t.again[first]++
	}
}

// ask has a caller ask whenever due returns, until that says no. An answer took as long as it came
// after the time that due gives.
func (c *caller) ask(due func() (at time.Time, more bool)) (t tally, err error) {
	for {
		at, more := due()
		if !more {
			return t, nil
		}
		var n int
		c.out, n = c.next(c.out[:0])
		status, first, err := c.insist()
		if c.told != nil {
			c.told(c.body)
		}
		if err != nil || status != 200 {
			return t, fmt.Errorf("%d %s, %w\n%.300s", status, c.body, err, c.out)
		}
		t.transfers += n
		t.note(first, time.Since(at))
	}
}

// wave has all callers ask for a second, each as soon as it has its answer.
func wave(b testing.TB, callers []*caller) tally {
	b.Helper()
	end := time.Now().Add(time.Second)
	return together(b, callers, func() (time.Time, bool) {
		now := time.Now()
		return now, now.Before(end)
	})
}

// paced has callers ask for a second, rate times in all, each request at its time, whatever became
// of those before: one that finds all callers busy waits for one of them, and that counts.
func paced(b testing.TB, callers []*caller, rate float64) tally {
	b.Helper()
	begun, every := time.Now(), time.Duration(float64(time.Second)/rate)
	var asked atomic.Int64
	return together(b, callers, func() (time.Time, bool) {
		after := time.Duration(asked.Add(1)-1) * every
		at := begun.Add(after)
		if early := time.Until(at); early > 0 && after < time.Second {
			<-time.After(early)
		}
		return at, after < time.Second
	})
}

// together has all callers ask when due says so.
func together(b testing.TB, callers []*caller, due func() (at time.Time, more bool)) (sum tally) {
	b.Helper()
	var all sync.WaitGroup
	var mu sync.Mutex
	begun := time.Now()
	for _, c := range callers {
		all.Go(func() {
			one, err := c.ask(due)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				b.Error(err)
			}
			sum = sum.and(one)
		})
	}
	all.Wait()
	sum.lasted = time.Since(begun)
	return sum
}

func (t tally) and(other tally) tally {
	t.transfers, t.lasted, t.took = t.transfers+other.transfers, t.lasted+other.lasted, append(t.took, other.took...)
	again := maps.Clone(t.again)
	if again == nil {
		again = map[int]int{}
	}
	for status, n := range other.again {
		again[status] += n
	}
	t.again = again
	return t
}

func (t tally) rate() float64 { return float64(t.transfers) / t.lasted.Seconds() }

// share is the part of all requests that n are, in percent.
func (t tally) share(n int) float64 { return 100 * float64(n) / float64(len(t.took)) }

// ms is the time within which the part f of all answers came.
func (t tally) ms(f float64) float64 {
	return float64(t.took[int(f*float64(len(t.took)-1))].Microseconds()) / 1000
}

// report tells rate and times under a unit, transfers or reads, and what part of the requests had
// to be asked again because of what.
func (t tally) report(b *testing.B, unit string) {
	slices.Sort(t.took)
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(t.rate(), unit+"/s")
	b.ReportMetric(t.ms(.5), "p50-ms")
	b.ReportMetric(t.ms(.99), "p99-ms")
	for status, n := range t.again {
		b.ReportMetric(t.share(n), fmt.Sprintf("again-after-%d-%%", status))
	}
}
