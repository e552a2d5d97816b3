package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sys/unix"

	"ronbox/appliance/b3"
	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	registryapi "ronbox/httpapi/wire/registry"
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

// flood opens connections from one address, asks on each as fast as it is answered, and opens
// another where one ends.
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

// dialFrom dials from an address, and leaves the port to connect: a bind that looks for one that is
// free for all costs more than the flood.
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

// calmness is the result of the quiet clients.
type calmness struct {
	took   []time.Duration // of answers, sorted
	failed int
}

func (q calmness) success() float64 {
	return float64(len(q.took)) / float64(len(q.took)+q.failed)
}

func (q calmness) quantile(f float64) time.Duration { return q.took[int(f*float64(len(q.took)-1))] }

// and combines two results.
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

// Three hundred connections of one address that ask as fast as they can leave ten quiet clients and
// the probes alone.
func TestFlood(t *testing.T) {
	// on a machine without a free processor the node is slow to read the quiet requests
	s := besiege(t, func(cfg *config.Config) {
		cfg.Server.ReadTimeout, cfg.Server.WriteTimeout = unit.Duration(patience), unit.Duration(patience)
	})
	stop := make(chan struct{})
	turnedAway := func() float64 { return s.metric("conn_rejects_total") + s.metric("rejected_total") }
	before := turnedAway()
	wait := flood(s.Addr(), stop)
	s.await("the flood to be turned away", func() bool { return turnedAway() > before })
	times := 100
	if testing.Short() {
		times = 20
	}
	q := askQuietly(s.Addr(), times)
	s.probe()
	close(stop)
	wait()
	if q.success() < enough {
		t.Errorf("%d of %d quiet requests were not answered", q.failed, q.failed+len(q.took))
	}
	s.holds()
}

// BenchmarkFlood compares quiet clients without and with a flood. The node and the flood run in
// separate processes with lower priority for the flood, so that the figures measure the node and
// not the load generator. Each round is a calm phase and a flood of 20 s; the figures are over all
// rounds.
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

// otherSide is the other side of a benchmark, in a process of its own.
type otherSide struct {
	line string // the first one it says
	end  func()
}

// helper runs this test binary as the other side of a benchmark.
func helper(b testing.TB, role, addr string) otherSide {
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
	return otherSide{strings.TrimSpace(line), func() {
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
	case "flood":
		stop := make(chan struct{})
		wait := flood(os.Getenv(helperAddr), stop)
		fmt.Println("on")
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(stop)
		wait()
	}
}

// Two thousand requests with endless headers, from one address, are closed when the header timeout
// expires, and are counted. Probes are answered meanwhile.
func TestSlowloris(t *testing.T) {
	const many = 2000
	s := besiege(t, func(cfg *config.Config) {
		cfg.Server.ReadTimeout = unit.Duration(3 * time.Second)
		cfg.Server.MaxConns, cfg.Server.PerIP = 2*many, many
	})
	s.counted(
		"half open",
		map[string]float64{"rejected_total reason=timeout": many, "store_commands_total": 0},
		func() {
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
		},
	)
	s.holds()
}

// A repeated request gets the first answer; the same key with another body is refused. There is one
// effect.
func replays(t *testing.T) {
	s := besiege(t)
	again, id := s.pending("once")
	a := s.key.Sign(b3.Sum(payloadOf(t, again)), time.Now())
	approval := registryapi.Approval{SignerID: a.SignerID, Algo: a.Algo, Sig: a.Sig, SignedAt: a.SignedAt}
	body, err := json.Marshal(approval)
	must(t, err)
	if got := s.ask(quietHost, s.post("/registry/approvals/"+id, string(body))); got.status != http.StatusOK {
		t.Fatalf("approve: %d %s", got.status, got.body)
	}
	s.look()
	s.counted(
		"the same signature",
		map[string]float64{
			"rejected_total reason=duplicate_approval":    1,
			"governance_approvals_total result=duplicate": 1,
		},
		func() {
			got := s.ask(s.attacker(), s.post("/registry/approvals/"+id, string(body)))
			s.told("the same signature", got, http.StatusConflict, "duplicate_approval")
			if got.problem.Details["identical"] != true {
				t.Errorf("the same signature: %v", got.problem.Details)
			}
		},
	)
	approval.Sig = s.key.Sign(b3.Sum([]byte("x")), time.Now()).Sig
	other, err := json.Marshal(approval)
	must(t, err)
	s.counted(
		"another signature",
		map[string]float64{"rejected_total reason=invalid_sig": 1, "governance_approvals_total result=accepted": 0},
		func() {
			s.told("another signature", s.ask(s.attacker(), s.post("/registry/approvals/"+id, string(other))),
				http.StatusUnprocessableEntity, "invalid_sig")
		},
	)
	made := s.ask(quietHost, s.post("/registry/commit/"+id, ""))
	if made.status != http.StatusCreated {
		t.Fatalf("commit: %d %s", made.status, made.body)
	}
	s.look()
	s.counted("commit again", map[string]float64{"governance_commits_total": 0}, func() {
		for range 3 {
			got := s.ask(s.attacker(), s.post("/registry/commit/"+id, ""))
			if got.status != http.StatusOK || got.header.Get("Idempotent-Replayed") != "true" ||
				string(got.body) != string(made.body) {
				t.Errorf("commit again: %d %s, want %s", got.status, got.body, made.body)
			}
		}
	})
	s.counted(
		"a digest of another body",
		map[string]float64{"rejected_total reason=malformed": 1, "store_commands_total": 0},
		func() {
			wrong := strings.TrimSuffix(s.propose("other"), "}") + `,"payload_b3":"` + b3.Sum([]byte("x")).
				String() +
				`"}`
			s.told("a digest of another body", s.ask(s.attacker(), s.post("/registry/proposals", wrong)),
				http.StatusBadRequest, "malformed")
		},
	)
	s.holds()
}

// stalled returns a node with its committer blocked in one write.
func stalled(t *testing.T, change ...func(*config.Config)) (s *siege, inHand <-chan answer, release func()) {
	t.Helper()
	s = besiege(t, change...)
	release = s.holdStore()
	inHand = s.sends(t.Context(), s.post("/registry/proposals", s.propose("in-hand")))
	s.inHand(1)
	return s, inHand, release
}

// waits is until the registry's queue holds n requests.
func (s *siege) waits(n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d in the queue", n), func() bool {
		for _, q := range s.Queues().Queues {
			if q.Service == "registry" && q.Name == "proposals_tx" {
				return q.Len == n
			}
		}
		return false
	})
}

// A request beyond a queue, a rate or the limit in flight is refused at once with a retry time.
// Accepted requests are not affected.
func overload(t *testing.T) {
	t.Run("queue", fullQueue)
	t.Run("in flight", fullHouse)
	t.Run("rate", overRate)
	t.Run("payments in the queue", fullWork)
	t.Run("rate of a principal", overPaid)
}

func fullQueue(t *testing.T) {
	s, first, release := stalled(t, func(cfg *config.Config) { cfg.Registry.Queues.Proposals = 2 })
	queued := []<-chan answer{first}
	for i := range 2 {
		queued = append(queued, s.sends(t.Context(), s.post("/registry/proposals", s.propose(fmt.Sprintf("q%d", i)))))
		s.waits(i + 1)
	}
	want := map[string]float64{
		"rejected_total reason=busy":                           5,
		"busy_rejections_total endpoint=propose":               5,
		"queue_dropped_total queue=proposals service=registry": 5,
	}
	s.counted("full queue", want, func() {
		for range 5 {
			got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("late")))
			s.told("full queue", got, http.StatusTooManyRequests, "busy")
			if wait := got.header.Get("Retry-After"); wait != "1" && wait != "2" {
				t.Errorf("Retry-After %q", wait)
			}
		}
	})
	s.unharmed(release, queued, 3)
}

func fullHouse(t *testing.T) {
	s, first, release := stalled(t, func(cfg *config.Config) {
		cfg.Registry.Limits.Inflight, cfg.Registry.Queues.Proposals, cfg.Registry.Queues.Approvals = 2, 1, 1
	})
	queued := []<-chan answer{first, s.sends(t.Context(), s.post("/registry/proposals", s.propose("q")))}
	s.waits(1)
	s.counted("in flight", map[string]float64{"rejected_total reason=inflight": 2, "busy_rejections_total": 2}, func() {
		for _, raw := range []string{s.post("/registry/proposals", s.propose("late")),
			"GET /registry/head HTTP/1.1\r\nHost: x\r\n\r\n"} {
			got := s.ask(s.attacker(), raw)
			s.told("in flight", got, http.StatusTooManyRequests, "inflight")
			if got.header.Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
		}
	})
	s.unharmed(release, queued, 2)
}

// unharmed releases the committer and expects every accepted request, and no other, to be done.
func (s *siege) unharmed(release func(), queued []<-chan answer, n uint64) {
	s.t.Helper()
	for _, path := range []string{"/healthz", "/metrics", "/version"} {
		if got := s.ask(quietHost, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n"); got.status != http.StatusOK {
			s.t.Errorf("%s: %d", path, got.status)
		}
	}
	release()
	for i, c := range queued {
		if got := <-c; got.status != http.StatusAccepted {
			s.t.Errorf("the %d. request that was let in: %d %s", i+1, got.status, got.body)
		}
	}
	s.writable(true)
	page, err := s.registryProposals()
	if err != nil || uint64(page) != n {
		s.t.Errorf("%d proposals, %v, want %d", page, err, n)
	}
	s.look()
	s.holds()
}

func (s *siege) registryProposals() (int, error) {
	c := s.socket()
	defer c.Close()
	page, err := c.Proposals(s.t.Context(), "", 100)
	return len(page.Proposals), err
}

func overRate(t *testing.T) {
	s := besiege(t, func(cfg *config.Config) { cfg.Registry.Limits.RPS = 5 })
	before, refused, done := s.scrape(), 0, 0
	for _, one := range s.atOnce(60, s.post("/registry/proposals", "{}")) {
		got := <-one
		switch got.status {
		case http.StatusBadRequest:
			done++
		case http.StatusTooManyRequests:
			refused++
			s.told("rate", got, http.StatusTooManyRequests, "rate_limit")
			if got.header.Get("Retry-After") != "1" {
				t.Errorf("Retry-After %q", got.header.Get("Retry-After"))
			}
		default:
			t.Errorf("%d %s", got.status, got.body)
		}
	}
	after := s.scrape()
	if done < 5 || refused == 0 || grown(before, after, "rejected_total reason=rate_limit") != float64(refused) ||
		grown(before, after, "busy_rejections_total endpoint=propose") != float64(refused) {
		t.Errorf("%d let in, %d refused", done, refused)
	}
	s.await("a token", func() bool {
		return s.ask(quietHost, s.post("/registry/proposals", "{}")).status == http.StatusBadRequest
	})
}

// A queued request is skipped and writes nothing if its client disconnects.
func goneWhileQueued(t *testing.T) {
	s, first, release := stalled(t)
	ctx, leave := context.WithCancel(t.Context())
	gone := s.sends(ctx, s.post("/registry/proposals", s.propose("gone")))
	s.waits(1)
	s.counted(
		"gone",
		map[string]float64{
			"rejected_total reason=canceled":        1,
			"tasks_canceled_total service=registry": 1,
			"io_timeouts_total":                     0,
		},
		func() {
			leave()
			<-gone
			s.await(
				"the call to end",
				func() bool { return s.metric("inflight_requests", "route", "/registry/proposals") == 1 },
			)
			release()
			if got := <-first; got.status != http.StatusAccepted {
				t.Errorf("the one in hand: %d %s", got.status, got.body)
			}
			s.waits(0)
		},
	)
	if n, err := s.registryProposals(); err != nil || n != 1 {
		t.Errorf("%d proposals, %v", n, err)
	}
	s.writable(true)
	s.look()
	s.holds()
}

// If a deadline passes in the queue, the request was not done. If it passes later, the outcome is
// unknown, and a repeat returns it.
func lateAnswers(t *testing.T) {
	s := besiege(t)
	again, _ := s.pending("known")
	again = strings.Replace(again, `"https://known.example"`, `"https://late.example"`, 1)
	again = remade(t, again)
	s.look()
	release := s.holdStore()
	var first <-chan answer
	s.counted("deadlines", map[string]float64{
		"rejected_total reason=timeout": 1, "rejected_total reason=commit_unknown": 1, "io_timeouts_total op=commit": 2,
	}, func() {
		first = s.sends(t.Context(), s.post("/registry/proposals", again, "Request-Timeout: 1.5"))
		s.inHand(1)
		got := s.ask(s.attacker(), s.post("/registry/proposals", s.propose("never"), "Request-Timeout: 0.3"))
		s.told("in the queue", got, http.StatusGatewayTimeout, "timeout")
		if got.problem.Details["outcome"] != "none" || !got.problem.Retryable {
			t.Errorf("in the queue: %s", got.body)
		}
		got = <-first
		s.told("behind it", got, http.StatusGatewayTimeout, "commit_unknown")
		if got.problem.Details["outcome"] != "unknown" || !got.problem.Retryable {
			t.Errorf("behind it: %s", got.body)
		}
	})
	release()
	s.await("the outcome", func() bool { n, err := s.registryProposals(); return err == nil && n == 2 })
	s.writable(true)
	s.look()
	got := s.ask(s.attacker(), s.post("/registry/proposals", again))
	if got.status != http.StatusAccepted || got.header.Get("Idempotent-Replayed") != "true" {
		t.Errorf("the same request again: %d %v %s", got.status, got.header, got.body)
	}
	s.holds()
}

// remade removes the members of a proposal that the node computes.
func remade(t *testing.T, body string) string {
	t.Helper()
	var in struct {
		SchemaVersion string         `json:"schema_version"`
		Payload       map[string]any `json:"payload"`
	}
	must(t, json.Unmarshal([]byte(body), &in))
	for _, k := range []string{"items_root", "items_count"} {
		delete(in.Payload, k)
	}
	raw, err := json.Marshal(in)
	must(t, err)
	return string(raw)
}

// A consumer that does not read is dropped, learns how many events it missed, and delays no commit.
func slowConsumers(t *testing.T) {
	const bound = 64
	s := besiege(t, func(cfg *config.Config) { cfg.Registry.Bus.ChannelBound, cfg.Registry.SSE.ReplayMax = bound, 5 })
	stuck := s.dial(s.attacker())
	must(t, stuck.SetReadBuffer(1))
	_, _ = io.WriteString(stuck, "GET /registry/stream HTTP/1.1\r\nHost: x\r\n\r\n")
	s.await("the stream", func() bool { return s.metric("registry_sse_clients") == 1 })
	lazy := s.services.Registry().Subscribe("sse")
	defer lazy.Close()
	want := map[string]float64{"bus_lagged_total bus=updated consumer=sse": 10, "governance_commits_total": bound + 10}
	s.counted("a consumer that sleeps", want, func() {
		c := s.socket()
		defer c.Close()
		for v := range uint64(bound + 10) {
			s.mustPut(c, s.key, v+2, fmt.Sprintf("d%d", v))
		}
		s.await("the last version to be told", func() bool { return lazy.Stats().Lagged == 10 })
		e, lost, ok := lazy.Next()
		if !ok || lost != 10 || e.Version != 12 {
			t.Errorf("first version %d, %d lost, %v", e.Version, lost, ok)
		}
	})
	c := s.client(client.Options{URL: "http://" + s.Addr()})
	err := c.Stream(t.Context(), client.StreamOptions{LastEventID: "3"}, func(e client.Event) error {
		if e.Name == wire.EventHello {
			return nil
		}
		var l registryapi.Lagged
		if err := json.Unmarshal(
			e.Data,
			&l,
		); e.Name != wire.EventLagged || err != nil || l.From != 4 || l.To != bound+11 ||
			l.Missed != bound+8 {
			t.Errorf("%s %s", e.Name, e.Data)
		}
		return client.ErrStop
	})
	must(t, err)
	c.Close()
	_ = stuck.Close()
	s.await("the streams to end", func() bool { return s.metric("registry_sse_clients") == 0 })
	lazy.Close()
	s.look()
	s.holds()
}

// The packages that may dial are named here: the command line's client, the exporter of spans, and
// the one way for engines to call an upstream, which guards the address, and the peer port of a
// cluster, which knows its members by certificate. No engine of a node alone uses them so far, so
// the node asks nobody.
func asksNobody(t *testing.T) {
	may := map[string]bool{
		"httpapi/client":     true,
		"appliance/obs":      true,
		"appliance/systemd":  true,
		"httpapi/front":      true,
		"appliance/host":     true,
		"appliance/upstream": true,

		"appliance/peer":         true, // members of the cluster, by certificate
		"engines/cluster/member": true,
		"engines/archive/target": true, // the server that archive.endpoint names
	}
	dials := map[string]bool{
		"http.Client":           true,
		"http.DefaultClient":    true,
		"http.Get":              true,
		"http.Post":             true,
		"http.Transport":        true,
		"http.DefaultTransport": true,
		"net.Dial":              true,
		"net.DialTimeout":       true,
		"net.Dialer":            true,
		"tls.Dial":              true,
		"net.LookupHost":        true,
		"net.LookupIP":          true,
		"net.DefaultResolver":   true,
	}
	files := 0
	for _, pattern := range []string{"*", "*/*", "*/*/*", "*/*/*/*", "*/*/*/*/*"} {
		paths, err := filepath.Glob(filepath.Join("../../..", pattern+".go"))
		must(t, err)
		for _, path := range paths {
			dir := filepath.ToSlash(strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../../"))
			if strings.HasSuffix(path, "_test.go") || may[dir] || strings.HasPrefix(dir, "testdata/") ||
				strings.HasSuffix(dir, "test") {
				continue
			}
			files++
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
			must(t, err)
			ast.Inspect(f, func(n ast.Node) bool {
				if sel, ok := n.(*ast.SelectorExpr); ok {
					if x, ok := sel.X.(*ast.Ident); ok && dials[x.Name+"."+sel.Sel.Name] {
						t.Errorf("%s uses %s.%s", path, x.Name, sel.Sel.Name)
					}
				}
				return true
			})
		}
	}
	if files < 100 {
		t.Errorf("looked at %d files only", files)
	}
}
