package server

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/site"
	"ronbox/engines/rewarder"
	"ronbox/engines/rewarder/record"
	"ronbox/httpapi/client"
	"ronbox/httpapi/console"
	"ronbox/httpapi/openapi/openapitest"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
	edgeapi "ronbox/httpapi/wire/edge"
	indexapi "ronbox/httpapi/wire/index"
	ledgerapi "ronbox/httpapi/wire/ledger"
	nodeapi "ronbox/httpapi/wire/node"
	registryapi "ronbox/httpapi/wire/registry"
	rewarderapi "ronbox/httpapi/wire/rewarder"
	walletapi "ronbox/httpapi/wire/wallet"
	"ronbox/store"
)

// witness intercepts the calls of a client and checks every answer against the API document of the
// node.
type witness struct {
	t       *testing.T
	checker *openapitest.Checker
	node    *http.Transport

	mu   sync.Mutex
	seen map[string]bool // operations that were asked for; guarded by mu
}

// witnessed returns a client of the node with a witness for its calls.
func (r *rig) witnessed() (*witness, *apiClient) {
	r.t.Helper()
	doc, err := r.socket().OpenAPI(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", r.cfg.SocketPath())
	}
	w := &witness{
		t:       r.t,
		checker: openapitest.New(r.t, doc),
		node:    &http.Transport{DialContext: dial},
		seen:    map[string]bool{},
	}
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

// Every answer of a node matches its API document.
func TestAnswersAreWhatTheDocumentSays(t *testing.T) {
	cfg, _ := devConfig(t)
	cfg.Archive.Target, cfg.Archive.Plaintext = "file://"+t.TempDir(), true
	r := start(t, cfg)
	w, c := r.witnessed()
	if _, err := put(t.Context(), c, signer(t, cfg), 2, "a"); err != nil {
		t.Fatal(err)
	}
	readAll(t, c)
	payAll(t, c)
	refusePayments(t, c)
	askIndex(t, indexapi.NewClient(c.Client))
	askEdge(t, c)
	askRewarder(r, c)
	askOperator(t, c)
	askCluster(t, clusterapi.NewClient(c.Client))
	_, err := console.NewLink(t.Context(), c.Client, console.Link{})
	done(t, "console link", err)
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

// askCluster asks a node alone.
func askCluster(t *testing.T, c clusterapi.Client) {
	ctx := t.Context()
	_, status := c.ClusterStatus(ctx)
	_, token := c.MintClusterToken(ctx, clusterapi.JoinTokenRequest{})
	_, leave := c.LeaveCluster(ctx, clusterapi.LeaveRequest{Last: true})
	_, remove := c.RemoveMember(ctx, "01M8GB2XYFE53YVCAVJ0PGJJT0")
	_, transfer := c.TransferLeadership(ctx, "")
	_, rotate := c.RotateCertificate(ctx)
	for what, err := range map[string]error{
		"status": status, "token": token, "leave": leave, "remove": remove, "transfer": transfer, "rotate": rotate,
	} {
		if p := problem(t, err); p.Status != http.StatusConflict {
			t.Errorf("%s of a node alone: %v", what, err)
		}
	}
	if _, err := c.InitCluster(ctx, clusterapi.InitRequest{Advertise: "nowhere"}); err == nil {
		t.Error("an init without a port")
	}
}

func readAll(t *testing.T, c *apiClient) {
	ctx := t.Context()
	told[wire.Ready](t)(c.Ready(ctx, "", ""))
	told[wire.Ready](t)(c.Ready(ctx, "registry", "read"))
	told[wire.VersionInfo](t)(c.NodeVersion(ctx))
	told[registryapi.Head](t)(c.Head(ctx))
	told[registryapi.Version](t)(c.Version(ctx, 2, true))
	told[registryapi.Version](t)(c.Version(ctx, 1, false))
	told[registryapi.VersionList](t)(c.Versions(ctx, 0, 0))
	told[registryapi.VersionList](t)(c.Versions(ctx, 2, 1))
	told[registryapi.VersionStatus](t)(c.VersionStatus(ctx, 2))
	told[registryapi.Diff](t)(c.Diff(ctx, 1, 2))
	told[[]registryapi.TargetGroup](t)(c.Services(ctx, "metrics"))
	told[registryapi.ProposalList](t)(c.Proposals(ctx, "", 5))
	told[registryapi.Signers](t)(c.Signers(ctx, 0))
	told[registryapi.Signers](t)(c.Signers(ctx, 1))
	told[registryapi.AuditChain](t)(c.AuditChain(ctx, 1, 5))
	told[registryapi.Checkpoint](t)(c.CheckpointNow(ctx))
	told[registryapi.Horizon](t)(c.Horizon(ctx))
	told[[]byte](t)(c.Checkpoint(ctx))
	told[registryapi.CheckpointList](t)(c.Checkpoints(ctx, 0))
	told[registryapi.InclusionProof](t)(c.Inclusion(ctx, 1, 0))
	told[registryapi.ConsistencyProof](t)(c.ConsistencyProof(ctx, 1, 2))
	told[registryapi.ItemProof](t)(c.Item(ctx, 2, "nobody"))
	told[[]byte](t)(c.Tile(ctx, "0/000.p/2"))
	told[registryapi.HighWater](t)(c.HighWater(ctx))
	for _, raw := range []func() ([]byte, error){
		func() ([]byte, error) { return c.Payload(ctx, 2) }, func() ([]byte, error) { return c.Entry(ctx, 2) },
		func() ([]byte, error) { return c.Metrics(ctx) }, func() ([]byte, error) { return c.OpenAPI(ctx) },
		func() ([]byte, error) { return c.Schema(ctx, "Problem") },
	} {
		told[[]byte](t)(raw())
	}
	err := c.Stream(ctx, client.StreamOptions{LastEventID: "1"}, func(e client.Event) error {
		if e.Name == registryapi.EventUpdate {
			return client.ErrStop
		}
		return nil
	})
	done(t, "stream", err)
	done(t, "healthz", c.Healthz(ctx))
}

func askIndex(t *testing.T, c indexapi.Client) {
	ctx := t.Context()
	const key, cid = "name:docs.example", "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	told[indexapi.NameRow](t)(c.Put(ctx, key, cid))
	told[indexapi.NameRow](t)(c.Name(ctx, key))
	told[indexapi.NameList](t)(c.Names(ctx, "", "", 10))
	told[indexapi.Resolved](t)(c.Resolve(ctx, key, true))
	told[indexapi.AnnounceResults](t)(
		c.Announce(ctx, []indexapi.Announcement{{CID: cid, Addrs: []string{"/ip4/192.0.2.1/tcp/1"}}}),
	)
	told[indexapi.Providers](t)(c.Providers(ctx, indexapi.ProvidersQuery{CID: cid}))
	told[[]byte](t)(c.Bytes(ctx, "/routing/v1/providers/"+cid))
	told[indexapi.PeerList](t)(c.Peers(ctx))
	told[indexapi.NodeIdentity](t)(c.Identity(ctx))
	told[indexapi.Reindexed](t)(c.Reindex(ctx, []string{key}))
	done(t, "withdraw", c.Withdraw(ctx, cid))
	done(t, "delete", c.Delete(ctx, key))
}

// askEdge asks a node without packs, which fetches nothing.
func askEdge(t *testing.T, c *apiClient) {
	ctx := t.Context()
	told[edgeapi.Catalog](t)(c.Catalog(ctx))
	told[edgeapi.Catalog](t)(c.Rescan(ctx))
	_, _, err := c.Verify(ctx, edgeapi.Verify{}, nil)
	done(t, "verify of the edge", err)
	told[[]byte](t)(c.EdgeBytes(ctx, "static/preview.js"))
	_, _ = c.EdgeBytes(ctx, "tiles/none.json")
	_, _ = c.EdgeBytes(ctx, "styles/none.json")
	_, _ = c.EdgeBytes(ctx, "tiles/none/0/0/0.png")
	_, _ = c.EdgeBytes(ctx, "preview/none")
	_, _ = c.EdgeBytes(ctx, "usage/1") // of no fleet
	_, _ = c.EdgeBytes(ctx, "assets/cdn.example/a")
	if _, err := c.Fill(ctx, edgeapi.Fill{URL: "https://cdn.example/a"}); err == nil {
		t.Error("a node that is offline has filled")
	}
	told[edgeapi.ExtractList](t)(c.Extracts(ctx))
	if _, err := c.Extract(ctx, edgeapi.ExtractStart{URL: "https://cdn.example/a", Pack: "a"}); err == nil {
		t.Error("a node that is offline has begun an extract")
	}
	if err := c.RemoveExtract(ctx, "a"); err == nil {
		t.Error("an extract was removed that was not there")
	}
	told[edgeapi.Store](t)(c.EdgeStore(ctx))
	told[edgeapi.StoredList](t)(c.EdgeKeys(ctx, "https://", "", 10, false))
	told[edgeapi.PlacementList](t)(c.EdgePlacements(ctx))
	for _, do := range []asset.Action{asset.Pin, asset.Unpin, asset.Remove} {
		told[edgeapi.Kept](t)(c.EdgeKeep(ctx, do, []string{"https://cdn.example/a"}))
	}
	askSites(t, c)
	f, err := os.Open("../../../testdata/packs/twolayers.mbtiles")
	must(t, err)
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	must(t, err)
	told[edgeapi.Pack](t)(c.PutPack(ctx, edgeapi.PackPut{File: "put.mbtiles", Body: f, Size: info.Size()}))
	told[[]byte](t)(c.EdgeBytes(ctx, "styles/put.json"))
	done(t, "remove of a pack", c.RemovePack(ctx, "put.mbtiles"))
}

// askSites publishes a site of one page, and reads it.
func askSites(t *testing.T, c *apiClient) {
	ctx := t.Context()
	page := "<h1>A page"
	put := func(body, kind string) edgeapi.Object {
		return told[edgeapi.Object](t)(c.PutObject(ctx, edgeapi.ObjectPut{
			Body: strings.NewReader(body), Size: int64(len(body)), Type: kind, Expect: b3.Sum([]byte(body)),
		}))
	}
	for _, fresh := range []bool{true, false} {
		if o := put(page, "text/html; charset=utf-8"); o.New != fresh || o.B3 != b3.Sum([]byte(page)).String() {
			t.Errorf("%+v", o)
		}
	}
	manifest, err := site.Encode([]site.File{
		{Path: site.Index, Digest: b3.Sum([]byte(page)), Size: int64(len(page)), Type: site.TypeOf(site.Index)},
	})
	must(t, err)
	o := put(string(manifest), site.MediaType)
	told[indexapi.NameRow](t)(indexapi.NewClient(c.Client).Put(ctx, "name:site.example@1.0.0", o.B3))
	for path, want := range map[string]string{
		"sites/site.example@1.0.0/": page, "sites/site.example@1.0.0/index.html": page,
		"assets/b3/" + o.B3[len("b3:"):]: string(manifest),
	} {
		if got := told[[]byte](t)(c.EdgeBytes(ctx, path)); string(got) != want {
			t.Errorf("%s: %q", path, got)
		}
	}
	for _, path := range []string{
		"sites/none.example/", "sites/site.example@1.0.0", "sites/_/", "sites/site.example@1.0.0/x",
	} {
		if _, err := c.EdgeBytes(ctx, path); err == nil {
			t.Errorf("%s is served", path)
		}
	}
}

// askRewarder has an epoch computed and paid, and reads what came of it.
func askRewarder(r *rig, c *apiClient) {
	t, ctx, rew := r.t, r.t.Context(), rewarderapi.NewClient(c.Client)
	body, err := os.ReadFile("../../../testdata/rewarder/policy.json")
	must(t, err)
	raw, err := os.ReadFile(r.cfg.Path(config.PolicyKeyName))
	must(t, err)
	key, err := record.ParseKey(raw)
	must(t, err)
	put := rewarderapi.PolicyPut{Body: body, Signatures: []record.Signature{key.Sign(b3.Sum(body))}}
	policy := told[rewarder.Policy](t)(rew.PutPolicy(ctx, "flights", put))
	told[rewarder.Policy](t)(rew.PutPolicy(ctx, "flights", put))
	told[rewarder.Policy](t)(rew.Policy(ctx, "flights"))
	told[rewarder.PolicyPage](t)(rew.Policies(ctx, ""))
	told[walletapi.Posted](t)(
		c.Issue(ctx, "pool", walletapi.Issue{To: "pool:protocol", Asset: "ron", AmountMinor: "1000", Nonce: 2}),
	)
	u := told[rewarder.Upload](t)(rew.Open(ctx, rewarder.OpenInput{
		EpochID:   "e",
		Asset:     "ron",
		PoolMinor: engines.AmountOf(0, 100),
		Metrics:   []string{"requests"},
		Account:   "pool:protocol",
	}))
	told[rewarder.Upload](t)(rew.PutPart(ctx, u.ID, 0, []byte(`{"actor":"a","metric":"requests","qty":"1"}`+"\n")))
	parts := "/rewarder/inputs/" + u.ID.String() + "/parts/"
	_, err = c.Do(
		ctx,
		client.Call{
			Method: http.MethodPut,
			Path:   parts + "1/csv",
			Body:   []byte("actor,metric,qty\nb,requests,2\n"),
			Header: http.Header{"Content-Type": {"text/csv"}},
		},
	)
	done(t, "a part in CSV", err)
	_, _ = rew.PutPart(ctx, u.ID, 7, []byte("{}\n"))
	told[rewarder.UploadPage](t)(rew.Uploads(ctx, "", 10))
	in := told[rewarder.Input](t)(rew.Seal(ctx, u.ID))
	_ = rew.DropUpload(ctx, in.InputsCID.String())
	ask := rewarder.ComputeRequest{InputsCID: in.InputsCID, PolicyID: policy.ID, PolicyHash: policy.Hash}
	_, _ = rew.Epoch(ctx, "e")
	told[rewarder.Run](t)(rew.Compute(ctx, "e", ask))
	r.await("the epoch is paid", func() bool {
		run, err := rew.Epoch(ctx, "e")
		return err == nil && run.State == rewarder.Settled
	})
	told[rewarder.Run](t)(rew.Compute(ctx, "e", ask))
	_, _ = rew.Compute(ctx, "e",
		rewarder.ComputeRequest{InputsCID: in.LedgerCID, PolicyID: policy.ID, PolicyHash: policy.Hash})
	told[rewarder.Run](t)(rew.Emit(ctx, "e", false))
	told[[]byte](t)(rew.Proof(ctx, "e", "a"))
	told[[]byte](t)(rew.Proof(ctx, "e", "none"))
	for _, rebuild := range []bool{false, true} {
		_, _ = rew.Files(ctx, "e", rebuild) // refused while the files are being written
	}
	for _, path := range []string{"inputs/" + in.InputsCID.String(), "epochs?limit=1", "epochs/e/allocations",
		"epochs/e/settlement", "epochs/e/parked", "epochs/e?seen=x"} {
		told[[]byte](t)(c.Bytes(ctx, "/rewarder/"+path))
	}
}

// done is told for a call that answers nothing, or elsewhere.
func done(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

func askOperator(t *testing.T, c *apiClient) {
	ctx := t.Context()
	token := told[nodeapi.Token](t)(c.Mint(ctx, nodeapi.MintRequest{
		Sub: "me", Tenant: "t", Scopes: []string{"registry.propose"}, Caveats: []string{"ip = 10.0.0.0/8"},
	}))
	told[nodeapi.TokenList](t)(c.Tokens(ctx, "", 1))
	told[nodeapi.Verdict](t)(
		c.VerifyToken(ctx, nodeapi.VerifyRequest{Token: token.Token, Scope: "registry.propose", IP: "11.0.0.1"}),
	)
	told[nodeapi.Verdict](t)(c.VerifyToken(ctx, nodeapi.VerifyRequest{Token: "garbled"}))
	for range 2 {
		told[nodeapi.Revoked](t)(c.Revoke(ctx, nodeapi.RevokeRequest{TID: token.TID, Reason: "test"}))
	}
	told[nodeapi.Revoked](t)(c.Revoke(ctx, nodeapi.RevokeRequest{All: true}))
	old := told[nodeapi.KeyList](t)(c.Keys(ctx)).Active
	told[nodeapi.KeyInfo](t)(c.RotateKey(ctx))
	told[nodeapi.KeyInfo](t)(c.RetireKey(ctx, old))
	told[nodeapi.KeyList](t)(c.Keys(ctx))
	told[nodeapi.LedgerClosing](t)(c.LedgerClosing(ctx))
	told[nodeapi.LedgerClosing](t)(c.CancelLedgerClose(ctx))
	told[ledgerapi.LedgerHorizon](t)(c.LedgerHorizon(ctx))
	told[ledgerapi.LedgerPeriods](t)(c.LedgerPeriods(ctx, 0))
	if _, err := c.LedgerPeriod(ctx, 1); err == nil {
		t.Error("there is a closed period in a new ledger")
	}
	if _, err := c.CloseLedger(ctx, nodeapi.LedgerCloseRequest{Keep: "400d"}); err == nil {
		t.Error("records are closed on their first day")
	}
	told[nodeapi.Status](t)(c.Status(ctx))
	told[nodeapi.ConfigShow](t)(c.Config(ctx))
	told[nodeapi.TaskList](t)(c.Tasks(ctx))
	told[nodeapi.QueueList](t)(c.Queues(ctx))
	told[nodeapi.LogLevel](t)(c.LogLevel(ctx))
	told[nodeapi.LogLevel](t)(c.SetLogLevel(ctx, nodeapi.LogLevel{Level: "debug", Service: "registry"}))
	told[nodeapi.DBInfo](t)(c.DBInfo(ctx))
	told[nodeapi.DBStats](t)(c.DBStats(ctx))
	told[nodeapi.SeriesList](t)(c.Series(ctx))
	told[nodeapi.Checkup](t)(c.Doctor(ctx))
	told[nodeapi.Clock](t)(c.Clock(ctx))
	told[nodeapi.SnapshotList](t)(c.Snapshots(ctx))
	told[nodeapi.Archive](t)(c.Archive(ctx))
	told[nodeapi.Archive](t)(c.ArchiveBase(ctx, nil))
	told[nodeapi.SessionList](t)(c.Sessions(ctx))
	told[nodeapi.CheckLine](t)(c.CheckDB(ctx, nil))
	told[nodeapi.Snapshot](t)(c.Snapshot(ctx, nodeapi.SnapshotRequest{Dir: t.TempDir(), Compact: true}, nil))
	told[nodeapi.AuditPage](t)(c.Audit(ctx, 1, 3))
	done(t, "profile", c.Profile(ctx, "heap", 0, io.Discard))
	done(
		t,
		"audit stream",
		c.AuditStream(ctx, client.StreamOptions{LastEventID: "0"},
			func(nodeapi.AuditRow) error { return client.ErrStop }),
	)
}

// refuseAll sends requests that fail or have no effect. The witness checks the answers.
func refuseAll(ctx context.Context, c *apiClient) {
	const nobody = "p_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	_, _ = c.Version(ctx, 99, true)
	_, _ = c.Proposal(ctx, nobody)
	_, _ = c.ProposalPayload(ctx, nobody)
	_ = c.Withdraw(ctx, nobody)
	_, _ = c.Genesis(ctx, []byte(`{}`), nil)
	_, _ = c.RetireKey(ctx, "nobody")
	_, _ = c.Mint(ctx, nodeapi.MintRequest{})
	_, _ = c.Revoke(ctx, nodeapi.RevokeRequest{TID: "x"})
	_, _ = c.SetLogLevel(ctx, nodeapi.LogLevel{Level: "loud"})
	_ = c.EndSession(ctx, "none")
	_, _ = c.Schema(ctx, "nobody")
	_, _ = c.Reload(ctx)
	_ = c.AcceptRestore(ctx)
	_, _ = c.AcceptClock(ctx)
	_, _ = c.Adopt(ctx)
	_, _ = c.CatchUp(ctx, "/nowhere")
}

// payAll calls every route that moves money and reads the results. The witness checks the answers.
func payAll(t *testing.T, c *apiClient) {
	ctx := t.Context()
	posted := told[walletapi.Posted](t)
	posted(c.DeclareAsset(ctx, "asset", walletapi.AssetDeclare{Asset: "gold"}))
	posted(c.Issue(ctx, "issue", walletapi.Issue{To: "t/carol", Asset: "gold", AmountMinor: "1000", Nonce: 1}))
	body := walletapi.Transfer{
		From:        "alice",
		To:          "bob",
		Asset:       "ron",
		AmountMinor: "10",
		Nonce:       1,
		Memo:        "for the book",
	}
	first := posted(c.Transfer(ctx, "pay", body))
	if again := posted(c.Transfer(ctx, "pay", body)); !again.Replayed || string(again.Raw) != string(first.Raw) {
		t.Errorf("again: %s, was %s", again.Raw, first.Raw)
	}
	posted(c.Burn(ctx, "burn", walletapi.Burn{From: "alice", Asset: "ron", AmountMinor: "5", Nonce: 2}))
	hold := func(key string, nonce uint64) string {
		return posted(c.Hold(ctx, key, walletapi.Hold{
			From: "alice", To: "bob", Asset: "ron", AmountMinor: "7", Nonce: nonce, ExpiresInS: 3600,
			Reference: key,
		})).Receipt.TxID
	}
	open := hold("hold-1", 3)
	told[walletapi.HoldList](t)(c.Holds(ctx, "alice", "", 5))
	told[walletapi.HoldInfo](t)(c.HoldInfo(ctx, open))
	told[walletapi.AccountList](t)(c.Accounts(ctx, "", "", 5))
	told[[]byte](t)(c.Reference(ctx, "", "hold-1"))
	posted(c.Capture(ctx, "capture", walletapi.Capture{Hold: open, AmountMinor: "6"}))
	posted(c.Release(ctx, "release", walletapi.Release{Hold: hold("hold-2", 4)}))
	posted(c.SetFlags(ctx, "freeze", walletapi.FlagsChange{Account: "bob", Set: []string{"no_credit"}}))
	batch := told[walletapi.BatchPosted](t)
	batch(c.Batch(ctx, "some", walletapi.Batch{Mode: "independent", Ops: []walletapi.BatchOp{
		{Op: walletapi.OpTransfer, From: "alice", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 5},
		{Op: walletapi.OpTransfer, From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Nonce: 6},
	}}))
	batch(c.Batch(ctx, "all", walletapi.Batch{Mode: "atomic", Ops: []walletapi.BatchOp{
		{Op: walletapi.OpTransfer, From: "alice", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 6},
	}}))
	told[wire.Ready](t)(c.Ready(ctx, "wallet", ""))
	readMoney(t, c, first)
}

func readMoney(t *testing.T, c *apiClient, paid walletapi.Posted) {
	ctx, id := t.Context(), paid.Receipt.TxID
	told[walletapi.Balance](t)(c.Balance(ctx, "alice", "ron", paid.Receipt.Ledger.Seq))
	told[walletapi.Balance](t)(c.Balance(ctx, "nobody", "ron", 0))
	told[walletapi.Account](t)(c.Account(ctx, "alice"))
	told[walletapi.Account](t)(c.Account(ctx, "nobody"))
	told[walletapi.AssetList](t)(c.Assets(ctx))
	page := told[walletapi.History](t)(c.History(ctx, walletapi.HistoryQuery{Account: "alice", Asset: "ron", Limit: 2}))
	told[walletapi.History](t)(
		c.History(ctx, walletapi.HistoryQuery{Account: "alice", Asset: "ron", Limit: 2, Cursor: page.Next}),
	)
	told[walletapi.History](t)(
		c.History(
			ctx,
			walletapi.HistoryQuery{Account: "alice", Asset: "ron", Since: time.Now().Add(-time.Hour), Order: "asc"},
		),
	)
	told[ledgerapi.Roots](t)(c.Roots(ctx, 0, 2))
	told[ledgerapi.LedgerHead](t)(c.LedgerHead(ctx))
	raw := told[[]byte](t)
	raw(c.Tx(ctx, id))
	raw(c.Proof(ctx, id, 0))
	raw(c.Consistency(ctx, 1, paid.Receipt.Ledger.Batch))
	lines := 0
	done(t, "export", c.ExportLedger(ctx, 1, 0, false, func([]byte) error { lines++; return nil }))
	if lines < 10 {
		t.Errorf("an export of %d lines", lines)
	}
	told[walletapi.PaymentList](t)(c.Payments(ctx, walletapi.PaymentsQuery{Memo: "book", Limit: 1}))
	enough := errors.New("enough")
	err := c.Events(ctx, walletapi.PaymentsQuery{}, client.StreamOptions{LastEventID: "0"}, func(client.Event) error {
		return enough
	})
	if !errors.Is(err, enough) {
		t.Errorf("events: %v", err)
	}
}

// refusePayments sends requests that the wallet must refuse.
func refusePayments(t *testing.T, c *apiClient) {
	ctx := t.Context()
	const nobody = "tx_00000000000000000000000000"
	_, _ = c.Transfer(ctx, "r1", walletapi.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "x", Nonce: 7})
	_, _ = c.Transfer(ctx, "r2",
		walletapi.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Nonce: 70})
	_, _ = c.Transfer(ctx, "r3",
		walletapi.Transfer{From: "nobody", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 1})
	_, _ = c.Transfer(ctx, "pay",
		walletapi.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "11", Nonce: 1})
	// it takes no credit
	_, _ = c.Transfer(ctx, "r4", walletapi.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Nonce: 7})
	_, _ = c.Capture(ctx, "r5", walletapi.Capture{Hold: nobody})
	_, _ = c.Batch(ctx, "r6", walletapi.Batch{Mode: "atomic", Ops: []walletapi.BatchOp{
		{Op: walletapi.OpTransfer, From: "nobody", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 1},
	}})
	_, _ = c.Tx(ctx, nobody)
	_, _ = c.Proof(ctx, nobody, 0)
	_, _ = c.Consistency(ctx, 5, 1)
	_, _ = c.History(ctx, walletapi.HistoryQuery{Account: "alice", Asset: "ron", Cursor: "none"})
}

// A file records the same buckets, in the same classes, whether it was opened offline, by a node,
// or by a node with its services off.
func TestEveryOpeningKeepsTheBuckets(t *testing.T) {
	cfg, _ := devConfig(t)
	want := recorded(t, cfg)
	hash := stateHash(t, cfg)
	catalog := flow.NewCatalog(nil, nil)
	s := store.New(cfg.Store, store.Options{Path: cfg.Path(config.DatabaseName), Catalog: catalog})
	wiring.Declare(s)
	must(t, s.Open(t.Context()))
	must(t, s.Prepare(t.Context()))
	sup := flow.NewSupervisor(context.WithoutCancel(t.Context()), catalog, flow.Hooks{})
	sup.Start(s.Tasks()...)
	s.CloseLanes()
	sup.Drain("store", patience, patience)
	sup.Close()
	must(t, s.Close())
	if got := recorded(t, cfg); !slices.Equal(got, want) {
		t.Errorf("without a node the file records %v, a node %v", got, want)
	}
	off := loaded(t, cfg)
	off.Registry.Enabled, off.Wallet.Enabled = false, false
	start(t, off).halt()
	if got := recorded(t, cfg); !slices.Equal(got, want) || stateHash(t, cfg) != hash {
		t.Errorf("with services off the file records %v, state %s; was %v, %s", got, stateHash(t, cfg), want, hash)
	}
}

// recorded lists the buckets that a stopped node's file records.
func recorded(t *testing.T, cfg *config.Config) (names []string) {
	t.Helper()
	r, err := store.OpenReader(cfg.Path(config.DatabaseName))
	must(t, err)
	for _, b := range r.Buckets() {
		names = append(names, b.Name+" "+b.Class.String())
	}
	must(t, r.Close())
	slices.Sort(names)
	return names
}

// asked are the tables of the services' concurrency documents, by heading.
func asked(t *testing.T) map[string][]string {
	t.Helper()
	raw, err := os.ReadFile("../../../testdata/seeds/tables.md")
	must(t, err)
	tables := map[string][]string{}
	for section := range strings.SplitSeq(string(raw), "\n## ") {
		name, rows, _ := strings.Cut(section, "\n")
		tables[name] = strings.Split(strings.TrimSpace(rows), "\n")
	}
	return tables
}

// kinds are the documents' words.
var kinds = map[string]flow.Kind{
	"mpsc":      flow.KindQueue,
	"broadcast": flow.KindBroadcast,
	"watch":     flow.KindWatch,
	"interval":  flow.KindTicker,
}

var quoted = regexp.MustCompile("`([^`]+)`")

// Each channel that the documents list is declared under its name, of its kind and with its capacity.
func TestTopologyIsAsAsked(t *testing.T) {
	declared, rows := map[string]flow.Spec{}, 0
	for _, s := range defaultTopologies(t)[0].Catalog.Specs() {
		declared[s.Service+"."+s.Name] = s
	}
	for service, table := range asked(t) {
		for _, row := range table {
			cells := strings.Split(row, "|")
			if len(cells) < 7 || !strings.Contains(cells[1], "`") {
				continue
			}
			rows++
			name := quoted.FindStringSubmatch(cells[1])[1]
			s, known := declared[service+"."+name]
			if !known {
				s, known = declared[service+"."+name+"_rx"] // a watch is named from its reader's side
			}
			if !known && service == "wallet" {
				s, known = declared["ledger."+name]
			}
			if kind := kinds[strings.Trim(cells[2], " `")]; !known || s.Kind != kind {
				t.Errorf("%s.%s is a %q, want %q", service, name, s.Kind, kind)
			}
			if bound, err := strconv.Atoi(strings.TrimSpace(cells[3])); err == nil && s.Cap != bound {
				t.Errorf("%s.%s has cap %d, want %d", service, name, s.Cap, bound)
			}
		}
	}
	if rows < 20 {
		t.Errorf("only %d rows were read", rows)
	}
}

// The registry shows each metric of its document, with its label.
func TestRegistryShowsWhatWasAsked(t *testing.T) {
	shown := families(t)
	for _, line := range asked(t)["metrics of the registry"] {
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			name, label, labelled := strings.Cut(strings.TrimSuffix(m[1], "}"), "{")
			if !strings.Contains(name, "_") {
				continue // a value of a label
			}
			i := slices.IndexFunc(shown, func(f obs.Family) bool { return f.Name == name })
			if i < 0 || labelled && !slices.Contains(shown[i].Labels, label) {
				t.Errorf("%s with label %q is not there", name, label)
			}
		}
	}
}

// The default time limits of the registry are those of its document.
func TestRegistryWaitsAsAsked(t *testing.T) {
	cfg := config.Default()
	text := strings.Join(asked(t)["timeouts of the registry"], "\n")
	for key, has := range map[string]time.Duration{
		"read=": cfg.Server.ReadTimeout.D(), "write=": cfg.Server.WriteTimeout.D(), "idle=": cfg.Server.IdleTimeout.D(),
		"drain_deadline` (config, default ": cfg.Registry.DrainDeadline.D(),
	} {
		_, rest, found := strings.Cut(text, key)
		if want, err := time.ParseDuration(rest[:strings.IndexAny(rest, "`)")]); !found || err != nil || has != want {
			t.Errorf("%s%s, want %s (%v)", key, has, want, err)
		}
	}
}
