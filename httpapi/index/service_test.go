package index

import (
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/index"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/openapi/openapitest"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// fakeEngine answers from its fields; err, when set, is what every call gets.
type fakeEngine struct {
	mu    sync.Mutex
	err   error
	calls int
	hold  chan struct{} // reads wait until it closes
	last  any           // options or arguments of the last call
	set   index.ProviderSet
}

func (f *fakeEngine) call(last any) error {
	f.mu.Lock()
	f.calls++
	f.last = last
	hold, err := f.hold, f.err
	f.mu.Unlock()
	if hold != nil {
		<-hold
	}
	return err
}

func (f *fakeEngine) Resolve(_ context.Context, k index.Key, o index.ResolveOptions) (index.Answer, error) {
	a := index.Answer{Key: k, Manifest: someCID, Seq: 7, Source: index.SourceStale, Age: 90 * time.Second, ETag: `"` + someCID.String() + `"`}
	if o.Local {
		a.Record = []byte("signed")
	}
	return a, f.call(o)
}

func (f *fakeEngine) Providers(_ context.Context, cid b3.Digest, o index.ProvidersOptions) (index.ProviderSet, error) {
	err := f.call(o)
	out := f.set
	out.CID, out.Source, out.ETag = cid, index.SourcePeer, `"set"`
	return out, err
}

func (f *fakeEngine) Name(_ context.Context, k index.Key) (index.Named, error) {
	return index.Named{Key: k, Manifest: someCID, Seq: 7, UpdatedMS: 8}, f.call(k)
}

func (f *fakeEngine) Names(_ context.Context, prefix, after string, limit int) ([]index.Named, error) {
	k, _ := index.ParseKey("name:docs.example")
	return slices.Repeat([]index.Named{{Key: k, Manifest: someCID, Seq: 1}}, limit), f.call([]string{prefix, after})
}

func (f *fakeEngine) Peers() []index.PeerStatus {
	return []index.PeerStatus{{Target: "a.example:8443", Region: "eu-west-1", Breaker: "open", RetryAfter: time.Second, Asked: 3, Failed: 2, LastError: "x"}}
}

func (f *fakeEngine) Identity() (index.PeerID, ed25519.PublicKey) {
	return somePeer, make(ed25519.PublicKey, ed25519.PublicKeySize)
}

func (f *fakeEngine) PutName(_ context.Context, _ engines.Actor, k index.Key, m b3.Digest, _ string) (index.Named, bool, error) {
	return index.Named{Key: k, Manifest: m, Seq: 1}, m == someCID, f.call(m)
}

func (f *fakeEngine) DeleteName(_ context.Context, _ engines.Actor, k index.Key, _ string) error {
	return f.call(k)
}

func (f *fakeEngine) ForgetName(_ context.Context, _ engines.Actor, k index.Key, _ string) error {
	return f.call("forget " + k.String())
}

func (f *fakeEngine) Announce(_ context.Context, _ engines.Actor, all []index.Announcement, _ string) ([]index.Announced, error) {
	out := make([]index.Announced, len(all))
	for i := range out {
		if out[i] = (index.Announced{CID: all[i].CID, Peer: somePeer, ExpiresMS: 9}); all[i].Record != nil {
			out[i] = index.Announced{Err: &index.RecordError{Field: "sig", Reason: "is not by the key of the record"}}
		}
	}
	return out, f.call(all)
}

func (f *fakeEngine) Withdraw(_ context.Context, _ engines.Actor, cid b3.Digest, _ index.PeerID, _ string) error {
	return f.call(cid)
}

func (f *fakeEngine) Reindex(_ context.Context, _ engines.Actor, keys []string, _ string) (int, error) {
	return len(keys), f.call(keys)
}

// fakeAuth takes one token.
type fakeAuth struct{}

func (fakeAuth) Check(token string, r auth.Request) (engines.Actor, error) {
	if token != "good" {
		return engines.Actor{}, &auth.InvalidError{Stage: "token", Reason: "garbled"}
	}
	return engines.Actor{CapID: "tid", Principal: "alice", Scopes: []string{r.Scope}}, nil
}

// rig is a server of the index alone.
type rig struct {
	t       testing.TB
	url     string
	client  *http.Client
	routes  []httpapi.Route
	engine  *fakeEngine
	limits  *Limits
	metrics *obs.Metrics
	doc     *openapitest.Checker
}

func newRig(t testing.TB, change ...func(*index.Config)) *rig {
	t.Helper()
	cfg := index.DefaultConfig()
	for _, f := range change {
		f(&cfg)
	}
	m := obs.NewMetrics()
	r := &rig{t: t, engine: &fakeEngine{}, metrics: m}
	r.serve(cfg, flow.NewCatalog(m, nil), r.engine)
	return r
}

// serve puts a server before an engine.
func (r *rig) serve(cfg index.Config, cat *flow.Catalog, e Engine) {
	t, m := r.t, r.metrics
	t.Helper()
	r.limits = NewLimits(cfg, m)
	phase := flow.NewWatch(cat, flow.Spec{Service: "node", Name: "lifecycle", Cap: 1, Policy: flow.LastWins, Producers: []string{"supervisor"}, Consumers: []string{"http"}}, flow.Running)
	def := New(e, r.limits)
	settings := httpapi.Settings{
		Server: front.DefaultConfig(), TLS: front.DefaultTLSConfig(), UDS: front.DefaultUDSConfig(), DrainCap: time.Second,
		Limits: map[string]httpapi.Limits{service: ServiceLimits(cfg)},
	}
	settings.Server.Bind = "127.0.0.1:0"
	s, err := httpapi.New(settings, httpapi.Deps{
		Version: "v0", Catalog: cat, Metrics: m, Board: obs.NewBoard(m), Auth: fakeAuth{}, Lifecycle: phase, Info: func() (v wire.VersionInfo) { return v },
	}, def)
	if err != nil {
		t.Fatal(err)
	}
	r.routes = def.Routes
	r.listen(s)
	r.doc = openapitest.New(t, r.do(http.MethodGet, "/openapi.json", "", nil).Body.Bytes())
}

// listen runs the server until the end of the test.
func (r *rig) listen(s *httpapi.Server) {
	s.SetGate(httpapi.GateOpen)
	if err := s.Listen(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, task := range s.Tasks() {
		tasks.Go(func() { _ = task.Run(ctx) })
	}
	r.url, r.client = "http://"+s.Addr(), &http.Client{Transport: &http.Transport{DisableCompression: true}}
	r.t.Cleanup(func() {
		r.client.CloseIdleConnections()
		stop, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = s.Shutdown(stop)
		cancel()
		tasks.Wait()
	})
}

// do runs one request with a token that is good, and holds the answer against the document.
func (r *rig) do(method, target, body string, h http.Header) *httptest.ResponseRecorder {
	req, err := http.NewRequestWithContext(context.Background(), method, r.url+target, strings.NewReader(body))
	if err != nil {
		r.t.Fatal(err)
	}
	if req.Header.Set("Authorization", "Bearer good"); body != "" {
		req.Header.Set("Content-Type", httpapi.TypeJSON)
	}
	for k, v := range h {
		req.Header[k] = v
	}
	resp, err := r.client.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	w := httptest.NewRecorder()
	w.Code = resp.StatusCode
	maps.Copy(w.Header(), resp.Header)
	if _, err := io.Copy(w.Body, resp.Body); err != nil {
		r.t.Error(err)
	}
	if r.doc != nil {
		r.doc.Response(r.t, req, w.Code, w.Header(), w.Body.Bytes())
	}
	return w
}

// read wants a status and decodes the answer.
func read[T any](r *rig, w *httptest.ResponseRecorder, status int) (out T) {
	r.t.Helper()
	if w.Code != status {
		r.t.Fatalf("status %d, want %d: %s", w.Code, status, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &out); err != nil {
		r.t.Fatalf("%v: %s", err, w.Body)
	}
	return out
}

func TestResolveRoute(t *testing.T) {
	r := newRig(t)
	for _, key := range []string{"name:docs.example", "name:Docs.Example.", "name:docs.example@1.2.0", someB3, index.CIDText(someCID)} {
		w := r.do(http.MethodGet, "/resolve/"+key, "", nil)
		got := read[Resolved](r, w, http.StatusOK)
		if got.Manifest != someCID.String() || got.Source != "stale" || got.Age != 90 || got.ETag != someCID.String() || got.Record != nil {
			t.Errorf("%s: %+v", key, got)
		}
		again := r.do(http.MethodGet, "/resolve/"+key, "", http.Header{"If-None-Match": {w.Header().Get("Etag")}})
		if again.Code != http.StatusNotModified || again.Body.Len() > 0 {
			t.Errorf("%s again: %d %s", key, again.Code, again.Body)
		}
	}
	if got := read[Resolved](r, r.do(http.MethodGet, "/resolve/name:docs.example", "", http.Header{hopHeader: {"0"}}), http.StatusOK); string(got.Record) != "signed" {
		t.Errorf("another node gets %+v", got)
	}
	if r.do(http.MethodGet, "/resolve/name:docs.example?fresh=1", "", nil); r.engine.last != (index.ResolveOptions{Fresh: true, From: index.Caller{Network: loopback, Cost: 1}}) {
		t.Errorf("asked with %+v", r.engine.last)
	}
}

// What is malformed is refused before the engine is asked.
func TestMalformedRequests(t *testing.T) {
	r := newRig(t)
	long := strings.Repeat("a", 64)
	for _, tt := range []struct {
		method, target, body string
		status               int
		field                string
	}{
		{"GET", "/resolve/name:a_b", "", 400, "key"},
		{"GET", "/resolve/name:..", "", 400, "key"},
		{"GET", "/resolve/name:" + long, "", 400, "key"},
		{"GET", "/resolve/name:a@1", "", 400, "key"},
		{"GET", "/resolve/name:a@1.0.0+x", "", 400, "key"},
		{"GET", "/resolve/docs.example", "", 400, "key"},
		{"GET", "/resolve/b3:" + strings.ToUpper(long), "", 400, "key"},
		{"GET", "/resolve/name:a?fresh=yes", "", 400, "fresh"},
		{"GET", "/resolve/name:a?later=1", "", 400, ""},
		{"GET", "/providers/b3:00", "", 400, "cid"},
		{"GET", "/providers/" + long, "", 400, "cid"},
		{"GET", "/providers/" + someB3 + "?limit=33", "", 400, "limit"},
		{"GET", "/providers/" + someB3 + "?region=EU", "", 400, "region"},
		{"GET", "/routing/v1/providers/nonsense", "", 400, "cid"},
		{"PUT", "/index/names/name:a", `{"manifest":"b3:00"}`, 400, "manifest"},
		{"PUT", "/index/names/name:a", `{"manifest":"` + someB3 + `","more":1}`, 400, "more"},
		{"PUT", "/index/names/name:a", `{}`, 400, "manifest"},
		{"PUT", "/index/names/name:a", ``, 415, ""},
		{"POST", "/index/providers", `{"providers":[]}`, 400, "providers"},
		{"POST", "/index/providers", `{"providers":[{"cid":"x","addrs":["/ip4/192.0.2.1"]}]}`, 400, "providers.0.cid"},
		{"POST", "/index/providers", `{"providers":[{"cid":"` + someB3 + `","record":"AAAA"}]}`, 400, "providers.0"},
		{"POST", "/index/providers", `{"providers":[{"cid":"` + someB3 + `","ttl_s":99999999999}]}`, 400, "providers.0.ttl_s"},
		{"POST", "/index/providers", `{"providers":[` + strings.Repeat(`{},`, index.MaxAnnouncements) + `{}]}`, 400, "providers"},
		{"POST", "/index/reindex", `{"keys":[]}`, 400, "keys"},
		{"DELETE", "/index/providers/b3:00", "", 400, "cid"},
		{"GET", "/index/names?limit=1001", "", 400, "limit"},
		{"GET", "/resolve/", "", 404, ""},
		{"GET", "/resolve/a/b", "", 404, ""},
		{"POST", "/resolve/name:a", "", 405, ""},
	} {
		w := r.do(tt.method, tt.target, tt.body, nil)
		p := read[wire.Problem](r, w, tt.status)
		if got, _ := p.Details["field"].(string); got != tt.field && tt.field != "" {
			t.Errorf("%s %s %s: field %q, want %q: %s", tt.method, tt.target, tt.body, got, tt.field, w.Body)
		}
	}
	if r.engine.calls > 0 {
		t.Errorf("the engine was asked %d times", r.engine.calls)
	}
}

// Each error of the engine has a status, a reason and a wait, and is told without what the caller sent.
func TestErrors(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		err    error
		status int
		reason string
		retry  bool
		waits  bool
	}{
		{index.ErrNotFound, 404, "not_found", false, false},
		{index.ErrTimeout, 504, "timeout", true, false},
		{index.ErrUpstream, 503, "upstream", true, true},
		{&index.BreakerOpenError{RetryAfter: time.Second}, 503, "breaker_open", true, true},
		{&index.ConflictError{Has: someCID}, 409, "conflict", false, false},
		{&index.RecordError{Field: "addrs", Reason: "x"}, 400, "malformed", false, false},
		{flow.ErrBusy, 429, "busy", true, true},
		{&index.RateError{Wait: time.Second}, 429, "rate_limit", true, true},
		{&store.RowError{Bucket: "index/name", Key: []byte("name:docs.example"), Cause: errors.New("x")}, 500, "corrupt", false, false},
		{flow.ErrClosed, 503, "draining", true, true},
		{flow.ErrCanceled, 503, "canceled", true, true},
		{index.ErrInternal, 500, "internal", false, false},
		{errors.New("a bug"), 500, "internal", false, false},
	} {
		r.engine.err = fmt.Errorf("wrapped: %w", tt.err)
		for _, at := range []string{"/resolve/name:docs.example", "/providers/" + someB3} {
			method, body := http.MethodGet, ""
			if tt.status == http.StatusConflict { // writes alone meet it
				method, at, body = http.MethodPut, "/index/names/name:docs.example@1.0.0", `{"manifest":"`+someB3+`"}`
			}
			w := r.do(method, at, body, nil)
			p := read[wire.Problem](r, w, tt.status)
			if p.Reason != tt.reason || p.Retryable != tt.retry || (w.Header().Get("Retry-After") != "") != tt.waits || p.Service != service {
				t.Errorf("%v: %s", tt.err, w.Body)
			}
		}
	}
}

func TestProvidersRoutes(t *testing.T) {
	r := newRig(t)
	r.engine.set.Providers = []index.Provider{
		{Peer: somePeer, Addrs: []string{someAddr}, Region: "eu-west-1", Verified: true, ExpiresMS: 9, Record: []byte("signed")},
		{Peer: somePeer, Addrs: []string{}},
	}
	got := read[Providers](r, r.do(http.MethodGet, "/providers/"+someB3+"?region=eu-west-1&limit=7", "", nil), http.StatusOK)
	if len(got.Providers) != 2 || got.CID != someB3 || got.Source != "peer" || !got.Providers[0].Valid || got.Providers[0].ExpiresMS != 9 {
		t.Errorf("providers: %+v", got)
	}
	if r.engine.last != (index.ProvidersOptions{Region: "eu-west-1", Limit: 7, From: index.Caller{Network: loopback, Cost: 1}}) {
		t.Errorf("asked with %+v", r.engine.last)
	}
	target := "/routing/v1/providers/" + someB3 + "?filter-addrs=quic&whatever=1"
	w := r.do(http.MethodGet, target, "", http.Header{hopHeader: {"0"}})
	doc := read[Routing](r, w, http.StatusOK)
	if len(doc.Providers) != 2 || doc.Providers[0].Schema != "peer" || doc.Providers[0].ID != somePeer || string(doc.Providers[0].Ron) != "signed" || doc.Providers[1].Ron != nil {
		t.Errorf("routing: %+v", doc)
	}
	if w.Header().Get("Access-Control-Allow-Origin") != "*" || !slices.Contains(w.Header()["Vary"], "Accept") {
		t.Errorf("headers: %v", w.Header())
	}
	w = r.do(http.MethodGet, target, "", http.Header{"Accept": {"application/x-ndjson, application/json;q=0.5"}})
	lines := strings.Split(strings.TrimSpace(w.Body.String()), "\n")
	var one PeerRecord
	if err := json.Unmarshal([]byte(lines[0]), &one); err != nil || len(lines) != 2 || one.ID != somePeer || w.Header().Get("Content-Type") != httpapi.TypeLines {
		t.Errorf("lines: %v, %q", err, lines)
	}
	// Nobody known is an empty answer by that standard, and so is a hash of another kind.
	r.engine.err, r.engine.set = index.ErrNotFound, index.ProviderSet{}
	for _, cid := range []string{someB3, "bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi"} {
		w = r.do(http.MethodGet, "/routing/v1/providers/"+cid, "", nil)
		if doc := read[Routing](r, w, http.StatusOK); doc.Providers == nil || len(doc.Providers) > 0 {
			t.Errorf("%s: %s", cid, w.Body)
		}
		if w = r.do(http.MethodGet, "/providers/"+cid, "", nil); w.Code != http.StatusNotFound {
			t.Errorf("%s: %d", cid, w.Code)
		}
	}
}

func TestWriteRoutes(t *testing.T) {
	r := newRig(t)
	put := func(m string) int {
		w := r.do(http.MethodPut, "/index/names/name:docs.example", `{"manifest":"`+m+`"}`, nil)
		return w.Code
	}
	if a, b := put(someCID.String()), put(someB3); a != http.StatusCreated || b != http.StatusOK {
		t.Errorf("new %d, changed %d", a, b)
	}
	if w := r.do(http.MethodDelete, "/index/names/name:docs.example", "", nil); w.Code != http.StatusNoContent {
		t.Errorf("delete: %d", w.Code)
	}
	w := r.do(http.MethodPost, "/index/providers", `{"providers":[{"cid":"`+someB3+`","addrs":["`+someAddr+`"],"ttl_s":60},{"record":"AAAA"}]}`, nil)
	got := read[AnnounceResults](r, w, http.StatusOK)
	if len(got.Results) != 2 || !got.Results[0].Accepted || got.Results[0].CID != someB3 || got.Results[1].Accepted || got.Results[1].Reason == "" {
		t.Errorf("announce: %s", w.Body)
	}
	if w := r.do(http.MethodDelete, "/index/providers/"+someB3, "", nil); w.Code != http.StatusNoContent {
		t.Errorf("withdraw: %d", w.Code)
	}
	if got := read[Reindexed](r, r.do(http.MethodPost, "/index/reindex", `{"keys":["name:a","name:b"]}`, nil), http.StatusAccepted); got.Queued != 2 {
		t.Errorf("reindex: %+v", got)
	}
	if got := read[NameList](r, r.do(http.MethodGet, "/index/names?prefix=name:&limit=2", "", nil), http.StatusOK); len(got.Names) != 2 || got.Next != "name:docs.example" {
		t.Errorf("names: %+v", got)
	}
	if got := read[NameRow](r, r.do(http.MethodGet, "/index/names/name:docs.example", "", nil), http.StatusOK); got.Seq != 7 {
		t.Errorf("name: %+v", got)
	}
	if got := read[PeerList](r, r.do(http.MethodGet, "/index/peers", "", nil), http.StatusOK); len(got.Peers) != 1 || got.Peers[0].RetryAfterMS != 1000 {
		t.Errorf("peers: %+v", got)
	}
	if got := read[NodeIdentity](r, r.do(http.MethodGet, "/index/identity", "", nil), http.StatusOK); got.Peer != somePeer || len(got.Key) != 64 {
		t.Errorf("identity: %+v", got)
	}
}

// Reads need no token; a write without one reaches neither body nor engine.
func TestWhoMay(t *testing.T) {
	r := newRig(t)
	nobody := http.Header{"Authorization": nil}
	for _, route := range r.routes {
		target := strings.NewReplacer(":key", "name:docs.example", ":cid", someB3).Replace(route.Pattern)
		w := r.do(route.Method, target, "", nobody)
		if route.Method == http.MethodGet && w.Code != http.StatusOK || route.Method != http.MethodGet && w.Code != http.StatusUnauthorized {
			t.Errorf("%s %s for nobody: %d", route.Method, route.Pattern, w.Code)
		}
		if route.Writes() == (route.Scope == "") {
			t.Errorf("%s %s has the scope %q", route.Method, route.Pattern, route.Scope)
		}
	}
}

// Each route has slots of its own: one that is full refuses at once, and the others go on.
func TestSlotsOfARoute(t *testing.T) {
	r := newRig(t)
	r.limits.inflight.Store(2)
	r.engine.hold = make(chan struct{})
	var inside sync.WaitGroup
	for range 2 {
		inside.Go(func() {
			if w := r.do(http.MethodGet, "/resolve/name:docs.example", "", nil); w.Code != http.StatusOK {
				t.Errorf("inside: %d", w.Code)
			}
		})
	}
	for full := false; !full; { // the two are on their way
		r.engine.mu.Lock()
		full = r.engine.calls == 2
		r.engine.mu.Unlock()
	}
	p := read[wire.Problem](r, r.do(http.MethodGet, "/resolve/name:docs.example", "", nil), http.StatusTooManyRequests)
	if p.Reason != "inflight" || !p.Retryable {
		t.Errorf("the third: %+v", p)
	}
	if w := r.do(http.MethodGet, "/index/peers", "", nil); w.Code != http.StatusOK {
		t.Errorf("another route: %d", w.Code)
	}
	close(r.engine.hold)
	inside.Wait()
	r.engine.mu.Lock()
	r.engine.hold = nil
	r.engine.mu.Unlock()
	if w := r.do(http.MethodGet, "/resolve/name:docs.example", "", nil); w.Code != http.StatusOK {
		t.Errorf("afterwards: %d", w.Code)
	}
	if got := scrape(t, r.metrics); !strings.Contains(got, `busy_rejections_total{endpoint="",route="/resolve/:key",service="index"} 1`) {
		t.Errorf("not counted: %s", got)
	}
}

func TestQuotasAndRates(t *testing.T) {
	r := newRig(t, func(c *index.Config) { c.Quotas.ResolvesPerMin = 3 })
	statuses := func(at string, n int) (refused int) {
		for range n {
			if w := r.do(http.MethodGet, at, "", nil); w.Code == http.StatusTooManyRequests {
				refused++
			}
		}
		return refused
	}
	if n := statuses("/resolve/name:docs.example", 5); n != 2 {
		t.Errorf("%d of 5 were refused by a quota of 3", n)
	}
	if n := statuses("/providers/"+someB3, 5); n != 0 {
		t.Errorf("the quota of another kind refused %d", n)
	}
	if got := scrape(t, r.metrics); !strings.Contains(got, `quota_exhaustions_total{dimension="resolves_per_min",service="index"} 2`) {
		t.Errorf("not counted: %s", got)
	}
	r = newRig(t, func(c *index.Config) { c.Quotas.ProvidersPerMin = 3 })
	if n := statuses("/providers/"+someB3, 2) + statuses("/routing/v1/providers/"+someB3, 3); n != 2 {
		t.Errorf("%d of 5 were refused by a quota of 3 over both routes of providers", n)
	}
	if got := scrape(t, r.metrics); !strings.Contains(got, `quota_exhaustions_total{dimension="providers_per_min",service="index"} 2`) {
		t.Errorf("not counted: %s", got)
	}
	r = newRig(t, func(c *index.Config) { c.RateLimit = index.RateLimitConfig{RPS: 1, Burst: 4} })
	if n := statuses("/resolve/name:docs.example", 4); n != 0 {
		t.Errorf("%d of 4 were refused by a bucket of 4", n)
	}
	refused := 0
	for n := 0; refused == 0 && n < 50; n++ { // a machine that is busy may ask no more than once a second for a while
		refused = statuses("/resolve/name:docs.example", 1)
	}
	if refused == 0 {
		t.Error("a bucket that is empty refuses nothing")
	}
}

// scrape is what /metrics shows.
func scrape(t *testing.T, m *obs.Metrics) string {
	t.Helper()
	w := httptest.NewRecorder()
	m.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

// No body makes the node fail or lets the engine see what was not asked for.
func FuzzDTOJSON(f *testing.F) {
	for _, s := range []string{
		`{"manifest":"` + someB3 + `"}`, `{"providers":[{"cid":"` + someB3 + `","addrs":["` + someAddr + `"],"ttl_s":60}]}`, `{"providers":[{"record":"AAAA"}]}`,
		`{"keys":["name:a"]}`, `{"keys":["a"],"x":1}`, `{"keys":null}`, `{"manifest":1e999}`, `{`, ``, `[]`, "\xff", strings.Repeat(`{"keys":[`, 40),
	} {
		f.Add(s)
	}
	r := newRig(f)
	f.Fuzz(func(t *testing.T, body string) {
		for _, at := range [][2]string{{"PUT", "/index/names/name:docs.example"}, {"POST", "/index/providers"}, {"POST", "/index/reindex"}} {
			r.t = t
			before := r.engine.calls
			w := r.do(at[0], at[1], body, nil)
			ok := w.Code >= 200 && w.Code < 300
			if !ok && (w.Code < 400 || w.Code >= 500) || ok != (r.engine.calls == before+1) {
				t.Errorf("%v %q: %d after %d calls", at, body, w.Code, r.engine.calls-before)
			}
		}
	})
}

// Bodies are bounded as they are sent, and as they unfold.
func TestBodyBombs(t *testing.T) {
	r := newRig(t)
	big := `{"keys":["` + strings.Repeat("a", 1<<20) + `"]}`
	if w := r.do(http.MethodPost, "/index/reindex", big, nil); w.Code != http.StatusRequestEntityTooLarge {
		t.Errorf("1 MiB and more: %d", w.Code)
	}
	if w := r.do(http.MethodPost, "/index/reindex", gzipped(t, big[:1<<19]), http.Header{"Content-Encoding": {"gzip"}}); w.Code != http.StatusBadRequest {
		t.Errorf("a body that unfolds by far more than 10: %d", w.Code)
	}
	if r.engine.calls > 0 {
		t.Error("the engine was asked")
	}
}

func gzipped(t *testing.T, s string) string {
	t.Helper()
	var out strings.Builder
	w := gzip.NewWriter(&out)
	if _, err := w.Write([]byte(s)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// A fresh lookup without a token costs ten of the rate; with one, or not fresh, it costs one. A node that asks for
// itself alone does not leave this node.
func TestFreshCostsMoreWithoutAToken(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		query, token string
		cost         int
	}{{"", "", 1}, {"?fresh=0", "", 1}, {"?fresh=1", "", freshCost}, {"?fresh=1", "Bearer bad", freshCost}, {"?fresh=1", "Bearer good", 1}} {
		header := http.Header{"Authorization": {tt.token}}
		if tt.token == "" {
			header = http.Header{"Authorization": nil}
		}
		r.do(http.MethodGet, "/resolve/name:docs.example"+tt.query, "", header)
		if got := r.engine.last.(index.ResolveOptions).From; got != (index.Caller{Network: loopback, Cost: tt.cost}) {
			t.Errorf("resolve%s %s: %+v", tt.query, tt.token, got)
		}
		r.do(http.MethodGet, "/providers/"+someB3+tt.query, "", header)
		if got := r.engine.last.(index.ProvidersOptions).From; got.Cost != tt.cost {
			t.Errorf("providers%s %s: %+v", tt.query, tt.token, got)
		}
	}
}

// The rate of misses is each network's own, holds twice as many at once, and is off at 0; the rate of reads is charged
// for a fresh lookup too.
func TestRatesOfANetwork(t *testing.T) {
	l := NewLimits(index.DefaultConfig(), obs.NewMetrics())
	took := 0
	for ok := true; ok && took < 1000; took++ {
		ok, _ = l.Admit(loopback, 1)
	}
	if took < 200 || took > 300 {
		t.Errorf("%d at once", took)
	}
	if ok, wait := l.Admit(loopback, 1); ok || wait <= 0 {
		t.Errorf("%t, %v", ok, wait)
	}
	if ok, _ := l.Admit(netip.MustParseAddr("127.0.0.2"), freshCost); !ok {
		t.Error("another network is refused")
	}
	off := index.DefaultConfig()
	off.RateLimit.MissRPS = 0
	l.Set(off)
	if ok, _ := l.Admit(loopback, 1000); !ok {
		t.Error("refused while it is off")
	}
	r := newRig(t, func(c *index.Config) { c.RateLimit = index.RateLimitConfig{RPS: 1, Burst: 15} })
	for i, want := range []int{200, 429} {
		if w := r.do(http.MethodGet, "/resolve/name:docs.example?fresh=1", "", http.Header{"Authorization": nil}); w.Code != want {
			t.Errorf("%d: %d", i, w.Code)
		}
	}
}

// Writes have a rate by default, which index.ratelimit.rps lowers.
func TestWritesHaveARate(t *testing.T) {
	for _, tt := range []struct{ put, rps, want int }{{500, 0, 500}, {500, 10, 10}, {500, 900, 500}, {0, 10, 10}, {0, 0, 0}} {
		c := index.DefaultConfig()
		c.RateLimit.PutRPS, c.RateLimit.RPS, c.RateLimit.Burst = tt.put, tt.rps, tt.rps
		if got := ServiceLimits(c).PerIP.RPS; got != tt.want {
			t.Errorf("%+v: %d", tt, got)
		}
	}
}

func TestForgetRoute(t *testing.T) {
	r := newRig(t)
	if w := r.do(http.MethodDelete, "/index/names/name:docs.example?forget=1", "", nil); w.Code != http.StatusNoContent || r.engine.last != "forget name:docs.example" {
		t.Errorf("%d, %v", w.Code, r.engine.last)
	}
	if r.do(http.MethodDelete, "/index/names/name:docs.example?forget=0", "", nil); r.engine.last == "forget name:docs.example" {
		t.Error("forgotten unasked")
	}
}
