package appliance

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"sync"
	"testing"

	"ronbox/httpapi/client"
	"ronbox/httpapi/openapi/openapitest"
	"ronbox/httpapi/wire"
)

// witness stands between a client and a node, and holds every answer against the node's own document.
type witness struct {
	t       *testing.T
	checker *openapitest.Checker
	node    *http.Transport

	mu   sync.Mutex
	seen map[string]bool // operations that were asked for; guarded by mu
}

// witnessed gives a client of the node whose calls pass the witness.
func (r *rig) witnessed() (*witness, *client.Client) {
	r.t.Helper()
	doc, err := r.socket().OpenAPI(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.cfg.SocketPath())
	}
	w := &witness{t: r.t, checker: openapitest.New(r.t, doc), node: &http.Transport{DialContext: dial}, seen: map[string]bool{}}
	path := filepath.Join(r.t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		r.t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: w}}
	srv.Start()
	r.t.Cleanup(func() { srv.Close(); w.node.CloseIdleConnections() })
	return w, r.client(client.Options{Socket: path})
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	out := r.Clone(r.Context())
	out.URL.Scheme, out.URL.Host, out.RequestURI = "http", "node", ""
	resp, err := w.node.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer func() { _ = resp.Body.Close() }()
	w.mu.Lock() // before the client can hear the answer and go on
	w.seen[w.checker.Operation(r.Method, r.URL.Path)] = true
	w.mu.Unlock()
	for name, values := range resp.Header {
		rw.Header()[name] = values
	}
	rw.WriteHeader(resp.StatusCode)
	var body bytes.Buffer
	for chunk := make([]byte, 4<<10); err == nil; {
		var n int
		n, err = resp.Body.Read(chunk)
		body.Write(chunk[:n])
		_, _ = rw.Write(chunk[:n])
		_ = http.NewResponseController(rw).Flush()
	}
	w.checker.Response(w.t, r, resp.StatusCode, resp.Header, body.Bytes())
}

// What a node in service answers is what its document says, whatever it is asked.
func TestAnswersAreWhatTheDocumentSays(t *testing.T) {
	cfg, _ := devConfig(t)
	r := start(t, cfg)
	w, c := r.witnessed()
	if _, err := put(t.Context(), c, signer(t, cfg), 2, "a"); err != nil {
		t.Fatal(err)
	}
	readAll(t, c)
	payAll(t, c)
	refusePayments(t, c)
	askOperator(t, c)
	refuseAll(t.Context(), c)
	done(t, "drain", c.Drain(t.Context(), "over"))
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.checker.Operations() {
		if !w.seen[op] {
			t.Errorf("%s was not asked", op)
		}
	}
}

// told fails the test for a call that was to succeed.
func told[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Errorf("%T: %v", v, err)
		}
		return v
	}
}

func readAll(t *testing.T, c *client.Client) {
	ctx := t.Context()
	told[wire.Ready](t)(c.Ready(ctx, "", ""))
	told[wire.Ready](t)(c.Ready(ctx, "registry", "read"))
	told[wire.VersionInfo](t)(c.NodeVersion(ctx))
	told[wire.Head](t)(c.Head(ctx))
	told[wire.Version](t)(c.Version(ctx, 2, true))
	told[wire.Version](t)(c.Version(ctx, 1, false))
	told[wire.VersionStatus](t)(c.VersionStatus(ctx, 2))
	told[wire.Diff](t)(c.Diff(ctx, 1, 2))
	told[wire.ProposalList](t)(c.Proposals(ctx, "", 5))
	told[wire.Signers](t)(c.Signers(ctx, 0))
	told[wire.Signers](t)(c.Signers(ctx, 1))
	for _, raw := range []func() ([]byte, error){
		func() ([]byte, error) { return c.Payload(ctx, 2) }, func() ([]byte, error) { return c.Entry(ctx, 2) },
		func() ([]byte, error) { return c.Metrics(ctx) }, func() ([]byte, error) { return c.OpenAPI(ctx) },
		func() ([]byte, error) { return c.Schema(ctx, "Problem") },
	} {
		told[[]byte](t)(raw())
	}
	err := c.Stream(ctx, client.StreamOptions{LastEventID: "1"}, func(e client.Event) error {
		if e.Name == wire.EventUpdate {
			return client.ErrStop
		}
		return nil
	})
	done(t, "stream", err)
	done(t, "healthz", c.Healthz(ctx))
}

// done is told for a call that answers nothing, or elsewhere.
func done(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func askOperator(t *testing.T, c *client.Client) {
	ctx := t.Context()
	token := told[wire.Token](t)(c.Mint(ctx, wire.MintRequest{
		Sub: "me", Tenant: "t", Scopes: []string{"registry.propose"}, Caveats: []string{"ip = 10.0.0.0/8"},
	}))
	told[wire.TokenList](t)(c.Tokens(ctx, "", 1))
	told[wire.Verdict](t)(c.VerifyToken(ctx, wire.VerifyRequest{Token: token.Token, Scope: "registry.propose", IP: "11.0.0.1"}))
	told[wire.Verdict](t)(c.VerifyToken(ctx, wire.VerifyRequest{Token: "garbled"}))
	for range 2 {
		told[wire.Revoked](t)(c.Revoke(ctx, wire.RevokeRequest{TID: token.TID, Reason: "test"}))
	}
	told[wire.Revoked](t)(c.Revoke(ctx, wire.RevokeRequest{All: true}))
	old := told[wire.KeyList](t)(c.Keys(ctx)).Active
	told[wire.KeyInfo](t)(c.RotateKey(ctx))
	told[wire.KeyInfo](t)(c.RetireKey(ctx, old))
	told[wire.KeyList](t)(c.Keys(ctx))
	told[wire.Status](t)(c.Status(ctx))
	told[wire.ConfigShow](t)(c.Config(ctx))
	told[wire.TaskList](t)(c.Tasks(ctx))
	told[wire.QueueList](t)(c.Queues(ctx))
	told[wire.LogLevel](t)(c.LogLevel(ctx))
	told[wire.LogLevel](t)(c.SetLogLevel(ctx, wire.LogLevel{Level: "debug", Service: "registry"}))
	told[wire.DBInfo](t)(c.DBInfo(ctx))
	told[wire.DBStats](t)(c.DBStats(ctx))
	told[wire.CheckLine](t)(c.CheckDB(ctx, nil))
	told[wire.Snapshot](t)(c.Snapshot(ctx, wire.SnapshotRequest{Dir: t.TempDir(), Compact: true}, nil))
	told[wire.AuditPage](t)(c.Audit(ctx, 1, 3))
	done(t, "profile", c.Profile(ctx, "heap", 0, io.Discard))
	done(t, "audit stream", c.AuditStream(ctx, client.StreamOptions{LastEventID: "0"}, func(wire.AuditRow) error { return client.ErrStop }))
}

// refuseAll asks for what cannot be, or need not; that the answers are described is the witness' to see.
func refuseAll(ctx context.Context, c *client.Client) {
	const nobody = "p_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	_, _ = c.Version(ctx, 99, true)
	_, _ = c.Proposal(ctx, nobody)
	_, _ = c.ProposalPayload(ctx, nobody)
	_ = c.Withdraw(ctx, nobody)
	_, _ = c.Genesis(ctx, []byte(`{}`), nil)
	_, _ = c.RetireKey(ctx, "nobody")
	_, _ = c.Mint(ctx, wire.MintRequest{})
	_, _ = c.Revoke(ctx, wire.RevokeRequest{TID: "x"})
	_, _ = c.SetLogLevel(ctx, wire.LogLevel{Level: "loud"})
	_, _ = c.Schema(ctx, "nobody")
	_, _ = c.Reload(ctx)
	_ = c.AcceptRestore(ctx)
}
