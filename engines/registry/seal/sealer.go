package seal

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/highwater"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// Task names.
const (
	TaskCheckpointor = "checkpointor"
	taskWitness      = "witness"
)

// Config says what a node signs with, and where it keeps the mark.
type Config struct {
	KeyFile    string // of the key that signs checkpoints; "": the node signs none
	Mark       highwater.Mark
	Replicated bool // the file has rows that other nodes with the same log key have written
	Copy       bool // the log is a copy of that of another node: nothing is signed
}

// Deps holds the dependencies of a Sealer.
type Deps struct {
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics // has the families of the registry
	Store     *store.Store
	Reader    *views.Reader
	Published *tables.Published
	Board     *obs.Board
	Log       hclog.Logger
	Keeper    Keeper
}

// Keeper is the registry as a Sealer needs it.
type Keeper interface {
	Now() time.Time  // of what is stored
	Wall() time.Time // of what others sign
	Rule() Rule
	// Sound returns the reason why the log must not be extended, but for the fork guard.
	Sound() error
	// Ready is Sound with the fork guard.
	Ready() error
	// Adopt adopts the log, if an incarnation is given, and settles or deletes the objections.
	Adopt(ctx context.Context, incarnation string, settle bool, actor engines.Actor, corrID string) error
	// Committed returns a subscription to the versions, which ends with the pipeline.
	Committed(consumer string) *flow.Subscription[document.Update]
	// Prune is called with the size of the last archived checkpoint.
	Prune(size uint64)
	// Span begins the span of a checkpoint of HEAD. The caller ends it.
	Span(ctx context.Context, head record.Head) (context.Context, func(error))
}

// Rule holds the limits in force.
type Rule struct {
	Interval      time.Duration // between archived checkpoints, or
	EveryVersions uint64        // after this many

	Witness         bool // witnesses are asked
	WitnessTimeout  time.Duration
	WitnessInterval time.Duration
}

// metrics are the metrics of a Sealer.
type metrics struct {
	forkGuard  func(float64)
	objections func(float64)
	witnessed  map[string]func(int) // by result
}

// Sealer signs the log: its checkpoints, the mark outside the database, and the cosignatures of
// witnesses. Its fork guard refuses signatures while the file may be older than its log.
type Sealer struct {
	cfg  Config
	deps Deps
	m    metrics

	key   atomic.Pointer[checkpoint.Key] // read once
	guard atomic.Pointer[Rollback]       // nil unless the log must not be extended
	// of witnesses; stored by Check, by the task witness and by an adoption
	objections     atomic.Pointer[tables.Objections]
	checkpointed   *flow.Watch[Checkpoint]
	archived       *flow.Watch[*checkpoint.Signed] // the last archived one of this boot; nil before the first
	witness        *upstream.Client
	checkpointCmd  *flow.Queue[*flow.Reply[Checkpoint]]
	checkpointTick *flow.Ticker
	signing        *flow.Slots // signatures, adoptions and objections do not overlap
}

// New builds a sealer and declares its queues. It starts no task.
func New(cfg Config, d Deps) *Sealer {
	e := &Sealer{cfg: cfg, deps: d, witness: newWitnessClient(d.Catalog, d.Metrics)}
	e.objections.Store(&tables.Objections{})
	e.m = metrics{
		forkGuard:  d.Metrics.Set("registry_fork_guard", tables.Service),
		objections: d.Metrics.Set("registry_witness_objections", tables.Service),
		witnessed:  map[string]func(int){},
	}
	for _, result := range []string{witnessCosigned, witnessRefused, witnessObjected, witnessUnreachable} {
		e.m.witnessed[result] = d.Metrics.Counter("registry_witness_total", tables.Service, "result", result)
	}
	e.m.forkGuard(0)
	e.m.objections(0)
	e.checkpointTick = flow.Every(d.Catalog, flow.Spec{
		Service: tables.Service, Name: "checkpoint_tick", Consumers: []string{TaskCheckpointor},
		Doc: "check whether HEAD has moved, every second",
	}, checkpointEvery)
	e.checkpointCmd = flow.NewQueue[*flow.Reply[Checkpoint]](d.Catalog, flow.Spec{
		Service: tables.Service, Name: "checkpoint_cmd", Cap: maxCheckpoints, Policy: flow.RejectNew,
		Producers: []string{flow.HTTP}, Consumers: []string{TaskCheckpointor},
		Doc: "requests for a checkpoint; full: 429, no effect",
	})
	e.signing = flow.NewSlots(d.Catalog, flow.Spec{
		Service: tables.Service, Name: "signing", Cap: 1, Policy: flow.WaitDeadline,
		Producers: []string{TaskCheckpointor, taskWitness, flow.HTTP},
		Doc:       "signatures of HEAD, adoptions of the log and objections of witnesses, one at a time",
	})
	producers := []string{TaskCheckpointor}
	if cfg.Copy {
		producers = append(producers, "follower")
	}
	e.checkpointed = flow.NewWatch[Checkpoint](d.Catalog, flow.Spec{
		Service: tables.Service, Name: "checkpoints", Producers: producers,
		Consumers: []string{flow.HTTP}, Doc: "the latest checkpoint",
	}, Checkpoint{})
	e.archived = flow.NewWatch[*checkpoint.Signed](d.Catalog, flow.Spec{
		Service: tables.Service, Name: "archived", Producers: []string{TaskCheckpointor},
		Consumers: []string{taskWitness},
		Doc:       "the archived checkpoint to show to witnesses at once; a newer one replaces it",
	}, nil)
	return e
}

// Tasks returns the tasks of the sealer.
func (sl *Sealer) Tasks() []flow.Task {
	return []flow.Task{
		{
			Service: tables.Service,
			Name:    TaskCheckpointor,
			Count:   1,
			Restart: flow.Always,
			Lanes:   []string{"store.work", "store.bulk"},
			Doc:     "signs checkpoints, stores sets for reads of old versions",
			Run:     sl.runCheckpointor,
		},
		{
			Service:    tables.Service,
			Name:       taskWitness,
			Count:      1,
			Restart:    flow.Always,
			Background: true,
			Lanes:      []string{"store.work"},
			Doc:        "shows checkpoints to witnesses and keeps their cosignatures",
			Run:        sl.runWitness,
		},
	}
}

func (sl *Sealer) head() *tables.HeadView { return sl.deps.Published.Head() }

// Close closes the idle connections to witnesses.
func (sl *Sealer) Close() { sl.witness.Close() }

// Tripped returns the reason why the log must not be extended, or nil.
func (sl *Sealer) Tripped() *Rollback { return sl.guard.Load() }

// Objections returns the objections of witnesses, never nil.
func (sl *Sealer) Objections() *tables.Objections { return sl.objections.Load() }

// Copied publishes a checkpoint that the follower has kept.
func (sl *Sealer) Copied(s checkpoint.Signed, archived bool) {
	sl.checkpointed.Store(Checkpoint{Signed: s, Archived: archived})
}

// Readiness keys of the seal.
const (
	KeyForkGuard    = "fork_guard"         // soft: reads go on, and other services write
	KeyCheckpointor = "checkpointor_ready" // soft: commits go on without checkpoints
	KeyWitnesses    = "witnesses"          // soft: a witness has seen another log under this name
	KeyLogKey       = "log_key"            // soft: commits go on, and nothing is signed
)
