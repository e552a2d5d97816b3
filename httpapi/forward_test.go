package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/store"
)

const (
	nodeA = "01ARZ3NDEKTSV4RRFFQ69G5FAA"
	nodeB = "01ARZ3NDEKTSV4RRFFQ69G5FAB"
)

// fakeCluster is a cluster as one of its nodes sees it.
type fakeCluster struct {
	self   string
	leads  atomic.Bool
	leader string // "": none is known
	addr   string // of its peer port
	url    string // of the leader
	peer   http.RoundTripper
	asked  atomic.Int64  // calls of Confirm
	refuse atomic.Bool   // of Confirm
	gone   bool          // removed from the cluster
	copies bool          // of every service
	silent time.Duration // as of Outage; 0: a leader is known
	waits  func(context.Context)
}

func (f *fakeCluster) Self() string            { return f.self }
func (f *fakeCluster) Leads() bool             { return f.leads.Load() }
func (f *fakeCluster) Peer() http.RoundTripper { return f.peer }
func (f *fakeCluster) Removed() bool           { return f.gone }
func (f *fakeCluster) LeaderURL() string       { return f.url }
func (f *fakeCluster) Copies(string) bool      { return f.copies }

func (f *fakeCluster) Outage() (age time.Duration, ok bool) { return f.silent, f.silent > 0 }

func (f *fakeCluster) Leader() (id, addr string, ok bool) { return f.leader, f.addr, f.leader != "" }

func (f *fakeCluster) Confirm(ctx context.Context) error {
	f.asked.Add(1)
	if f.waits != nil {
		f.waits(ctx)
	}
	if f.refuse.Load() {
		return errors.New("a quorum did not answer")
	}
	return nil
}

// clustered makes a rig a node of a cluster.
func clustered(f *fakeCluster) func(*httpapi.Settings, *deps) {
	return func(_ *httpapi.Settings, d *deps) { d.Cluster = f }
}

// pair is node A, which leads, and node B, which forwards to it.
type pair struct {
	a, b     *rig
	inA, inB *fakeCluster
	port     *httptest.Server // the peer port of A
}

// newPair starts the peer port of A, with a certificate of B for every client. wrap may replace its
// handler.
func newPair(t *testing.T, wrap func(http.Handler) http.Handler, change ...func(*httpapi.Settings, *deps)) *pair {
	t.Helper()
	p := &pair{inA: &fakeCluster{self: nodeA, leader: nodeA}, inB: &fakeCluster{self: nodeB, leader: nodeA}}
	p.inA.leads.Store(true)
	p.a = newRig(t, append(change, clustered(p.inA))...)
	h := p.a.PeerHandler(func(*http.Request) string { return nodeB })
	if wrap != nil {
		h = wrap(h)
	}
	p.port = httptest.NewTLSServer(h)
	t.Cleanup(p.port.Close)
	transport := p.port.Client().Transport.(*http.Transport)
	transport.DisableCompression = true
	p.inB.addr, p.inB.peer = p.port.Listener.Addr().String(), transport
	p.b = newRig(t, append(change, clustered(p.inB))...)
	return p
}

// relayedTo answers for A and calls note with each request that it gets.
func relayedTo(note func(*http.Request)) func(http.Handler) http.Handler {
	return func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			note(r)
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Etag", `"b3:9"`)
			_, _ = io.WriteString(w, headBody)
		})
	}
}

func TestRequestsAreAnsweredByTheLeader(t *testing.T) {
	p := newPair(t, nil)
	p.a.reg.moveHead(9)
	w := p.b.do("GET", "/registry/head", "", nil)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"version":9`) {
		t.Errorf("a read: %d %s", w.Code, w.Body)
	}
	if got := p.inA.asked.Load(); got != 1 {
		t.Errorf("%d confirmations of a read", got)
	}
	corr := someULID
	w = p.b.do("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer good", "X-Corr-ID": corr})
	if w.Code != 200 || w.Header().Get("X-Corr-ID") != corr {
		t.Errorf("a write: %d %v %s", w.Code, w.Header(), w.Body)
	}
	if p.a.wal.calls != 1 || p.a.wal.key != someKey || p.a.wal.by.Principal != "alice" || p.b.wal.calls != 0 {
		t.Errorf("A was called %d times by %q with %q, B %d times", p.a.wal.calls, p.a.wal.by.Principal, p.a.wal.key,
			p.b.wal.calls)
	}
	if got := p.inA.asked.Load(); got != 1 {
		t.Errorf("%d confirmations after a write", got)
	}
	w = p.b.do("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer bad"})
	if w.Code != 403 || p.a.wal.calls != 1 {
		t.Errorf("a write without permission: %d %s", w.Code, w.Body)
	}
	if got := len(w.Header().Values("X-Frame-Options")); got != 1 {
		t.Errorf("%d X-Frame-Options", got)
	}
}

func TestHeadIsForwarded(t *testing.T) {
	p := newPair(t, nil)
	get, head := p.b.do("GET", "/registry/head", "", nil), p.b.do("HEAD", "/registry/head", "", nil)
	if head.Code != 200 || head.Body.Len() > 0 || head.Header().Get("Etag") != get.Header().Get("Etag") {
		t.Errorf("HEAD: %d %v, GET: %v", head.Code, head.Header(), get.Header())
	}
}

// Requests are refused while no node leads, and a node that does not lead never forwards what was
// forwarded to it.
func TestNoLeader(t *testing.T) {
	var hits atomic.Int64
	p := newPair(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits.Add(1); h.ServeHTTP(w, r) })
	})
	refused := func(what string) {
		t.Helper()
		for _, w := range []*httptest.ResponseRecorder{
			p.b.do("GET", "/registry/head", "", nil), p.b.do("POST", "/v1/transfer", someTransfer, writer),
			p.b.do("GET", "/v1/balance?account=a", "", writer),
		} {
			got := problemIn(t, w.Body.String())
			if w.Code != 503 || got.Reason != "not_leader" || !got.Retryable || got.Unknown() ||
				w.Header().Get("Retry-After") == "" {
				t.Errorf("%s: %d %+v", what, w.Code, got)
			}
		}
	}
	p.inA.leads.Store(false)
	p.inA.leader, p.inA.addr, p.inA.peer = nodeB, p.inB.addr, p.inB.peer // each takes the other for the leader
	refused("one hop")
	if hits.Load() != 3 {
		t.Errorf("%d requests reached A", hits.Load())
	}
	p.inB.leader = ""
	refused("no leader")
	p.inB.leader = nodeB
	refused("this node, not ready yet")
	p.inB.leader = nodeA
	p.port.Close()
	refused("not reachable")
	if hits.Load() != 3 {
		t.Errorf("%d requests reached A", hits.Load())
	}
}

// A client of a node that was removed is told to try again at another node, before and after the
// node has learned of its removal.
func TestClientsOfARemovedNode(t *testing.T) {
	var p *pair
	p = newPair(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.a.PeerHandler(func(*http.Request) string { return "" }).ServeHTTP(w, r)
		})
	})
	for _, known := range []bool{false, true} {
		p.inB.gone = known
		for _, w := range []*httptest.ResponseRecorder{
			p.b.do("GET", "/registry/head", "", nil), p.b.do("POST", "/v1/transfer", someTransfer, writer),
		} {
			got := problemIn(t, w.Body.String())
			if w.Code != 503 || got.Reason != "not_leader" || !got.Retryable || got.Unknown() ||
				w.Header().Get("Retry-After") == "" {
				t.Errorf("%d %+v", w.Code, got)
			}
		}
	}
	if p.a.wal.calls != 0 {
		t.Error("the leader has done it")
	}
}

// A client cannot pass for another one by the headers of forwarded requests.
func TestHeadersOfClientsAreNotBelieved(t *testing.T) {
	hostile := header{
		"Ronbox-Peer-Uid": "0", "Ronbox-Peer-Scopes": auth.ScopeAdmin, "Ronbox-Peer-Addr": "10.0.0.1",
		"Ronbox-Peer-Inside": "true", "Ronbox-Peer-Scheme": "https", "Ronbox-Peer-New": "x",
	}
	p := newPair(t, nil)
	for name, r := range map[string]*rig{"follower": p.b, "leader": p.a, "alone": newRig(t)} {
		if w := r.do("POST", "/v1/transfer", someTransfer, hostile); w.Code != 401 {
			t.Errorf("%s: a payment without a token: %d %s", name, w.Code, w.Body)
		}
		if w := r.do("GET", "/admin/v1/tokens", "", hostile); w.Code != 404 {
			t.Errorf("%s: a route of the socket: %d %s", name, w.Code, w.Body)
		}
	}
	var got http.Header
	p = newPair(t, relayedTo(func(r *http.Request) { got = r.Header.Clone() }))
	client := &front.Peer{Addr: netip.MustParseAddr("192.0.2.7")}
	p.b.as(client, "GET", "/registry/head", "", hostile)
	want := http.Header{"Ronbox-Peer-Addr": {"192.0.2.7"}, "Ronbox-Peer-Scheme": {"http"}}
	for name := range got {
		if strings.HasPrefix(name, "Ronbox-Peer-") && (len(want[name]) != 1 || got.Get(name) != want.Get(name)) {
			t.Errorf("%s: %q", name, got[name])
		}
	}
}

func TestPeerPortWantsACertificate(t *testing.T) {
	r := newRig(t)
	w := httptest.NewRecorder()
	r.PeerHandler(func(*http.Request) string { return "" }).
		ServeHTTP(w, httptest.NewRequest("GET", "/registry/head", nil))
	if w.Code != 403 {
		t.Errorf("without a certificate: %d", w.Code)
	}
	h := r.PeerHandler(func(*http.Request) string { return nodeB })
	for name, headers := range map[string]header{
		"no scheme": {},
		"a uid":     {"Ronbox-Peer-Scheme": "http", "Ronbox-Peer-Uid": "-1"},
		"an addr":   {"Ronbox-Peer-Scheme": "http", "Ronbox-Peer-Addr": "nowhere"},
	} {
		req := httptest.NewRequest("GET", "/registry/head", nil)
		for k, v := range headers {
			req.Header.Set(k, v)
		}
		w := httptest.NewRecorder()
		if h.ServeHTTP(w, req); w.Code != 400 {
			t.Errorf("%s: %d", name, w.Code)
		}
	}
}

// The leader sees the client of the node that forwards, not the node.
func TestTheClientIsNamed(t *testing.T) {
	p := newPair(t, nil)
	own := uint32(os.Getuid())
	w := p.b.as(&front.Peer{Socket: true, UID: own}, "POST", "/v1/transfer", someTransfer, nil)
	by := p.a.wal.by
	if want := fmt.Sprintf("%s/uid:%d", nodeB, own); w.Code != 200 || by.Principal != want || !by.Admin {
		t.Errorf("a peer of the socket: %d %s by %+v, want %s", w.Code, w.Body, by, want)
	}
	// uid 7 has rights here, but the leader has another user with this number
	w = p.b.socket("POST", "/v1/transfer", someTransfer, nil)
	if w.Code != 403 || p.a.wal.calls != 1 {
		t.Errorf("another uid: %d %s", w.Code, w.Body)
	}
	var peer *front.Peer
	p.a.Override("/registry/head", &httpapi.Route{
		Method: "GET", Pattern: "/registry/head", Service: serviceRegistry, Deadline: time.Second,
		Handle: func(c *httpapi.Request) error {
			peer = front.PeerOf(c.HTTP())
			scheme, host := c.Origin()
			return c.Respond(200, map[string]string{"origin": scheme + "://" + host})
		},
	})
	client := &front.Peer{Addr: netip.MustParseAddr("2001:db8::7")}
	p.b.undescribed = true
	w = p.b.as(client, "GET", "http://wallet.test/registry/head", "", nil)
	if !strings.Contains(w.Body.String(), "http://wallet.test") {
		t.Errorf("origin: %s", w.Body)
	}
	if peer == nil || peer.Addr != client.Addr || peer.Socket || peer.Inside || peer.Relay.Node != nodeB {
		t.Errorf("peer: %+v", peer)
	}
}

func TestDeadlineIsForwarded(t *testing.T) {
	var got http.Header
	p := newPair(t, relayedTo(func(r *http.Request) { got = r.Header.Clone() }))
	p.b.do("GET", "/registry/head", "", header{
		"Request-Timeout": "3", "Deadline": time.Now().Add(time.Hour).Format(time.RFC3339), "Connection": "X-Mine",
		"X-Mine": "1", "Te": "trailers",
	})
	if s, err := strconv.ParseFloat(got.Get("Request-Timeout"), 64); err != nil || s <= 0 || s > 3 {
		t.Errorf("Request-Timeout: %q", got["Request-Timeout"])
	}
	for _, name := range []string{"Deadline", "X-Mine", "Te", "Accept-Encoding", "User-Agent"} {
		if len(got[name]) > 0 {
			t.Errorf("%s: %q", name, got[name])
		}
	}
	got = nil
	w := p.b.do("GET", "/registry/head", "", header{"Deadline": "2020-01-01T00:00:00Z"})
	if w.Code != 504 || got != nil {
		t.Errorf("a past deadline: %d %s, forwarded: %v", w.Code, w.Body, got)
	}
}

// The size of a body is checked before it is forwarded, and while it is.
func TestBodiesAreBoundedBeforeTheyAreForwarded(t *testing.T) {
	var hits atomic.Int64
	p := newPair(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits.Add(1); h.ServeHTTP(w, r) })
	}, func(c *httpapi.Settings, _ *deps) { c.Server.MaxBody = 1 << 10 })
	large := `{"x":"` + strings.Repeat("x", 2<<10) + `"}`
	if w := p.b.do("POST", "/v1/transfer", large, writer); w.Code != 413 || hits.Load() != 0 {
		t.Errorf("with its length: %d %s, %d hits", w.Code, w.Body, hits.Load())
	}
	if w := p.b.do("GET", "/registry/head", large, nil); w.Code != 400 || hits.Load() != 0 {
		t.Errorf("without need: %d %s, %d hits", w.Code, w.Body, hits.Load())
	}
	req := httptest.NewRequest("POST", "/registry/proposals", struct{ io.Reader }{strings.NewReader(large)})
	req.ContentLength = -1
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer good")
	if w := p.b.answer(&front.Peer{}, req); w.Code != 413 {
		t.Errorf("in chunks: %d %s", w.Code, w.Body)
	}
	if p.a.reg.calls != 0 {
		t.Errorf("%d calls of A", p.a.reg.calls)
	}
}

// The outcome of a write is unknown once a part of it was sent. A read may be repeated.
func TestBrokenForwards(t *testing.T) {
	for name, end := range map[string]func(http.ResponseWriter, *http.Request){
		"in its body": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.CopyN(io.Discard, r.Body, 1)
			panic(http.ErrAbortHandler)
		},
		"after its body": func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var hits atomic.Int64
			p := newPair(t, func(http.Handler) http.Handler {
				return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits.Add(1); end(w, r) })
			})
			w := p.b.do("POST", "/v1/transfer", someTransfer, writer)
			got := problemIn(t, w.Body.String())
			if w.Code != 503 || got.Reason != "commit_unknown" || !got.Unknown() || !got.Retryable || hits.Load() != 1 {
				t.Errorf("a write: %d %+v, %d times", w.Code, got, hits.Load())
			}
			w = p.b.do("GET", "/registry/head", "", nil)
			if got = problemIn(t, w.Body.String()); w.Code != 503 || got.Reason != "not_leader" || !got.Retryable {
				t.Errorf("a read: %d %+v", w.Code, got)
			}
		})
	}
}

// A node that does not lead names the one that does in the answers that it forwards and in refusals
// as not_leader. The leader names none.
func TestTheLeaderIsNamed(t *testing.T) {
	const url = "https://a.example:8080"
	p := newPair(t, nil)
	p.inB.url = url
	named := func(doc string, r *rig, target, body, want string, code int) {
		t.Helper()
		method := "GET"
		if body != "" {
			method = "POST"
		}
		w := r.do(method, target, body, writer)
		if got := w.Header()["Ronbox-Leader"]; w.Code != code || strings.Join(got, " ") != want {
			t.Errorf("%s: %d, named %q, want %q: %s", doc, w.Code, got, want, w.Body)
		}
	}
	named("a forwarded read", p.b, "/registry/head", "", url, 200)
	named("a forwarded write", p.b, "/v1/transfer", someTransfer, url, 200)
	named("a forwarded refusal", p.b, "/v1/transfer", "{}", url, 400)
	named("an answer of this node", p.b, "/version", "", "", 200)
	named("a token that only the leader judges", p.b, "/metrics", "", url, 503)
	named("the leader", p.a, "/registry/head", "", "", 200)
	p.inA.leads.Store(false)
	p.inA.url = "https://c.example:8080" // A knows the next leader, B does not
	named("a forward to a node that does not lead any more", p.b, "/registry/head", "", p.inA.url, 503)
	p.port.Close()
	named("a leader that is not reached", p.b, "/registry/head", "", url, 503)
	p.inB.url = ""
	named("a leader without a URL", p.b, "/registry/head", "", "", 503)
}

// net/http repeats a request without a body by itself, if a kept connection ends.
func TestWritesAreNotRepeated(t *testing.T) {
	var hits atomic.Int64
	p := newPair(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet {
				hits.Add(1)
				panic(http.ErrAbortHandler)
			}
			h.ServeHTTP(w, r)
		})
	})
	if w := p.b.do("GET", "/registry/head", "", nil); w.Code != 200 { // its connection is kept
		t.Fatal(w.Code)
	}
	w := p.b.do("POST", "/registry/commit/"+proposal, "", header{
		"Authorization": "Bearer good", "Idempotency-Key": someKey, "X-Idempotency-Key": someKey,
	})
	if got := problemIn(t, w.Body.String()); got.Reason != "commit_unknown" || hits.Load() != 1 {
		t.Errorf("%d %+v, sent %d times", w.Code, got, hits.Load())
	}
}

// A node that cannot confirm that it leads shows nothing that it has read.
func TestReadsAreConfirmed(t *testing.T) {
	f := &fakeCluster{self: nodeA, leader: nodeA}
	f.leads.Store(true)
	r := newRig(t, clustered(f))
	f.refuse.Store(true)
	for _, target := range []string{"/registry/head", "/registry/stream", "/v1/balance?account=a", "/v1/ledger/export"} {
		w := r.do("GET", target, "", writer)
		got := problemIn(t, w.Body.String())
		if w.Code != 503 || got.Reason != "not_leader" || !got.Retryable || w.Header().Get("Etag") != "" ||
			w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v %s", target, w.Code, w.Header(), w.Body)
		}
	}
	if w := r.do("GET", "/registry/head", "", header{"If-None-Match": `"b3:3"`}); w.Code != 503 {
		t.Errorf("a tag: %d", w.Code)
	}
	if w := r.do("HEAD", "/registry/head", "", nil); w.Code != 503 {
		t.Errorf("HEAD: %d", w.Code)
	}
	r.reg.set(httpapi.ErrNoSuch)
	if w := r.do("GET", "/registry/1/payload", "", writer); w.Code != 503 {
		t.Errorf("an absent version: %d %s", w.Code, w.Body)
	}
	if w := r.do("GET", "/registry/head", "", header{"Authorization": "Bearer bad"}); w.Code != 503 {
		t.Errorf("a refused token: %d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/v1/transfer", someTransfer, writer); w.Code != 200 {
		t.Errorf("an accepted write: %d %s", w.Code, w.Body)
	}
	if w := r.do("POST", "/v1/transfer", someTransfer, header{"Authorization": "Bearer bad"}); w.Code != 503 {
		t.Errorf("a refused write: %d %s", w.Code, w.Body)
	}
	before := f.asked.Load()
	for _, target := range []string{"/healthz", "/readyz", "/version", "/openapi.json", "/nowhere"} {
		if w := r.do("GET", target, "", nil); w.Code == 503 {
			t.Errorf("%s: %d", target, w.Code)
		}
	}
	if w := r.socket("GET", "/admin/v1/status", "", nil); w.Code != 200 || f.asked.Load() != before {
		t.Errorf("a local route: %d, confirmed %d times", w.Code, f.asked.Load()-before)
	}
}

// A refusal that comes when the time of the request is over is confirmed all the same.
func TestLateRefusalsAreConfirmed(t *testing.T) {
	f := &fakeCluster{self: nodeA, leader: nodeA}
	f.leads.Store(true)
	f.waits = func(ctx context.Context) { f.refuse.Store(ctx.Err() != nil) }
	r := newRig(t, clustered(f))
	r.Override("/registry/head", &httpapi.Route{
		Method: "GET", Pattern: "/registry/head", Service: serviceRegistry, Deadline: time.Millisecond,
		Handle: func(c *httpapi.Request) error {
			<-c.Context().Done()
			return httpapi.ErrNoSuch
		},
	})
	if w := r.do("GET", "/registry/head", "", nil); w.Code != 404 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if f.asked.Load() == 0 {
		t.Error("it was not confirmed")
	}
}

// A panic of a read is answered, even if the node no longer leads.
func TestPanicsAreAnsweredWithoutConfirmation(t *testing.T) {
	f := &fakeCluster{self: nodeA, leader: nodeA}
	f.leads.Store(true)
	f.refuse.Store(true)
	r := newRig(t, clustered(f))
	r.Override("/registry/head", &httpapi.Route{
		Method: "GET", Pattern: "/registry/head", Service: serviceRegistry, Deadline: time.Second,
		Handle: func(*httpapi.Request) error { panic("boom") },
	})
	if w := r.do("GET", "/registry/head", "", nil); w.Code != 500 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestEventsAreForwarded(t *testing.T) {
	p := newPair(t, nil)
	p.b.listening(t)
	f := p.b.stream(t, "")
	f.want("retry: ", "event: hello")
	if n := p.b.OpenStreams(serviceRegistry).Count(); n != 1 {
		t.Errorf("%v streams of B", n)
	}
	p.a.commit(4)
	f.want("id: 4|event: registry.update")
	p.b.SetGate(httpapi.GateClosed) // ends the stream, though that of the leader stays
	if got := f.next(); got != "" {
		t.Errorf("after the end: %q", got)
	}
	waitFor(t, "end of the stream of A", func() bool { return p.a.OpenStreams(serviceRegistry).Count() == 0 })
}

// A large answer is passed on as it comes.
func TestLargeAnswersAreForwarded(t *testing.T) {
	p := newPair(t, nil)
	part, more := bytes.Repeat([]byte("0123456789abcdef"), 64<<10), make(chan struct{})
	route := &httpapi.Route{
		Method: "GET", Pattern: "/registry/head", Service: serviceRegistry, Deadline: time.Minute, Long: true,
		Handle: func(c *httpapi.Request) error {
			for i := range 8 {
				if i == 4 {
					<-more
				}
				if _, err := c.Write(part); err != nil {
					return err
				}
			}
			return nil
		},
	}
	p.a.Override("/registry/head", route)
	p.b.Override("/registry/head", route)
	p.b.listening(t)
	p.b.undescribed = true
	resp, err := p.b.client.Get(p.b.url + "/registry/head")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	first := make([]byte, len(part))
	if _, err := io.ReadFull(resp.Body, first); err != nil {
		t.Fatal(err)
	}
	close(more)
	rest, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(append(first, rest...), bytes.Repeat(part, 8)) {
		t.Errorf("%d bytes, %v", len(first)+len(rest), err)
	}
}

// An answer that the leader does not finish must not look complete.
func TestTruncatedAnswersAreAborted(t *testing.T) {
	p := newPair(t, func(http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"half":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		})
	})
	p.b.listening(t)
	p.b.undescribed = true
	resp, err := p.b.client.Get(p.b.url + "/registry/head")
	if err != nil {
		return // the header was not sent yet
	}
	defer func() { _ = resp.Body.Close() }()
	if got, err := io.ReadAll(resp.Body); err == nil {
		t.Errorf("complete: %q", got)
	}
}

// The leader refuses a large body before it has come, and the client gets the refusal.
func TestEarlyRefusalsOfLargeBodies(t *testing.T) {
	p := newPair(t, nil, func(c *httpapi.Settings, _ *deps) { c.Server.MaxBody = 8 << 20 })
	p.b.listening(t)
	for range 3 {
		body := strings.NewReader(`{"x":"` + strings.Repeat("x", 7<<20) + `"}`)
		req, _ := http.NewRequestWithContext(t.Context(), "POST", p.b.url+"/v1/transfer", body)
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", someKey)
		resp, err := p.b.client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != 401 || err != nil {
			t.Errorf("%d %s %v", resp.StatusCode, raw, err)
		}
	}
}

// A follower has no tokens, so it judges none.
func TestAFollowerJudgesNoToken(t *testing.T) {
	const noLeader = "No node of the cluster leads"
	p := newPair(t, nil)
	w := p.b.as(&front.Peer{Socket: true, UID: 7}, "GET", "/admin/v1/status", "", writer)
	got := problemIn(t, w.Body.String())
	if w.Code != 503 || got.Reason != "not_leader" || !strings.Contains(got.Detail, "another one leads") {
		t.Errorf("%d %+v", w.Code, got)
	}
	scrape := func() string {
		w := p.b.do("GET", "/metrics", "", writer)
		return problemIn(t, w.Body.String()).Detail
	}
	if hint := scrape(); !strings.Contains(hint, "another one leads") {
		t.Errorf("metrics: %q", hint)
	}
	p.inB.leader = ""
	if hint := scrape(); !strings.Contains(hint, noLeader) {
		t.Errorf("metrics without a leader: %q", hint)
	}
	w = p.b.as(&front.Peer{Socket: true, UID: 7}, "GET", "/admin/v1/status", "", writer)
	if got := problemIn(t, w.Body.String()); w.Code != 503 || !strings.Contains(got.Detail, noLeader) {
		t.Errorf("without a leader: %d %+v", w.Code, got)
	}
	if w := p.b.socket("GET", "/admin/v1/status", "", nil); w.Code != 200 {
		t.Errorf("over the socket: %d %s", w.Code, w.Body)
	}
}

// A node without a leader is not ready. One that was removed says so.
func TestReadyzWithoutALeader(t *testing.T) {
	f := &fakeCluster{self: nodeB}
	r := newRig(t, clustered(f))
	for _, want := range []struct{ missing, cause string }{
		{"cluster.leader", "knows no node that leads"},
		{"cluster.membership", "rejoin --wipe"},
	} {
		w := r.do("GET", "/readyz", "", nil)
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), want.missing) {
			t.Errorf("%d %s, want %s", w.Code, w.Body, want.missing)
		}
		if got := r.Report("", "").Causes[want.missing]; !strings.Contains(got, want.cause) {
			t.Errorf("cause %q, want %q", got, want.cause)
		}
		f.gone = true
	}
}

func TestNotLeaderOfTheStore(t *testing.T) {
	r := newRig(t)
	r.wal.set(fmt.Errorf("queue: %w", store.ErrNotLeader))
	w := r.do("POST", "/v1/transfer", someTransfer, writer)
	if got := problemIn(t, w.Body.String()); w.Code != 503 || got.Reason != "not_leader" {
		t.Errorf("%d %+v", w.Code, got)
	}
}
