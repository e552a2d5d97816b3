package httpapi

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/httpapi/wire"
)

// fakeNode is a node that does what it is told at once. err, when set, is what every call that can fail gives.
type fakeNode struct {
	err     error
	drained chan string
	steps   int // of progress
	retired string
	profile func(w io.Writer) error

	mu   sync.Mutex
	rows []wire.AuditRow // guarded by mu
	bus  *flow.Broadcast[wire.AuditRow]
}

func newFakeNode(cat *flow.Catalog) *fakeNode {
	return &fakeNode{drained: make(chan string, 1), bus: flow.NewBroadcast[wire.AuditRow](cat, flow.Spec{
		Service: "node", Name: "audit_tx", Cap: 8, Policy: flow.DropOldest, Producers: []string{"committer"}, Consumers: []string{"http"},
	})}
}

// note adds a row to the chain, then tells, as the committer does.
func (n *fakeNode) note(tell bool) {
	n.mu.Lock()
	row := wire.AuditRow{Seq: uint64(len(n.rows) + 1), At: time.Unix(1, 0).UTC(), Event: "x", Decision: "allow", Prev: someB3, Hash: someB3}
	n.rows = append(n.rows, row)
	n.mu.Unlock()
	if tell {
		n.bus.Publish(row)
	}
}

func (n *fakeNode) Audit(_ context.Context, from uint64, limit int) (wire.AuditPage, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	page := wire.AuditPage{Rows: []wire.AuditRow{}, Last: uint64(len(n.rows)), Head: someB3}
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

func (n *fakeNode) SubscribeAudit(consumer string) *flow.Subscription[wire.AuditRow] {
	return n.bus.Subscribe(consumer)
}

func (n *fakeNode) Status() wire.Status {
	return wire.Status{NodeID: "n1", Phase: "running", Missing: []string{}, Services: map[string]wire.ServiceReady{}}
}

func (n *fakeNode) Version() wire.VersionInfo {
	return wire.VersionInfo{
		Version: "v0", Incarnation: "01INCARNATION", Services: map[string]string{}, Schemas: map[string]string{}, Deprecations: []string{"old"},
	}
}

func (n *fakeNode) Drain(_ engines.Actor, _, reason string) { n.drained <- reason }

func (n *fakeNode) Config(context.Context) (wire.ConfigShow, error) {
	return wire.ConfigShow{Version: 1, Keys: []wire.ConfigKey{{Key: "log.level", Source: "default"}}}, n.err
}

func (n *fakeNode) Reload(context.Context, engines.Actor, string) (wire.Reloaded, error) {
	return wire.Reloaded{Version: 2, Source: "ronbox.toml", Changed: []wire.ConfigChange{}}, n.err
}

func (n *fakeNode) Tasks() wire.TaskList {
	return wire.TaskList{Tasks: []wire.TaskInfo{{Service: "node", Name: "http", State: "running"}}}
}

func (n *fakeNode) Queues() wire.QueueList {
	return wire.QueueList{Queues: []wire.QueueInfo{{Service: "node", Name: "q", Kind: "queue", Producers: []string{}, Consumers: []string{}}}}
}

func (n *fakeNode) LogLevel() wire.LogLevel { return wire.LogLevel{Level: "info"} }

func (n *fakeNode) SetLogLevel(_ context.Context, _ engines.Actor, _ string, l wire.LogLevel) (wire.LogLevel, error) {
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

func (n *fakeNode) Mint(_ context.Context, _ engines.Actor, _ string, m wire.MintRequest) (wire.Token, error) {
	return wire.Token{Token: strings.Join(m.Scopes, "+"), TID: someULID}, n.err
}

func (n *fakeNode) Tokens(_ context.Context, _ engines.Actor, cursor string, limit int) (wire.TokenList, error) {
	return wire.TokenList{Tokens: []wire.TokenInfo{{TID: someULID, Kid: "k1", Scopes: []string{}}}, Next: cursor}, n.err
}

func (n *fakeNode) Revoke(_ context.Context, _ engines.Actor, _ string, r wire.RevokeRequest) (wire.Revoked, error) {
	return wire.Revoked{What: "tid", Value: r.TID}, n.err
}

func (n *fakeNode) VerifyToken(_ context.Context, r wire.VerifyRequest) (wire.Verdict, error) {
	return wire.Verdict{Authentic: r.Token == "good"}, n.err
}

func (n *fakeNode) Keys(context.Context) (wire.KeyList, error) {
	return wire.KeyList{Keys: []wire.KeyInfo{{Kid: "k1", State: "active"}}, Active: "k1"}, n.err
}

func (n *fakeNode) RotateKey(context.Context, engines.Actor, string) (wire.KeyInfo, error) {
	return wire.KeyInfo{Kid: "k2", State: "active"}, n.err
}

func (n *fakeNode) RetireKey(_ context.Context, _ engines.Actor, _, kid string) (wire.KeyInfo, error) {
	n.retired = kid
	return wire.KeyInfo{Kid: kid, State: "retired"}, n.err
}

func (n *fakeNode) DBInfo(context.Context) (wire.DBInfo, error) {
	return wire.DBInfo{File: "ronbox.db"}, n.err
}

func (n *fakeNode) DBStats(context.Context) (wire.DBStats, error) {
	return wire.DBStats{Buckets: []wire.BucketStats{}, PageSize: 4096}, n.err
}

func (n *fakeNode) AcceptRestore(context.Context, engines.Actor, string) error { return n.err }

func (n *fakeNode) Snapshot(
	_ context.Context, _ engines.Actor, _ string, r wire.SnapshotRequest, progress func(done, total int64),
) (wire.Snapshot, error) {
	for i := range n.steps {
		progress(int64(i+1), int64(n.steps))
	}
	return wire.Snapshot{File: filepath.Join(r.Dir, "s.db"), B3: someB3, Seq: 7}, n.err
}

func (n *fakeNode) CheckDB(
	_ context.Context, _ engines.Actor, _ string, progress func(wire.CheckLine),
) (wire.CheckLine, error) {
	for i := range n.steps {
		progress(wire.CheckLine{Stage: "pages", Done: int64(i + 1), Total: int64(n.steps)})
	}
	sound := true
	return wire.CheckLine{Stage: "end", OK: &sound}, n.err
}
