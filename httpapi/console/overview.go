package console

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"ronbox/httpapi/wire/edge"
	"ronbox/httpapi/wire/index"
	"ronbox/httpapi/wire/ledger"
	"ronbox/httpapi/wire/node"
	"ronbox/httpapi/wire/registry"
	"ronbox/httpapi/wire/wallet"
)

// overviewData is the data of the overview.
type overviewData struct {
	Status    part[node.Status]
	Stats     part[node.DBStats]
	Checks    part[[]concern] // those that found something first
	CheckedAt time.Time
	Attention *attention // nil: nothing needs any
	Answers   [4]answer
	Charts    part[[]chart]
	series    part[node.SeriesList]
	Drawing   drawing
	Queues    part[[]node.QueueInfo] // those that hold something, fullest first, and those that dropped
	Restarts  part[[]node.TaskInfo]  // tasks that were restarted
	Head      part[registry.Head]
	Ledger    part[ledger.LedgerHead]
	Assets    part[wallet.AssetList]
	Units     units
	Epochs    part[epochList]
	Pays      string // the asset of the last epoch
	Catalog   part[edge.Catalog]
	Peers     part[index.PeerList]
	Off       map[string]bool
	Ready     map[string]light
}

// light is a state with the class of its colour.
type light struct{ Class, Name string }

// attention lists what an operator should look at.
type attention struct {
	Bad  bool // something fails
	Rows []concern
}

// concern is one finding of the node about itself.
type concern struct {
	light
	Check string
	Text  string
	Next  string // what to do
}

func overview(v *view) any {
	h, ctx := v.h, v.ctx
	d := overviewData{
		Status: read(h.node.Status(ctx)),
		Stats:  read(h.node.DBStats(ctx)),
		Off:    map[string]bool{},
		Ready:  map[string]light{},
	}
	for name, state := range h.d.Info().Services {
		d.Off[name] = state == "off"
		d.Ready[name] = d.light(name)
	}
	checkup := read(h.node.Doctor(ctx))
	d.Checks, d.CheckedAt = part[[]concern]{concerns(checkup.V.Findings), checkup.Fault}, checkup.V.CheckedAt
	d.Attention = attend(d.Checks.V)
	d.series = read(h.node.Series(ctx))
	d.Charts = part[[]chart]{drawCharts(d.series.V), d.series.Fault}
	queues := read(h.node.Queues(ctx))
	d.Queues = part[[]node.QueueInfo]{busyQueues(queues.V.Queues), queues.Fault}
	d.Drawing = draw(queues.V.Queues)
	tasks := read(h.node.Tasks(ctx))
	d.Restarts = part[[]node.TaskInfo]{restarted(tasks.V.Tasks), tasks.Fault}
	if !d.Off["registry"] {
		d.Head = read(h.registry.Head(ctx))
	}
	if !d.Off["wallet"] {
		d.Ledger = read(h.wallet.LedgerHead(ctx))
		d.Assets = read(h.wallet.Assets(ctx))
		d.Units = unitsOf(d.Assets.V)
	}
	if !d.Off["rewarder"] {
		page := read(h.rewarder.Epochs(ctx, "", maxRows)) // one page only: an open overview asks every two seconds
		d.Epochs = part[epochList]{epochList{page.V.Epochs, page.V.Next != ""}, page.Fault}
		if last := d.Epochs.V.Last(); last != nil {
			run, _ := h.rewarder.Epoch(ctx, last.Epoch)
			d.Pays = assetOf(&run)
		}
	}
	if !d.Off["edge"] {
		d.Catalog = read(h.edge.Catalog(ctx))
	}
	if !d.Off["index"] {
		d.Peers = read(h.index.Peers(ctx))
	}
	d.Answers = d.answers(v)
	return d
}

// light returns the state of a service.
func (d *overviewData) light(service string) light {
	ready, known := d.Status.V.Services[service]
	switch {
	case d.Off[service]:
		return light{"warn", "off"}
	case !known:
		return light{"good", "on"} // a session that may not read the status
	case ready.State != "":
		return light{"good", strings.ReplaceAll(ready.State, "_", " ")}
	case !ready.Ready:
		return light{"bad", "not ready"}
	case !ready.WriteReady:
		return light{"warn", "no writes"}
	}
	return light{"good", "ready"}
}

// concerns returns the findings of the node, the worst first.
func concerns(all []node.NodeFinding) (out []concern) {
	for _, state := range []light{{"bad", "fail"}, {"warn", "warn"}, {"good", "ok"}} {
		for _, f := range all {
			if f.State == state.Name {
				out = append(out, concern{state, f.Check, f.Message, f.Next})
			}
		}
	}
	return out
}

// attend returns the findings that need attention, nil if none does.
func attend(all []concern) *attention {
	var a attention
	for _, c := range all {
		if c.Class != "good" {
			a.Rows = append(a.Rows, c)
			a.Bad = a.Bad || c.Class == "bad"
		}
	}
	if len(a.Rows) == 0 {
		return nil
	}
	return &a
}

// maxRows is how many rows a table of a page shows.
const maxRows = 50

// busyQueues returns the queues that hold or have dropped something, fullest first.
func busyQueues(all []node.QueueInfo) (out []node.QueueInfo) {
	for _, q := range all {
		if q.Kind == "queue" && (q.Len > 0 || q.Dropped > 0) {
			out = append(out, q)
		}
	}
	slices.SortStableFunc(out, func(a, b node.QueueInfo) int {
		return cmp.Or(cmp.Compare(b.Len*max(a.Cap, 1), a.Len*max(b.Cap, 1)), cmp.Compare(b.Dropped, a.Dropped))
	})
	return out
}

// restarted returns the tasks that were restarted or do not run.
func restarted(all []node.TaskInfo) (out []node.TaskInfo) {
	for _, t := range all {
		if t.Restarts > 0 || t.State == "backoff" {
			out = append(out, t)
		}
	}
	return out
}
