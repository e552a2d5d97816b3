package httpapi_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
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
	"ronbox/httpapi"
	registryhttp "ronbox/httpapi/registry"
	registryapi "ronbox/httpapi/wire/registry"
	"ronbox/store"
)

const approvalBody = `{"signer_id":"org:a#1","algo":"ed25519","sig":"x","signed_at":"2026-01-01T00:00:00Z"}`

func TestRegistryReads(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct{ path, body, cache, etag string }{
		{"/registry/head", headJSON(3), httpapi.CacheAsk, `"b3:3"`},
		{"/registry/2", versionJSON(2, `"items":[],`), httpapi.CacheForever, `"v2"`},
		{"/registry/2?items=0", versionJSON(2, ""), httpapi.CacheForever, `"v2"`},
		{"/registry/2/payload", `{"payload":2}`, httpapi.CacheForever, httpapi.TagOf([]byte(`{"payload":2}`))},
		{"/registry/2/entry", `{"entry":2}`, httpapi.CacheForever, httpapi.TagOf([]byte(`{"entry":2}`))},
		{"/registry/2/status", `{"pruned":false,"covered_by":2}`, httpapi.CacheAsk, ""},
		{"/registry/sd", `[]`, httpapi.CacheAsk, `"3"`},
		{"/registry/diff?from=1&to=2", `{"put":[{"id":"a"}],"remove":["b"]}`, httpapi.CacheAsk, ""},
		{"/registry/proposals/" + proposal + "/payload", `{"type":"x"}`, httpapi.CacheAsk, httpapi.TagOf([]byte(`{"type":"x"}`))},
	} {
		w := r.do(http.MethodGet, tt.path, "", nil)
		h := w.Header()
		if w.Code != 200 || strings.TrimSuffix(w.Body.String(), "\n") != tt.body ||
			h.Get("Cache-Control") != tt.cache ||
			h.Get("ETag") != tt.etag {
			t.Errorf("GET %s: %d %s %v", tt.path, w.Code, w.Body, h)
		}
		if tt.etag == "" {
			continue
		}
		for _, match := range []string{tt.etag, `"x", W/` + tt.etag, "*"} {
			w := r.do(http.MethodGet, tt.path, "", header{"If-None-Match": match})
			if w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != tt.etag {
				t.Errorf("GET %s with If-None-Match %s: %d %s", tt.path, match, w.Code, w.Body)
			}
		}
		if w := r.do(http.MethodGet, tt.path, "", header{"If-None-Match": `"other"`}); w.Code != 200 {
			t.Errorf("GET %s with another tag: %d", tt.path, w.Code)
		}
	}
}

func TestRegistryProposals(t *testing.T) {
	r := newRig(t)
	list := r.do(http.MethodGet, "/registry/proposals?limit=7&cursor="+proposal, "", nil).Body.String()
	for _, want := range []string{`"proposal_id":"` + proposal, `"version":7`, `"next":"` + proposal, `"payload_url":"/registry/proposals/`} {
		if !strings.Contains(list, want) {
			t.Errorf("list %s lacks %s", list, want)
		}
	}
	one := r.do(http.MethodGet, "/registry/proposals/"+proposal, "", nil).Body.String()
	if !strings.Contains(one, `"state":"pending"`) {
		t.Errorf("proposal %s", one)
	}
}

func TestRegistryWrites(t *testing.T) {
	for _, tt := range []struct {
		method, path, body string
		replay             bool
		status             int
		answer             string
	}{
		{"POST", "/registry/proposals", proposeBody(1), false, 202, `"payload_url":"/registry/proposals/` + proposal + `/payload"`},
		{"POST", "/registry/proposals", proposeBody(1), true, 202, `"proposal_id":"` + proposal},
		{"POST", "/registry/approvals/" + proposal, approvalBody, false, 200, `{"status":"accepted","approvals":1,"quorum":{"m":1,"n":2}}`},
		{"POST", "/registry/commit/" + proposal, "", false, 201, `"version":2`},
		{"POST", "/registry/commit/" + proposal, "", true, 200, `"version":2`},
		{"DELETE", "/registry/proposals/" + proposal, "", false, 204, ""},
	} {
		r := newRig(t)
		r.reg.replay = tt.replay
		w := r.do(tt.method, tt.path, tt.body, writer)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.answer) ||
			w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %d %s %v", tt.method, tt.path, w.Code, w.Body, w.Header())
		}
		if (w.Header().Get("Idempotent-Replayed") == "true") != tt.replay {
			t.Errorf("%s %s: Idempotent-Replayed %q", tt.method, tt.path, w.Header().Get("Idempotent-Replayed"))
		}
		if r.reg.actor.CapID != "tid" || r.reg.calls != 1 {
			t.Errorf("%s %s: %d calls by %+v", tt.method, tt.path, r.reg.calls, r.reg.actor)
		}
	}
}

func TestRegistryWritesNeedAToken(t *testing.T) {
	r := newRig(t)
	for _, route := range r.tableOf("/registry/", httpapi.ClassWrite) {
		path := strings.Replace(route.Pattern, ":id", proposal, 1)
		for _, tt := range []struct {
			auth   string
			status int
		}{{"", 401}, {"Bearer forged", 401}, {"Basic good", 401}, {"Bearer", 401}, {"Bearer bad", 403}} {
			w := r.do(route.Method, path, "", header{"Authorization": tt.auth})
			if d := problemIn(t, w.Body.String()).Detail; w.Code != tt.status || !strings.Contains(d, "ronbox token") {
				t.Errorf("%s %s as %q: %d %s, want %d, saying what to do", route.Method, path, tt.auth, w.Code, w.Body,
					tt.status)
			}
		}
	}
	if r.reg.calls != 0 {
		t.Errorf("the engine was called %d times", r.reg.calls)
	}
}

func TestRegistryBodiesNameTheirFault(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct{ path, body, field string }{
		{"/registry/proposals", `{"payload":{}}`, "schema_version"},
		{"/registry/proposals", `{"schema_version":"2.0.0","payload":{}}`, "schema_version"},
		{"/registry/proposals", `{"schema_version":"1.0.0"}`, "payload"},
		{"/registry/proposals", `{"schema_version":"1.0.0","payload":{},"payload":{}}`, "payload"},
		{"/registry/proposals", `{"schema_version":"1.0.0","payload":{},"extra":1}`, "extra"},
		{"/registry/proposals", `{"schema_version":1,"payload":{}}`, "schema_version"},
		{"/registry/approvals/" + proposal, `{"signer_id":["a"]}`, "signer_id"},
		{"/registry/approvals/" + proposal, `{"received_at":"2026-01-01T00:00:00Z"}`, "received_at"},
	} {
		w := r.do(http.MethodPost, tt.path, tt.body, writer)
		p := problemIn(t, w.Body.String())
		if w.Code != 400 || p.Details["field"] != tt.field || !strings.Contains(p.Detail, tt.field) {
			t.Errorf("%s %s: %d %+v, want 400 naming %s", tt.path, tt.body, w.Code, p, tt.field)
		}
	}
	if r.reg.calls != 0 {
		t.Errorf("the engine was called %d times", r.reg.calls)
	}
}

func TestProposalIDsThatCannotBe(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/registry/commit/x", "/registry/commit/p_", "/registry/approvals/" + strings.ToLower(proposal)} {
		if w := r.do(http.MethodPost, path, approvalBodyFor(path), writer); w.Code != http.StatusNotFound {
			t.Errorf("POST %s: %d, want 404", path, w.Code)
		}
	}
}

func approvalBodyFor(path string) string {
	if strings.Contains(path, "approvals") {
		return approvalBody
	}
	return ""
}

func TestBusyIsCountedExactly(t *testing.T) {
	r := newRig(t)
	r.reg.set(flow.ErrBusy)
	for range 3 {
		w := r.do(http.MethodPost, "/registry/proposals", proposeBody(1), writer)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
	w := r.do(http.MethodPost, "/registry/approvals/"+proposal, approvalBody, writer)
	if w.Code != http.StatusTooManyRequests {
		t.Fatal(w.Code)
	}
	for _, tt := range []struct {
		family, label, value string
		want                 float64
	}{
		{"busy_rejections_total", "endpoint", "propose", 3}, {"busy_rejections_total", "endpoint", "approve", 1},
		{"busy_rejections_total", "service", "registry", 4}, {"rejected_total", "reason", "busy", 4},
		{"http_requests_total", "status", "429", 4},
	} {
		if got := sum(t, r.metrics, tt.family, tt.label, tt.value); got != tt.want {
			t.Errorf("%s{%s=%q} = %v, want %v", tt.family, tt.label, tt.value, got, tt.want)
		}
	}
}

var _ registryhttp.Engine = (*registry.Engine)(nil)

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
		sup.Drain("registry", 10*time.Second, time.Second)
		st.CloseLanes()
		sup.Drain("store", 10*time.Second, time.Second)
		sup.Close()
		_ = e.Close(t.Context())
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
	r := newRig(t, func(c *httpapi.Settings, d *deps) {
		d.Registry, d.Metrics = e, m
		c.Limits[serviceRegistry] = httpapi.Limits{Inflight: cfg.Limits.Inflight, Streams: httpapi.StreamLimits{
			Max: cfg.SSE.MaxClients, PerNetwork: cfg.SSE.MaxPerIP, Replay: cfg.SSE.ReplayMax, Ping: cfg.SSE.Ping.D(),
		}}
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
	body := registryapi.Genesis{
		Payload:   p.Bytes(),
		Approvals: []registryapi.Approval{registryapi.Approval(key.Sign(p.B3(), time.Now()))},
	}
	var done registryapi.Committed
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
	if w := r.do("POST", "/registry/proposals", addOne(1, "a"), writer); w.Code != 503 ||
		problemIn(t, w.Body.String()).Details["cause"] != "no_genesis" {
		t.Errorf("before genesis: %d %s", w.Code, w.Body)
	}
	key := r.begin(t)
	f := r.stream(t, "")
	f.want("retry: 3000", "event: hello|data: {")

	var p registryapi.Proposed
	r.into(t, &p, 202, "POST", "/registry/proposals", addOne(2, "a"))
	if b3.Sum(r.do("GET", p.PayloadURL, "", nil).Body.Bytes()) != p.PayloadB3 {
		t.Fatalf("the payload served at %s is not %s", p.PayloadURL, p.PayloadB3)
	}
	if w := r.do("POST", "/registry/commit/"+p.ID, "", writer); w.Code != 422 {
		t.Errorf("commit without a signature: %d %s", w.Code, w.Body)
	}
	signed := registryapi.Approval(key.Sign(p.PayloadB3, time.Now()))
	signed.ReceivedAt = ""
	r.into(t, nil, 200, "POST", "/registry/approvals/"+p.ID, text(t, signed))
	if w := r.do("POST", "/registry/approvals/"+p.ID, text(t, signed), writer); w.Code != 409 {
		t.Errorf("the same approval again: %d %s", w.Code, w.Body)
	}
	var first, again registryapi.Committed
	r.into(t, &first, 201, "POST", "/registry/commit/"+p.ID, "")
	r.into(t, &again, 200, "POST", "/registry/commit/"+p.ID, "")
	if first != again || first.Version != 2 || first.PayloadB3 != p.PayloadB3 {
		t.Errorf("committed %+v, then %+v", first, again)
	}
	f.want(`id: 2|event: registry.update|data: {"version":2,"payload_b3":"` + p.PayloadB3.String())
	r.checkReads(t, first)
}

func (r *rig) checkReads(t *testing.T, c registryapi.Committed) {
	t.Helper()
	var head registryapi.Head
	r.into(t, &head, 200, "GET", "/registry/head", "")
	if head.Version != c.Version || head.Hash != c.Hash || head.Epoch != 1 || head.Incarnation == "" {
		t.Errorf("head %+v, want %+v", head, c)
	}
	var v registryapi.Version
	r.into(t, &v, 200, "GET", "/registry/2", "")
	if v.Hash != c.Hash || len(v.Items) != 1 || len(v.Approvals) != 1 || v.CommittedAt != c.CommittedAt {
		t.Errorf("version %+v", v)
	}
	r.into(t, &v, 200, "GET", "/registry/2?items=0", "")
	var page, older, none registryapi.VersionList
	r.into(t, &page, 200, "GET", "/registry/versions?limit=1", "")
	if len(page.Versions) != 1 || page.Next != 2 || page.Versions[0].Hash != c.Hash ||
		page.Versions[0].PayloadB3 != c.PayloadB3 || len(page.Versions[0].Signers) != 1 ||
		page.Versions[0].Signers[0] != v.Approvals[0].SignerID {
		t.Errorf("the newest version %+v", page)
	}
	r.into(t, &older, 200, "GET", "/registry/versions?before=2", "")
	r.into(t, &none, 200, "GET", "/registry/versions?before=1", "")
	if len(older.Versions) != 1 || older.Versions[0].Kind != "genesis" || older.Next != 0 || len(none.Versions) != 0 {
		t.Errorf("the versions before it %+v, and before those %+v", older, none)
	}
	if raw := r.do("GET", "/registry/2/entry", "", nil).Body.Bytes(); b3.Sum(raw) != c.Hash {
		t.Errorf("entry %s does not hash to %s", raw, c.Hash)
	}
	if raw := r.do("GET", "/registry/2/payload", "", nil).Body.Bytes(); b3.Sum(raw) != c.PayloadB3 {
		t.Errorf("payload %s does not hash to %s", raw, c.PayloadB3)
	}
	var d registryapi.Diff
	r.into(t, &d, 200, "GET", "/registry/diff?from=1&to=2", "")
	if len(d.Put) != 1 || len(d.Remove) != 0 {
		t.Errorf("diff %+v", d)
	}
	var s registryapi.Signers
	r.into(t, &s, 200, "GET", "/registry/signers", "")
	r.into(t, &s, 200, "GET", "/registry/signers/1", "")
	if set, err := record.ParseSignerSet(s.SignerSet); err != nil || set.B3() != s.SignerSetB3 || s.Version != 1 {
		t.Errorf("signers %+v %v", s, err)
	}
	var l registryapi.ProposalList
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
		if got, _ := problemIn(t, w.Body.String()).Details["field"].(string); w.Code != 400 ||
			!strings.HasSuffix(got, tt.field) {
			t.Errorf("%s: %d %s, want 400 naming %s", tt.body, w.Code, w.Body, tt.field)
		}
	}
}

func TestWithdraw(t *testing.T) {
	r := realRig(t)
	r.begin(t)
	var p registryapi.Proposed
	r.into(t, &p, 202, "POST", "/registry/proposals", addOne(2, "a"))
	r.into(t, nil, 204, "DELETE", "/registry/proposals/"+p.ID, "")
	if w := r.do("POST", "/registry/commit/"+p.ID, "", writer); w.Code != 409 && w.Code != 410 {
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

// A full queue refuses at once, tells when to come back, counts each refusal once, and takes
// nothing in.
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
	waitFor(t, "batch to wait for the committer",
		func() bool { return sum(t, r.metrics, "queue_depth", "service", "store") == 1 })
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
	var l registryapi.ProposalList
	r.into(t, &l, 200, "GET", "/registry/proposals", "")
	if len(l.Proposals) != room+1 {
		t.Errorf("%d proposals live, want the %d admitted", len(l.Proposals), room+1)
	}
}

// So does the queue of approvals, which takes commits and withdrawals too.
func TestAFullQueueOfApprovalsIs429(t *testing.T) {
	r := realRig(t, func(c *registry.Config) { c.Queues.Approvals = 1 })
	key := r.begin(t)
	var p registryapi.Proposed
	r.into(t, &p, 202, "POST", "/registry/proposals", addOne(2, "a"))
	h := hold{make(chan struct{}), make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := store.Commit(context.Background(), r.store, store.Control, h); err != nil {
			t.Error(err)
		}
	})
	<-h.began
	ask := func(method, path, body string, want int) {
		if w := r.do(method, path+p.ID, body, writer); w.Code != want ||
			want == 429 && w.Header().Get("Retry-After") == "" {
			t.Errorf("%s %s: %d %s, want %d", method, path, w.Code, w.Body, want)
		}
	}
	approval := text(t, key.Sign(p.PayloadB3, time.Now()))
	wg.Go(func() { ask("POST", "/registry/approvals/", approval, 200) })
	waitFor(t, "batch to wait for the committer",
		func() bool { return sum(t, r.metrics, "queue_depth", "service", "store") == 1 })
	wg.Go(func() { ask("POST", "/registry/commit/", "", 201) })
	waitFor(t, "queue to fill", func() bool { return sum(t, r.metrics, "queue_depth", "queue", "approvals") == 1 })
	ask("POST", "/registry/approvals/", approval, 429)
	ask("POST", "/registry/commit/", "", 429)
	ask("DELETE", "/registry/proposals/", "", 429)
	close(h.end)
	wg.Wait()
	for _, endpoint := range []string{"approve", "commit", "withdraw"} {
		if got := sum(t, r.metrics, "busy_rejections_total", "endpoint", endpoint); got != 1 {
			t.Errorf("busy_rejections_total{endpoint=%q} = %v, want 1", endpoint, got)
		}
	}
	if got := sum(t, r.metrics, "queue_dropped_total", "queue", "approvals"); got != 3 {
		t.Errorf("%v were refused, want 3", got)
	}
}
