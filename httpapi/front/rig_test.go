package front

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/obs"
)

func TestMain(m *testing.M) {
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}

// rig is a front before a handler that names its peer, or holds the caller under /hold until it
// leaves or hold is closed.
type rig struct {
	*Front
	metrics *obs.Metrics
	calls   atomic.Int64
	hold    chan struct{}
	mu      sync.Mutex
	reasons map[string]int // counted refusals and time-outs by reason; guarded by mu
	sent    chan error     // how an unread body was written
}

func (r *rig) count(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.reasons[reason]++
}

func (r *rig) counted(reason string) int { return r.tally()[reason] }

func (r *rig) tally() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.reasons)
}

// problem words a refusal in the simplest way there is.
func problem(status int, reason, detail string) (http.Header, []byte) {
	return http.Header{"Content-Type": {"application/problem+json"}, "X-Corr-Id": {"c1"}},
		fmt.Appendf(nil, `{"status":%d,"reason":%q,"detail":%q}`, status, reason, detail)
}

func (r *rig) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.calls.Add(1)
	switch req.URL.Path {
	case "/wait":
		<-req.Context().Done()
		w.WriteHeader(http.StatusGatewayTimeout)
	case "/hold":
		<-r.hold
	case "/unread":
		PeerOf(req).Serves("bank")
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
		_, err := w.Write(make([]byte, 64<<20)) // more than any socket holds
		r.sent <- err
	case "/refuse":
		w.Header().Set("Content-Length", "0")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
		PeerOf(req).DropBody(w, req)
	case "/tls":
		_, _ = io.WriteString(w, tls.VersionName(req.TLS.Version))
	default:
		_, _ = io.WriteString(w, PeerOf(req).String())
	}
}

type setup struct {
	cfg Config
	tls TLSConfig
	uds UDSConfig
	o   Options
}

// newRig makes a front that listens nowhere.
func newRig(t testing.TB, change ...func(*setup)) *rig {
	t.Helper()
	r := &rig{
		metrics: obs.NewMetrics(),
		hold:    make(chan struct{}),
		reasons: map[string]int{},
		sent:    make(chan error, 1),
	}
	s := &setup{cfg: DefaultConfig(), tls: DefaultTLSConfig(), uds: DefaultUDSConfig(), o: Options{
		Catalog: flow.NewCatalog(nil, nil), Log: hclog.NewNullLogger(), SocketMay: uidAllowed,
		Metrics: r.metrics, Handler: r, Counted: r.count, Problem: problem,
		TimedOut: func(service, op string) { r.count(service + " " + op) },
		Bypass:   func(req *http.Request) bool { return req.URL.Path == "/probe" },
	}}
	// connections come from 127.0.0.1, so that none uses the port while a listener is opened again
	s.cfg.Bind = "127.0.0.9:0"
	for _, f := range change {
		f(s)
	}
	r.Front = New(s.cfg, s.tls, s.uds, s.o)
	return r
}

// listening starts the rig's tasks, joined at the end of the test.
func (r *rig) listening(t testing.TB) *rig {
	t.Helper()
	if err := r.Listen(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	for _, task := range r.Tasks() {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := task.Run(ctx); err != nil && ctx.Err() == nil {
				t.Errorf("task %s: %v", task.Name, err)
			}
		}()
	}
	t.Cleanup(func() {
		stop, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = r.Shutdown(stop)
		cancel()
		wg.Wait()
	})
	return r
}

// dial opens a bare connection, closed at the end of the test.
func (r *rig) dial(t testing.TB) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// dialFrom opens a connection from another address of loopback.
func (r *rig) dialFrom(t testing.TB, from string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(t.Context(), "tcp", r.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	return c
}

// ask sends a request and reads its answer.
func ask(t testing.TB, c net.Conn, path string) (status int, body string, h http.Header) {
	t.Helper()
	_, _ = io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	return answer(t, c)
}

// answer reads one answer; 0 is a connection that just ends.
func answer(t testing.TB, c net.Conn) (status int, body string, h http.Header) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", nil
	}
	raw, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.Close { // which net/http has taken out of the header
		resp.Header.Set("Connection", "close")
	}
	return resp.StatusCode, string(raw), resp.Header
}

// sum adds the series of a family that carry the labels.
func sum(t testing.TB, m *obs.Metrics, family string, pairs ...string) (total float64) {
	t.Helper()
	all, err := prometheus.Gatherer(m.Registry()).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, s := range f.GetMetric() {
			if carries(s, pairs) {
				total += s.GetCounter().GetValue() + s.GetGauge().GetValue()
			}
		}
	}
	return total
}

func carries(s *dto.Metric, pairs []string) bool {
	for i := 0; i < len(pairs); i += 2 {
		found := false
		for _, l := range s.GetLabel() {
			found = found || l.GetName() == pairs[i] && l.GetValue() == pairs[i+1]
		}
		if !found {
			return false
		}
	}
	return true
}

// readStatus reads one answer's status, 0 when the connection just ends.
func readStatus(t testing.TB, c net.Conn) int {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode
}

// waitFor polls what another goroutine is about to do.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	poll, end := time.NewTicker(time.Millisecond), time.After(time.Minute)
	defer poll.Stop()
	for !ok() {
		select {
		case <-poll.C:
		case <-end:
			t.Fatalf("no %s in a minute", what)
		}
	}
}
