package appliance

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/config"
	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
)

// A flood as one host can make it, beside those who ask now and then.
const (
	flooders   = 300
	floodHost  = "127.0.66.6"
	quietOnes  = 10
	quietPause = 20 * time.Millisecond
	readHead   = "GET /registry/head HTTP/1.1\r\nHost: x\r\n\r\n"
)

// enough is the part of quiet requests that must be answered.
const enough = 0.995

// flood opens connections from one address, asks on each as fast as it is answered, and opens another where one ends.
func flood(addr string, stop <-chan struct{}) (wait func()) {
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	for range flooders {
		all.Go(func() {
			for ctx.Err() == nil {
				floodOnce(ctx, addr)
			}
		})
	}
	all.Go(func() { <-stop; cancel() })
	return all.Wait
}

// dialFrom dials from an address, and leaves the port to connect: a bind that looks for one that is free for all costs more
// than the flood.
func dialFrom(host string) net.Dialer {
	return net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}, Timeout: patience,
		Control: func(_, _ string, c syscall.RawConn) error {
			var serr error
			err := c.Control(func(fd uintptr) {
				serr = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
			})
			return errors.Join(err, serr)
		},
	}
}

func floodOnce(ctx context.Context, addr string) {
	d := dialFrom(floodHost)
	c, err := d.DialContext(ctx, "tcp", addr)
	if err != nil { // the host has run out of ports: trying on at once would measure its own hurry
		pause := time.NewTimer(quietPause)
		defer pause.Stop()
		select {
		case <-pause.C:
		case <-ctx.Done():
		}
		return
	}
	defer context.AfterFunc(ctx, func() { _ = c.Close() })()
	defer func() { _ = c.Close() }()
	for in := bufio.NewReader(c); ; {
		if _, err := io.WriteString(c, readHead); err != nil {
			return
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if resp.Close {
			return
		}
	}
}

// calmness is what the quiet ones saw.
type calmness struct {
	took   []time.Duration // of answers, sorted
	failed int
}

func (q calmness) success() float64 {
	return float64(len(q.took)) / float64(len(q.took)+q.failed)
}

func (q calmness) quantile(f float64) time.Duration { return q.took[int(f*float64(len(q.took)-1))] }

// and joins what was seen at two times.
func (q calmness) and(later calmness) calmness {
	took := slices.Concat(q.took, later.took)
	slices.Sort(took)
	return calmness{took: took, failed: q.failed + later.failed}
}

// askQuietly has ten clients, each from an address of its own, ask n times.
func askQuietly(addr string, n int) (sum calmness) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range quietOnes {
		all.Go(func() {
			one := askNow(addr, fmt.Sprintf("127.0.77.%d", i+1), n)
			mu.Lock()
			defer mu.Unlock()
			sum.took, sum.failed = append(sum.took, one.took...), sum.failed+one.failed
		})
	}
	all.Wait()
	slices.Sort(sum.took)
	return sum
}

// askNow is one of them. It keeps its connection as long as it is let.
func askNow(addr, from string, n int) (q calmness) {
	d := dialFrom(from)
	var c net.Conn
	var in *bufio.Reader
	pace := time.NewTicker(quietPause)
	defer pace.Stop()
	for range n {
		<-pace.C
		begun := time.Now()
		if c == nil {
			fresh, err := d.Dial("tcp", addr)
			if err != nil {
				q.failed++
				continue
			}
			_ = fresh.SetDeadline(time.Now().Add(time.Minute))
			c, in = fresh, bufio.NewReader(fresh)
		}
		_, _ = io.WriteString(c, readHead)
		resp, err := http.ReadResponse(in, nil)
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
		if err != nil || resp.StatusCode != http.StatusOK {
			q.failed++
		} else {
			q.took = append(q.took, time.Since(begun))
		}
		if err != nil || resp.Close {
			_ = c.Close()
			c = nil
		}
	}
	if c != nil {
		_ = c.Close()
	}
	return q
}

// Three hundred connections of one address that ask as fast as they can leave ten quiet clients and the probes alone.
func TestFlood(t *testing.T) {
	s := besiege(t)
	stop := make(chan struct{})
	turnedAway := func() float64 { return s.metric("conn_rejects_total") + s.metric("rejected_total") }
	before := turnedAway()
	wait := flood(s.Addr(), stop)
	s.await("the flood to be turned away", func() bool { return turnedAway() > before })
	q := askQuietly(s.Addr(), 100)
	s.probe()
	close(stop)
	wait()
	if q.success() < enough {
		t.Errorf("%d of %d quiet requests were not answered", q.failed, q.failed+len(q.took))
	}
	s.holds()
}

// BenchmarkFlood compares what quiet clients see on a calm day with what they see beside the flood. Node and flood are
// processes of their own, so that what is measured is not the patience of the measuring one; the flood gives way to both, so
// that what the node does about it is measured and not what it costs to make one. Each round is a calm spell and a flood of
// 20 s; the figures are over all rounds.
func BenchmarkFlood(b *testing.B) {
	node := helper(b, "node", "")
	defer node.end()
	addr := node.line
	us := func(d time.Duration) float64 { return float64(d.Microseconds()) }
	askQuietly(addr, 100)
	var calm, first, wet calmness
	for b.Loop() {
		calm = calm.and(askQuietly(addr, 1000)) // 20 s
		other := helper(b, "flood", addr)
		begun := askQuietly(addr, 50) // while three hundred connections are made
		first, wet = first.and(begun), wet.and(begun).and(askQuietly(addr, 950))
		other.end()
	}
	b.ReportMetric(100*wet.success(), "quiet-success-%")
	b.ReportMetric(us(calm.quantile(.5)), "calm-p50-µs")
	b.ReportMetric(us(calm.quantile(.99)), "calm-p99-µs")
	b.ReportMetric(us(first.quantile(.99)), "first-p99-µs")
	b.ReportMetric(us(wet.quantile(.5)), "flood-p50-µs")
	b.ReportMetric(us(wet.quantile(.99)), "flood-p99-µs")
	b.ReportMetric(us(wet.quantile(.99))/us(calm.quantile(.99)), "p99-ratio")
}

// Names in the environment of a helper.
const (
	helperRole = "RONBOX_TEST_ROLE"
	helperAddr = "RONBOX_TEST_ADDR"
)

// peer is the other side of a benchmark, in a process of its own.
type peer struct {
	line string // the first one it says
	in   io.Writer
	end  func()
}

// helper runs this test binary as the other side of a benchmark.
func helper(b testing.TB, role, addr string) peer {
	b.Helper()
	args := []string{os.Args[0], "-test.run=^TestHelper$"}
	if role == "flood" { // which has a machine of its own elsewhere
		args = append([]string{"nice", "-n", "19"}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), helperRole+"="+role, helperAddr+"="+addr)
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	said := bufio.NewReader(out)
	line, err := said.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return peer{strings.TrimSpace(line), in, func() {
		_ = in.Close()
		rest, _ := io.ReadAll(said)
		if err := cmd.Wait(); err != nil {
			b.Errorf("%v\n%s", err, rest)
		}
	}}
}

// TestHelper is the body of a helper. It ends with its input.
func TestHelper(t *testing.T) {
	switch os.Getenv(helperRole) {
	case "node":
		s := besiege(t)
		fmt.Println(s.Addr())
		_, _ = io.Copy(io.Discard, os.Stdin)
		s.halt()
	case "bank":
		beBank(t, Options{})
	case "bank-verified":
		verified(t, beBank(t, Options{}))
	case "bank-ram":
		beBank(t, Options{money: func(c ledger.Client) ledger.Client { return &ramLedger{Client: c} }})
	case "bare":
		beBare(t)
	case "flood":
		stop := make(chan struct{})
		wait := flood(os.Getenv(helperAddr), stop)
		fmt.Println("on")
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
		wait()
	}
}

// Two thousand requests whose headers never end, from one address, are all closed when the time for headers is over, and
// counted; probes are answered all the while.
func TestSlowloris(t *testing.T) {
	const many = 2000
	s := besiege(t, func(cfg *config.Config) {
		cfg.Server.ReadTimeout = unit.Duration(2 * time.Second)
		cfg.Server.MaxConns, cfg.Server.PerIP = 2*many, many
	})
	s.counted("half open", map[string]float64{"rejected_total reason=timeout": many, "store_commands_total": 0}, func() {
		from := s.attacker()
		var open, closed sync.WaitGroup
		var lingers atomic.Int64
		for range 20 {
			open.Go(func() {
				for range many / 20 {
					c := s.dial(from)
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
					closed.Go(func() {
						if gone(c) != nil {
							lingers.Add(1)
						}
						_ = c.Close()
					})
				}
			})
		}
		for range 10 {
			s.probe()
		}
		open.Wait()
		s.probe()
		closed.Wait()
		if n := lingers.Load(); n > 0 {
			t.Errorf("%d were not closed", n)
		}
	})
	s.holds()
}
