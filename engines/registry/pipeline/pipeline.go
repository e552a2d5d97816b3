package pipeline

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// TaskName is the name of the task.
const TaskName = "pipeline"

// Config holds the keys that only a restart changes.
type Config struct {
	Proposals int           // room of the queue of propose and genesis
	Approvals int           // room of the queue of approve, commit and withdraw
	Genesis   string        // payload_b3 that a genesis must have; "": any
	Hub       func() string // URL of the node whose log this one copies; nil: none, the node takes calls
}

// Deps holds the dependencies of a Pipeline.
type Deps struct {
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics // has the families of the registry
	Store     *store.Store
	Reader    *views.Reader
	Published *tables.Published
	Log       hclog.Logger
	Tracer    *obs.Tracer // nil: no spans
	Keeper    Keeper
}

// Keeper is the registry as a Pipeline needs it.
type Keeper interface {
	Now() time.Time  // of what is stored
	Wall() time.Time // of what others sign
	Rule() Rule
	// Origin returns the name of the log.
	Origin() string
	// Ready returns the reason why the registry takes no writes, or nil.
	Ready() error
	// Tripped reports whether the fork guard is tripped. Requests that end a rollback run all the
	// same, and nothing is swept.
	Tripped() bool
	// Running is called when a run of the task begins to take jobs.
	Running()
	// Begun is called when the log has got its genesis.
	Begun()
	// Publish sends synced versions to those who follow the log, after the new state is published.
	// before is HEAD without them. It runs in the committer and must not wait.
	Publish(before *tables.HeadView, versions []document.Update, took time.Duration)
}

// Rule holds the limits in force.
type Rule struct {
	Propose, Approve, Commit time.Duration // the longest that a call waits

	MaxSkew    time.Duration // between the clock of a signer and Wall
	TTL        time.Duration // of a proposal
	MaxPending int           // proposals
	MaxPerCap  int           // proposals of one capability
	MaxStack   int           // versions above HEAD
	MaxBytes   int64         // canonical payload bytes of all pending proposals
}

// Pipeline is the sole writer of HEAD. New builds it, and its task does the work.
type Pipeline struct {
	cfg  Config
	deps Deps
	m    metrics

	proposals *flow.Queue[*job]
	approvals *flow.Queue[*job]
	tick      *flow.Ticker
	rebuild   flow.Retrier

	running   atomic.Bool  // a run of the task takes jobs
	busySince atomic.Int64 // Unix ns at which the oldest running job was queued; 0: no job runs
	full      fullSince
}

// New builds a pipeline and declares its queues. It starts no task.
func New(cfg Config, d Deps) *Pipeline {
	p := &Pipeline{cfg: cfg, deps: d, m: newMetrics(d.Metrics)}
	queue := func(name string, bound int, doc string) *flow.Queue[*job] {
		return flow.NewQueue[*job](d.Catalog, flow.Spec{
			Service: tables.Service, Name: name, Cap: bound, Policy: flow.RejectNew,
			Producers: []string{flow.HTTP}, Consumers: []string{TaskName}, Doc: doc,
		})
	}
	p.proposals = queue("proposals_tx", cfg.Proposals, "propose and genesis; full: 429, no effect")
	p.approvals = queue("approvals_tx", cfg.Approvals,
		"approve, commit and withdraw, in order; full: 429, no effect")
	p.tick = flow.Every(d.Catalog, flow.Spec{
		Service: tables.Service, Name: "pipeline_tick", Consumers: []string{TaskName},
		Doc: "expiry sweep, every second",
	}, tickEvery)
	p.rebuild = flow.Retry(p.backOff, rebuilds+1, isGuard).Counting(d.Catalog, tables.Service, "commit")
	return p
}

// Task returns the task of the pipeline.
func (p *Pipeline) Task() flow.Task {
	return flow.Task{
		Service: tables.Service,
		Name:    TaskName,
		Count:   1,
		Restart: flow.Always,
		Vital:   true,
		Lanes:   []string{"store.work", "store.bulk"},
		Doc:     "sole writer of HEAD",
		Run:     p.runPipeline,
	}
}

// Bounds of a pipeline that works.
const (
	maxOpAge    = 2 * time.Second
	queueFull   = 0.9
	queueFullIn = 5 * time.Second
)

// OK returns the reason why a call would fail now, or nil. One probe calls it, once at a time.
func (p *Pipeline) OK() error {
	if !p.running.Load() {
		return &document.NotReadyError{Cause: document.CausePipelineDown}
	}
	now := p.deps.Keeper.Now()
	if since := p.busySince.Load(); since != 0 && now.Sub(time.Unix(0, since)) > maxOpAge {
		return fmt.Errorf("oldest request has waited %s", now.Sub(time.Unix(0, since)).Round(time.Millisecond))
	}
	full := func(queue *flow.Queue[*job]) bool { return float64(queue.Len()) > queueFull*float64(queue.Cap()) }
	return p.full.check(full(p.proposals) || full(p.approvals), now)
}

// fullSince records since when a queue has been nearly full. The zero value means that none is.
type fullSince struct{ at time.Time }

func (f *fullSince) check(full bool, now time.Time) error {
	switch {
	case !full:
		f.at = time.Time{}
	case f.at.IsZero():
		f.at = now
	case now.Sub(f.at) >= queueFullIn:
		return errors.New("queue over 90 % for 5 s")
	}
	return nil
}
