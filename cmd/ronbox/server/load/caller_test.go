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

// caller sends requests over one connection and reads the answers. It does little work of its own,
// so that a benchmark measures the node.
type caller struct {
	addr string
	c    net.Conn
	in   *bufio.Reader
	out  []byte // the request

	// The fields below describe the last answer.
	body     []byte
	replayed bool

	next func(out []byte) (request []byte, transfers int)
	told func(body []byte) // called with each answer, unless nil
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

// answer reads an answer that has a Content-Length.
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

// againAfter is the pause before a request is repeated. A commit takes about as long, so the
// repetition finds its result.
const againAfter = 2 * time.Millisecond

// insist repeats the request until the answer is final. first is the status of the first answer.
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

// tally holds the results of callers.
type tally struct {
	transfers int
	again     map[int]int // repeated requests, by the status of their first answer
	took      []time.Duration
	lasted    time.Duration
}

// note records a final answer.
func (t *tally) note(first int, took time.Duration) {
	if t.took = append(t.took, took); first != 200 {
		if t.again == nil {
			t.again = map[int]int{}
		}
		t.again[first]++
	}
}

// ask sends a request at each time that due returns, until more is false. The latency of an answer
// counts from that time.
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

// wave runs all callers for one second. Each sends its next request after its last answer.
func wave(b testing.TB, callers []*caller) tally {
	b.Helper()
	end := time.Now().Add(time.Second)
	return together(b, callers, func() (time.Time, bool) {
		now := time.Now()
		return now, now.Before(end)
	})
}

// paced sends rate requests in one second, each at its planned time, independently of earlier
// requests. A request that finds all callers busy waits for one of them, and this wait counts.
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

// together runs all callers at the times that due returns.
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

// share returns n as a percentage of all requests.
func (t tally) share(n int) float64 { return 100 * float64(n) / float64(len(t.took)) }

// ms returns the quantile f of the latencies, in milliseconds.
func (t tally) ms(f float64) float64 {
	return float64(t.took[int(f*float64(len(t.took)-1))].Microseconds()) / 1000
}

// report reports the rate, the latencies, and the share of repeated requests by their first status.
// unit names what is counted: transfers or reads.
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
