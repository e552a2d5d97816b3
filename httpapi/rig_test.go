package httpapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Values of their kinds.
const (
	someULID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	proposal = "p_" + someULID
	someTime = "2026-01-01T00:00:00.000Z"
	someB3   = "b3:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	someRoot = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
)

// fakeRegistry answers from its fields; err, when set, is what every call gets.
type fakeRegistry struct {
	RegistryReader
	mu     sync.Mutex
	head   registry.HeadView
	err    error
	replay bool
	wait   bool // until the context ends
	calls  int
	actor  engines.Actor
	since  func(after uint64, limit int) ([]registry.Event, error)
	bus    *flow.Broadcast[registry.Event]
}

func (f *fakeRegistry) call(ctx context.Context, by engines.Actor) error {
	f.mu.Lock()
	f.calls++
	f.actor = by
	err, wait := f.err, f.wait
	f.mu.Unlock()
	if wait {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	return err
}

func (f *fakeRegistry) set(err error) { f.mu.Lock(); f.err = err; f.mu.Unlock() }
func (f *fakeRegistry) moveHead(v uint64) {
	f.mu.Lock()
	f.head = headView(v)
	f.mu.Unlock()
}

func headView(v uint64) registry.HeadView {
	return registry.HeadView{
		Head: record.Head{Version: v}, MinVersion: 1, Incarnation: "01INCARNATION",
		JSON: []byte(headJSON(v) + "\n"), ETag: `"b3:` + formatUint(v) + `"`,
	}
}

func headJSON(v uint64) string {
	return fmt.Sprintf(`{"version":%d,"payload_b3":%q,"committed_at":%q,"hash":%q,"epoch":1,"min_version":1,"checkpoint_size":0,`+
		`"incarnation":"01INCARNATION"}`, v, someB3, someTime, someB3)
}

func versionJSON(v uint64, items string) string {
	return fmt.Sprintf(`{"schema_version":"1.0.0","version":%d,%s"payload_b3":%q,"approvals":[],"prev_hash":%q,"committed_at":%q,`+
		`"hash":%q,"kind":"update","items_root":%q,"epoch":1}`, v, items, someB3, someB3, someTime, someB3, someRoot)
}

func (f *fakeRegistry) Head() *registry.HeadView {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.head
	return &h
}

func (f *fakeRegistry) Version(ctx context.Context, v uint64, items bool) (registry.VersionDoc, error) {
	body := versionJSON(v, "")
	if items {
		body = versionJSON(v, `"items":[],`)
	}
	return registry.VersionDoc{Version: v, Body: []byte(body), ETag: `"v` + formatUint(v) + `"`}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) PayloadBytes(ctx context.Context, v uint64) ([]byte, error) {
	return []byte(`{"payload":` + formatUint(v) + `}`), f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) EntryBytes(ctx context.Context, v uint64) ([]byte, error) {
	return []byte(`{"entry":` + formatUint(v) + `}`), f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Status(ctx context.Context, v uint64) (registry.VersionStatus, error) {
	return registry.VersionStatus{CoveredBy: v}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Diff(ctx context.Context, _, _ uint64) (registry.Diff, error) {
	return registry.Diff{Put: []record.Item{{ID: "a", Bytes: []byte(`{"id":"a"}`)}}, Remove: []string{"b"}}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Proposals(ctx context.Context, cursor string, limit int) (registry.ProposalList, error) {
	p := pending(proposal)
	p.Version = uint64(limit)
	return registry.ProposalList{Proposals: []registry.Proposal{p}, Next: cursor}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Proposal(ctx context.Context, id string) (registry.Proposal, error) {
	return pending(id), f.call(ctx, engines.Actor{})
}

func pending(id string) registry.Proposal {
	return registry.Proposal{
		ID: id, State: registry.StatePending, Kind: "update", Mode: "full", CreatedAt: someTime, ExpiresAt: someTime, ItemsRoot: someRoot,
	}
}

func (f *fakeRegistry) ProposalPayload(ctx context.Context, _ string) ([]byte, error) {
	return []byte(`{"type":"x"}`), f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Propose(ctx context.Context, by engines.Actor, _ []byte, _, _ string) (registry.Proposed, error) {
	return registry.Proposed{ID: proposal, ExpiresAt: "2026-01-01T00:00:00Z", Replayed: f.replay}, f.call(ctx, by)
}

func (f *fakeRegistry) Approve(ctx context.Context, by engines.Actor, _ string, _ record.Approval, _ string) (registry.Approved, error) {
	return registry.Approved{Approvals: 1, Quorum: registry.Quorum{M: 1, N: 2}}, f.call(ctx, by)
}

func (f *fakeRegistry) Commit(ctx context.Context, by engines.Actor, _, _ string) (registry.Committed, error) {
	return registry.Committed{Version: 2, CommittedAt: someTime, Replayed: f.replay}, f.call(ctx, by)
}

func (f *fakeRegistry) Withdraw(ctx context.Context, by engines.Actor, _, _ string) error {
	return f.call(ctx, by)
}

func (f *fakeRegistry) Genesis(ctx context.Context, by engines.Actor, _ []byte, _ []record.Approval, _ string) (registry.Committed, error) {
	return registry.Committed{Version: 1, CommittedAt: someTime}, f.call(ctx, by)
}

func (f *fakeRegistry) Subscribe(consumer string) *flow.Subscription[registry.Event] {
	return f.bus.Subscribe(consumer)
}

func (f *fakeRegistry) Since(_ context.Context, after uint64, limit int) ([]registry.Event, error) {
	return f.since(after, limit)
}

// fakeAuth lets in the token "good", and "good NAME@TENANT" as that one, knows "bad", and nothing else.
type fakeAuth struct{}

func (fakeAuth) Check(token string, r auth.Request) (engines.Actor, error) {
	if who, ok := strings.CutPrefix(token, "good "); ok {
		name, tenant, _ := strings.Cut(who, "@")
		return engines.Actor{CapID: "tid", Principal: name, Tenant: tenant, Scopes: append(batchScopes(), r.Scope)}, nil
	}
	switch token {
	case "good":
		return engines.Actor{CapID: "tid", Principal: "alice", Scopes: append(batchScopes(), r.Scope)}, nil
	case "bad":
		return engines.Actor{}, &auth.DeniedError{Scope: r.Scope, Reasons: []string{"scope"}}
	}
	return engines.Actor{}, &auth.InvalidError{Stage: "token", Reason: "garbled"}
}

type rig struct {
	*Server
	t       testing.TB
	reg     *fakeRegistry
	wal     *fakeWallet
	node    *fakeNode
	metrics *obs.Metrics
	phase   *flow.Watch[flow.Phase]
	store   *store.Store // under a real engine only
	client  *http.Client
	url     string

	undescribed bool // answers are of errors that no such route can meet, so the document does not have them
}

// testSettings let uid 7 do everything over the socket, and limit no rate.
func testSettings() Settings {
	cfg := Settings{
		Server: front.DefaultConfig(), TLS: front.DefaultTLSConfig(), UDS: front.DefaultUDSConfig(),
		Limits:   map[string]Limits{serviceRegistry: {Inflight: 1024}, serviceWallet: {Inflight: 1024}},
		SSE:      registry.SSEConfig{Ping: unit.Duration(time.Minute), MaxClients: 256, MaxPerIP: 8, ReplayMax: 1000},
		DrainCap: 5 * time.Second,
	}
	cfg.Server.Bind = "127.0.0.1:0"
	cfg.UDS.Map = map[string][]string{"uid:7": {auth.ScopeAdmin}}
	return cfg
}

// newRig makes a server with an open gate that listens nowhere.
func newRig(t testing.TB, change ...func(*Settings, *Deps)) *rig {
	t.Helper()
	m := obs.NewMetrics()
	cat := flow.NewCatalog(m, nil)
	reg := &fakeRegistry{head: headView(3), bus: flow.NewBroadcast[registry.Event](cat, flow.Spec{
		Service: "registry", Name: "committed_tx", Cap: 8, Policy: flow.DropOldest,
		Producers: []string{"pipeline"}, Consumers: []string{"http"},
	})}
	phase := flow.NewWatch(cat, flow.Spec{
		Service: "node", Name: "lifecycle", Cap: 1, Policy: flow.LastWins, Producers: []string{"supervisor"}, Consumers: []string{"http"},
	}, flow.Running)
	node, wal := newFakeNode(cat), newFakeWallet(cat)
	d := Deps{
		Version: "v0", Catalog: cat, Metrics: m, Board: obs.NewBoard(m), Auth: fakeAuth{}, Node: node, Registry: reg, Wallet: wal,
		Lifecycle: phase,
	}
	cfg := testSettings()
	for _, f := range change {
		f(&cfg, &d)
	}
	s, err := New(cfg, d)
	if err != nil {
		t.Fatal(err)
	}
	s.SetGate(GateOpen)
	return &rig{Server: s, t: t, reg: reg, wal: wal, node: node, metrics: m, phase: phase}
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
	transport := &http.Transport{DisableCompression: true}
	r.client, r.url = &http.Client{Transport: describedTransport{transport, r}}, "http://"+r.Addr()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		stop, end := context.WithTimeout(context.Background(), time.Second)
		defer end()
		_ = r.Shutdown(stop)
		cancel()
		wg.Wait()
	})
	return r
}

type header map[string]string

// do runs one request through the table without a network, as a TCP peer.
func (r *rig) do(method, target, body string, h header) *httptest.ResponseRecorder {
	return r.as(&front.Peer{}, method, target, body, h)
}

// socket does so as a peer of the admin socket.
func (r *rig) socket(method, target, body string, h header) *httptest.ResponseRecorder {
	return r.as(&front.Peer{Socket: true, UID: 7}, method, target, body, h)
}

func (r *rig) as(p *front.Peer, method, target, content string, h header) *httptest.ResponseRecorder {
	var in io.Reader
	if content != "" {
		in = strings.NewReader(content)
	}
	req := httptest.NewRequest(method, target, in)
	if content != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	keyed(req)
	for k, v := range h {
		req.Header.Set(k, v)
	}
	return r.answer(p, req)
}

// ask sends the route a request without a body, changed to what a test wants of it.
func (r *rig) ask(p *front.Peer, route *Route, change func(*http.Request)) *httptest.ResponseRecorder {
	req := httptest.NewRequest(route.Method, route.target(), nil)
	keyed(req)
	if change != nil {
		change(req)
	}
	return r.answer(p, req)
}

// someKey is the Idempotency-Key of tests that are about something else.
const someKey = "key-1"

// keyed gives the writes of the wallet their key.
func keyed(req *http.Request) {
	if req.Method == http.MethodPost && strings.HasPrefix(req.URL.Path, walletPrefix) {
		req.Header.Set(idemHeader, someKey)
	}
}

// answer runs req as a request of p, and looks at the answer.
func (r *rig) answer(p *front.Peer, req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.router.ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), p)))
	body := w.Body.Bytes()
	if req.Method == http.MethodHead {
		body = nil // as net/http sends it
	}
	r.described(req, w.Code, w.Header(), body)
	return w
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

var writer = header{"Authorization": "Bearer good"}
