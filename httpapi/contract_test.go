package httpapi_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"golang.org/x/mod/sumdb/tlog"

	"ronbox/engines"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/seal"
	"ronbox/httpapi"
	"ronbox/httpapi/client"
	"ronbox/httpapi/front"
	nodehttp "ronbox/httpapi/node"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
	edgeapi "ronbox/httpapi/wire/edge"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	walletapi "ronbox/httpapi/wire/wallet"
)

// The node's own document is one that others can read.
func TestDocumentIsValid(t *testing.T) {
	doc, err := openapi3.NewLoader().LoadFromData(newRig(t).Document().JSON())
	if err != nil {
		t.Fatal(err)
	}
	if err := doc.Validate(t.Context(), openapi3.IsOpenAPI31OrLater(),
		openapi3.EnableSchemaPatternValidation()); err != nil {
		t.Error(err)
	}
}

// witness serves the rig over a socket and records the requests.
type witness struct {
	*rig
	srv *httptest.Server

	mu   sync.Mutex
	seen map[string]bool // "GET /registry/:v"; httpapi.Guarded by mu
}

// newWitness returns a client that checks every answer against the document.
func newWitness(t *testing.T) (*witness, *apiClient) {
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
	return w, newAPIClient(c)
}

// The calls of each service, by a name of their own.
type (
	nodeAPI     = nodeapi.Client
	registryAPI = registryapi.Client
	walletAPI   = walletapi.Client
	edgeAPI     = edgeapi.Client
	clusterAPI  = clusterapi.Client
)

// apiClient has the calls of all services.
type apiClient struct {
	*client.Client
	nodeAPI
	registryAPI
	walletAPI
	edgeAPI
	clusterAPI
}

func newAPIClient(c *client.Client) *apiClient {
	return &apiClient{
		c, nodeapi.NewClient(c), registryapi.NewClient(c), walletapi.NewClient(c), edgeapi.NewClient(c),
		clusterapi.NewClient(c),
	}
}

func (f *fakeRegistry) Signers(ctx context.Context, epoch uint64) (document.Signers, error) {
	return document.Signers{
		Epoch:     max(epoch, 1),
		Version:   1,
		SignerSet: (&record.SignerSet{}).Bytes(),
		Artifact:  []byte(`{}`),
	}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Audit(ctx context.Context, from uint64, limit int) (document.AuditChain, error) {
	return document.AuditChain{
		Records: []jsontext.Value{jsontext.Value(`{"seq":1}`)},
		Seq:     from,
	}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) LatestCheckpoint() (*checkpoint.Signed, error) {
	return &checkpoint.Signed{
		Tree: checkpoint.Tree{Origin: "o", Size: 2},
		Note: []byte("o\n2\n"),
	}, f.call(context.Background(), engines.Actor{})
}

func (f *fakeRegistry) ArchivedCheckpoints(ctx context.Context, before uint64, limit int) ([][]byte, error) {
	return [][]byte{[]byte("o\n1\n")}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) CheckpointNow(ctx context.Context) (seal.Checkpoint, error) {
	return seal.Checkpoint{
		Signed: checkpoint.Signed{Tree: checkpoint.Tree{Origin: "o", Size: 2}},
	}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Inclusion(ctx context.Context, v, size uint64) (document.InclusionProof, error) {
	return document.InclusionProof{Index: v - 1, Size: 2, Hashes: make([]tlog.Hash, 1)}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Consistency(ctx context.Context, from, to uint64) (document.ConsistencyProof, error) {
	return document.ConsistencyProof{From: from, To: 2, Hashes: make([]tlog.Hash, 1)}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) ItemProof(ctx context.Context, v uint64, id string) (record.ItemProof, error) {
	return record.ItemProof{Version: 1, ID: id, Root: record.Items{}.Root()}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Tile(ctx context.Context, at logtree.At, width int, ofEntries bool) ([]byte, error) {
	return make([]byte, 32*width), f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Horizon(ctx context.Context) (document.Horizon, error) {
	return document.Horizon{MinVersion: 257, Statement: "note", Kept: []uint64{1}}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) HighWater(ctx context.Context) (document.HighWater, error) {
	return document.HighWater{
		Path:      "/d/highwater.note",
		Retention: document.RetentionPlan{Policy: "none"},
	}, f.call(ctx, engines.Actor{})
}

func (f *fakeRegistry) Adopt(ctx context.Context, by engines.Actor, corrID string) error {
	return f.call(ctx, by)
}

func (f *fakeRegistry) CatchUpFrom(
	ctx context.Context,
	by engines.Actor,
	path, corrID string,
) (document.CaughtUp, error) {
	return document.CaughtUp{From: 1, To: 2, Records: 3}, f.call(ctx, by)
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
	w.Router().ServeHTTP(out, r.WithContext(front.WithPeer(r.Context(), &front.Peer{Socket: true, UID: 7})))
	w.described(r, out.status, rw.Header(), out.body.Bytes())
	if out.status < http.StatusBadRequest {
		w.mu.Lock()
		w.seen[w.checker().Operation(r.Method, r.URL.Path)] = true
		w.mu.Unlock()
	}
}

// The client has a call for every operation of the document, and every answer agrees with the
// document.
func TestTheClientKnowsEveryOperation(t *testing.T) {
	w, c := newWitness(t)
	w.node.steps = 2
	w.node.note(false)
	w.reg.since = func(uint64, int) ([]document.Update, error) { return nil, nil }
	for what, err := range calls(t.Context(), c) {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.srv.Close() // once the last handler has returned
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, op := range w.checker().Operations() {
		if !w.seen[op] {
			t.Errorf("%s: no call of the client", op)
		}
	}
}

// calls makes every call of the client once.
func calls(ctx context.Context, c *apiClient) func(func(string, error) bool) {
	return func(yield func(string, error) bool) {
		for _, some := range []map[string]func() error{
			nodeCalls(ctx, c), readCalls(ctx, c), writeCalls(ctx, c), tokenCalls(ctx, c), fileCalls(ctx, c), logCalls(ctx, c), streamCalls(ctx, c),
			walletCalls(ctx, c), ledgerCalls(ctx, c), edgeCalls(ctx, c), clusterCalls(ctx, c),
		} {
			for what, call := range some {
				if !yield(what, call()) {
					return
				}
			}
		}
	}
}

// only discards the result of a call and returns its error.
func only[T any](_ T, err error) error { return err }

func nodeCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"healthz":   func() error { return c.Healthz(ctx) },
		"ready":     func() error { return only(c.Ready(ctx, "", "read")) },
		"version":   func() error { return only(c.NodeVersion(ctx)) },
		"metrics":   func() error { return only(c.Metrics(ctx)) },
		"openapi":   func() error { return only(c.OpenAPI(ctx)) },
		"schema":    func() error { return only(c.Schema(ctx, "Problem")) },
		"status":    func() error { return only(c.Status(ctx)) },
		"drain":     func() error { return c.Drain(ctx, "test") },
		"drained":   func() error { return only(c.DrainAndWait(ctx, "test")) },
		"config":    func() error { return only(c.Config(ctx)) },
		"reload":    func() error { return only(c.Reload(ctx)) },
		"tasks":     func() error { return only(c.Tasks(ctx)) },
		"queues":    func() error { return only(c.Queues(ctx)) },
		"series":    func() error { return only(c.Series(ctx)) },
		"doctor":    func() error { return only(c.Doctor(ctx)) },
		"clock":     func() error { return only(c.Clock(ctx)) },
		"accept":    func() error { return only(c.AcceptClock(ctx)) },
		"snapshots": func() error { return only(c.Snapshots(ctx)) },
		"sessions":  func() error { return only(c.Sessions(ctx)) },
		"session":   func() error { return c.EndSession(ctx, "0123456789ab") },
		"log level": func() error { return only(c.LogLevel(ctx)) },
		"set level": func() error { return only(c.SetLogLevel(ctx, nodeapi.LogLevel{Level: "debug"})) },
		"profile":   func() error { return c.Profile(ctx, "heap", 0, io.Discard) },
	}
}

func readCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"head":             func() error { return only(c.Head(ctx)) },
		"version":          func() error { return only(c.Version(ctx, 2, true)) },
		"bare version":     func() error { return only(c.Version(ctx, 2, false)) },
		"versions":         func() error { return only(c.Versions(ctx, 1, 5)) },
		"version status":   func() error { return only(c.VersionStatus(ctx, 2)) },
		"payload":          func() error { return only(c.Payload(ctx, 2)) },
		"entry":            func() error { return only(c.Entry(ctx, 2)) },
		"diff":             func() error { return only(c.Diff(ctx, 1, 2)) },
		"services":         func() error { return only(c.Services(ctx, "metrics")) },
		"proposals":        func() error { return only(c.Proposals(ctx, proposal, 5)) },
		"proposal":         func() error { return only(c.Proposal(ctx, proposal)) },
		"proposal payload": func() error { return only(c.ProposalPayload(ctx, proposal)) },
		"signers":          func() error { return only(c.Signers(ctx, 0)) },
		"signers of epoch": func() error { return only(c.Signers(ctx, 1)) },
	}
}

func writeCalls(ctx context.Context, c *apiClient) map[string]func() error {
	a := registryapi.Approval{SignerID: "s", Algo: "ed25519", Sig: strings.Repeat("A", 86) + "==", SignedAt: someTime}
	return map[string]func() error{
		"propose":  func() error { return only(c.Propose(ctx, []byte(`{}`), "")) },
		"approve":  func() error { return only(c.Approve(ctx, proposal, a)) },
		"commit":   func() error { _, _, err := c.Commit(ctx, proposal); return err },
		"withdraw": func() error { return c.Withdraw(ctx, proposal) },
		"genesis":  func() error { return only(c.Genesis(ctx, []byte(`{}`), []registryapi.Approval{a})) },
	}
}

func walletCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"issue": func() error {
			return only(c.Issue(ctx, "k", walletapi.Issue{To: "a", Asset: "ron", AmountMinor: "5", Nonce: 1}))
		},
		"transfer": func() error { return only(c.Transfer(ctx, "k", transfer())) },
		"burn": func() error {
			return only(c.Burn(ctx, "k", walletapi.Burn{From: "a", Asset: "ron", AmountMinor: "5", Nonce: 1}))
		},
		"hold": func() error {
			return only(
				c.Hold(ctx, "k",
					walletapi.Hold{From: "a", To: "b", Asset: "ron", AmountMinor: "5", Nonce: 1, ExpiresInS: 60}),
			)
		},
		"capture": func() error { return only(c.Capture(ctx, "k", walletapi.Capture{Hold: txid, AmountMinor: "4"})) },
		"release": func() error { return only(c.Release(ctx, "k", walletapi.Release{Hold: txid})) },
		"batch": func() error {
			return only(
				c.Batch(ctx, "k",
					walletapi.Batch{Mode: "atomic", Ops: []walletapi.BatchOp{{Op: "release", Hold: txid}}}),
			)
		},
		"flags": func() error {
			return only(c.SetFlags(ctx, "k", walletapi.FlagsChange{Account: "a", Set: []string{"frozen"}}))
		},
		"declare":   func() error { return only(c.DeclareAsset(ctx, "k", walletapi.AssetDeclare{Asset: "eur"})) },
		"balance":   func() error { return only(c.Balance(ctx, "a", "ron", 3)) },
		"account":   func() error { return only(c.Account(ctx, "a")) },
		"assets":    func() error { return only(c.Assets(ctx)) },
		"tx":        func() error { return only(c.Tx(ctx, txid)) },
		"holds":     func() error { return only(c.Holds(ctx, "a", "5-9", 3)) },
		"reference": func() error { return only(c.Reference(ctx, "alice", "2026-12/7")) },
		"hold info": func() error { return only(c.HoldInfo(ctx, txid)) },
		"accounts":  func() error { return only(c.Accounts(ctx, "a", "ab", 3)) },
		"history": func() error {
			return only(
				c.History(
					ctx,
					walletapi.HistoryQuery{Account: "a", Asset: "ron", Order: "asc", Limit: 5, Since: time.Unix(9, 0)},
				),
			)
		},
	}
}

func transfer() walletapi.Transfer {
	return walletapi.Transfer{
		From:        "alice",
		To:          "bob",
		Asset:       "ron",
		AmountMinor: "5",
		Nonce:       1,
		Memo:        "lunch",
		ValidUntil:  "2100-01-01T00:00:00Z",
	}
}

func ledgerCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"ledger head": func() error { return only(c.LedgerHead(ctx)) },
		"roots":       func() error { return only(c.Roots(ctx, 1, 5)) },
		"proof":       func() error { return only(c.Proof(ctx, txid, 2)) },
		"consistency": func() error { return only(c.Consistency(ctx, 1, 2)) },
		"horizon":     func() error { return only(c.LedgerHorizon(ctx)) },
		"periods":     func() error { return only(c.LedgerPeriods(ctx, 1)) },
		"period":      func() error { return only(c.LedgerPeriod(ctx, 3)) },
		"payments": func() error {
			_, err := c.Payments(ctx, walletapi.PaymentsQuery{Limit: 2})
			return err
		},
		"events": func() error {
			return c.Events(ctx, walletapi.PaymentsQuery{}, client.StreamOptions{LastEventID: "0"},
				func(client.Event) error { return client.ErrStop })
		},
		"export": func() error { return c.ExportLedger(ctx, 1, 2, false, func([]byte) error { return nil }) },
	}
}

func tokenCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"mint":   func() error { return only(c.Mint(ctx, nodeapi.MintRequest{Scopes: []string{"a.b"}})) },
		"tokens": func() error { return only(c.Tokens(ctx, "", 5)) },
		"revoke": func() error { return only(c.Revoke(ctx, nodeapi.RevokeRequest{TID: someULID})) },
		"verify": func() error { return only(c.VerifyToken(ctx, nodeapi.VerifyRequest{Token: "good"})) },
		"keys":   func() error { return only(c.Keys(ctx)) },
		"rotate": func() error { return only(c.RotateKey(ctx)) },
		"retire": func() error { return only(c.RetireKey(ctx, "k1")) },
	}
}

func fileCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"info":     func() error { return only(c.DBInfo(ctx)) },
		"stats":    func() error { return only(c.DBStats(ctx)) },
		"accept":   func() error { return c.AcceptRestore(ctx) },
		"check":    func() error { return only(c.CheckDB(ctx, nil)) },
		"snapshot": func() error { return only(c.Snapshot(ctx, nodeapi.SnapshotRequest{Dir: "/d"}, nil)) },
		"archive":  func() error { return only(c.Archive(ctx)) },
		"base":     func() error { return only(c.ArchiveBase(ctx, nil)) },
		"closing":  func() error { return only(c.LedgerClosing(ctx)) },
		"close":    func() error { return only(c.CloseLedger(ctx, nodeapi.LedgerCloseRequest{Keep: "400d"})) },
		"cancel":   func() error { return only(c.CancelLedgerClose(ctx)) },
		"audit":    func() error { return only(c.Audit(ctx, 1, 5)) },
	}
}

func logCalls(ctx context.Context, c *apiClient) map[string]func() error {
	return map[string]func() error{
		"audit chain": func() error { return only(c.AuditChain(ctx, 1, 5)) },
		"checkpoint":  func() error { return only(c.Checkpoint(ctx)) },
		"checkpoints": func() error { return only(c.Checkpoints(ctx, 7)) },
		"inclusion":   func() error { return only(c.Inclusion(ctx, 2, 2)) },
		"consistency": func() error { return only(c.ConsistencyProof(ctx, 1, 2)) },
		"horizon":     func() error { return only(c.Horizon(ctx)) },
		"items":       func() error { return only(c.Items(ctx, 2)) },
		"item":        func() error { return only(c.Item(ctx, 2, "a")) },
		"tile":        func() error { return only(c.Tile(ctx, "0/000.p/2")) },
		"sign now":    func() error { return only(c.CheckpointNow(ctx)) },
		"highwater":   func() error { return only(c.HighWater(ctx)) },
		"adopt":       func() error { return only(c.Adopt(ctx)) },
		"catch up":    func() error { return only(c.CatchUp(ctx, "/d/snap.db")) },
	}
}

func streamCalls(ctx context.Context, c *apiClient) map[string]func() error {
	first := func(client.Event) error { return client.ErrStop }
	return map[string]func() error{
		"stream": func() error { return c.Stream(ctx, client.StreamOptions{}, first) },
		"audit stream": func() error {
			return c.AuditStream(ctx, client.StreamOptions{LastEventID: "0"},
				func(nodeapi.AuditRow) error { return client.ErrStop })
		},
	}
}

// What the node refuses is the problem that the client gives, word for word.
func TestTheClientGivesTheProblem(t *testing.T) {
	w, c := newWitness(t)
	w.node.err = &nodehttp.ConflictError{Reason: "it is so already"}
	_, err := c.RotateKey(t.Context())
	p, ok := errors.AsType[*wire.Problem](err)
	if !ok || p.Status != http.StatusConflict || p.Reason != httpapi.ReasonConflict ||
		!strings.Contains(p.Detail, "it is so already") {
		t.Errorf("err = %v", err)
	}
	if ok && (p.CorrID == "" || p.Instance == "") {
		t.Errorf("problem = %+v", p)
	}
}

// target is a path of the route with values that its parameters can have.
func target(r *httpapi.Route) string {
	return strings.NewReplacer(":v", "2", ":epoch", "1", ":id", proposal, ":kid", "k1", ":profile", "heap",
		":name", "Head", ":txid", txid, ":period", "1", ":session", "0123456789ab").Replace(r.Pattern)
}

// refuses asks a route and wants a 400 that names field.
func (r *rig) refuses(t *testing.T, route *httpapi.Route, target, body, field, doc string) {
	t.Helper()
	w := r.socket(route.Method, target, body, nil)
	if w.Code != http.StatusBadRequest || problemIn(t, w.Body.String()).Details["field"] != field {
		t.Errorf("%s %s, %s: %d %s, want 400 for %s", route.Method, target, doc, w.Code, w.Body, field)
	}
}

// The route checks every query parameter as the document describes it, and accepts no others.
func TestEveryQueryParameterIsHeldToItsRow(t *testing.T) {
	r := newRig(t)
	for _, route := range r.Table() {
		if route.In != nil {
			continue // the body is looked at first
		}
		base := target(&route) + "?"
		if route.Others == httpapi.QueryStrict {
			r.refuses(t, &route, base+"unheard_of=1", "", "unheard_of", "a stranger")
		}
		for _, p := range route.Query {
			r.refuses(t, &route, base+p.Name+"=1&"+p.Name+"=1", "", p.Name, "twice")
			for _, wrong := range misfits(p) {
				r.refuses(t, &route, base+others(&route, p)+p.Name+"="+wrong, "", p.Name, wrong)
			}
		}
	}
}

// misfits are values that p cannot have.
func misfits(p openapi.Param) []string {
	switch {
	case len(p.Enum) > 0:
		return []string{"other", ""}
	case p.Sample != nil:
		return []string{formatUint(p.Min - 1), formatUint(p.Max + 1), "x", "01", "-1", "1.0", ""}
	}
	return nil
}

// others returns the required parameters other than p.
func others(route *httpapi.Route, p openapi.Param) (query string) {
	for _, o := range route.Query {
		if o.Required && o.Name != p.Name {
			query += o.Name + "=" + formatUint(o.Min) + "&"
		}
	}
	return query
}

// The route accepts exactly the bodies that the document describes: no other, repeated or null
// members, and no other types.
func TestEveryBodyIsReadStrictly(t *testing.T) {
	r := newRig(t)
	for _, route := range r.Table() {
		if route.In == nil || route.Body == httpapi.StreamBody {
			continue // a stream has no members
		}
		members := plain(t, r, reflect.TypeOf(route.In).Name())
		names := slices.Sorted(maps.Keys(members))
		whole := func(change, to string) string {
			var out []string
			for _, n := range names {
				if n == change {
					out = append(out, fmt.Sprintf("%q:%s", n, to))
				} else {
					out = append(out, fmt.Sprintf("%q:%s", n, members[n].good))
				}
			}
			return "{" + strings.Join(out, ",")
		}
		send := func(body, field, doc string) { r.refuses(t, &route, target(&route), body, field, doc) }
		send(strings.Replace(whole("", "")+`,"unheard_of":1}`, "{,", "{", 1), "unheard_of", "a stranger")
		for _, n := range names {
			send(whole("", "")+fmt.Sprintf(",%q:%s}", n, members[n].good), n, n+" twice")
			send(whole(n, "null")+"}", n, n+" null")
			if members[n].bad != "" {
				send(whole(n, members[n].bad)+"}", n, n+" of another type")
			}
		}
	}
}

// value is JSON that a member can hold by its type, and JSON that it cannot.
type value struct{ good, bad string }

// wellSpelt returns the members that are checked for syntax before later members.
func wellSpelt() map[string]string {
	return map[string]string{
		"amount_minor": `"5"`,
		"from":         `"alice"`,
		"to":           `"bob"`,
		"asset":        `"ron"`,
		"hold":         `"` + txid + `"`,
		"mode":         `"atomic"`,
		"valid_until":  `"2100-01-01T00:00:00Z"`,
		"account":      `"alice"`,
	}
}

// plain returns values for the members of a body, from its schema.
func plain(t *testing.T, r *rig, name string) map[string]value {
	t.Helper()
	raw, ok := r.Document().Schema(name)
	if !ok {
		t.Fatalf("no schema of %s", name)
	}
	var s struct {
		Properties map[string]struct {
			Type string   `json:"type"`
			Enum []string `json:"enum"`
		} `json:"properties"`
	}
	if err := json.Unmarshal(raw, &s); err != nil {
		t.Fatal(err)
	}
	out := map[string]value{}
	for member, p := range s.Properties {
		out[member] = map[string]value{
			"string": {`"x"`, "1"}, "integer": {"1", `"x"`}, "boolean": {"true", `"x"`}, "array": {"[]", "1"}, "object": {"{}", "1"},
		}[p.Type]
		switch good := wellSpelt()[member]; {
		case p.Type == "":
			out[member] = value{"{}", ""}
		case good != "":
			out[member] = value{good, out[member].bad}
		}
	}
	return out
}

// Every operation says what it changes and how it is bounded, and a write what a repetition does.
func TestEveryOperationIsDescribed(t *testing.T) {
	r := newRig(t)
	for _, route := range r.Table() {
		if route.Writes() && route.Doc == "" && !route.Page {
			t.Errorf("%s %s does not say what it changes", route.Method, route.Pattern)
		}
	}
	var doc struct {
		Paths map[string]map[string]jsontext.Value `json:"paths"`
	}
	if err := json.Unmarshal(r.Document().JSON(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, operations := range doc.Paths {
		for method, raw := range operations {
			var op struct {
				ID          string `json:"operationId"`
				Description string `json:"description"`
			}
			if err := json.Unmarshal(raw, &op); err != nil || op.ID != "" && op.Description == "" {
				t.Errorf("%s %s: %v, it has no description", method, path, err)
			}
		}
	}
}
