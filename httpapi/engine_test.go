package httpapi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

const origin = "ronbox.local/test"

// realRig is the server over the real engine on a real store.
func realRig(t *testing.T, change ...func(*registry.Config)) *rig {
	t.Helper()
	cfg := registry.DefaultConfig()
	cfg.Origin = origin
	for _, f := range change {
		f(&cfg)
	}
	path := filepath.Join(t.TempDir(), "ronbox.db")
	id, err := store.NewIdentity(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Create(path, id); err != nil {
		t.Fatal(err)
	}
	m := obs.NewMetrics()
	cat := flow.NewCatalog(m, nil)
	st := store.New(store.DefaultConfig(), store.Options{
		Path: path, Catalog: cat, Metrics: m, Producers: map[store.Lane][]string{store.Work: {"registry.pipeline"}},
	})
	e := registry.New(cfg, registry.Deps{Catalog: cat, Store: st, Metrics: m, Board: obs.NewBoard(m)})
	sup := flow.NewSupervisor(context.Background(), cat, flow.Hooks{})
	if err := errors.Join(st.Open(t.Context()), st.Prepare(t.Context())); err != nil {
		t.Fatal(err)
	}
	sup.Start(st.Tasks()...)
	if err := e.Recover(t.Context()); err != nil {
		t.Fatal(err)
	}
	sup.Start(e.Tasks()...)
	t.Cleanup(func() {
		cat.CloseFedBy("registry", flow.HTTP)
		sup.CancelBackground()
		sup.Drain("registry", time.Second, time.Second)
		st.CloseLanes()
		sup.Drain("store", time.Second, time.Second)
		sup.Close()
		e.Close()
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, func(c *Settings, d *Deps) {
		d.Registry, d.Metrics, c.SSE, c.Limits[serviceRegistry] = e, m, cfg.SSE, Limits{Inflight: cfg.Limits.Inflight}
	})
	r.metrics, r.store = m, st
	return r
}

func (r *rig) into(t *testing.T, v any, status int, method, path, body string) {
	t.Helper()
	h := writer
	w := r.do(method, path, body, h)
	if strings.HasPrefix(path, "/admin/") {
		w = r.socket(method, path, body, nil)
	}
	if w.Code != status {
		t.Fatalf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, status)
	}
	if v != nil {
		if err := json.Unmarshal(w.Body.Bytes(), v); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, w.Body)
		}
	}
}

func text(t *testing.T, v any) string {
	t.Helper()
	raw, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// begin starts a log of one signer.
func (r *rig) begin(t *testing.T) *record.Key {
	t.Helper()
	key, err := record.NewKey("org:test#1", rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	set := &record.SignerSet{Epoch: 1, Threshold: 1, ThresholdGov: 1, Signers: []record.Signer{key.Signer(1)}}
	draft := record.Draft{Version: 1, Full: true, SignerSet: set}.Bytes()
	p, _, err := record.Complete(draft, record.Base{Origin: origin}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	body := wire.Genesis{Payload: p.Bytes(), Approvals: []wire.Approval{wire.Approval(key.Sign(p.B3(), time.Now()))}}
	var done wire.Committed
	r.into(t, &done, 201, "POST", "/admin/v1/registry/genesis", text(t, body))
	if done.Version != 1 {
		t.Fatalf("genesis: %+v", done)
	}
	return key
}

func addOne(version int, id string) string {
	return fmt.Sprintf(`{"schema_version":"1.0.0","payload":{"schema_version":"1.0.0","version":%d,"mode":"delta",`+
		`"put":[{"id":%q,"kind":"service","meta":{}}],"remove":[]}}`, version, id)
}

func TestProposeApproveCommitReadOverTheEngine(t *testing.T) {
	r := realRig(t).listening(t)
	if w := r.do("POST", "/registry/proposals", addOne(1, "a"), writer); w.Code != 503 || problemIn(t, w.Body.String()).Details["cause"] != "no_genesis" {
		t.Errorf("before genesis: %d %s", w.Code, w.Body)
	}
	key := r.begin(t)
	f := r.stream(t, "")
	f.want("retry: 3000", "event: hello|data: {")

	var p wire.Proposed
	r.into(t, &p, 202, "POST", "/registry/proposals", addOne(2, "a"))
	digest, err := b3.Parse(p.PayloadB3)
	if err != nil || b3.Sum(r.do("GET", p.PayloadURL, "", nil).Body.Bytes()) != digest {
		t.Fatalf("the payload served at %s is not %s", p.PayloadURL, p.PayloadB3)
	}
	if w := r.do("POST", "/registry/commit/"+p.ProposalID, "", writer); w.Code != 422 {
		t.Errorf("commit without a signature: %d %s", w.Code, w.Body)
	}
	signed := wire.Approval(key.Sign(digest, time.Now()))
	signed.ReceivedAt = ""
	r.into(t, nil, 200, "POST", "/registry/approvals/"+p.ProposalID, text(t, signed))
	if w := r.do("POST", "/registry/approvals/"+p.ProposalID, text(t, signed), writer); w.Code != 409 {
		t.Errorf("the same approval again: %d %s", w.Code, w.Body)
	}
	var first, again wire.Committed
	r.into(t, &first, 201, "POST", "/registry/commit/"+p.ProposalID, "")
	r.into(t, &again, 200, "POST", "/registry/commit/"+p.ProposalID, "")
	if first != again || first.Version != 2 || first.PayloadB3 != p.PayloadB3 {
		t.Errorf("committed %+v, then %+v", first, again)
	}
	f.want(`id: 2|event: registry.update|data: {"version":2,"payload_b3":"` + p.PayloadB3)
	r.checkReads(t, first)
}

func (r *rig) checkReads(t *testing.T, c wire.Committed) {
	t.Helper()
	var head wire.Head
	r.into(t, &head, 200, "GET", "/registry/head", "")
	if head.Version != c.Version || head.Hash != c.Hash || head.Epoch != 1 || head.Incarnation == "" {
		t.Errorf("head %+v, want %+v", head, c)
	}
	var v wire.Version
	r.into(t, &v, 200, "GET", "/registry/2", "")
	if v.Hash != c.Hash || len(v.Items) != 1 || len(v.Approvals) != 1 || v.CommittedAt != c.CommittedAt {
		t.Errorf("version %+v", v)
	}
	r.into(t, &v, 200, "GET", "/registry/2?items=0", "")
	if raw := r.do("GET", "/registry/2/entry", "", nil).Body.Bytes(); b3.Sum(raw).String() != c.Hash {
		t.Errorf("entry %s does not hash to %s", raw, c.Hash)
	}
	if raw := r.do("GET", "/registry/2/payload", "", nil).Body.Bytes(); b3.Sum(raw).String() != c.PayloadB3 {
		t.Errorf("payload %s does not hash to %s", raw, c.PayloadB3)
	}
	var d wire.Diff
	r.into(t, &d, 200, "GET", "/registry/diff?from=1&to=2", "")
	if len(d.Put) != 1 || len(d.Remove) != 0 {
		t.Errorf("diff %+v", d)
	}
	var s wire.Signers
	r.into(t, &s, 200, "GET", "/registry/signers", "")
	r.into(t, &s, 200, "GET", "/registry/signers/1", "")
	if set, err := record.ParseSignerSet(s.SignerSet); err != nil || set.B3().String() != s.SignerSetB3 || s.Version != 1 {
		t.Errorf("signers %+v %v", s, err)
	}
	var l wire.ProposalList
	r.into(t, &l, 200, "GET", "/registry/proposals", "")
	r.into(t, nil, 200, "GET", "/registry/2/status", "")
	for _, path := range []string{"/registry/9", "/registry/9/entry", "/registry/signers/9", "/registry/proposals/" + proposal} {
		if w := r.do("GET", path, "", nil); w.Code != 404 {
			t.Errorf("GET %s: %d, want 404", path, w.Code)
		}
	}
	if w := r.do("GET", "/registry/diff?from=2&to=9", "", nil); w.Code != 404 && w.Code != 400 {
		t.Errorf("diff beyond HEAD: %d", w.Code)
	}
}

func TestMalformedPayloadsAreNamedByTheEngine(t *testing.T) {
	r := realRig(t)
	r.begin(t)
	for _, tt := range []struct{ body, field string }{
		{`{"schema_version":"1.0.0","payload":{"schema_version":"1.0.0","version":2,"mode":"delta","put":[],"remove":[],"extra":1}}`, "extra"},
		{`{"schema_version":"1.0.0","payload":{"schema_version":"1.0.0","version":"2","mode":"delta","put":[],"remove":[]}}`, "version"},
		{strings.Replace(addOne(2, "a"), `"kind":"service"`, `"kind":"nothing"`, 1), "put.0.kind"},
	} {
		w := r.do("POST", "/registry/proposals", tt.body, writer)
		if got, _ := problemIn(t, w.Body.String()).Details["field"].(string); w.Code != 400 || !strings.HasSuffix(got, tt.field) {
			t.Errorf("%s: %d %s, want 400 naming %s", tt.body, w.Code, w.Body, tt.field)
		}
	}
}

func TestWithdraw(t *testing.T) {
	r := realRig(t)
	r.begin(t)
	var p wire.Proposed
	r.into(t, &p, 202, "POST", "/registry/proposals", addOne(2, "a"))
	r.into(t, nil, 204, "DELETE", "/registry/proposals/"+p.ProposalID, "")
	if w := r.do("POST", "/registry/commit/"+p.ProposalID, "", writer); w.Code != 409 && w.Code != 410 {
		t.Errorf("commit of a withdrawn proposal: %d %s", w.Code, w.Body)
	}
}

// hold is a command that keeps the committer busy.
type hold struct{ began, end chan struct{} }

func (hold) Kind() string { return "node.hold/1" }

func (h hold) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	close(h.began)
	<-h.end
	return struct{}{}, nil
}

// A full queue refuses at once, tells when to come back, counts each refusal once, and takes nothing in.
func TestAFullQueueIs429(t *testing.T) {
	const room, refused = 4, 7
	r := realRig(t, func(c *registry.Config) { c.Queues.Proposals = room })
	r.begin(t)
	h := hold{make(chan struct{}), make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := store.Commit(context.Background(), r.store, store.Control, h); err != nil {
			t.Error(err)
		}
	})
	<-h.began
	propose := func(id string) int { return r.do("POST", "/registry/proposals", addOne(2, id), writer).Code }
	accepted := func(id string) {
		wg.Go(func() {
			if code := propose(id); code != 202 {
				t.Errorf("an admitted proposal: %d", code)
			}
		})
	}
	accepted("first")
	waitFor(t, "batch to wait for the committer", func() bool { return sum(t, r.metrics, "queue_depth", "service", "store") == 1 })
	for i := range room {
		accepted(fmt.Sprint("queued", i))
	}
	waitFor(t, "queue to fill", func() bool { return sum(t, r.metrics, "queue_depth", "queue", "proposals") == room })
	for i := range refused {
		if code := propose(fmt.Sprint("refused", i)); code != 429 {
			t.Errorf("over the queue: %d, want 429", code)
		}
	}
	close(h.end)
	wg.Wait()
	for _, tt := range []struct{ family, label, value string }{
		{"busy_rejections_total", "endpoint", "propose"}, {"rejected_total", "reason", "busy"}, {"queue_dropped_total", "queue", "proposals"},
	} {
		if got := sum(t, r.metrics, tt.family, tt.label, tt.value); got != refused {
			t.Errorf("%s{%s=%q} = %v, want %d", tt.family, tt.label, tt.value, got, refused)
		}
	}
	var l wire.ProposalList
	r.into(t, &l, 200, "GET", "/registry/proposals", "")
	if len(l.Proposals) != room+1 {
		t.Errorf("%d proposals live, want the %d admitted", len(l.Proposals), room+1)
	}
}
