package httpapi_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger/period"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	nodehttp "ronbox/httpapi/node"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// fakeNode is a node without delays. If err is set, every call that can fail returns it.
type fakeNode struct {
	err     error
	drained chan string
	steps   int // of progress
	retired string
	profile func(w io.Writer) error

	mu   sync.Mutex
	rows []nodeapi.AuditRow // httpapi.Guarded by mu
	bus  *flow.Broadcast[nodeapi.AuditRow]
}

func newFakeNode(cat *flow.Catalog) *fakeNode {
	return &fakeNode{drained: make(chan string, 2), bus: flow.NewBroadcast[nodeapi.AuditRow](cat, flow.Spec{
		Service:   "node",
		Name:      "audit_tx",
		Cap:       8,
		Policy:    flow.DropOldest,
		Producers: []string{"committer"},
		Consumers: []string{"http"},
	})}
}

// note adds a row to the chain, then tells, as the committer does.
func (n *fakeNode) note(tell bool) {
	n.mu.Lock()
	row := nodeapi.AuditRow{
		Seq:      uint64(len(n.rows) + 1),
		At:       time.Unix(1, 0).UTC(),
		Event:    "x",
		Decision: "allow",
		Prev:     someB3,
		Hash:     someB3,
	}
	n.rows = append(n.rows, row)
	n.mu.Unlock()
	if tell {
		n.bus.Publish(row)
	}
}

func (n *fakeNode) Audit(_ context.Context, from uint64, limit int) (nodeapi.AuditPage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := nodeapi.AuditPage{Rows: []nodeapi.AuditRow{}, Last: uint64(len(n.rows)), Head: someB3}
	if len(n.rows) > 0 {
		page.First = 1
	}
	for _, r := range n.rows {
		if r.Seq >= from && len(page.Rows) < limit {
			page.Rows = append(page.Rows, r)
		}
	}
	return page, n.err
}

func (n *fakeNode) SubscribeAudit(consumer string) *flow.Subscription[nodeapi.AuditRow] {
	return n.bus.Subscribe(consumer)
}

func (n *fakeNode) Status() nodeapi.Status {
	return nodeapi.Status{NodeID: "n1", Phase: "running", Missing: []string{}, Services: map[string]wire.ServiceReady{}}
}

func (n *fakeNode) Version() wire.VersionInfo {
	return wire.VersionInfo{
		Version:      "v0",
		Incarnation:  "01INCARNATION",
		Services:     map[string]string{},
		Schemas:      map[string]string{},
		Deprecations: []string{"old"},
	}
}

func (n *fakeNode) Drain(_ engines.Actor, _, reason string) { n.drained <- reason }

func (n *fakeNode) Drained(context.Context) (nodeapi.DrainLine, error) {
	return nodeapi.DrainLine{Draining: true, Done: true, Aborted: 1}, n.err
}

func (n *fakeNode) Config(context.Context) (nodeapi.ConfigShow, error) {
	return nodeapi.ConfigShow{Version: 1, Keys: []nodeapi.ConfigKey{{Key: "log.level", Source: "default"}}}, n.err
}

func (n *fakeNode) Reload(context.Context, engines.Actor, string) (nodeapi.Reloaded, error) {
	return nodeapi.Reloaded{Version: 2, Source: "ronbox.toml", Changed: []nodeapi.ConfigChange{}}, n.err
}

func (n *fakeNode) Series() nodeapi.SeriesList {
	return nodeapi.SeriesList{StepS: 5, End: 1, Series: []nodeapi.Series{
		{Name: "commit_p50_ms", Unit: "ms", Values: []*float64{nil, new(0.5)}},
	}}
}

func (n *fakeNode) Doctor(context.Context) (nodeapi.Checkup, error) {
	return nodeapi.Checkup{CheckedAt: time.Unix(1, 0).UTC(), Findings: []nodeapi.NodeFinding{
		{Check: "growth", State: "warn", Message: "full in 2 d", Next: "make room"},
	}}, n.err
}

func (n *fakeNode) Clock(context.Context) nodeapi.Clock {
	at := time.Unix(1, 0).UTC()
	return nodeapi.Clock{
		Reading: at, Wall: at.Add(time.Hour), OffsetS: 3600, State: "ahead", SettlesAt: at, Since: at, Message: "ahead",
		Next: "wait", Expires: &nodeapi.ClockExpiry{Keys: 2},
	}
}

func (n *fakeNode) AcceptClock(context.Context, engines.Actor, string) (nodeapi.ClockAccepted, error) {
	return nodeapi.ClockAccepted{Reading: time.Unix(1, 0).UTC(), ByS: 3600}, n.err
}

func (n *fakeNode) Snapshots(context.Context) (nodeapi.SnapshotList, error) {
	return nodeapi.SnapshotList{Dir: "/d", Snapshots: []nodeapi.SnapshotInfo{
		{Name: "ronbox-x.db", Bytes: 1, CreatedAt: time.Unix(1, 0).UTC(), Verified: true, B3: someB3},
	}}, n.err
}

func (n *fakeNode) Sessions() (nodeapi.SessionList, error) {
	at := wire.Instant{Time: time.Unix(1, 0)}
	return nodeapi.SessionList{Sessions: []nodeapi.Session{
		{ID: "0123456789ab", Kind: "code", Who: "uid:1000", From: "127.0.0.1", BeganAt: at, SeenAt: at, ExpiresAt: at},
	}}, n.err
}

func (n *fakeNode) EndSession(_ context.Context, _ engines.Actor, _, id string) error {
	if n.err == nil && id == "none" {
		return httpapi.ErrNoSuch
	}
	return n.err
}

func (n *fakeNode) Tasks() nodeapi.TaskList {
	return nodeapi.TaskList{Tasks: []nodeapi.TaskInfo{{Service: "node", Name: "http", State: "running"}}}
}

func (n *fakeNode) Queues() nodeapi.QueueList {
	return nodeapi.QueueList{
		Queues: []nodeapi.QueueInfo{
			{Service: "node", Name: "q", Kind: "queue", Producers: []string{}, Consumers: []string{}},
		},
	}
}

func (n *fakeNode) LogLevel() nodeapi.LogLevel { return nodeapi.LogLevel{Level: "info"} }

func (n *fakeNode) SetLogLevel(
	_ context.Context,
	_ engines.Actor,
	_ string,
	l nodeapi.LogLevel,
) (nodeapi.LogLevel, error) {
	return l, n.err
}

func (n *fakeNode) Profile(_ context.Context, name string, d time.Duration, w io.Writer) error {
	if n.profile != nil {
		return n.profile(w)
	}
	if n.err == nil {
		_, _ = io.WriteString(w, name+" "+d.String())
	}
	return n.err
}

func (n *fakeNode) Mint(_ context.Context, _ engines.Actor, _ string, m nodeapi.MintRequest) (nodeapi.Token, error) {
	return nodeapi.Token{Token: strings.Join(m.Scopes, "+"), TID: someULID}, n.err
}

func (n *fakeNode) Tokens(_ context.Context, _ engines.Actor, cursor string, limit int) (nodeapi.TokenList, error) {
	return nodeapi.TokenList{
		Tokens: []nodeapi.TokenInfo{{TID: someULID, Kid: "k1", Scopes: []string{}}},
		Next:   cursor,
	}, n.err
}

func (n *fakeNode) Revoke(
	_ context.Context,
	_ engines.Actor,
	_ string,
	r nodeapi.RevokeRequest,
) (nodeapi.Revoked, error) {
	return nodeapi.Revoked{What: "tid", Value: r.TID}, n.err
}

func (n *fakeNode) VerifyToken(_ context.Context, r nodeapi.VerifyRequest) (nodeapi.Verdict, error) {
	return nodeapi.Verdict{Authentic: r.Token == "good"}, n.err
}

func (n *fakeNode) Keys(context.Context) (nodeapi.KeyList, error) {
	return nodeapi.KeyList{Keys: []nodeapi.KeyInfo{{Kid: "k1", State: "active"}}, Active: "k1"}, n.err
}

func (n *fakeNode) RotateKey(context.Context, engines.Actor, string) (nodeapi.KeyInfo, error) {
	return nodeapi.KeyInfo{Kid: "k2", State: "active"}, n.err
}

func (n *fakeNode) RetireKey(_ context.Context, _ engines.Actor, _, kid string) (nodeapi.KeyInfo, error) {
	n.retired = kid
	return nodeapi.KeyInfo{Kid: kid, State: "retired"}, n.err
}

func (n *fakeNode) DBInfo(context.Context) (nodeapi.DBInfo, error) {
	return nodeapi.DBInfo{File: "ronbox.db"}, n.err
}

func (n *fakeNode) DBStats(context.Context) (nodeapi.DBStats, error) {
	return nodeapi.DBStats{Buckets: []nodeapi.BucketStats{}, PageSize: 4096}, n.err
}

func (n *fakeNode) AcceptRestore(context.Context, engines.Actor, string) error { return n.err }

func (n *fakeNode) Snapshot(
	_ context.Context, _ engines.Actor, _ string, r nodeapi.SnapshotRequest, progress func(done, total int64),
) (nodeapi.Snapshot, error) {
	for i := range n.steps {
		progress(int64(i+1), int64(n.steps))
	}
	return nodeapi.Snapshot{File: filepath.Join(r.Dir, "s.db"), B3: someB3, Seq: 7}, n.err
}

func (n *fakeNode) CheckDB(
	_ context.Context, _ engines.Actor, _ string, progress func(nodeapi.CheckLine),
) (nodeapi.CheckLine, error) {
	for i := range n.steps {
		progress(nodeapi.CheckLine{Stage: "pages", Done: int64(i + 1), Total: int64(n.steps)})
	}
	sound := true
	return nodeapi.CheckLine{Stage: "end", OK: &sound}, n.err
}

func (n *fakeNode) Archive() nodeapi.Archive {
	return nodeapi.Archive{State: "ok", Target: "file:///mnt"}
}

func (n *fakeNode) LedgerClosing() nodeapi.LedgerClosing {
	return nodeapi.LedgerClosing{State: "failed", Period: 2, ToSeq: 9, Done: 3, Total: 8, File: "/p", Error: "/p differs",
		Reason: "close_file_differs"}
}

func (n *fakeNode) PlanLedgerClose(
	_ context.Context, r nodeapi.LedgerCloseRequest,
) (nodeapi.LedgerClosing, error) {
	return nodeapi.LedgerClosing{State: "planned", Period: 3, FromSeq: 10, ToSeq: 12, File: r.OutDir, Total: 3}, n.err
}

func (n *fakeNode) CloseLedger(
	ctx context.Context, _ engines.Actor, _ string, r nodeapi.LedgerCloseRequest,
) (nodeapi.LedgerClosing, error) {
	return n.PlanLedgerClose(ctx, r)
}

func (n *fakeNode) CancelLedgerClose(context.Context, engines.Actor, string) (nodeapi.LedgerClosing, error) {
	return n.LedgerClosing(), n.err
}

func (n *fakeNode) ArchiveBase(
	_ context.Context, _ engines.Actor, _ string, progress func(nodeapi.ArchiveLine),
) (nodeapi.Archive, error) {
	for i := range n.steps {
		progress(nodeapi.ArchiveLine{Stage: "send", Done: int64(i + 1), Total: int64(n.steps)})
	}
	return n.Archive(), n.err
}

func TestAdminIsNotOnTCPUnlessConfigured(t *testing.T) {
	for _, onTCP := range []bool{false, true} {
		r := newRig(t, func(c *httpapi.Settings, _ *deps) { c.Server.AdminOnTCP = onTCP })
		for _, route := range r.tableOf(adminPrefix, -1) {
			body := ""
			if route.Body != httpapi.NoBody {
				body = `{}`
			}
			path := strings.NewReplacer(":kid", "k1", ":profile", "heap", ":session", "a").Replace(route.Pattern)
			method := route.Method
			if route.Class == httpapi.ClassStream {
				method = http.MethodHead // answers and ends
			}
			anon, held := r.do(method, path, body, nil), r.do(method, path, body, writer)
			if !onTCP || route.Socket {
				if anon.Code != 404 || held.Code != 404 {
					t.Errorf("on TCP %v: %s %s: %d, with a token %d, want 404", onTCP, route.Method, route.Pattern,
						anon.Code, held.Code)
				}
			} else if anon.Code != 401 || held.Code >= 401 {
				t.Errorf("on TCP %v: %s %s: %d, with a token %d", onTCP, route.Method, route.Pattern, anon.Code,
					held.Code)
			}
		}
	}
}

func TestSocketPeerWithATokenIsHeldToIt(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		auth   string
		status int
	}{{"", 201}, {"Bearer good", 201}, {"Bearer bad", 403}, {"Bearer forged", 401}} {
		h := header{}
		if tt.auth != "" {
			h["Authorization"] = tt.auth
		}
		if w := r.socket(http.MethodPost, "/registry/commit/"+proposal, "", h); w.Code != tt.status {
			t.Errorf("as %q: %d, want %d", tt.auth, w.Code, tt.status)
		}
	}
	if a := r.reg.actor; a.CapID != "tid" || a.UID == nil || *a.UID != 7 {
		t.Errorf("actor = %+v, want token and uid", a)
	}
}

func TestAdminAnswers(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "status", "", 200, `"phase":"running"`},
		{"GET", "db/info", "", 200, `"file":"ronbox.db"`},
		{"POST", "db/accept-restore", "", 204, ""},
		{"POST", "tokens", `{"scopes":["a","b"]}`, 201, `"token":"a+b"`},
		{"POST", "tokens", `{"ttl":"1h"}`, 400, `"field":"scopes"`},
		{"POST", "drain", `{"reason":"upgrade"}`, 202, `{}`},
		{"POST", "drain", `{"reason":1}`, 400, `"field":"reason"`},
		{"POST", "db/snapshot", `{"dir":"relative"}`, 400, `"field":"dir"`},
		{"POST", "ledger/close", `{}`, 400, `"field":"before"`},
		{"POST", "ledger/close", `{"keep":"1d","before":"2026-01-01T00:00:00Z"}`, 400, `"field":"before"`},
		{"POST", "ledger/close", `{"before":"yesterday"}`, 400, `"field":"before"`},
		{"POST", "ledger/close", `{"keep":"long"}`, 400, `"field":"keep"`},
		{"POST", "ledger/close", `{"keep":"1d","out_dir":"relative"}`, 400, `"field":"out_dir"`},
		{"POST", "registry/genesis", `{"payload":{},"approvals":[` + approvalBody + `]}`, 201, `"version":1`},
		{"POST", "registry/genesis", `{}`, 400, `"field":"payload"`},
	} {
		w := r.socket(tt.method, "/admin/v1/"+tt.path, tt.body, nil)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.answer) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, w.Code, w.Body, tt.status, tt.answer)
		}
	}
	if reason := <-r.node.drained; reason != "upgrade" {
		t.Errorf("drained for %q", reason)
	}
}

func TestDrainNeedsNoBody(t *testing.T) {
	r := newRig(t)
	if w := r.socket(http.MethodPost, "/admin/v1/drain", "", nil); w.Code != http.StatusAccepted ||
		<-r.node.drained != "" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAdminRefusals(t *testing.T) {
	r := newRig(t)
	r.node.err = auth.ErrSpec
	if w := r.socket(http.MethodPost, "/admin/v1/tokens", `{"scopes":["x"]}`, nil); w.Code != http.StatusBadRequest {
		t.Errorf("a token that cannot be: %d", w.Code)
	}
	r.node.err = &nodehttp.SnapshotDirError{
		SnapshotDir: nodeapi.SnapshotDir{Path: "/d", User: "ronbox", Unit: "ronbox.service"}, Cause: syscall.EROFS,
	}
	w := r.socket(http.MethodPost, "/admin/v1/db/snapshot", `{"dir":"/d"}`, nil)
	if p := problemIn(t, w.Body.String()); w.Code != http.StatusBadRequest ||
		p.Reason != "snapshot_dir" || p.Detail != "/d: read-only file system (user ronbox, unit ronbox.service)" ||
		p.Details["path"] != "/d" || p.Details["user"] != "ronbox" || p.Details["unit"] != "ronbox.service" {
		t.Errorf("a directory that cannot be: %d %+v", w.Code, p)
	}
	r.node.err = store.ErrPoisoned
	if w := r.socket(http.MethodGet, "/admin/v1/db/info", "", nil); w.Code != http.StatusServiceUnavailable {
		t.Errorf("poisoned: %d", w.Code)
	}
}

// A closing that cannot begin is refused with what stands in the way, and what to do about that.
func TestClosingRefusals(t *testing.T) {
	const at, stamp = 1_767_225_600_000_000_001, "2026-01-01T00:00:00.000000001Z"
	for _, tt := range []struct {
		err     error
		status  int
		reason  string
		details httpapi.Details
		says    string
	}{
		{period.ErrRunning, 409, "close_running", nil, "--cancel"},
		{period.ErrNothing, 409, "close_too_recent", httpapi.Details{"reason": "age"}, "a later time"},
		{&period.AgeError{Before: at}, 409, "close_too_recent",
			httpapi.Details{"reason": "age", "cause": "age", "before": stamp}, "the latest time that closes more"},
		{&period.RecentError{Before: at}, 409, "close_too_recent",
			httpapi.Details{"reason": "keys", "cause": "keys", "before": stamp}, "wallet.idempotency_ttl"},
		{period.ErrClock, 409, "close_too_recent",
			httpapi.Details{"reason": "clock", "cause": "clock"}, "ronbox clock status"},
		{&period.DiffersError{Path: "/p"}, 409, "close_file_differs", httpapi.Details{"path": "/p"}, "out_dir"},
		{&period.NoRoomError{Need: 9, Have: 3, Path: "/p"}, 507, "close_no_room",
			httpapi.Details{"need_bytes": 9.0, "have_bytes": 3.0, "path": "/p"}, "name another folder"},
	} {
		r := newRig(t)
		r.node.err = fmt.Errorf("close: %w", tt.err)
		w := r.socket(http.MethodPost, "/admin/v1/ledger/close", `{"keep":"1d"}`, nil)
		p := problemIn(t, w.Body.String())
		if w.Code != tt.status || p.Reason != tt.reason || !maps.Equal(p.Details, tt.details) ||
			!strings.Contains(p.Detail, tt.says) {
			t.Errorf("%v: %d %+v", tt.err, w.Code, p)
		}
	}
}

func TestSnapshotTellsProgressThenTheEnd(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		steps  int
		err    error
		status int
		last   func(nodeapi.SnapshotLine) bool
	}{
		{"done", 3, nil, 200, func(l nodeapi.SnapshotLine) bool { return l.Finished() && l.File == "/d/s.db" && l.Seq == 7 }},
		{"done at once", 0, nil, 200, nodeapi.SnapshotLine.Finished},
		{"fails midway", 3, store.ErrFull, 200, func(l nodeapi.SnapshotLine) bool { return l.Problem != nil && l.Problem.Reason == "store_full" }},
		{"fails at once", 0, errors.New("no such thing"), 500, nil},
		{"the folder fails", 3, &nodehttp.SnapshotDirError{Cause: syscall.EIO}, 200, func(l nodeapi.SnapshotLine) bool {
			return l.Problem != nil && l.Problem.Reason == "snapshot_dir"
		}},
	} {
		r := newRig(t)
		r.node.steps, r.node.err = tt.steps, tt.err
		w := r.socket(http.MethodPost, "/admin/v1/db/snapshot", `{"dir":"/d"}`, nil)
		if w.Code != tt.status {
			t.Errorf("%s: %d, want %d", tt.doc, w.Code, tt.status)
		}
		if tt.last == nil {
			continue
		}
		lines := strings.Split(strings.TrimSuffix(w.Body.String(), "\n"), "\n")
		var first, last nodeapi.SnapshotLine
		if err := errors.Join(
			json.Unmarshal([]byte(lines[0]), &first),
			json.Unmarshal([]byte(lines[len(lines)-1]), &last),
		); err != nil {
			t.Fatal(err)
		}
		if tt.steps > 0 && (first.Done != 1 || first.Total != 3 || len(lines) != 2) || !tt.last(last) {
			t.Errorf("%s: lines %q", tt.doc, lines)
		}
	}
}

func TestDrainThatWaitsEndsWithTheCounts(t *testing.T) {
	for _, tt := range []struct {
		err  error
		last func(nodeapi.DrainLine) bool
	}{
		{nil, func(l nodeapi.DrainLine) bool { return l.Done && l.Aborted == 1 }},
		{store.ErrPoisoned, func(l nodeapi.DrainLine) bool { return l.Problem != nil && l.Problem.Reason == "store_failed" }},
	} {
		r := newRig(t)
		r.node.err = tt.err
		w := r.socket(http.MethodPost, "/admin/v1/drain", `{"reason":"r","wait":true}`, nil)
		var first, last nodeapi.DrainLine
		begin, end, _ := strings.Cut(w.Body.String(), "\n")
		if err := errors.Join(json.Unmarshal([]byte(begin), &first), json.Unmarshal([]byte(end), &last)); err != nil {
			t.Fatal(err)
		}
		if reason := <-r.node.drained; reason != "r" || !first.Draining || first.Done || !tt.last(last) {
			t.Errorf("drained for %q with %s", reason, w.Body)
		}
	}
}

func TestSnapshotProgressIsPaced(t *testing.T) {
	rec := &recorder{header: http.Header{}}
	n := newRig(t).NewRequest(rec, newRequest(t), &httpapi.Route{Service: serviceNode, Long: true}, &front.Peer{}).
		Lines()
	for i := range int64(1000) {
		n.Progress(nodeapi.SnapshotLine{Done: i, Total: 1000})
	}
	if got := strings.Count(rec.body.String(), "\n"); got > 20 {
		t.Errorf("%d lines for steps that took no time", got)
	}
}

func TestOperatorsRoutesAnswer(t *testing.T) {
	r := newRig(t)
	r.node.note(false)
	for _, tt := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "config", "", 200, `"key":"log.level"`},
		{"POST", "config/reload", "", 200, `"version":2`},
		{"GET", "tokens?limit=5&cursor=abc", "", 200, `"next":"abc"`},
		{"POST", "tokens/revoke", `{"tid":"x","reason":"lost"}`, 200, `"what":"tid"`},
		{"POST", "tokens/revoke", `{}`, 400, `exactly one`},
		{"POST", "tokens/revoke", `{"tid":"x","all":true}`, 400, `exactly one`},
		{"POST", "tokens/verify", `{"token":"good"}`, 200, `"authentic":true`},
		{"POST", "tokens/verify", `{}`, 400, `"field":"token"`},
		{"GET", "keys", "", 200, `"active":"k1"`},
		{"POST", "keys/rotate", "", 201, `"kid":"k2"`},
		{"POST", "keys/k1/retire", "", 200, `"state":"retired"`},
		{"POST", "keys/..%2f/retire", "", 400, `malformed`}, {"POST", "keys/.k/retire", "", 404, ``},
		{"GET", "db/stats", "", 200, `"page_size":4096`},
		{"GET", "audit", "", 200, `"seq":1`},
		{"GET", "audit?from=2&limit=1", "", 200, `"rows":[]`},
		{"GET", "tasks", "", 200, `"name":"http"`},
		{"GET", "queues", "", 200, `"name":"q"`},
		{"GET", "series", "", 200, `"values":[null,0.5]`}, {"GET", "series?n=1", "", 400, `"field":"n"`},
		{"GET", "doctor", "", 200, `"state":"warn"`},
		{"GET", "clock", "", 200, `"offset_s":3600,"state":"ahead","synchronised":false`},
		{"POST", "clock/accept", "", 200, `"by_s":3600`},
		{"GET", "snapshots", "", 200, `"verified":true`},
		{"GET", "sessions", "", 200, `"id":"0123456789ab"`},
		{"DELETE", "sessions/0123456789ab", "", 204, ``},
		{"DELETE", "sessions/none", "", 404, `not_found`},
		{"GET", "log-level", "", 200, `"level":"info"`},
		{"PUT", "log-level", `{"level":"debug","service":"registry"}`, 200, `"level":"debug"`},
		{"PUT", "log-level", `{"level":"loud"}`, 400, `"field":"level"`},
		{"POST", "log-level", `{"level":"debug"}`, 405, `method`},
		{"GET", "debug/profile/heap", "", 200, `heap 10s`},
		{"GET", "debug/profile/profile?seconds=3", "", 200, `profile 3s`},
		{"GET", "debug/profile/passwords", "", 404, `not_found`},
	} {
		w := r.socket(tt.method, "/admin/v1/"+tt.path, tt.body, nil)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.answer) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, w.Code, w.Body, tt.status, tt.answer)
		}
	}
	if r.node.retired != "k1" {
		t.Errorf("retired %q", r.node.retired)
	}
}

// Whatever fails in the node is told by its row, on every route that can fail.
func TestOperatorsRoutesTellWhatFails(t *testing.T) {
	bodies := map[string]string{
		"tokens":        `{"scopes":["a.b"]}`,
		"tokens/revoke": `{"all":true}`,
		"tokens/verify": `{"token":"x"}`,
		"db/snapshot":   `{"dir":"/d"}`,
		"ledger/close":  `{"keep":"400d"}`,
		"log-level":     `{"level":"info"}`,
	}
	cannot := map[string]bool{"status": true, "drain": true, "tasks": true, "queues": true, "series": true,
		"clock": true, "archive": true, "ledger/close": true}
	r := newRig(t)
	r.undescribed = true
	for _, route := range r.tableOf(adminPrefix, -1) {
		name := strings.TrimPrefix(route.Pattern, adminPrefix)
		if cannot[name] || route.Service != serviceNode || name == "log-level" && route.Method == http.MethodGet ||
			route.Class == httpapi.ClassStream {
			continue
		}
		body := ""
		if route.In != nil {
			body = bodies[name]
		}
		for _, tt := range []struct {
			err    error
			status int
			reason string
		}{
			{store.ErrPoisoned, 503, "store_failed"},
			{&nodehttp.ConflictError{Reason: "one is running"}, 409, "conflict"},
			{clock.ErrForward, 409, "conflict"}, {clock.ErrBeforeBuild, 409, "conflict"},
			{httpapi.ErrNoSuch, 404, "not_found"},
			{store.ErrFull, 507, "store_full"}, {store.ErrAmnesia, 503, "amnesia"}, {errors.New("odd"), 500, "internal"},
			{&nodehttp.ReloadError{Reason: "restart", Keys: []string{"node.data_dir"}}, 422, "reload_refused"},
		} {
			before := sum(t, r.metrics, "rejected_total", "service", "node")
			r.node.err = tt.err
			w := r.socket(route.Method, target(&route), body, nil)
			p := problemIn(t, w.Body.String())
			if w.Code != tt.status || p.Reason != tt.reason || p.Service != serviceNode {
				t.Errorf("%s %s: %v: %d %+v", route.Method, name, tt.err, w.Code, p)
			}
			if got := sum(t, r.metrics, "rejected_total", "service", "node") - before; got != 1 {
				t.Errorf("%s %s: %v: counted %v times", route.Method, name, tt.err, got)
			}
		}
	}
}

func TestReloadRefusalNamesTheKeys(t *testing.T) {
	r := newRig(t)
	r.node.err = &nodehttp.ReloadError{
		Reason: "restart",
		Keys:   []string{"node.data_dir"},
		Detail: "node.data_dir needs a restart",
	}
	w := r.socket("POST", "/admin/v1/config/reload", "", nil)
	if w.Code != 422 || !strings.Contains(w.Body.String(), `"keys":["node.data_dir"]`) ||
		!strings.Contains(w.Body.String(), `"cause":"restart"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCheckTellsProgressThenTheVerdict(t *testing.T) {
	r := newRig(t)
	r.node.steps = 3
	if got := r.socket("POST", "/admin/v1/db/check", "",
		nil).Body.String(); got != `{"stage":"pages","done":1,"total":3}`+"\n"+`{"stage":"end","ok":true}`+"\n" {
		t.Errorf("told %q", got)
	}
	r.node.err = store.ErrCorrupt
	if w := r.socket("POST", "/admin/v1/db/check", "", nil); w.Code != 200 ||
		!strings.Contains(w.Body.String(), `"problem":{`) {
		t.Errorf("a failure midway: %d %s", w.Code, w.Body)
	}
	r.node.steps = 0
	if w := r.socket("POST", "/admin/v1/db/check", "", nil); w.Code != 500 {
		t.Errorf("a failure at once: %d", w.Code)
	}
}

// Profiles are on the socket only, whatever the configuration and the token say; HEAD takes none.
func TestProfilesAreOnTheSocketOnly(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) { c.Server.AdminOnTCP = true })
	for _, name := range []string{"heap", "allocs", "goroutine", "block", "mutex", "threadcreate", "profile", "trace", "flight"} {
		path := "/admin/v1/debug/profile/" + name
		if w := r.do("GET", path, "", writer); w.Code != 404 {
			t.Errorf("%s on TCP: %d", name, w.Code)
		}
		if w := r.socket("GET", path, "", nil); w.Code != 200 || w.Header().Get("Content-Type") != httpapi.TypeBytes {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	r.node.profile = func(io.Writer) error { t.Error("HEAD took a profile"); return nil }
	if w := r.socket("HEAD", "/admin/v1/debug/profile/heap", "", nil); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
	r.node.profile = func(io.Writer) error { return obs.ErrNotRecording }
	if w := r.socket("GET", "/admin/v1/debug/profile/flight", "", nil); w.Code != 409 {
		t.Errorf("flight recorder off: %d", w.Code)
	}
}

// A long answer has a deadline for each chunk: who stops reading is cut, and half a profile does
// not look whole.
func TestALongAnswerIsCutWhenItsReaderStalls(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		c.Server.WriteTimeout = unit.Duration(100 * time.Millisecond)
		c.UDS.Path, c.UDS.Map = filepath.Join(t.TempDir(), "s"), map[string][]string{
			"uid:" + strconv.Itoa(os.Getuid()): {auth.ScopeAdmin},
		}
	})
	ended := make(chan error, 1)
	r.node.profile = func(w io.Writer) error {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				ended <- err
				return err
			}
		}
	}
	r.listening(t)
	c, err := net.Dial("unix", r.SocketPath())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET /admin/v1/debug/profile/trace HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a stalled reader holds the profile")
	}
}

// The document and the schemas are there from the first moment to the last, and hold no place.
func TestTheDocumentIsAlwaysThere(t *testing.T) {
	r := newRig(t)
	for _, g := range []httpapi.Gate{httpapi.GateStarting, httpapi.GateDraining, httpapi.GateClosed} {
		r.Reopen()
		r.SetGate(g)
		if w := r.do("GET", "/openapi.json", "", nil); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"openapi":"3.1`) {
			t.Errorf("%v: %d", g, w.Code)
		}
	}
	tag := r.do("GET", "/openapi.json", "", nil).Header().Get("ETag")
	if w := r.do("GET", "/openapi.json", "", header{"If-None-Match": tag}); w.Code != 304 {
		t.Errorf("again: %d", w.Code)
	}
	names := r.Document().SchemaNames()
	if len(names) < 20 {
		t.Errorf("schemas %v", names)
	}
	for _, name := range names {
		if w := r.do("GET", "/schema/"+name, "", nil); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"$schema"`) {
			t.Errorf("schema %s: %d", name, w.Code)
		}
	}
	for _, name := range []string{"head", "Nothing", "..", "Head.json"} {
		if w := r.do("GET", "/schema/"+name, "", nil); w.Code != 404 {
			t.Errorf("schema %s: %d", name, w.Code)
		}
	}
}

// auditStream follows the audit stream as a peer of the socket until the node stops, while during
// makes things happen.
func (r *rig) auditStream(t *testing.T, last string, during func()) string {
	t.Helper()
	rec := &recorder{header: http.Header{}}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "/admin/v1/audit/stream", nil)
	if last != "" {
		req.Header.Set("Last-Event-ID", last)
	}
	req = req.WithContext(front.WithPeer(req.Context(), &front.Peer{Socket: true, UID: 7}))
	go func() {
		synctest.Wait()
		during()
		synctest.Wait()
		r.SetGate(httpapi.GateClosed)
	}()
	r.Router().ServeHTTP(rec, req)
	r.described(req, http.StatusOK, rec.header, []byte(rec.body.String()))
	return strings.ReplaceAll(rec.body.String(), "\n", "|")
}

func frame(id int) string {
	return "id: " + formatUint(uint64(id)) + "|event: audit|data: {\"seq\":" + formatUint(uint64(id)) + ","
}

func TestAuditStream(t *testing.T) {
	const hello = `event: hello|data: {"incarnation":"01INCARNATION","last":3}||`
	for _, tt := range []struct {
		doc, last string
		rows      int // before
		tell      int // rows during
		want      []string
		silent    []string
	}{
		{"from now on", "", 3, 2, []string{hello, frame(4), frame(5), "event: shutdown"}, []string{frame(1), frame(3), "lagged"}},
		{"what was missed first", "1", 3, 1, []string{hello, frame(2), frame(3), frame(4)}, []string{frame(1)}},
		{"nothing missed", "3", 3, 1, []string{hello, frame(4)}, []string{frame(3), "lagged"}},
		{"from the beginning", "0", 3, 0, []string{hello, frame(1), frame(2), frame(3)}, nil},
		{"more than is replayed", "1", 1002, 1, []string{`id: 1002|event: lagged|data: {"missed":1001,"from":2,"to":1002,"last":1002}`, frame(1003)}, []string{frame(2)}},
		{"ahead of a restored node", "9", 3, 1, []string{hello, `id: 3|event: lagged|data: {"missed":0,`, frame(4)}, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			for range tt.rows {
				r.node.note(false)
			}
			got := r.auditStream(t, tt.last, func() {
				for range tt.tell {
					r.node.note(true)
					synctest.Wait()
				}
			})
			at := 0
			for _, w := range tt.want {
				i := strings.Index(got[at:], w)
				if i < 0 {
					t.Fatalf("%s: %s\nlacks %s in its place", tt.doc, got, w)
				}
				at += i
			}
			for _, s := range tt.silent {
				if strings.Contains(got, s) {
					t.Errorf("%s: %s\ntells %s", tt.doc, got, s)
				}
			}
		})
	}
}

// A slow client gets a lagged event. The node does not wait for it.
func TestAuditStreamTellsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		sub := r.node.bus.Subscribe("audit_sse")
		defer sub.Close()
		for range 20 { // the bus of the rig holds 8
			r.node.note(true)
		}
		rec := &recorder{header: http.Header{}}
		c := r.NewRequest(rec, newRequest(t), &httpapi.Route{Service: serviceNode, Class: httpapi.ClassStream},
			&front.Peer{})
		f := httpapi.NewFeed(c, nodehttp.AuditStream(r.node), sub, 0)
		for f.Pending() {
			if err := f.Next(); err != nil {
				t.Fatal(err)
			}
		}
		got := strings.ReplaceAll(rec.body.String(), "\n", "|")
		if got != `id: 20|event: lagged|data: {"missed":20,"from":1,"to":20,"last":20}||` {
			t.Errorf("told %s", got)
		}
		if n := sum(t, r.metrics, "bus_lagged_total"); n == 0 {
			t.Error("bus_lagged_total stands still")
		}
	})
}

func TestAuditStreamPingsAndEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *httpapi.Settings, _ *deps) {
			l := someStreams()
			l.Ping = 15 * time.Second
			setStreams(c, l)
		})
		ctx, cancel := context.WithTimeout(
			front.WithPeer(t.Context(), &front.Peer{Socket: true, UID: 7}),
			46*time.Second,
		)
		defer cancel()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "/admin/v1/audit/stream", nil)
		rec := &recorder{header: http.Header{}}
		r.Router().ServeHTTP(rec, req)
		if got := strings.Count(rec.body.String(), ": ping\n\n"); got != 3 || r.OpenStreams(serviceNode).Count() != 0 {
			t.Errorf("%d pings in 46 s, %v streams left", got, r.OpenStreams(serviceNode).Count())
		}
	})
}

func TestAuditStreamRefusals(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		l := someStreams()
		l.Max = 0
		setStreams(c, l)
	})
	if w := r.socket(http.MethodHead, "/admin/v1/audit/stream", "", nil); w.Code != http.StatusTooManyRequests {
		t.Errorf("without a place: %d", w.Code)
	}
	r = newRig(t)
	for _, tt := range []struct {
		last   string
		err    error
		status int
	}{{"", nil, 200}, {"x", nil, 400}, {"", store.ErrPoisoned, 503}, {"", flow.ErrClosed, 503}} {
		r.node.err = tt.err
		if w := r.socket(http.MethodHead, "/admin/v1/audit/stream", "",
			header{"Last-Event-ID": tt.last}); w.Code != tt.status {
			t.Errorf("%q, %v: %d, want %d", tt.last, tt.err, w.Code, tt.status)
		}
	}
	if w := r.do(http.MethodGet, "/admin/v1/audit/stream", "", writer); w.Code != http.StatusNotFound {
		t.Errorf("over TCP: %d", w.Code)
	}
}

// The next step of a folder that cannot be written permits it, in the words of the machine.
func TestSnapshotDirNext(t *testing.T) {
	for _, tt := range []struct {
		unit  string
		cause error
		want  string
	}{
		{"ronbox.service", syscall.EROFS, "name a folder that the unit may write, or permit this one as root: " +
			"`install -d -o ronbox -m 700 /srv/x`, `systemctl edit ronbox` with the lines [Service] and " +
			"ReadWritePaths=/srv/x, `systemctl restart ronbox`"},
		{"", syscall.EACCES, "name a folder that ronbox may write, or run `install -d -o ronbox -m 700 /srv/x` as root"},
		{"", syscall.EROFS, "name a folder on a file system that is mounted for writing"},
		{"ronbox.service", syscall.ENOTDIR, "name a folder"},
	} {
		dir := nodeapi.SnapshotDir{Path: "/srv/x", User: "ronbox", Unit: tt.unit}
		e := &nodehttp.SnapshotDirError{SnapshotDir: dir, Cause: tt.cause}
		if got := e.Next(e.Error()); got != tt.want {
			t.Errorf("%v: %q, want %q", e, got, tt.want)
		}
	}
}
