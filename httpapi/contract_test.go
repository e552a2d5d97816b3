package httpapi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

// The node's own document is one that others can read.
func TestDocumentIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(newRig(t).doc.JSON())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater(), openapi3.EnableSchemaPatternValidation()); err != nil {
		t.Error(err)
	}
}

// witness serves the rig over a socket and remembers what was asked.
type witness struct {
	*rig
	srv *httptest.Server

	mu   sync.Mutex
	seen map[string]bool // "GET /registry/:v"; guarded by mu
}

// newWitness gives a client whose every answer is held against the document.
func newWitness(t *testing.T) (*witness, *client.Client) {
	t.Helper()
	w := &witness{rig: newRig(t), seen: map[string]bool{}}
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &httptest.Server{Listener: l, Config: &http.Server{Handler: w}}
	srv.Start()
	w.srv = srv
	t.Cleanup(srv.Close)
	c, err := client.New(client.Options{Socket: path})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return w, c
}

func (f *fakeRegistry) Signers(ctx context.Context, epoch uint64) (registry.SignersDoc, error) {
	return registry.SignersDoc{Epoch: epoch, Version: 1, Set: &record.SignerSet{}, Artifact: []byte(`{}`)}, f.call(ctx, engines.Actor{})
}

// copied is an answer that is kept as it is sent.
type copied struct {
	http.ResponseWriter
	status int
	body   bytes.Buffer
}

func (c *copied) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *copied) WriteHeader(status int) {
	c.status = status
	c.ResponseWriter.WriteHeader(status)
}

func (c *copied) Write(p []byte) (int, error) {
	c.body.Write(p)
	return c.ResponseWriter.Write(p)
}

func (w *witness) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	out := &copied{ResponseWriter: rw, status: http.StatusOK}
	w.router.ServeHTTP(out, r.WithContext(front.WithPeer(r.Context(), &front.Peer{Socket: true, UID: 7})))
	w.described(r, out.status, rw.Header(), out.body.Bytes())
	if out.status < http.StatusBadRequest {
		w.mu.Lock()
		w.seen[checker.Operation(r.Method, r.URL.Path)] = true
		w.mu.Unlock()
	}
}

// Every operation of the document has a call in the client, and what it answers is what the document says.
func TestTheClientKnowsEveryOperation(t *testing.T) {
	w, c := newWitness(t)
	w.node.steps = 2
	w.node.note(false)
	w.reg.since = func(uint64, int) ([]registry.Event, error) { return nil, nil }
	for what, err := range calls(t.Context(), c) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.srv.Close() // once the last handler has returned
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range checker.Operations() {
		if !w.seen[op] {
			t.Errorf("%s: no call of the client", op)
		}
	}
}

// calls makes every call of the client once.
func calls(ctx context.Context, c *client.Client) func(func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for _, some := range []map[string]func() error{
			nodeCalls(ctx, c), readCalls(ctx, c), writeCalls(ctx, c), tokenCalls(ctx, c), fileCalls(ctx, c), streamCalls(ctx, c),
			walletCalls(ctx, c), ledgerCalls(ctx, c),
		} {
			for what, call := range some {
				if !yield(what, call()) {
					return
				}
			}
		}
	}
}

// only drops what a call answers beside its error.
func only[T any](_ T, err error) error { return err }

func nodeCalls(ctx context.Context, c *client.Client) map[string]func() error {
	return map[string]func() error{
		"healthz":   func() error { return c.Healthz(ctx) },
		"ready":     func() error { return only(c.Ready(ctx, "", "read")) },
		"version":   func() error { return only(c.NodeVersion(ctx)) },
		"metrics":   func() error { return only(c.Metrics(ctx)) },
		"openapi":   func() error { return only(c.OpenAPI(ctx)) },
		"schema":    func() error { return only(c.Schema(ctx, "Problem")) },
		"status":    func() error { return only(c.Status(ctx)) },
		"drain":     func() error { return c.Drain(ctx, "test") },
		"config":    func() error { return only(c.Config(ctx)) },
		"reload":    func() error { return only(c.Reload(ctx)) },
		"tasks":     func() error { return only(c.Tasks(ctx)) },
		"queues":    func() error { return only(c.Queues(ctx)) },
		"log level": func() error { return only(c.LogLevel(ctx)) },
		"set level": func() error { return only(c.SetLogLevel(ctx, wire.LogLevel{Level: "debug"})) },
		"profile":   func() error { return c.Profile(ctx, "heap", 0, io.Discard) },
	}
}

func readCalls(ctx context.Context, c *client.Client) map[string]func() error {
	return map[string]func() error{
		"head":             func() error { return only(c.Head(ctx)) },
		"version":          func() error { return only(c.Version(ctx, 2, true)) },
		"bare version":     func() error { return only(c.Version(ctx, 2, false)) },
		"version status":   func() error { return only(c.VersionStatus(ctx, 2)) },
		"payload":          func() error { return only(c.Payload(ctx, 2)) },
		"entry":            func() error { return only(c.Entry(ctx, 2)) },
		"diff":             func() error { return only(c.Diff(ctx, 1, 2)) },
		"proposals":        func() error { return only(c.Proposals(ctx, proposal, 5)) },
		"proposal":         func() error { return only(c.Proposal(ctx, proposal)) },
		"proposal payload": func() error { return only(c.ProposalPayload(ctx, proposal)) },
		"signers":          func() error { return only(c.Signers(ctx, 0)) },
		"signers of epoch": func() error { return only(c.Signers(ctx, 1)) },
	}
}

func writeCalls(ctx context.Context, c *client.Client) map[string]func() error {
	a := wire.Approval{SignerID: "s", Algo: "ed25519", Sig: strings.Repeat("A", 86) + "==", SignedAt: someTime}
	return map[string]func() error{
		"propose":  func() error { return only(c.Propose(ctx, []byte(`{}`), "")) },
		"approve":  func() error { return only(c.Approve(ctx, proposal, a)) },
		"commit":   func() error { _, _, err := c.Commit(ctx, proposal); return err },
		"withdraw": func() error { return c.Withdraw(ctx, proposal) },
		"genesis":  func() error { return only(c.Genesis(ctx, []byte(`{}`), []wire.Approval{a})) },
	}
}

func walletCalls(ctx context.Context, c *client.Client) map[string]func() error {
	return map[string]func() error{
		"issue": func() error {
			return only(c.Issue(ctx, "k", wire.Issue{To: "a", Asset: "ron", AmountMinor: "5", Nonce: 1}))
		},
		"transfer": func() error { return only(c.Transfer(ctx, "k", transfer())) },
		"burn": func() error {
			return only(c.Burn(ctx, "k", wire.Burn{From: "a", Asset: "ron", AmountMinor: "5", Nonce: 1}))
		},
		"hold": func() error {
			return only(c.Hold(ctx, "k", wire.Hold{From: "a", To: "b", Asset: "ron", AmountMinor: "5", Nonce: 1, ExpiresInS: 60}))
		},
		"capture": func() error { return only(c.Capture(ctx, "k", wire.Capture{Hold: txid, AmountMinor: "4"})) },
		"release": func() error { return only(c.Release(ctx, "k", wire.Release{Hold: txid})) },
		"batch": func() error {
			return only(c.Batch(ctx, "k", wire.Batch{Mode: "atomic", Ops: []wire.BatchOp{{Op: "release", Hold: txid}}}))
		},
		"flags": func() error {
			return only(c.SetFlags(ctx, "k", wire.FlagsChange{Account: "a", Set: []string{"frozen"}}))
		},
		"declare": func() error { return only(c.DeclareAsset(ctx, "k", wire.AssetDeclare{Asset: "eur"})) },
		"balance": func() error { return only(c.Balance(ctx, "a", "ron", 3)) },
		"account": func() error { return only(c.Account(ctx, "a")) },
		"assets":  func() error { return only(c.Assets(ctx)) },
		"tx":      func() error { return only(c.Tx(ctx, txid)) },
		"history": func() error {
			return only(c.History(ctx, client.HistoryQuery{Account: "a", Asset: "ron", Order: "asc", Limit: 5, Since: time.Unix(9, 0)}))
		},
	}
}

func transfer() wire.Transfer {
	return wire.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "5", Nonce: 1, Memo: "lunch", ValidUntil: "2100-01-01T00:00:00Z"}
}

func ledgerCalls(ctx context.Context, c *client.Client) map[string]func() error {
	return map[string]func() error{
		"ledger head": func() error { return only(c.LedgerHead(ctx)) },
		"roots":       func() error { return only(c.Roots(ctx, 1, 5)) },
		"proof":       func() error { return only(c.Proof(ctx, txid, 2)) },
		"consistency": func() error { return only(c.Consistency(ctx, 1, 2)) },
		"export":      func() error { return c.ExportLedger(ctx, 1, 2, false, func([]byte) error { return nil }) },
	}
}

func tokenCalls(ctx context.Context, c *client.Client) map[string]func() error {
	return map[string]func() error{
		"mint":   func() error { return only(c.Mint(ctx, wire.MintRequest{Scopes: []string{"a.b"}})) },
		"tokens": func() error { return only(c.Tokens(ctx, "", 5)) },
		"revoke": func() error { return only(c.Revoke(ctx, wire.RevokeRequest{TID: someULID})) },
		"verify": func() error { return only(c.VerifyToken(ctx, wire.VerifyRequest{Token: "good"})) },
		"keys":   func() error { return only(c.Keys(ctx)) },
		"rotate": func() error { return only(c.RotateKey(ctx)) },
		"retire": func() error { return only(c.RetireKey(ctx, "k1")) },
	}
}

func fileCalls(ctx context.Context, c *client.Client) map[string]func() error {
	return map[string]func() error{
		"info":     func() error { return only(c.DBInfo(ctx)) },
		"stats":    func() error { return only(c.DBStats(ctx)) },
		"accept":   func() error { return c.AcceptRestore(ctx) },
		"check":    func() error { return only(c.CheckDB(ctx, nil)) },
		"snapshot": func() error { return only(c.Snapshot(ctx, wire.SnapshotRequest{Dir: "/d"}, nil)) },
		"audit":    func() error { return only(c.Audit(ctx, 1, 5)) },
	}
}

func streamCalls(ctx context.Context, c *client.Client) map[string]func() error {
	first := func(client.Event) error { return client.ErrStop }
	return map[string]func() error{
		"stream": func() error { return c.Stream(ctx, client.StreamOptions{}, first) },
		"audit stream": func() error {
			return c.AuditStream(ctx, client.StreamOptions{LastEventID: "0"}, func(wire.AuditRow) error { return client.ErrStop })
		},
	}
}

// What the node refuses is the problem that the client gives, word for word.
func TestTheClientGivesTheProblem(t *testing.T) {
	w, c := newWitness(t)
	w.node.err = &ConflictError{Reason: "it is so already"}
	_, err := c.RotateKey(t.Context())
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok || p.Status != http.StatusConflict || p.Reason != reasonConflict || !strings.Contains(p.Detail, "it is so already") {
		t.Errorf("err = %v", err)
	}
	if ok && (p.CorrID == "" || p.Instance == "") {
		t.Errorf("problem = %+v", p)
	}
}
