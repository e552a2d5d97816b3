package clustertest

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	walletapi "ronbox/httpapi/wire/wallet"
)

var figuresFlag = flag.Int("figures", 0, "measure payments a second, and the failover of so many killed leaders; "+
	"set TMPDIR to a disk")

const (
	payTime    = 10 * time.Second
	tryWithin  = 200 * time.Millisecond // of one request during a failover
	tryAgain   = 5 * time.Millisecond
	failoverIn = time.Minute

	recordsLeft  = 200_000 // of the ledger, made before a failover
	recordOwners = 50_000  // accounts that they change
	perBatch     = 1000    // of them
	lateKills    = 10      // failovers after so many records
)

// TestRates measures payments a second, and the processor time of the nodes for each, of a node
// alone, of a cluster of one, and of a cluster of three at its leader and through another member.
func TestRates(t *testing.T) {
	if *figuresFlag == 0 {
		t.Skip("it measures; -figures N runs it")
	}
	both := func(c *cluster, place int, what string) {
		for _, payers := range []int{64, 256} {
			c.payFor(t, place, payers, what)
		}
	}
	alone := newNodes(t, 1)
	both(alone, 0, "a node alone")
	alone.nodes[0].kill()
	one := newCluster(t, 1)
	both(one, 0, "a cluster of one")
	one.nodes[0].kill()
	three := newCluster(t, 3)
	both(three, three.leader(t), "the leader of three")
	both(three, (three.leader(t)+1)%3, "through a follower of three")
}

// TestFailover measures the time from the kill of a leader to the next acknowledged payment, also of
// leaders that have just made more records than the ledger leaves to the redo of its next open.
func TestFailover(t *testing.T) {
	if *figuresFlag == 0 {
		t.Skip("it measures; -figures N runs it")
	}
	three := newCluster(t, 3)
	var times []time.Duration
	for range *figuresFlag {
		times = append(times, three.failover(t))
	}
	slices.Sort(times)
	t.Logf("failover, heartbeat %s: p50 %s, p99 %s, most %s", *heartbeatFlag, at(times, 50), at(times, 99), at(times, 100))
	for i := range lateKills {
		three.record(t, i)
		took := three.failover(t)
		redo := regexp.MustCompile(`"(redo_ms|redone)\W+\d+`).FindAllString(three.nodes[three.leader(t)].proc.log.String(), -1)
		t.Logf("failover after %d records: %s, %q", recordsLeft, took, redo)
	}
}

// gapPayers pay at all nodes while the leadership is handed over.
const gapPayers = 8

// TestGaps measures the longest time without an acknowledged payment while the leader transfers the
// leadership, and while it is told to stop.
func TestGaps(t *testing.T) {
	if *figuresFlag == 0 {
		t.Skip("it measures; -figures N runs it")
	}
	c := newCluster(t, 3)
	for what, strike := range map[string]func(i int){
		"transfer": func(i int) { // the ledger may write for 2 s first, while payments go on
			c.nodes[i].must(t, nil, "cluster", "transfer", "--json")
		},
		"SIGTERM": func(i int) {
			c.nodes[i].signal(syscall.SIGTERM)
			c.stopped(t, i)
			c.start(t, i)
		},
	} {
		var gaps []time.Duration
		for range *figuresFlag {
			c.well(t)
			gaps = append(gaps, c.gap(t, func() { strike(c.leader(t)) }))
		}
		slices.Sort(gaps)
		t.Logf("%s, heartbeat %s: without a payment p50 %s, p99 %s, most %s", what, *heartbeatFlag, at(gaps, 50),
			at(gaps, 99), at(gaps, 100))
	}
}

// gap returns the longest time without an acknowledged payment while strike happens.
func (c *cluster) gap(t *testing.T, strike func()) (longest time.Duration) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	paid := make(chan time.Time, 1<<16)
	var wg sync.WaitGroup
	begun := time.Now()
	for i := range gapPayers {
		wg.Go(func() {
			place := i
			for n := 0; ctx.Err() == nil; n++ {
				in := bankIn{from: n % accounts, to: (n + 1) % accounts, amount: 1}
				key := fmt.Sprint("g", begun.UnixNano(), "-", i, "-", n)
				for ctx.Err() == nil {
					_, v, _ := c.svc.transfer(ctx, place%len(c.nodes), key, in)
					if v == done || v == refused {
						paid <- time.Now()
						break
					}
					place++
					hold(tryAgain) // payers that never rest would take the processors from the nodes
				}
			}
		})
	}
	hold(time.Second)
	last := time.Now()
	strike()
	hold(2 * time.Second)
	stop()
	wg.Wait()
	close(paid)
	var times []time.Time
	for at := range paid {
		times = append(times, at)
	}
	slices.SortFunc(times, time.Time.Compare)
	for _, at := range times {
		if at.After(last) {
			longest = max(longest, at.Sub(last))
			last = at
		}
	}
	return longest
}

// record has the leader make recordsLeft records.
func (c *cluster) record(t *testing.T, run int) {
	t.Helper()
	w := walletapi.NewClient(c.nodes[c.leader(t)].client(t, c.secret, patience))
	for i := range recordsLeft / perBatch {
		body := walletapi.Batch{Mode: "independent"}
		for k := range perBatch {
			to := fmt.Sprint("redo", (i*perBatch+k)%recordOwners)
			body.Ops = append(body.Ops, walletapi.BatchOp{Op: "issue", To: to, Asset: "ron", AmountMinor: "1"})
		}
		until(t, "a batch is made", c.nodes, func() bool {
			_, err := w.Batch(t.Context(), fmt.Sprint("records", run, "-", i), body)
			return err == nil
		})
	}
}

// at returns a percentile of sorted times.
func at(times []time.Duration, percent int) time.Duration {
	return times[(len(times)-1)*percent/100].Round(time.Millisecond / 10)
}

// payFor lets many accounts pay at a node for some time.
func (c *cluster) payFor(t *testing.T, place, payers int, what string) {
	t.Helper()
	s := newService(t, c.secret, c.nodes[place])
	begun, used := time.Now(), c.processorTime(t)
	ctx, stop := context.WithTimeout(t.Context(), payTime)
	defer stop()
	var mu sync.Mutex
	var times []time.Duration
	var wg sync.WaitGroup
	for i := range payers {
		wg.Go(func() {
			var own []time.Duration
			for n := 0; ctx.Err() == nil; n++ {
				from := time.Now()
				in := bankIn{from: (i + n) % accounts, to: (i + n + 1) % accounts, amount: 1}
				key := fmt.Sprint("r", begun.UnixNano(), "-", i, "-", n)
				if _, v, err := s.transfer(t.Context(), 0, key, in); v == fault {
					t.Error(err)
					return
				}
				own = append(own, time.Since(from))
			}
			mu.Lock()
			defer mu.Unlock()
			times = append(times, own...)
		})
	}
	wg.Wait()
	used = (c.processorTime(t) - used) / time.Duration(max(1, len(times)))
	slices.Sort(times)
	t.Logf("%s, %d payers: %.0f payments/s, p50 %s, p99 %s, %s of the processors each", what, payers,
		float64(len(times))/payTime.Seconds(), at(times, 50), at(times, 99), used.Round(time.Microsecond))
}

// processorTime returns what the running nodes have used of the processors.
func (c *cluster) processorTime(t testing.TB) (sum time.Duration) {
	t.Helper()
	const tick = 10 * time.Millisecond // of Linux, in this file
	for _, n := range c.nodes {
		if !n.running() {
			continue
		}
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", n.proc.cmd.Process.Pid))
		must(t, err)
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
		for _, text := range fields[11:13] { // utime and stime
			ticks, err := strconv.Atoi(text)
			must(t, err)
			sum += time.Duration(ticks) * tick
		}
	}
	return sum
}

// failover kills the leader and returns the time to the next acknowledged payment.
func (c *cluster) failover(t *testing.T) time.Duration {
	t.Helper()
	i := c.leader(t)
	c.nodes[i].kill()
	from := time.Now()
	for n := 0; time.Since(from) < failoverIn; n++ {
		ctx, stop := context.WithTimeout(t.Context(), tryWithin)
		place := (i + 1 + n%(len(c.nodes)-1)) % len(c.nodes)
		_, v, _ := c.svc.transfer(ctx, place, fmt.Sprint("f", from.UnixNano()), bankIn{from: 0, to: 1, amount: 1})
		stop()
		if v == done || v == refused {
			took := time.Since(from)
			c.start(t, i)
			c.well(t)
			return took
		}
		hold(tryAgain)
	}
	t.Fatalf("no payment within %s of the kill", failoverIn)
	return 0
}
