package upstream

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// rig is a client of a server with TLS that counts what reaches it.
type rig struct {
	*Client
	t       *testing.T
	server  *httptest.Server
	metrics *obs.Metrics
	asked   atomic.Int64
}

func newRig(t *testing.T, h http.HandlerFunc, change ...func(*Spec)) *rig {
	t.Helper()
	r := &rig{t: t, metrics: obs.NewMetrics()}
	r.server = httptest.NewTLSServer(r.counting(h))
	roots := x509.NewCertPool()
	roots.AddCert(r.server.Certificate())
	return r.calling(func(s *Spec) { s.Roots = roots }, change...)
}

// bubbleRig is a rig in a synctest bubble, without TLS and sockets.
func bubbleRig(t *testing.T, h http.HandlerFunc, change ...func(*Spec)) *rig {
	t.Helper()
	r := &rig{t: t, metrics: obs.NewMetrics()}
	r.server = httptest.NewUnstartedServer(r.counting(h))
	_ = r.server.Listener.Close()
	w := &wire{conns: make(chan net.Conn), closed: make(chan struct{})}
	r.server.Listener = w
	r.server.Start()
	r.calling(func(*Spec) {}, change...)
	r.rounds.DialContext = w.dial
	return r
}

func (r *rig) counting(h http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) { r.asked.Add(1); h(w, q) })
}

func (r *rig) calling(first func(*Spec), change ...func(*Spec)) *rig {
	s := Spec{
		Service: "edge",
		Svc:     "origin",
		Op:      "fetch",
		Guard:   Guard{Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}},
		Timeout: time.Minute,
		Tries:   3,
		Delay:   func(int) time.Duration { return time.Millisecond },
	}
	for _, f := range append([]func(*Spec){first}, change...) {
		f(&s)
	}
	r.Client = New(flow.NewCatalog(r.metrics, nil), r.metrics, s)
	r.t.Cleanup(func() { r.Close(); r.server.CloseClientConnections(); r.server.Close() })
	return r
}

// wire connects callers with one listener by pipes.
type wire struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (w *wire) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	near, far := net.Pipe()
	select {
	case w.conns <- far:
		return near, nil
	case <-w.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (w *wire) Accept() (net.Conn, error) {
	select {
	case c := <-w.conns:
		return c, nil
	case <-w.closed:
		return nil, net.ErrClosed
	}
}

func (w *wire) Close() error { w.once.Do(func() { close(w.closed) }); return nil }

func (w *wire) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

// get reads an answer of up to 100 bytes.
func (r *rig) get(ctx context.Context, path string) (body string, err error) {
	err = r.Get(ctx, Request{URL: r.server.URL + path, Max: 100}, func(a *Answer) error {
		b, err := io.ReadAll(a.Body)
		body = string(b)
		return err
	})
	return body, err
}

// want checks the count of a series.
func (r *rig) want(n float64, family string, pairs ...string) {
	r.t.Helper()
	if got := r.sum(family, pairs...); got != n {
		r.t.Errorf("%s %v = %v, want %v", family, pairs, got, n)
	}
}

func (r *rig) sum(family string, pairs ...string) (sum float64) {
	families, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != family {
			continue
		}
	series:
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			for i := 0; i < len(pairs); i += 2 {
				if has[pairs[i]] != pairs[i+1] {
					continue series
				}
			}
			sum += m.GetCounter().GetValue()
		}
	}
	return sum
}

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

// hang answers nothing.
func hang(_ http.ResponseWriter, q *http.Request) {
	<-q.Context().Done()
	panic(http.ErrAbortHandler)
}

// reset breaks the connection off after some bytes of the body.
func reset(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Length", "50")
	_, _ = io.WriteString(w, "half")
	_ = http.NewResponseController(w).Flush()
	c, _, _ := http.NewResponseController(w).Hijack()
	_ = c.Close()
}

// drip sends a byte a second for ever.
func drip(w http.ResponseWriter, q *http.Request) {
	for q.Context().Err() == nil {
		_, _ = io.WriteString(w, ".")
		_ = http.NewResponseController(w).Flush()
		time.Sleep(time.Second)
	}
}

// Each kind of failure is reported, retried if that makes sense, and counted.
func TestFailures(t *testing.T) {
	for doc, tt := range map[string]struct {
		h       http.HandlerFunc
		change  func(*Spec)
		is      error
		status  int
		tries   int64
		outcome string
		fails   float64
		took    time.Duration // 0: it is not asked, on real sockets
	}{
		"not found":              {h: status(404), status: 404, tries: 1, outcome: outcomeRefused},
		"a bug there":            {h: status(500), status: 500, tries: 1, outcome: outcomeFailed, fails: 1},
		"not now":                {h: status(503), status: 503, tries: 3, outcome: outcomeFailed, fails: 1},
		"a late gateway":         {h: status(504), status: 504, tries: 3, outcome: outcomeFailed, fails: 1},
		"a 304 nobody asked for": {h: status(304), status: 304, tries: 1, outcome: outcomeRefused},
		"no answer":              {h: hang, is: context.DeadlineExceeded, tries: 3, outcome: outcomeTimeout, fails: 1, took: 3*time.Minute + 2*time.Millisecond},
		"a drip":                 {h: drip, is: context.DeadlineExceeded, tries: 3, outcome: outcomeTimeout, fails: 1, took: 3*time.Minute + 2*time.Millisecond},
		"a broken body":          {h: reset, is: io.ErrUnexpectedEOF, tries: 3, outcome: outcomeFailed, fails: 1},
		"too large": {h: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, strings.Repeat("x", 101)) },
			is: ErrTooLarge, tries: 1, outcome: outcomeRefused},
		"too large, in pieces": {h: func(w http.ResponseWriter, _ *http.Request) {
			for range 11 {
				_, _ = io.WriteString(w, "0123456789")
				_ = http.NewResponseController(w).Flush()
			}
		}, is: ErrTooLarge, tries: 1, outcome: outcomeRefused},
		"a redirect":      {h: func(w http.ResponseWriter, q *http.Request) { http.Redirect(w, q, "/else", http.StatusFound) }, is: ErrRedirect, tries: 1, outcome: outcomeRefused},
		"a private host":  {h: status(200), change: func(s *Spec) { s.Guard.Allow = nil }, is: ErrAddress, outcome: outcomeRefused},
		"a path too many": {h: status(200), change: func(s *Spec) { s.URL = func(*url.URL) error { return io.EOF } }, is: ErrURL},
	} {
		check := func(t *testing.T, rig func(*testing.T, http.HandlerFunc, ...func(*Spec)) *rig) {
			r := rig(t, tt.h, func(s *Spec) {
				if tt.change != nil {
					tt.change(s)
				}
			})
			began := time.Now()
			_, err := r.get(context.Background(), "/")
			if took := time.Since(began); tt.took > 0 && took != tt.took {
				t.Errorf("it took %s, want %s", took, tt.took)
			}
			var answered *StatusError
			if errors.As(err, &answered) != (tt.status != 0) || tt.status != 0 && answered.Status != tt.status ||
				tt.is != nil && !errors.Is(err, tt.is) {
				t.Errorf("%v, want %d %v", err, tt.status, tt.is)
			}
			if n := r.asked.Load(); n != tt.tries {
				t.Errorf("asked %d times, want %d", n, tt.tries)
			}
			if tt.outcome != "" {
				r.want(float64(max(tt.tries, 1)), "upstream_calls_total", "svc", "origin", "op", "fetch", "outcome",
					tt.outcome)
			}
			r.want(tt.fails, "upstream_fail_total", "svc", "origin")
			r.want(float64(max(tt.tries, 1)-1), "backoff_retries_total", "svc", "origin", "op", "fetch")
			if tt.outcome == outcomeTimeout {
				r.want(float64(tt.tries), "io_timeouts_total", "op", "fetch")
			}
		}
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			if tt.took > 0 {
				synctest.Test(t, func(t *testing.T) { check(t, bubbleRig) })
				return
			}
			check(t, newRig)
		})
	}
}

// With Idle a try lasts while bytes come, however slowly they are read, and ends when none comes
// for so long.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for doc, tt := range map[string]struct {
			h     http.HandlerFunc
			read  time.Duration // between two reads
			idle  time.Duration
			is    error
			took  time.Duration
			tries int64
		}{
			"bytes come":     {h: drip, idle: 1500 * time.Millisecond, is: ErrTooLarge, took: 100 * time.Second, tries: 1},
			"too slowly":     {h: drip, idle: 700 * time.Millisecond, is: context.DeadlineExceeded, took: 3*700*time.Millisecond + 2*time.Millisecond, tries: 3},
			"none":           {h: hang, idle: time.Second, is: context.DeadlineExceeded, took: 3*time.Second + 2*time.Millisecond, tries: 3},
			"a slow reader":  {h: status(200), read: 5 * time.Second, idle: time.Second, took: 5 * time.Second, tries: 1},
			"a longer limit": {h: hang, idle: time.Hour, is: context.DeadlineExceeded, took: 30*time.Minute + 2*time.Millisecond, tries: 3},
		} {
			r := bubbleRig(t, tt.h)
			began := time.Now()
			err := r.Get(
				context.Background(),
				Request{URL: r.server.URL + "/", Max: 100, Timeout: 10 * time.Minute, Idle: tt.idle},
				func(a *Answer) error {
					time.Sleep(tt.read)
					_, err := io.Copy(io.Discard, a.Body)
					return err
				},
			)
			if took := time.Since(began); !errors.Is(err, tt.is) || took != tt.took || r.asked.Load() != tt.tries {
				t.Errorf("%s: %v after %s and %d tries, want %v after %s and %d", doc, err, took, r.asked.Load(), tt.is,
					tt.took, tt.tries)
			}
			if errors.Is(tt.is, context.DeadlineExceeded) {
				r.want(float64(tt.tries), "io_timeouts_total", "op", "fetch")
			}
		}
	})
}

// A body of just the length that is allowed comes whole, after failures that pass.
func TestAnswerAfterFailures(t *testing.T) {
	var n atomic.Int64
	whole := strings.Repeat("x", 100)
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		switch n.Add(1) {
		case 1:
			w.WriteHeader(503)
		case 2:
			reset(w, q)
		default:
			_, _ = io.WriteString(w, whole)
		}
	})
	if body, err := r.get(context.Background(), "/"); err != nil || body != whole {
		t.Errorf("%q, %v", body, err)
	}
	r.want(1, "upstream_calls_total", "outcome", outcomeOK)
	r.want(2, "backoff_retries_total", "op", "fetch")
	r.want(0, "upstream_fail_total")
}

// Unchanged content is not sent again, and requests carry the caller's headers.
func TestConditionalGet(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		if w.Header().Set("ETag", `"a"`); q.Header.Get("If-None-Match") == `"a"` {
			w.WriteHeader(304)
			return
		}
		_, _ = io.WriteString(w, q.Header.Get("Accept"))
	})
	for etag, want := range map[string]bool{`"a"`: true, `"b"`: false, "": false} {
		err := r.Get(
			context.Background(),
			Request{URL: r.server.URL, ETag: etag, Max: 10, Header: http.Header{"Accept": {"a/b"}}},
			func(a *Answer) error {
				b, err := io.ReadAll(a.Body)
				if a.NotModified != want || want != (len(b) == 0) || !want && string(b) != "a/b" ||
					a.Header.Get("ETag") != `"a"` {
					t.Errorf("%s: %+v %q", etag, a, b)
				}
				return err
			},
		)
		if err != nil {
			t.Error(err)
		}
	}
}

// Redirects are followed up to their number, each if it is allowed.
func TestRedirects(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		switch q.URL.Path {
		case "/0":
			_, _ = io.WriteString(w, "here")
		case "/plain":
			http.Redirect(w, q, "http://example.com/", http.StatusFound)
		case "/private":
			http.Redirect(w, q, "https://10.0.0.1/", http.StatusFound)
		default:
			http.Redirect(w, q, "/"+string(q.URL.Path[1]-1), http.StatusTemporaryRedirect)
		}
	}, func(s *Spec) { s.Redirects = 3 })
	for path, want := range map[string]error{"/0": nil, "/3": nil, "/4": ErrRedirect, "/plain": ErrURL, "/private": ErrAddress} {
		if body, err := r.get(context.Background(), path); !errors.Is(err, want) || err == nil && body != "here" {
			t.Errorf("%s: %q, %v, want %v", path, body, err, want)
		}
	}
}

// After failures the breaker stops calls to the host. Errors that say nothing about the host do not
// count.
func TestBreakerOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		r := bubbleRig(t, func(w http.ResponseWriter, q *http.Request) {
			if down.Load() {
				w.WriteHeader(500)
			}
		}, func(s *Spec) {
			s.Breaker = flow.NewBreaker(
				flow.BreakerRule{Failures: 3, Window: time.Minute, Cooldown: 10 * time.Second, Probes: 1},
			)
		})
		own := errors.New("own")
		ended, cancel := context.WithCancel(context.Background())
		for range 5 {
			if err := r.Get(context.Background(), Request{URL: r.server.URL},
				func(*Answer) error { return own }); !errors.Is(
				err,
				own,
			) {
				t.Fatal(err)
			}
		}
		cancel()
		if _, err := r.get(ended, "/"); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that has left: %v", err)
		}
		down.Store(true)
		for range 3 {
			if _, err := r.get(context.Background(), "/"); errors.Is(err, ErrOpen) || err == nil {
				t.Fatalf("open too early: %v", err)
			}
		}
		before := r.asked.Load()
		if _, err := r.get(context.Background(), "/"); !errors.Is(err, ErrOpen) || r.asked.Load() != before {
			t.Errorf("%v, asked %d times", err, r.asked.Load()-before)
		}
		r.want(4, "upstream_fail_total", "svc", "origin")
		down.Store(false)
		time.Sleep(10 * time.Second)
		if _, err := r.get(context.Background(), "/"); err != nil {
			t.Errorf("after the cooldown: %v", err)
		}
	})
}

// The caller's deadline ends everything, the pauses between tries too.
func TestDeadline(t *testing.T) {
	for doc, h := range map[string]http.HandlerFunc{"a host that hangs": hang, "a host that is not ready": status(503)} {
		synctest.Test(t, func(t *testing.T) {
			r := bubbleRig(t, h, func(s *Spec) { s.Delay = func(int) time.Duration { return time.Hour } })
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			began := time.Now()
			if _, err := r.get(ctx, "/"); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) > time.Second {
				t.Errorf("%s: %v after %s", doc, err, time.Since(began))
			}
		})
	}
}

// A caller that takes long to read is late itself: the host is neither asked again nor blamed,
// however the try ends. A host that is late beside a caller that takes a little is.
func TestSlowCaller(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		host func(*http.Request) // after the first half of the body
		took time.Duration       // by the caller, of a minute
		own  bool
	}{
		{"past the end of the try", func(q *http.Request) { <-q.Context().Done() }, 70 * time.Second, true},
		{"most of the try, then the host is silent", func(q *http.Request) { <-q.Context().Done() }, 40 * time.Second, true},
		{"most of the try, then the host breaks off", func(*http.Request) { time.Sleep(45 * time.Second); panic(http.ErrAbortHandler) }, 40 * time.Second, true},
		{"a little of it, then the host is silent", func(q *http.Request) { <-q.Context().Done() }, 10 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := bubbleRig(t, func(w http.ResponseWriter, q *http.Request) {
				_, _ = io.WriteString(w, "half")
				_ = http.NewResponseController(w).Flush()
				tt.host(q)
			})
			err := r.Get(t.Context(), Request{URL: r.server.URL, Max: 100}, func(a *Answer) error {
				if _, err := io.ReadFull(a.Body, make([]byte, 4)); err != nil {
					return err
				}
				time.Sleep(tt.took)
				_, err := io.ReadAll(a.Body)
				return err
			})
			if err == nil || IsOwn(err) != tt.own || !IsTimeout(err) {
				t.Errorf("%s: %v", tt.doc, err)
			}
			tries, late, failed := 1.0, 0.0, 0.0
			if !tt.own {
				tries, late, failed = 3, 3, 1
			}
			if float64(r.asked.Load()) != tries {
				t.Errorf("%s: asked %d times", tt.doc, r.asked.Load())
			}
			r.want(late, "io_timeouts_total", "op", "fetch")
			r.want(failed, "upstream_fail_total")
		})
	}
}

// Without TLS only this host is called, by a name or address of this host. URLs without https or
// with a password are refused.
func TestURLs(t *testing.T) {
	r := newRig(t, status(200))
	plain := httptest.NewServer(status(200))
	defer plain.Close()
	_, port, _ := net.SplitHostPort(plain.Listener.Addr().String())
	for u, want := range map[string]error{
		plain.URL: nil, "http://localhost:" + port: nil, "http://example.com/": ErrURL, "http://10.1.2.3/": ErrURL, "ftp://localhost/": ErrURL, "file:///etc/passwd": ErrURL,
		"https:///x": ErrURL, "https://a:b@localhost/": ErrURL, "https://10.1.2.3/": ErrAddress, "https://[::1]:1/": ErrAddress, "https://[fe80::1%25lo]/": ErrAddress, "::": ErrURL,
	} {
		if err := r.Get(context.Background(), Request{URL: u}, func(*Answer) error { return nil }); !errors.Is(
			err,
			want,
		) {
			t.Errorf("%s: %v, want %v", u, err, want)
		}
	}
}

// An address is checked in canonical form.
func TestGuard(t *testing.T) {
	g := Guard{Allow: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16"), netip.MustParsePrefix("fd00:1::/32")}}
	for text, ok := range map[string]bool{
		"8.8.8.8": true, "1.1.1.1": true, "2606:4700::1111": true, "::ffff:8.8.8.8": true, "10.9.1.1": true, "::ffff:10.9.1.1": true, "fd00:1::5": true,
		"10.8.1.1": false, "127.0.0.1": false, "::1": false, "::ffff:127.0.0.1": false, "0.0.0.0": false, "::": false, "169.254.169.254": false,
		"100.64.0.1": false, "172.31.255.255": false, "172.32.0.0": true, "192.168.1.1": false, "224.0.0.1": false, "255.255.255.255": false,
		"fe80::1%eth0": false, "fc00::1": false, "fd00:2::5": false, "ff02::1": false, "2001:db8::1": false, "2001::1": false, "2002:7f00:1::": false,
		"64:ff9b::7f00:1": false, "64:ff9b:1::1": false, "::7f00:1": false, "::ffff:0:7f00:1": false,
	} {
		if err := g.Check(netip.MustParseAddr(text)); (err == nil) != ok {
			t.Errorf("%s: %v, want %t", text, err, ok)
		}
	}
	if g.Check(netip.Addr{}) == nil {
		t.Error("no address is allowed")
	}
}

// A request with a body is a POST, and one status other than the successes may be accepted.
func TestPost(t *testing.T) {
	r := newRig(t, func(w http.ResponseWriter, q *http.Request) {
		raw, _ := io.ReadAll(q.Body)
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, q.Method+" "+string(raw))
	})
	var got string
	take := func(a *Answer) error {
		raw, err := io.ReadAll(a.Body)
		got = http.StatusText(a.Status) + " " + string(raw)
		return err
	}
	ask := Request{URL: r.server.URL, Post: []byte("body"), Also: http.StatusConflict, Max: 100}
	if err := r.Get(t.Context(), ask, take); err != nil || got != "Conflict POST body" {
		t.Errorf("%q, %v", got, err)
	}
	ask.Also = http.StatusGone
	var status *StatusError
	if err := r.Get(t.Context(), ask, take); !errors.As(err, &status) || status.Status != http.StatusConflict {
		t.Errorf("%v", err)
	}
}
