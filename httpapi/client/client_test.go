package client_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	walletapi "ronbox/httpapi/wire/wallet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve answers every request with h and returns a client for it.
func serve(t *testing.T, h http.HandlerFunc, o client.Options) *apiClient {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	if o.Socket == "" {
		o.URL = srv.URL
	}
	c, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return newAPIClient(c)
}

// The calls of each service, by a name of their own.
type (
	nodeAPI     = nodeapi.Client
	registryAPI = registryapi.Client
	walletAPI   = walletapi.Client
)

// apiClient has the calls of all services.
type apiClient struct {
	*client.Client
	nodeAPI
	registryAPI
	walletAPI
}

func newAPIClient(c *client.Client) *apiClient {
	return &apiClient{c, nodeapi.NewClient(c), registryapi.NewClient(c), walletapi.NewClient(c)}
}

func problem(rw http.ResponseWriter, status int, body string) {
	rw.Header().Set("Content-Type", wire.ProblemType)
	rw.WriteHeader(status)
	_, _ = io.WriteString(rw, body)
}

func TestRequestsCarryTokenAgentAndCorrelation(t *testing.T) {
	var got []http.Header
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		got = append(got, r.Header.Clone())
		_, _ = io.WriteString(rw, `{"version":7,"committed_at":"2026-01-01T00:00:00Z","unheard_of":1}`)
	}, client.Options{Token: "tok", UserAgent: "test/1"})
	for range 2 {
		h, err := c.Head(t.Context())
		if err != nil || h.Version != 7 || h.CommittedAt != "2026-01-01T00:00:00Z" {
			t.Fatalf("Head() = %+v, %v", h, err)
		}
	}
	if got[0].Get("Authorization") != "Bearer tok" || got[0].Get("User-Agent") != "test/1" {
		t.Errorf("headers = %v", got[0])
	}
	a, b := got[0].Get("X-Corr-ID"), got[1].Get("X-Corr-ID")
	if len(a) != 26 || a == b {
		t.Errorf("correlation ids %q and %q: want two different ULIDs", a, b)
	}
}

func TestSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{
		Listener: l,
		Config: &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, `{"phase":"Running"}`)
		})},
	}
	srv.Start()
	defer srv.Close()
	c, err := client.New(client.Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if s, err := nodeapi.NewClient(c).Status(t.Context()); err != nil || s.Phase != "Running" {
		t.Errorf("Status() = %+v, %v", s, err)
	}
	if c.Where() != path {
		t.Errorf("Where() = %q", c.Where())
	}
}

func TestRefusals(t *testing.T) {
	for _, tt := range []struct {
		doc       string
		status    int
		typ, body string
		reason    string
		retryable bool
	}{
		{"a problem stays what it is", 429, wire.ProblemType, `{"reason":"busy","retryable":true,"retry_after":1}`, "busy", true},
		{"its status is the answer's", 409, wire.ProblemType + "; charset=utf-8", `{"reason":"chain_mismatch","status":1}`, "chain_mismatch", false},
		{"an unknown outcome may be repeated", 504, wire.ProblemType, `{"reason":"timeout","details":{"outcome":"unknown"}}`, "timeout", true},
		{"a proxy's page", 502, "text/html", `<html>`, "foreign_answer", true},
		{"a problem that is none", 400, wire.ProblemType, `{"reason":`, "foreign_answer", false},
		{"a problem without a reason", 404, wire.ProblemType, `{}`, "foreign_answer", false},
	} {
		c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
			rw.Header().Set("Content-Type", tt.typ)
			rw.WriteHeader(tt.status)
			_, _ = io.WriteString(rw, tt.body)
		}, client.Options{})
		_, err := c.Head(t.Context())
		p, ok := errors.AsType[*wire.Problem](err)
		if !ok || p.Status != tt.status || p.Reason != tt.reason || client.Retryable(err) != tt.retryable {
			t.Errorf("%s: %v (retryable %v)", tt.doc, err, client.Retryable(err))
		}
	}
}

func TestNothingSent(t *testing.T) {
	c, err := client.New(client.Options{Socket: filepath.Join(t.TempDir(), "none")})
	if err != nil {
		t.Fatal(err)
	}
	_, err = registryapi.NewClient(c).Head(t.Context())
	if !errors.Is(err, client.ErrNotReachable) || errors.Is(err, client.ErrUnknown) || !client.Retryable(err) {
		t.Errorf("err = %v, want ErrNotReachable alone", err)
	}
}

func TestLostAnswers(t *testing.T) {
	for _, tt := range []struct {
		doc string
		h   http.HandlerFunc
	}{
		{"the connection ends before the answer", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"the body is cut short", func(rw http.ResponseWriter, _ *http.Request) {
			rw.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(rw, `{"version":1`)
		}},
		{"the answer is too slow", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }},
	} {
		c := serve(t, tt.h, client.Options{Timeout: 2 * time.Second})
		_, _, err := c.Commit(t.Context(), "p_1")
		if !errors.Is(err, client.ErrUnknown) || !client.Retryable(err) {
			t.Errorf("%s: err = %v, want ErrUnknown", tt.doc, err)
		}
		_, read := c.Head(t.Context()) // has no outcome
		if !errors.Is(read, client.ErrUnknown) || strings.Contains(read.Error(), "outcome") ||
			strings.Contains(read.Error(), "://") ||
			!strings.Contains(err.Error(), "outcome unknown") {
			t.Errorf("%s: a read: %v, a write: %v", tt.doc, read, err)
		}
	}
}

// A node that ends after it has read a request may have executed it. net/http sends a request with an
// idempotency key again by itself, and the second try reaches nothing.
func TestLostAnswerOfANodeThatIsGone(t *testing.T) {
	var srv *httptest.Server
	calls := 0
	srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if calls++; calls == 1 { // so that the next request has a connection
			return
		}
		_ = srv.Listener.Close()
		conn, _, err := w.(http.Hijacker).Hijack()
		if err == nil {
			_ = conn.Close()
		}
	}))
	defer srv.Close()
	c, err := client.New(client.Options{URL: srv.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Healthz(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = walletapi.NewClient(c).Transfer(t.Context(), "key", walletapi.Transfer{})
	if !errors.Is(err, client.ErrUnknown) || errors.Is(err, client.ErrNotReachable) {
		t.Errorf("the request was sent: %v", err)
	}
}

// A node refuses a user that may not use its socket before it reads a request. Each call returns the
// refusal, however far its request got.
func TestSocketOfAnother(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	var served sync.WaitGroup
	served.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "HTTP/1.1 403 Forbidden\r\nContent-Type: "+wire.ProblemType+
				"\r\nConnection: close\r\nContent-Length: 39\r\n\r\n"+`{"reason":"forbidden","detail":"uid 7"}`)
			_ = conn.Close()
		}
	})
	defer served.Wait()
	defer func() { _ = l.Close() }()
	c, err := client.New(client.Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	told := func(err error) {
		t.Helper()
		if p, ok := errors.AsType[*wire.Problem](err); !ok || p.Status != 403 || p.Detail != "uid 7" {
			t.Fatalf("err = %v, want the refusal", err)
		}
	}
	for range 50 {
		told(c.Healthz(t.Context()))
		_, err := walletapi.NewClient(c).Transfer(t.Context(), "key", walletapi.Transfer{})
		told(err)
	}
}

func TestCanceledCallSaysSo(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := serve(t, func(_ http.ResponseWriter, r *http.Request) {
		cancel()
		<-r.Context().Done()
	}, client.Options{})
	if _, err := c.Head(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want context.Canceled", err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	c := serve(t, func(rw http.ResponseWriter, _ *http.Request) {
		chunk := strings.Repeat(" ", 1<<20)
		for range 5 {
			_, _ = io.WriteString(rw, chunk)
		}
	}, client.Options{})
	if _, err := c.Head(t.Context()); !errors.Is(err, client.ErrTooLarge) || client.Retryable(err) {
		t.Errorf("err = %v, want ErrTooLarge, which no repeat heals", err)
	}
}

func TestRedirectsAreRefused(t *testing.T) {
	hits := 0
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		hits++
		http.Redirect(rw, r, "/elsewhere", http.StatusFound)
	}, client.Options{Token: "secret"})
	for _, call := range []func() error{
		func() error { _, err := c.Head(t.Context()); return err },
		func() error { _, _, err := c.Commit(t.Context(), "p_1"); return err },
		func() error { return c.Stream(t.Context(), client.StreamOptions{}, nil) },
	} {
		hits = 0
		err := call()
		p, ok := errors.AsType[*wire.Problem](err)
		if !ok || p.Status != http.StatusFound || client.Retryable(err) || hits != 1 {
			t.Errorf("err = %v after %d requests, want a final refusal after 1", err, hits)
		}
	}
}

// A stranger that asks for connection after connection gets one at a time, with a pause.
func TestReconnectsKeepADistance(t *testing.T) {
	s := &script{bodies: []string{update(2), update(3)}}
	c := serve(t, s.serve, client.Options{})
	var waits []time.Duration
	err := c.Stream(t.Context(),
		client.StreamOptions{Reconnect: func(_ error, d time.Duration) { waits = append(waits, d) }},
		func(client.Event) error { return nil })
	if err == nil || len(waits) != 2 || slices.Min(waits) < 25*time.Millisecond {
		t.Errorf("err = %v, waited %v", err, waits)
	}
}

func TestCommitTellsAReplay(t *testing.T) {
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || r.URL.Path != "/registry/commit/p_1" {
			t.Errorf("asked %s %s", r.Method, r.URL.Path)
		}
		rw.Header().Set("Idempotent-Replayed", "true")
		_, _ = io.WriteString(rw, `{"version":2}`)
	}, client.Options{})
	out, replayed, err := c.Commit(t.Context(), "p_1")
	if err != nil || !replayed || out.Version != 2 {
		t.Errorf("Commit() = %+v, %v, %v", out, replayed, err)
	}
}

func TestReadyIsAnAnswerWhenNotReady(t *testing.T) {
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.RawQuery != "plane=read&service=registry" {
			t.Errorf("query = %q", r.URL.RawQuery)
		}
		rw.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(rw, `{"ready":false,"missing":["node.starting"]}`)
	}, client.Options{})
	r, err := c.Ready(t.Context(), "registry", "read")
	if err != nil || r.Ready || len(r.Missing) != 1 {
		t.Errorf("Ready() = %+v, %v", r, err)
	}
}

func TestSnapshotLines(t *testing.T) {
	const end = `{"file":"f","manifest":"m","b3":"b3:0","seq":9}` + "\n"
	for _, tt := range []struct {
		doc, body string
		seen      string
		want      string // of the error, "" for none
	}{
		{"progress, then the snapshot", `{"done":1,"total":2}` + "\n" + `{"done":2,"total":2}` + "\n" + end, "1/2 2/2 ", ""},
		{"a problem ends it", `{"problem":{"reason":"store_full","title":"Full"}}` + "\n", "", "store_full"},
		{"cut short", `{"done":1,"total":2}` + "\n" + `{"fi`, "1/2 ", "outcome unknown"},
		{"a line without end", strings.Repeat("x", 1<<17), "", "outcome unknown"},
		{"a line out of bounds", strings.Repeat("x", 2<<20), "", "answer too large"},
	} {
		c := serve(t, func(rw http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(rw, tt.body) },
			client.Options{})
		seen := ""
		s, err := c.Snapshot(t.Context(), nodeapi.SnapshotRequest{Dir: "/d"},
			func(done, total int64) { seen += fmt.Sprintf("%d/%d ", done, total) })
		if seen != tt.seen {
			t.Errorf("%s: progress %q, want %q", tt.doc, seen, tt.seen)
		}
		if tt.want == "" && (err != nil || s.File != "f" || s.Seq != 9) ||
			tt.want != "" && !strings.Contains(fmt.Sprint(err), tt.want) {
			t.Errorf("%s: %+v, %v", tt.doc, s, err)
		}
	}
}

// Once the last line is there, a server that does not hang up is not waited for.
func TestLastLineIsTheEnd(t *testing.T) {
	c := serve(t, func(rw http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(rw, `{"ok":true}`+"\n")
		_ = http.NewResponseController(rw).Flush()
		<-r.Context().Done()
	}, client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if l, err := c.CheckDB(ctx, nil); err != nil || !l.Sound() || ctx.Err() != nil {
		t.Errorf("%+v, %v, %v", l, err, ctx.Err())
	}
}

// A token that cannot stand in a header is told at once, and not shown.
func TestTokens(t *testing.T) {
	for _, token := range []string{"to\nken", "to ken", "tök", "\x00"} {
		if _, err := client.New(client.Options{URL: "http://x", Token: token}); err == nil ||
			strings.Contains(err.Error(), token) {
			t.Errorf("New with token %q: %v", token, err)
		}
	}
}

func TestURLs(t *testing.T) {
	for _, tt := range []struct {
		url string
		ok  bool
	}{
		{"http://127.0.0.1:8080", true}, {"https://node.example/prefix/", true},
		{"", false}, {"127.0.0.1:8080", false}, {"ftp://x", false}, {"http://u:p@x", false}, {"http://x/?a=1", false}, {"http://x/#a", false}, {"http://x?", false}, {"http:x", false}, {"http://x:port", false},
	} {
		if _, err := client.New(client.Options{URL: tt.url}); (err == nil) != tt.ok {
			t.Errorf("New(%q) err = %v, want ok %v", tt.url, err, tt.ok)
		}
	}
}
