package server

import (
	"context"
	"runtime"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/host"
	"ronbox/cmd/ronbox/server/checkup"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// Status returns the status of the node. It reads only memory, and a member that does not lead asks
// the leader whether it is ready, for at most 500 ms.
func (n *Node) Status() nodeapi.Status {
	phase, _ := n.phase.Load()
	r := n.server.Report("", "")
	out := nodeapi.Status{
		Version:       n.build.Version,
		Phase:         phase.String(),
		URL:           n.server.URL(),
		Socket:        n.server.SocketPath(),
		UptimeSeconds: int64(n.uptime() / time.Second),
		Ready:         r.Ready,
		WriteReady:    r.WriteReady,
		ReadReady:     r.ReadReady,
		Degraded:      r.Degraded,
		Missing:       r.Missing,
		Causes:        r.Causes,
		Services:      map[string]wire.ServiceReady{},
		Store:         n.storeStatus(),
	}
	if m := n.part(); m != nil {
		out.Cluster = m.Summary()
	}
	for _, r := range n.services.Engines() {
		if r.Status != nil && phase != flow.Standby {
			r.Status(n.services, &out)
		}
	}
	for name, s := range r.Services {
		out.Services[name] = wire.ServiceReady(s)
	}
	if info := n.store.Info(); info != nil {
		out.NodeID, out.Incarnation = info.NodeID, info.Incarnation
	}
	return out
}

func (n *Node) storeStatus() nodeapi.StoreStatus {
	out := nodeapi.StoreStatus{File: n.store.Path(), MaxBytes: n.maxBytes()}
	info := n.store.Info()
	if info == nil {
		return out
	}
	out.Bytes, out.Seq, out.Restored, out.RestoredFrom = n.store.Bytes(), info.Seq, info.Restored, info.RestoredFrom
	if err := n.store.Health(); err != nil {
		out.Health = err.Error()
	}
	return out
}

// maxBytes returns the size limit of the file.
func (n *Node) maxBytes() int64 {
	if n.boot.Amnesia.Enabled {
		return n.boot.Amnesia.MaxBytes.Bytes()
	}
	return n.boot.Store.MaxBytes.Bytes()
}

// Doctor checks the machine and the running node. It writes nothing.
func (n *Node) Doctor(ctx context.Context) (nodeapi.Checkup, error) {
	cfg := n.conf()
	found := []host.Finding{checkup.Readiness(n.server.Report("", "")), checkup.Tasks(n.sup.Tasks())}
	closing := n.closing.State()
	next := closing.DueAt.Sub(n.now())
	found = append(found, n.series.Findings(float64(n.store.BytesLeft()), next)...)
	found = append(found, checkup.Backup(cfg, n.standsBy(), n.backup.Finding), checkup.Clock(n.clock.Status()))
	found = append(found, checkup.Archive(n.archive.Status())...)
	found = append(found, checkup.Closing(closing)...)
	found = append(found, n.services.CheckDecimals()...)
	if m := n.part(); m != nil {
		found = append(found, m.Findings()...)
	}
	found = append(found, n.services.CheckFleet()...)
	found = append(found, checkup.Within(ctx, cfg)...)
	if ctx.Err() != nil {
		return nodeapi.Checkup{}, context.Cause(ctx)
	}
	return checkup.Answer(n.wall(), found), nil
}

// Version returns the versions of the binary, its services and its file.
func (n *Node) Version() wire.VersionInfo {
	out := wire.VersionInfo{
		Version:      n.build.Version,
		Commit:       n.build.Commit,
		Go:           runtime.Version(),
		Schema:       store.Schema,
		Services:     map[string]string{},
		Schemas:      map[string]string{},
		Formats:      map[string]uint64{},
		Deprecations: []string{},
	}
	for _, s := range wiring.All() {
		out.Services[s.Name] = map[bool]string{true: "on", false: "off"}[s.IsOn(n.boot)]
		if s.Schema != "" {
			out.Schemas[s.Name] = s.Schema
		}
		if s.Format != 0 {
			out.Formats[s.Name] = s.Format
		}
	}
	if info := n.store.Info(); info != nil {
		out.NodeID, out.Incarnation, out.Schema = info.NodeID, info.Incarnation, info.Schema
	}
	return out
}

// Drain begins the shutdown and returns immediately.
func (n *Node) Drain(by engines.Actor, corrID, reason string) {
	if reason == "" {
		reason = "asked"
	}
	n.drain.askBy(by, corrID, reason)
}

// Config returns the current value and the origin of every key.
func (n *Node) Config(context.Context) (nodeapi.ConfigShow, error) {
	now, _ := n.config.Load()
	out := nodeapi.ConfigShow{Version: now.version, Keys: make([]nodeapi.ConfigKey, 0, len(now.entries))}
	for _, e := range now.entries {
		out.Keys = append(out.Keys, nodeapi.ConfigKey(e))
	}
	return out, nil
}

// sourceFile returns the file that a configuration was read from, or "".
func sourceFile(entries []config.Entry) string {
	for _, e := range entries {
		if e.Source != config.FromFile {
			continue
		}
		where := e.Where // file:line:column
		for range 2 {
			if i := strings.LastIndexByte(where, ':'); i >= 0 {
				where = where[:i]
			}
		}
		return where
	}
	return ""
}

// LogLevel returns the log level of services without a level of their own.
func (n *Node) LogLevel() nodeapi.LogLevel { return nodeapi.LogLevel{Level: n.levels.Level("")} }

// SetLogLevel sets the log level of one service or of all, until the next reload or restart.
func (n *Node) SetLogLevel(
	ctx context.Context,
	by engines.Actor,
	corrID string,
	l nodeapi.LogLevel,
) (nodeapi.LogLevel, error) {
	if l.Service != "" && !n.knowsService(l.Service) {
		return nodeapi.LogLevel{}, &httpapi.BodyError{Field: "service", Reason: "is not a service of this node"}
	}
	if hclog.LevelFromString(l.Level) == hclog.NoLevel {
		return nodeapi.LogLevel{}, &httpapi.BodyError{
			Field:  "level",
			Reason: "must be trace, debug, info, warn, error or off",
		}
	}
	if err := n.levels.SetLevel(l.Level, l.Service); err != nil {
		return nodeapi.LogLevel{}, err
	}
	n.note(
		context.WithoutCancel(ctx),
		tokens.AuditEvent("log.level_set", by, corrID, map[string]string{"level": l.Level, "service": l.Service}),
	)
	return l, nil
}

// noteWithin bounds the wait for the audit row of an action that is already done, so that a stuck
// disk does not block an operator.
const noteWithin = 2 * time.Second

// note appends an audit row for an action outside the file. The action stands even if the row
// cannot be written.
func (n *Node) note(ctx context.Context, e store.Event) {
	ctx, cancel := context.WithTimeout(ctx, noteWithin)
	defer cancel()
	if err := n.record(ctx, e); err != nil {
		n.log.Warn("not on the audit chain", "what", e.Event, "reason", err.Error())
	}
}

// record appends an audit row. A member that stands by has no chain of its own, and logs the row.
func (n *Node) record(ctx context.Context, e store.Event) error {
	if n.standsBy() {
		n.log.Info("not on the audit chain", "what", e.Event, "by", e.Principal, "reason", "the node stands by")
		return nil
	}
	_, err := store.Commit(ctx, n.store, store.Control, auditNote{e})
	return err
}

// auditNote appends one audit row.
type auditNote struct{ Event store.Event }

// Kind implements store.Command.
func (auditNote) Kind() string { return "node.note/1" }

// Apply implements store.Command.
func (c auditNote) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	w.Audit(c.Event)
	return struct{}{}, nil
}

// knowsService reports whether the node has a task of the service.
func (n *Node) knowsService(service string) bool {
	for _, t := range n.catalog.Tasks() {
		if t.Service == service {
			return true
		}
	}
	return false
}

// Tasks returns every started task instance and the supervisor, which is Run itself.
func (n *Node) Tasks() nodeapi.TaskList {
	out := nodeapi.TaskList{Tasks: []nodeapi.TaskInfo{{
		Service: ownService, Name: "supervisor", State: string(flow.LifeRunning), Since: n.started.UTC(),
	}}}
	for _, t := range n.sup.Tasks() {
		info := nodeapi.TaskInfo{
			Service:  t.Service,
			Name:     t.Task,
			Instance: t.Index,
			State:    string(t.State),
			Since:    t.Since.UTC(),
			Restarts: uint64(t.Restarts),
		}
		if t.LastError != nil {
			info.LastError = t.LastError.Error()
		}
		out.Tasks = append(out.Tasks, info)
	}
	return out
}

// Queues returns every channel with a known state.
func (n *Node) Queues() nodeapi.QueueList {
	out := nodeapi.QueueList{Queues: []nodeapi.QueueInfo{}}
	for _, c := range n.catalog.Channels() {
		out.Queues = append(out.Queues, nodeapi.QueueInfo{
			Service:   c.Service,
			Name:      c.Name,
			Kind:      string(c.Kind),
			Cap:       c.Cap,
			Len:       c.Len,
			Policy:    string(c.Policy),
			Dropped:   c.Dropped,
			Producers: append([]string{}, c.Producers...),
			Consumers: append([]string{}, c.Consumers...),
		})
	}
	return out
}

// maxAuditPage bounds one page of Audit.
const maxAuditPage = 1000

// Audit reads rows of the audit chain from seq on, or from the oldest kept row.
func (n *Node) Audit(ctx context.Context, from uint64, limit int) (nodeapi.AuditPage, error) {
	if limit < 1 || limit > maxAuditPage {
		limit = maxAuditPage
	}
	out, info := nodeapi.AuditPage{Rows: []nodeapi.AuditRow{}}, n.store.Info()
	err := n.store.View(ctx, func(r store.Reader) error {
		oldest, err := store.Audit(r, 0, 1)
		if err != nil || len(oldest) == 0 {
			return err
		}
		out.First = oldest[0].Seq
		rows, err := store.Audit(r, max(from, out.First), limit+1)
		for i, row := range rows {
			if i == limit {
				out.Next = row.Seq
				break
			}
			out.Rows = append(out.Rows, AuditRow(row))
		}
		return err
	})
	out.Last, out.Head = info.AuditSeq, info.AuditHead.String()
	if rows := len(out.Rows); rows > 0 && out.Rows[rows-1].Seq > out.Last { // committed since Info was read
		out.Last, out.Head = out.Rows[rows-1].Seq, out.Rows[rows-1].Hash
	}
	return out, err
}

// AuditRow returns the wire form of a row of the audit chain.
func AuditRow(r store.AuditRow) nodeapi.AuditRow {
	return nodeapi.AuditRow{
		Seq:       r.Seq,
		At:        time.Unix(0, r.At).UTC(),
		Event:     r.Event.Event,
		Decision:  r.Decision,
		Reason:    r.Reason,
		CorrID:    r.CorrID,
		CapID:     r.CapID,
		Principal: r.Principal,
		UID:       r.UID,
		Detail:    r.Detail,
		Prev:      r.Prev.String(),
		Hash:      r.Hash.String(),
	}
}

// SubscribeAudit returns a cursor over the rows written from now on. The caller closes it.
func (n *Node) SubscribeAudit(consumer string) *flow.Subscription[nodeapi.AuditRow] {
	return n.audited.Subscribe(consumer)
}

// publishAudit publishes synced rows. It is called by the committer.
func (n *Node) publishAudit(rows []store.AuditRow) {
	for _, r := range rows {
		n.audited.Publish(AuditRow(r))
	}
}
