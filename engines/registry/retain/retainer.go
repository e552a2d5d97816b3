package retain

import (
	"errors"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// TaskName is the name of the task.
const TaskName = "pruner"

// Deps holds the dependencies of a Retainer.
type Deps struct {
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics // has the families of the registry
	Store     *store.Store
	Reader    *views.Reader
	Published *tables.Published
	Log       hclog.Logger
	Keeper    Keeper
}

// Keeper is the registry as a Retainer needs it.
type Keeper interface {
	Now() time.Time
	Policy() Policy
	// Ready returns the reason why the registry takes no writes, or nil.
	Ready() error
	// Key returns the log key of the node, or an error if the signers of a HEAD do not admit it.
	Key(head *tables.HeadView) (*checkpoint.Key, error)
}

// Policy is the policy in force.
type Policy struct {
	Name     string
	MaxAge   time.Duration // of by-age
	MaxCount uint64        // of by-count
}

// metrics are the metrics of a Retainer.
type metrics struct {
	versions func(int)
	keys     func(int)
	skipped  map[string]func(int) // by reason
}

// Retainer removes versions that the policy lets go and an archived checkpoint covers.
type Retainer struct {
	deps    Deps
	segment uint64 // versions
	m       metrics
	cmd     *flow.Queue[uint64] // sizes of archived checkpoints
}

// New builds a retainer of whole segments of so many versions, and declares its queue. It
// starts no task.
func New(segment uint64, d Deps) *Retainer {
	e := &Retainer{deps: d, segment: segment, m: metrics{
		versions: d.Metrics.Counter("registry_pruned_versions_total", tables.Service),
		keys:     d.Metrics.Counter("registry_pruned_keys_total", tables.Service),
		skipped:  map[string]func(int){},
	}}
	for _, reason := range []string{skipQueueFull, skipNotReady, skipNoKey, skipNoCheckpoint} {
		e.m.skipped[reason] = d.Metrics.Counter("registry_retention_skipped_total", tables.Service, "reason", reason)
	}
	e.cmd = flow.NewQueue[uint64](d.Catalog, flow.Spec{
		Service: tables.Service, Name: "retention_cmd_tx", Cap: maxRetentionCmds, Policy: flow.RejectNew,
		Producers: []string{"checkpointor"}, Consumers: []string{TaskName},
		Doc: "archived checkpoints that allow pruning; full: the cycle is skipped",
	})
	return e
}

// Task returns the task of the retainer.
func (rt *Retainer) Task() flow.Task {
	return flow.Task{
		Service:    tables.Service,
		Name:       TaskName,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.bulk"},
		Doc:        "removes pruned versions, in slices",
		Run:        rt.runPruner,
	}
}

func (rt *Retainer) head() *tables.HeadView { return rt.deps.Published.Head() }

// Ask queues a cycle for an archived checkpoint of size versions. If the queue is full, the cycle
// is skipped.
func (rt *Retainer) Ask(size uint64) {
	if rt.deps.Keeper.Policy().Name == All {
		return
	}
	if err := rt.cmd.TrySend(size); errors.Is(err, flow.ErrBusy) {
		rt.m.skipped[skipQueueFull](1)
		rt.deps.Log.Warn("retention.skipped", "reason", skipQueueFull)
	}
}
