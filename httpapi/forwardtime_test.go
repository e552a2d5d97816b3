package httpapi_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/front"
)

// pipes is a listener in memory, so that forwarded requests run in a bubble.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case p.conns <- there:
		return here, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// bubblePair is a pair over pipes. Its peer port has no TLS. It ends with the test, inside the
// bubble.
func bubblePair(t *testing.T, wrap func(http.Handler) http.Handler) (p *pair, end func()) {
	t.Helper()
	p = &pair{inA: &fakeCluster{self: nodeA, leader: nodeA}, inB: &fakeCluster{self: nodeB, leader: nodeA, addr: "a:1"}}
	p.inA.leads.Store(true)
	p.a = newRig(t, clustered(p.inA))
	p.a.undescribed = true
	h := p.a.PeerHandler(func(*http.Request) string { return nodeB })
	if wrap != nil {
		h = wrap(h)
	}
	ln, srv := newPipes(), &http.Server{Handler: h}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(ln) })
	transport := &http.Transport{DialTLSContext: ln.dial, DisableCompression: true}
	p.inB.peer = transport
	p.b = newRig(t, clustered(p.inB))
	p.b.undescribed = true
	return p, func() {
		transport.CloseIdleConnections()
		_ = srv.Close()
		wg.Wait()
		synctest.Wait()
	}
}

// hangs keeps every request until its sender leaves, as a node does that is stopped.
func hangs(http.Handler) http.Handler {
	return http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
}

// The caller of a leader that hangs gets an answer soon after the deadline.
func TestTheLeaderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := bubblePair(t, hangs)
		defer end()
		for _, tt := range []struct {
			method, target, body string
			status               int
			reason               string
			unknown              bool
		}{
			{"POST", "/v1/transfer", someTransfer, 503, "commit_unknown", true},
			{"GET", "/registry/head", "", 504, "timeout", false},
		} {
			began := time.Now()
			w := p.b.do(tt.method, tt.target, tt.body, header{"Authorization": "Bearer good", "Request-Timeout": "2"})
			got := problemIn(t, w.Body.String())
			if w.Code != tt.status || got.Reason != tt.reason || got.Unknown() != tt.unknown || !got.Retryable {
				t.Errorf("%s: %d %+v", tt.target, w.Code, got)
			}
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("%s: answered after %v", tt.target, took)
			}
		}
	})
}

// A request for which no connection to the leader is made in time counts as a connect of its
// service. Nothing was done.
func TestNoConnectionToTheLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := bubblePair(t, hangs)
		defer end()
		late := func(service string) float64 {
			return sum(t, p.b.metrics, "io_timeouts_total", "op", "connect", "service", service)
		}
		h := header{"Authorization": "Bearer good", "Request-Timeout": "2"}
		p.b.do("POST", "/v1/transfer", someTransfer, h) // the leader takes the connection, and hangs
		if n := late("wallet"); n != 0 {
			t.Errorf("%v connects were late although the leader took them", n)
		}
		hung := make(chan struct{})
		defer close(hung)
		p.inB.peer = &http.Transport{DialTLSContext: func(context.Context, string, string) (net.Conn, error) {
			<-hung
			return nil, net.ErrClosed
		}}
		w := p.b.do("POST", "/v1/transfer", someTransfer, h)
		if got := problemIn(t, w.Body.String()); w.Code != 503 || got.Reason != "timeout" || got.Unknown() {
			t.Errorf("%d %+v", w.Code, got)
		}
		p.b.do("GET", "/registry/head", "", h)
		if w, g := late("wallet"), late(serviceRegistry); w != 1 || g != 1 {
			t.Errorf("late connects: %v of the wallet, %v of the registry, want 1 of each", w, g)
		}
	})
}

// A stream of a leader that hangs ends, so that its client asks again.
func TestAStreamOfTheLeaderHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := bubblePair(t, hangs)
		defer end()
		w := p.b.do("GET", "/registry/stream", "", nil)
		if got := problemIn(t, w.Body.String()); w.Code != 504 || !got.Retryable {
			t.Errorf("%d %+v", w.Code, got)
		}
		if n := p.b.OpenStreams(serviceRegistry).Count(); n != 0 {
			t.Errorf("%v streams", n)
		}
	})
}

// A long answer may take any time, as long as each of its parts comes within the window.
func TestLongAnswersAreForwarded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := bubblePair(t, nil)
		defer end()
		part := bytes.Repeat([]byte("0123456789abcdef"), 16<<10)
		route := &httpapi.Route{
			Method: "GET", Pattern: "/registry/head", Service: serviceRegistry, Deadline: time.Second, Long: true,
			Handle: func(c *httpapi.Request) error {
				for range 20 { // much longer than the deadline and the write timeout
					if _, err := c.Write(part); err != nil {
						return err
					}
					time.Sleep(3 * time.Second)
				}
				return nil
			},
		}
		p.a.Override("/registry/head", route)
		p.b.Override("/registry/head", route)
		w := p.b.do("GET", "/registry/head", "", nil)
		if w.Code != 200 || !bytes.Equal(w.Body.Bytes(), bytes.Repeat(part, 20)) {
			t.Errorf("%d, %d bytes", w.Code, w.Body.Len())
		}
	})
}

// When the client leaves, the leader is told.
func TestTheClientOfAForwardLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, end := bubblePair(t, hangs)
		defer end()
		ctx, leave := context.WithCancel(t.Context())
		req := httptest.NewRequest("GET", "/registry/head", nil).WithContext(ctx)
		w := httptest.NewRecorder()
		done := make(chan struct{})
		go func() {
			defer close(done)
			p.b.Router().ServeHTTP(w, req.WithContext(front.WithPeer(ctx, &front.Peer{})))
		}()
		synctest.Wait()
		leave()
		<-done
		if got := problemIn(t, w.Body.String()); got.Reason != "canceled" {
			t.Errorf("%d %+v", w.Code, got)
		}
	})
}
