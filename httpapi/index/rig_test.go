package index

import (
	"context"
	"crypto/ed25519"
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
	"ronbox/engines/index/name"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/openapi/openapitest"
	"ronbox/httpapi/wire"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// fakeEngine answers from its fields. If err is set, every call returns it.
type fakeEngine struct {
	mu    sync.Mutex
	err   error
	calls int
	hold  chan struct{} // reads wait until it closes
	last  any           // options or arguments of the last call
	set   name.ProviderSet
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

func (f *fakeEngine) Resolve(_ context.Context, k name.Key, o name.ResolveOptions) (name.Answer, error) {
	a := name.Answer{
		Key:      k,
		Manifest: someCID,
		Seq:      7,
		Source:   name.SourceStale,
		Age:      90 * time.Second,
		ETag:     `"` + someCID.String() + `"`,
	}
	if o.Local {
		a.Record = []byte("signed")
	}
	return a, f.call(o)
}

func (f *fakeEngine) Providers(_ context.Context, cid b3.Digest, o name.ProvidersOptions) (name.ProviderSet, error) {
	err := f.call(o)
	out := f.set
	out.CID, out.Source, out.ETag = cid, name.SourcePeer, `"set"`
	return out, err
}

func (f *fakeEngine) Name(_ context.Context, k name.Key) (name.Named, error) {
	return name.Named{Key: k, Manifest: someCID, Seq: 7, UpdatedMS: 8}, f.call(k)
}

func (f *fakeEngine) Names(_ context.Context, prefix, after string, limit int) (name.NamePage, error) {
	k, _ := name.ParseKey("name:docs.example")
	page := name.NamePage{
		Names:   slices.Repeat([]name.Named{{Key: k, Manifest: someCID, Seq: 1}}, limit),
		Next:    k.String(),
		Damaged: []string{"name:x\xff"},
	}
	return page, f.call([]string{prefix, after})
}

func (f *fakeEngine) Peers() []name.PeerStatus {
	return []name.PeerStatus{
		{
			Target:     "a.example:8443",
			Region:     "eu-west-1",
			Breaker:    "open",
			RetryAfter: time.Second,
			Asked:      3,
			Failed:     2,
			LastError:  "x",
		},
	}
}

func (f *fakeEngine) Identity() (name.PeerID, ed25519.PublicKey) {
	return somePeer, make(ed25519.PublicKey, ed25519.PublicKeySize)
}

func (f *fakeEngine) PutName(
	_ context.Context,
	_ engines.Actor,
	k name.Key,
	m b3.Digest,
	_ string,
) (name.Named, bool, error) {
	return name.Named{Key: k, Manifest: m, Seq: 1}, m == someCID, f.call(m)
}

func (f *fakeEngine) DeleteName(_ context.Context, _ engines.Actor, k name.Key, _ string) error {
	return f.call(k)
}

func (f *fakeEngine) ForgetName(_ context.Context, _ engines.Actor, k name.Key, _ string) error {
	return f.call("forget " + k.String())
}

func (f *fakeEngine) Announce(
	_ context.Context,
	_ engines.Actor,
	all []name.Announcement,
	_ string,
) ([]name.Announced, error) {
	out := make([]name.Announced, len(all))
	for i := range out {
		if out[i] = (name.Announced{CID: all[i].CID, Peer: somePeer, ExpiresMS: 9}); all[i].Record != nil {
			out[i] = name.Announced{Err: &name.RecordError{Field: "sig", Reason: "is not by the key of the record"}}
		}
	}
	return out, f.call(all)
}

func (f *fakeEngine) Withdraw(_ context.Context, _ engines.Actor, cid b3.Digest, _ name.PeerID, _ string) error {
	return f.call(cid)
}

func (f *fakeEngine) Reindex(_ context.Context, _ engines.Actor, keys []string, _ string) (int, error) {
	return len(keys), f.call(keys)
}

// fakeAuth accepts one token.
type fakeAuth struct{}

func (fakeAuth) Check(token string, r auth.Request) (engines.Actor, error) {
	if token != "good" {
		return engines.Actor{}, &auth.InvalidError{Stage: "token", Reason: "garbled"}
	}
	return engines.Actor{CapID: "tid", Principal: "alice", Scopes: []string{r.Scope}}, nil
}

// rig is a server with the index alone.
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

// serve starts a server over an engine.
func (r *rig) serve(cfg index.Config, cat *flow.Catalog, e Engine) {
	t, m := r.t, r.metrics
	t.Helper()
	r.limits = NewLimits(cfg, m)
	phase := flow.NewWatch(
		cat,
		flow.Spec{
			Service:   "node",
			Name:      "lifecycle",
			Cap:       1,
			Policy:    flow.LastWins,
			Producers: []string{"supervisor"},
			Consumers: []string{"http"},
		},
		flow.Running,
	)
	def := New(e, r.limits)
	settings := httpapi.Settings{
		Server:   front.DefaultConfig(),
		TLS:      front.DefaultTLSConfig(),
		UDS:      front.DefaultUDSConfig(),
		DrainCap: time.Second,
		Limits:   map[string]httpapi.Limits{service: ServiceLimits(cfg)},
	}
	settings.Server.Bind = "127.0.0.1:0"
	s, err := httpapi.New(settings, httpapi.Deps{
		Version:   "v0",
		Catalog:   cat,
		Metrics:   m,
		Board:     obs.NewBoard(m),
		Auth:      fakeAuth{},
		Lifecycle: phase,
		Info:      func() (v wire.VersionInfo) { return v },
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

// do sends one request with a valid token and validates the answer against the OpenAPI document.
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

// read checks the status and decodes the answer.
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
