package console

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"ronbox/appliance/unit"
	"ronbox/httpapi/wire/ledger"
	"ronbox/httpapi/wire/node"
)

// operationsData is the data of the page of operations.
type operationsData struct {
	Audit     part[node.AuditPage] // newest first
	Older     uint64               // the first row of the page before; 0: none
	Tokens    part[node.TokenList]
	Config    part[node.ConfigShow]
	Changed   []node.ConfigKey // keys that are not at their default
	Tasks     part[[]taskRow]
	Restarted int // tasks that were
	Queues    part[node.QueueList]
	File      part[node.DBInfo]
	Archive   part[archiveRow]
	Closing   part[closingRow]
	Snapshots part[node.SnapshotList]
	Kept      int // snapshots, of which the first are listed
	Level     part[node.LogLevel]
	Levels    []string // that Level may become
	Sessions  part[node.SessionList]
	Mint      mintForm
}

// mintForm has the values of the form that mints a token.
type mintForm struct {
	Sub, Scopes, Hours string
	Ref                string // made once for each page
}

// taskRow stands for the instances of a task that are in the same state.
type taskRow struct {
	node.TaskInfo
	Count int
}

// archiveRow is the state of the archive.
type archiveRow struct {
	light
	node.Archive
	Lag string // "": less than a second
}

func rowOf(a node.Archive) archiveRow {
	r := archiveRow{light: light{"bad", a.State}, Archive: a}
	switch {
	case a.State == "off", a.State == "ok" && a.Advice == "":
		r.Class = "good"
	case a.State == "ok", a.State == "starting", a.State == "behind":
		r.Class = "warn"
	}
	if a.LagSeconds >= 1 {
		r.Lag = unit.Short(time.Duration(a.LagSeconds * float64(time.Second)))
	}
	return r
}

// closingRow is the state of closed periods of the ledger.
type closingRow struct {
	light
	node.LedgerClosing
	Horizon part[ledger.LedgerHorizon]
}

// closingsOf reads the state of closed periods.
func closingsOf(ctx context.Context, h *Console) part[closingRow] {
	c := read(h.node.LedgerClosing(ctx))
	r := closingRow{light{"good", c.V.State}, c.V, read(h.wallet.LedgerHorizon(ctx))}
	if c.V.Error != "" {
		r.Class = "bad"
	}
	return part[closingRow]{r, c.Fault}
}

// auditRows bounds the rows of the audit chain on the page.
const auditRows = 40

func operationsPage(v *view) any {
	h, ctx := v.h, v.ctx
	d := operationsData{
		Tokens:    read(h.node.Tokens(ctx, "", 0)),
		Config:    read(h.node.Config(ctx)),
		Queues:    read(h.node.Queues(ctx)),
		File:      read(h.node.DBInfo(ctx)),
		Snapshots: read(h.node.Snapshots(ctx)),
		Level:     read(h.node.LogLevel(ctx)),
		Sessions:  read(h.node.Sessions(ctx)),
	}
	d.Mint = mintForm{v.in.Get("sub"), v.in.Get("scopes"), cmp.Or(v.in.Get("hours"), "24"), "console-" + secret()[:24]}
	d.Levels = levelsFrom(d.Level.V.Level)
	archive := read(h.node.Archive(ctx))
	d.Archive = part[archiveRow]{rowOf(archive.V), archive.Fault}
	d.Closing = closingsOf(ctx, h)
	list := &d.Snapshots.V
	d.Kept = len(list.Snapshots)
	list.Snapshots = list.Snapshots[:min(d.Kept, maxRows)]
	tasks := read(h.node.Tasks(ctx))
	d.Tasks = part[[]taskRow]{groupTasks(tasks.V.Tasks), tasks.Fault}
	d.Restarted = len(restarted(tasks.V.Tasks))
	for _, k := range d.Config.V.Keys {
		if k.Source != "default" {
			d.Changed = append(d.Changed, k)
		}
	}
	from, _ := strconv.ParseUint(v.in.Get("from"), 10, 64)
	if from == 0 {
		first := read(h.node.Audit(ctx, 1, 1))
		from = max(first.V.First, first.V.Last-min(first.V.Last, auditRows-1))
	}
	d.Audit = read(h.node.Audit(ctx, from, auditRows))
	slices.Reverse(d.Audit.V.Rows)
	if from > d.Audit.V.First {
		d.Older = max(1, from-min(from, auditRows))
	}
	return d
}

// groupTasks counts the instances of each task, those with another state or an error apart.
func groupTasks(all []node.TaskInfo) (out []taskRow) {
	for _, t := range all {
		at := slices.IndexFunc(out, func(r taskRow) bool {
			return r.Service == t.Service && r.Name == t.Name && r.State == t.State && r.LastError == t.LastError
		})
		if at < 0 {
			out = append(out, taskRow{TaskInfo: t, Count: 1})
			continue
		}
		out[at].Count++
		out[at].Restarts += t.Restarts
		if t.Since.After(out[at].Since) {
			out[at].Since = t.Since
		}
	}
	return out
}

// levelsFrom returns the log levels that a node may change to, and the level that it has.
func levelsFrom(level string) []string {
	all := []string{"trace", "debug", "info", "warn", "error"}
	if !slices.Contains(all, level) {
		all = append(all, level)
	}
	return all
}
