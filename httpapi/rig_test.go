package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/engines/rewarder"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	clusterhttp "ronbox/httpapi/cluster"
	edgeapi "ronbox/httpapi/edge"
	"ronbox/httpapi/front"
	indexapi "ronbox/httpapi/index"
	nodehttp "ronbox/httpapi/node"
	"ronbox/httpapi/openapi/openapitest"
	registryapi "ronbox/httpapi/registry"
	rewarderapi "ronbox/httpapi/rewarder"
	wallethttp "ronbox/httpapi/wallet"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// TestMain has more tests run side by side than there are processors: those that do so wait most of
// the time.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "10")
	hosttest.InMemory()
	goleak.VerifyTestMain(m)
}

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
	registryapi.Engine
	mu     sync.Mutex
	head   tables.HeadView
	err    error
	replay bool
	wait   bool // until the context ends
	calls  int
	actor  engines.Actor
	since  func(after uint64, limit int) ([]document.Update, error)
	bus    *flow.Broadcast[document.Update]
	emits  error
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

func headView(v uint64) tables.HeadView {
	hash, _ := b3.Parse(someB3)
	return tables.HeadView{
		Head: record.Head{
			Version:     v,
			PayloadB3:   hash,
			CommittedAt: someTime,
			Hash:        hash,
			Epoch:       1,
		},
		MinVersion:  1,
		Incarnation: "01INCARNATION",
		Encoded:     document.Encoded{JSON: []byte(headJSON(v) + "\n"), ETag: `"b3:` + formatUint(v) + `"`},
	}
}

func headJSON(v uint64) string {
	return fmt.Sprintf(
		`{"version":%d,"payload_b3":%q,"committed_at":%q,"hash":%q,"epoch":1,"min_version":1,"checkpoint_size":0,`+
			`"incarnation":"01INCARNATION"}`,
		v,
		someB3,
		someTime,
		someB3,
	)
}

func versionJSON(v uint64, items string) string {
	return fmt.Sprintf(
		`{"schema_version":"1.0.0","version":%d,%s"payload_b3":%q,"approvals":[],"prev_hash":%q,"committed_at":%q,`+
			`"hash":%q,"kind":"update","items_root":%q,"epoch":1}`,
		v,
		items,
		someB3,
		someB3,
		someTime,
		someB3,
		someRoot,
	)
}

func (f *fakeRegistry) Head() *tables.HeadView {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.head
	return &h
}

func (f *fakeRegistry) Version(ctx context.Context, v uint64, items bool) (document.Encoded, error) {
	body := versionJSON(v, "")
	if items {
		body = versionJSON(v, `"items":[],`)
	}
	return document.Encoded{JSON: []byte(body), ETag: `"v` + formatUint(v) + `"`}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) PayloadBytes(ctx context.Context, v uint64) ([]byte, error) {
	return []byte(`{"payload":` + formatUint(v) + `}`), f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) EntryBytes(ctx context.Context, v uint64) ([]byte, error) {
	return []byte(`{"entry":` + formatUint(v) + `}`), f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Status(ctx context.Context, v uint64) (document.VersionStatus, error) {
	return document.VersionStatus{CoveredBy: v}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Diff(ctx context.Context, _, _ uint64) (document.Diff, error) {
	return document.Diff{
		Put:    []jsontext.Value{jsontext.Value(`{"id":"a"}`)},
		Remove: []string{"b"},
	}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Proposals(ctx context.Context, cursor string, limit int) (document.ProposalList, error) {
	p := pending(proposal)
	p.Version = uint64(limit)
	return document.ProposalList{Proposals: []document.Proposal{p}, Next: cursor}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Proposal(ctx context.Context, id string) (document.Proposal, error) {
	return pending(id), f.call(ctx, engines.Actor{})
}

func pending(id string) document.Proposal {
	return document.Proposal{
		Version:   2,
		ID:        id,
		State:     document.StatePending,
		Kind:      "update",
		Mode:      "full",
		CreatedAt: someTime,
		ExpiresAt: someTime,
		ItemsRoot: someRoot,
	}
}

func (f *fakeRegistry) ProposalPayload(ctx context.Context, _ string) ([]byte, error) {
	return []byte(`{"type":"x"}`), f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Propose(
	ctx context.Context,
	by engines.Actor,
	_ []byte,
	_, _ string,
) (document.Proposed, error) {
	return document.Proposed{ID: proposal, ExpiresAt: "2026-01-01T00:00:00Z", Replayed: f.replay}, f.call(ctx, by)
}

func (f *fakeRegistry) Approve(
	ctx context.Context,
	by engines.Actor,
	_ string,
	_ record.Approval,
	_ string,
) (document.Approved, error) {
	return document.Approved{Status: "accepted", Approvals: 1, Quorum: document.Quorum{M: 1, N: 2}}, f.call(ctx, by)
}

func (f *fakeRegistry) Commit(ctx context.Context, by engines.Actor, _, _ string) (document.Committed, error) {
	return document.Committed{Version: 2, CommittedAt: someTime, Replayed: f.replay}, f.call(ctx, by)
}

func (f *fakeRegistry) Withdraw(ctx context.Context, by engines.Actor, _, _ string) error {
	return f.call(ctx, by)
}

func (f *fakeRegistry) Genesis(
	ctx context.Context,
	by engines.Actor,
	_ []byte,
	_ []record.Approval,
	_ string,
) (document.Committed, error) {
	return document.Committed{Version: 1, CommittedAt: someTime}, f.call(ctx, by)
}

func (f *fakeRegistry) Subscribe(consumer string) *flow.Subscription[document.Update] {
	return f.bus.Subscribe(consumer)
}

func (f *fakeRegistry) Emits() error { return f.emits }

func (f *fakeRegistry) Since(_ context.Context, after uint64, limit int) ([]document.Update, error) {
	return f.since(after, limit)
}

// allScopes are those of the operations of the wallet.
func allScopes() []string {
	return []string{
		"node.read",
		"wallet.issue",
		"wallet.transfer",
		"wallet.burn",
		"wallet.hold",
		"wallet.capture",
		"wallet.release",
		"wallet.admin",
	}
}

// fakeAuth lets in the token "good", and "good NAME@TENANT" as that one, knows "bad", and nothing
// else.
type fakeAuth struct{}

func (fakeAuth) Check(token string, r auth.Request) (engines.Actor, error) {
	if who, ok := strings.CutPrefix(token, "good "); ok {
		name, tenant, _ := strings.Cut(who, "@")
		return engines.Actor{CapID: "tid", Principal: name, Tenant: tenant, Scopes: append(allScopes(), r.Scope)}, nil
	}
	switch token {
	case "good":
		return engines.Actor{CapID: "tid", Principal: "alice", Scopes: append(allScopes(), r.Scope)}, nil
	case "bad":
		return engines.Actor{}, &auth.DeniedError{Scope: r.Scope, Reasons: []string{"scope"}}
	}
	return engines.Actor{}, &auth.InvalidError{Stage: "token", Reason: "garbled"}
}

type rig struct {
	*httpapi.Server
	t       testing.TB
	reg     *fakeRegistry
	wal     *fakeWallet
	edge    *fakeEdge
	node    *fakeNode
	members *fakeMembers
	metrics *obs.Metrics
	phase   *flow.Watch[flow.Phase]
	store   *store.Store // under a real engine only
	client  *http.Client
	url     string

	undescribed bool // answers are of errors that no such route can meet, so the document does not have them
}

const (
	serviceNode     = "node"
	serviceRegistry = "registry"
	serviceWallet   = "wallet"
	serviceEdge     = "edge"

	adminPrefix  = "/admin/v1/"
	walletPrefix = "/v1/"

	scopeRead   = "wallet.read"
	scopeExport = "ledger.export"
	scopeDrain  = "node.drain"
	scopeToken  = "node.token"
)

func someStreams() httpapi.StreamLimits {
	return httpapi.StreamLimits{Max: 256, PerNetwork: 8, Replay: 1000, Ping: time.Minute}
}

// setStreams sets the stream limits of every service.
func setStreams(c *httpapi.Settings, l httpapi.StreamLimits) {
	for name, limits := range c.Limits {
		limits.Streams = l
		c.Limits[name] = limits
	}
}

// deps are the dependencies of a server, and the engines of its services; nil: off.
type deps struct {
	httpapi.Deps
	Node     nodehttp.Engine
	Registry registryapi.Engine
	Wallet   wallethttp.Engine
	Edge     edgeapi.Engine
	Packs    edgeapi.Packs
	Rewarder *rewarder.Engine
	Members  clusterhttp.Engine
	rest     bool // including the services that these tests do not use
}

func (d *deps) services() (out []httpapi.Service) {
	if d.Registry != nil {
		out = append(out, registryapi.New(d.Registry))
	}
	if d.Wallet != nil {
		out = append(out, wallethttp.New(d.Wallet))
	}
	if d.Edge != nil {
		out = append(out, edgeapi.New(d.Edge, d.Packs, fakeExtracts{d.Edge}))
	}
	if d.Rewarder != nil {
		out = append(out, rewarderapi.New(d.Rewarder))
	}
	if d.rest {
		out = append(out, indexapi.New(nil, &indexapi.Limits{}), rewarderapi.New(nil))
	}
	return append(out, clusterhttp.New(d.Members), nodehttp.New(d.Node))
}

// testSettings let uid 7 do everything over the socket, and limit no rate.
func testSettings() httpapi.Settings {
	cfg := httpapi.Settings{
		Server: front.DefaultConfig(), TLS: front.DefaultTLSConfig(), UDS: front.DefaultUDSConfig(),
		Limits: map[string]httpapi.Limits{
			serviceRegistry: {
				Inflight: 1024,
				Streams:  someStreams(),
			},
			serviceWallet: {Inflight: 1024, Streams: someStreams()},
			serviceEdge:   {Inflight: 512},
			serviceNode:   {Streams: someStreams()},
		},
		DrainCap: 5 * time.Second,
	}
	cfg.Server.Bind = "127.0.0.1:0"
	cfg.UDS.Map = map[string][]string{"uid:7": {auth.ScopeAdmin}}
	return cfg
}

// tableOf are the routes below a prefix, of a class unless that is negative.
func (r *rig) tableOf(prefix string, class httpapi.Class) (out []httpapi.Route) {
	for _, route := range r.Table() {
		if strings.HasPrefix(route.Pattern, prefix) && (class < 0 || route.Class == class) {
			out = append(out, route)
		}
	}
	return out
}

// newRig makes a server with an open gate that listens nowhere.
func newRig(t testing.TB, change ...func(*httpapi.Settings, *deps)) *rig {
	t.Helper()
	m := obs.NewMetrics()
	cat := flow.NewCatalog(m, nil)
	reg := &fakeRegistry{head: headView(3), bus: flow.NewBroadcast[document.Update](cat, flow.Spec{
		Service: "registry", Name: "committed_tx", Cap: 8, Policy: flow.DropOldest,
		Producers: []string{"pipeline"}, Consumers: []string{"http"},
	})}
	phase := flow.NewWatch(cat, flow.Spec{
		Service:   "node",
		Name:      "lifecycle",
		Cap:       1,
		Policy:    flow.LastWins,
		Producers: []string{"supervisor"},
		Consumers: []string{"http"},
	}, flow.Running)
	node, wal, edg, members := newFakeNode(cat), newFakeWallet(cat), &fakeEdge{}, &fakeMembers{}
	d := deps{Node: node, Registry: reg, Wallet: wal, Edge: edg, Packs: edg, Members: members, Deps: httpapi.Deps{
		Version: "v0", Catalog: cat, Metrics: m, Board: obs.NewBoard(m), Auth: fakeAuth{}, Lifecycle: phase,
		Info: func() wire.VersionInfo { return node.Version() },
	}}
	cfg := testSettings()
	for _, f := range change {
		f(&cfg, &d)
	}
	s, err := httpapi.New(cfg, d.Deps, d.services()...)
	if err != nil {
		t.Fatal(err)
	}
	s.SetGate(httpapi.GateOpen)
	return &rig{
		Server: s, t: t, reg: reg, wal: wal, edge: edg, node: node, members: members, metrics: m, phase: phase,
	}
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

// ask sends a request without a body to the route, modified by change.
func (r *rig) ask(p *front.Peer, route *httpapi.Route, change func(*http.Request)) *httptest.ResponseRecorder {
	req := httptest.NewRequest(route.Method, target(route), nil)
	keyed(req)
	if change != nil {
		change(req)
	}
	return r.answer(p, req)
}

// someKey is the Idempotency-Key of tests that are about something else.
const someKey = "key-1"

// keyed adds the idempotency key to writes of the wallet.
func keyed(req *http.Request) {
	if req.Method == http.MethodPost && strings.HasPrefix(req.URL.Path, walletPrefix) {
		req.Header.Set("Idempotency-Key", someKey)
	}
}

// answer runs req as a request of p, and looks at the answer.
func (r *rig) answer(p *front.Peer, req *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	r.Router().ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), p)))
	body, err := decoded(w.Header().Get("Content-Encoding"), w.Body.Bytes())
	if err != nil {
		r.t.Errorf("%s: %v", req.URL, err)
	}
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

// withTLS has a rig serve TLS, with a certificate that vouches for itself.
func withTLS(t testing.TB) func(*httpapi.Settings, *deps) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		DNSNames:     []string{"node.test"},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, b := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: raw}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return func(c *httpapi.Settings, _ *deps) {
		c.TLS.Enabled, c.TLS.CertPath, c.TLS.KeyPath = true, cert, key
	}
}

// trusting lets clients of tests take that certificate.
func trusting() *tls.Config { return &tls.Config{InsecureSkipVerify: true} }

// open opens a bare connection, through TLS if the rig speaks that.
func (r *rig) open(t testing.TB) net.Conn {
	t.Helper()
	c := r.dial(t)
	if r.URL() == "https://"+r.Addr() {
		c = tls.Client(c, trusting())
	}
	return c
}

// overBoth runs a test of a listening rig over TCP and over TLS, side by side.
func overBoth(t *testing.T, change func(*httpapi.Settings, *deps), test func(t *testing.T, r *rig)) {
	t.Run("plain", func(t *testing.T) {
		t.Parallel()
		test(t, newRig(t, change).listening(t))
	})
	t.Run("TLS", func(t *testing.T) {
		t.Parallel()
		r := newRig(t, change, withTLS(t)).listening(t)
		r.url = "https://" + r.Addr()
		r.client.Transport.(describedTransport).RoundTripper.(*http.Transport).TLSClientConfig = trusting()
		test(t, r)
	})
}

// statusIn reads the status of one answer and the rest of it.
func statusIn(c net.Conn) (status int, err error) {
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, err
	}
	_, err = io.Copy(io.Discard, resp.Body)
	_ = resp.Body.Close()
	return resp.StatusCode, err
}

// readStatus reads one answer's status, 0 when the connection just ends.
func readStatus(t *testing.T, c net.Conn) int {
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
func waitFor(t *testing.T, what string, ok func() bool) {
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

// checker checks answers against the document of an unmodified rig.
var checker struct {
	sync.Once
	*openapitest.Checker
}

// described fails the test unless the document describes the answer. Every answer that a test gets
// through the rig passes here.
func (r *rig) described(req *http.Request, status int, h http.Header, body []byte) {
	r.t.Helper()
	if !r.undescribed {
		r.checker().Response(r.t, req, status, h, body)
	}
}

func (r *rig) checker() *openapitest.Checker {
	checker.Do(func() { checker.Checker = openapitest.New(r.t, newRig(r.t).Document().JSON()) })
	return checker.Checker
}

// describedTransport looks at the answers that come over the network, once their bodies are read or
// left.
type describedTransport struct {
	http.RoundTripper
	rig *rig
}

func (d describedTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = &describedBody{ReadCloser: resp.Body, done: func(body []byte) {
			d.rig.described(req, resp.StatusCode, resp.Header, body)
		}}
	}
	return resp, err
}

// describedBody records the bytes that are read. Unread ones are not checked.
type describedBody struct {
	io.ReadCloser
	seen  bytes.Buffer
	ended bool
	done  func([]byte)
	once  sync.Once
}

func (b *describedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.seen.Write(p[:n])
	b.ended = b.ended || err == io.EOF
	return n, err
}

func (b *describedBody) Close() error {
	err := b.ReadCloser.Close()
	b.once.Do(func() {
		if b.ended {
			b.done(b.seen.Bytes())
		}
	})
	return err
}

var update = flag.Bool("update", false, "rewrite the golden files")

const goldenDocument = "../testdata/golden/openapi.json"

// Whatever the surface gains or loses shows in the golden file.
func TestDocumentGolden(t *testing.T) {
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.rest = true })
	want := jsontext.Value(r.Document().JSON()).Clone()
	if err := want.Indent(jsontext.WithIndent(" ")); err != nil {
		t.Fatal(err)
	}
	want = append(want, '\n')
	if *update {
		if err := os.WriteFile(goldenDocument, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(goldenDocument)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs from the table: run the test with -update and read the diff", goldenDocument)
	}
}

// Each operation of the document has a row, and each row an operation.
func TestEveryRouteIsDescribed(t *testing.T) {
	r := newRig(t)
	if got, want := len(r.checker().Operations()), len(r.Table()); got != want {
		t.Errorf("%d operations for %d routes", got, want)
	}
}
