package rewarder

import (
	"cmp"
	"context"
	"math"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
	"ronbox/store"
)

// service names the rewarder in metrics, logs, probes and the catalogue.
const service = "rewarder"

const (
	taskScheduler = "scheduler"
	taskWorker    = "worker"
	taskWriter    = "artifact_writer"
	taskEmitter   = "intent_emitter"
	taskHealth    = "health_reporter"
)

const (
	queueCap  = 512         // long enough for bursts, short enough to be answered in time
	maxPayers = 8           // runs that are paid concurrently
	lookEvery = time.Second // period of the scheduler's and the health reporter's scans
)

// Deps holds the dependencies of an Engine. Metrics, Log and Board may be nil.
type Deps struct {
	Catalog   *flow.Catalog
	Store     *store.Store
	Ledger    ledger.Client
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Board     *obs.Board
	Now       func() time.Time // wall clock
	Artifacts string           // folder of artifact files; "": none are written
	// Replicated is set if runs in the file may be those of another node, which has their files.
	Replicated bool
	Pins       PinsOf       // of the registry; nil: the node is in no fleet, and every policy may run
	Step       func(string) // test hook, called at each durable step of a run; may end the process; may be nil
}

// Engine is the rewarder. New builds it and its tasks do the work. Its methods are safe for
// concurrent use.
type Engine struct {
	boot     Config
	reloaded atomic.Pointer[Config]
	store    *store.Store
	ledger   ledger.Client
	calls    *upstream.Calls // calls to the ledger
	log      hclog.Logger
	board    *obs.Board
	now      func() time.Time
	m        *metrics
	pins     PinsOf
	folder   string
	filing   atomic.Bool // a call of Files is running, or remake
	others   bool        // the file has runs of other nodes
	step     func(string)

	requests *flow.Queue[*request]
	todo     [paused]*flow.Queue[job] // work, intents and results, indexed by kind of work
	events   *flow.Broadcast[Event]
	look     *flow.Ticker
	tick     *flow.Ticker
	room     flow.Retrier
	patience flow.Retrier  // retries of tasks while the store refuses writes
	answers  time.Duration // time in which a call of Compute is answered

	runs      registry
	quota     *quota
	damage    *damage
	draining  atomic.Bool  // set by the scheduler after its queue was closed
	unwrote   atomic.Bool  // the files of the last run could not be written
	repaired  atomic.Bool  // rw/todo was compared with the slots since the start
	admitting atomic.Int64 // accept commands in flight; each has reserved a place in work
	followers atomic.Int64 // current calls of Follow
	held      atomic.Int64 // paused runs at the last scan
}

// Event reports that a run has reached a state, or that more of it was paid or written.
type Event struct {
	Tenant, Epoch string
	State         State
}

// job names a run by its slot and its key. The file holds all other state, so queues carry only
// this.
type job struct {
	slot string
	key  b3.Digest
}

func (j job) todo(kind uint32) piece { return piece{j.key, kind} }

func (j job) names() (tenant, epoch string) {
	tenant, epoch, _ = strings.Cut(j.slot, "\x00")
	return tenant, epoch
}

// New returns an engine and declares its buckets, queues, metrics and probes. It does no I/O and
// starts nothing.
func New(cfg Config, d Deps) *Engine {
	log := cmp.Or(d.Log, hclog.NewNullLogger()).Named(service)
	e := &Engine{
		boot:    cfg,
		store:   d.Store,
		ledger:  d.Ledger,
		log:     log,
		board:   d.Board,
		now:     d.Now,
		pins:    d.Pins,
		folder:  d.Artifacts,
		others:  d.Replicated,
		step:    d.Step,
		answers: answerWithin,
	}
	e.reloaded.Store(&cfg)
	if e.step == nil {
		e.step = func(string) {}
	}
	d.Store.Declare(service, Buckets()...)
	e.declareChannels(d.Catalog)
	e.runs = registry{mu: flow.NewMutex(d.Catalog, service, flow.RankRunRegistry), runs: map[b3.Digest]entry{}}
	e.quota, e.damage = newQuota(d.Catalog), newDamage(d.Catalog)
	e.m = newMetrics(d.Metrics, d.Catalog)
	d.Metrics.Gauge("reward_paused_runs", service, func() float64 { return float64(e.held.Load()) })
	e.calls = upstream.NewCalls(d.Catalog, d.Metrics, e.callSpec())
	e.room = flow.Retry(roomDelay, 2, isNoRoom).Counting(d.Catalog, service, "work")
	e.patience = flow.Retry(func(int) time.Duration { return lookEvery }, math.MaxInt, refuses)
	for _, key := range []string{keyQueue, keyLedger, keyStore, keyArtifact, keyPayment} {
		d.Board.Add(obs.Probe{Service: service, Key: key, Plane: obs.WritePlane})
	}
	return e
}

func (e *Engine) declareChannels(c *flow.Catalog) {
	queue := func(name string, p flow.Policy, to, doc string, from ...string) flow.Spec {
		return flow.Spec{
			Service:   service,
			Name:      name,
			Cap:       queueCap,
			Policy:    p,
			Producers: from,
			Consumers: []string{to},
			Doc:       doc,
		}
	}
	e.requests = flow.NewQueue[*request](
		c,
		queue("work_req", flow.RejectNew, taskScheduler, "compute; full: 429, nothing happened", flow.HTTP),
	)
	e.todo[toCompute] = flow.NewQueue[job](
		c,
		queue("work", flow.RetryOnce, taskWorker, "accepted runs; full twice: 429, nothing happened", taskScheduler),
	)
	e.todo[toWrite] = flow.NewQueue[job](
		c,
		queue("results", flow.Wait, taskWriter, "sealed runs to write; what shutdown cuts off is found at boot",
			taskWorker, taskScheduler),
	)
	e.todo[toPay] = flow.NewQueue[job](
		c,
		queue("intents", flow.Wait, taskEmitter, "sealed runs to pay; one that finds no room in time is paused",
			taskWorker, taskScheduler),
	)
	e.events = flow.NewBroadcast[Event](
		c,
		flow.Spec{
			Service: service,
			Name:    "events",
			Cap:     1024,
			Policy:  flow.DropOldest,
			Producers: []string{
				taskScheduler,
				taskWorker,
				taskEmitter,
				taskWriter,
			},
			Consumers: []string{"*"},
			Doc:       "states of runs, to calls of Follow; one that lags reads the slot",
		},
	)
	ticker := func(name, to, doc string) *flow.Ticker {
		return flow.Every(c, flow.Spec{Service: service, Name: name, Consumers: []string{to}, Doc: doc}, lookEvery)
	}
	e.look, e.tick = ticker("look_tick", taskScheduler, "what is left to do"), ticker("health_tick", taskHealth,
		"readiness")
}

// Tasks lists the rewarder's tasks for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	work := []string{"store.work"}
	c := e.boot.Concurrency
	return []flow.Task{
		{
			Service: service,
			Name:    taskScheduler,
			Lanes:   work,
			Doc:     "accepts one run an epoch, hands out what is left to do",
			Run:     e.runScheduler,
		},
		{
			Service: service,
			Name:    taskWorker,
			Count:   c.ComputeWorkers,
			Lanes:   append(work, "store.bulk"),
			Doc:     "computes, reads back and seals runs",
			Run:     e.runWorker,
		},
		{Service: service, Name: taskWriter, Lanes: work, Doc: "writes the files of runs", Run: e.runWriter},
		{
			Service: service,
			Name:    taskEmitter,
			Count:   min(maxPayers, c.IOInflight),
			Lanes:   work,
			Doc:     "has the ledger pay runs, a chunk at a time",
			Run:     e.runEmitter,
		},
		{Service: service, Name: taskHealth, Background: true, Doc: "readiness", Run: e.runHealth},
	}
}

// Recover does nothing: the scheduler finds the pending work.
func (e *Engine) Recover(context.Context) error { return nil }

// Reload applies a valid configuration. Keys that need a restart keep their values. It does not
// block.
func (e *Engine) Reload(cfg Config) { e.reloaded.Store(&cfg) }

func (e *Engine) live() *Config { return e.reloaded.Load() }

// Purge and Close do nothing: the engine caches nothing and holds no resources.
func (e *Engine) Purge()                      {}
func (e *Engine) Close(context.Context) error { return nil }

// publish broadcasts the state of a run.
func (e *Engine) publish(run Run) { e.events.Publish(Event{run.Tenant, run.Epoch, run.State}) }

// registry holds the state of runs that is not in the file.
type registry struct {
	mu   *flow.Mutex
	runs map[b3.Digest]entry // guarded by mu
}

// entry is the state of one run: the kinds of work that a queue or a task holds, the number of
// failed computations, and the error that the run waits for.
type entry struct {
	taken  [paused]bool
	failed int
	stuck  error
}

// take marks a kind of work of a run as queued or in progress. It reports whether it was free.
func (g *registry) take(key b3.Digest, kind uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	free := !run.taken[kind]
	run.taken[kind] = true
	g.runs[key] = run
	return free
}

// leave clears the mark of take.
func (g *registry) leave(key b3.Digest, kind uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	run.taken[kind] = false
	g.put(key, run)
}

// fail counts a failed computation. It returns true at every maxTries-th failure.
func (g *registry) fail(key b3.Digest) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	run.failed = (run.failed + 1) % maxTries
	g.put(key, run)
	return run.failed == 0
}

// wait sets the error that a run waits for, nil for none, and returns the previous one.
func (g *registry) wait(key b3.Digest, why error) (was error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	was, run.stuck = run.stuck, why
	g.put(key, run)
	return was
}

// put stores the state of a run, or deletes it if it is zero. The caller holds mu.
func (g *registry) put(key b3.Digest, run entry) {
	g.runs[key] = run
	if run == (entry{}) {
		delete(g.runs, key)
	}
}

// trouble returns the error that some run waits for, or nil if no run waits.
func (g *registry) trouble() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, run := range g.runs {
		if run.stuck != nil {
			return run.stuck
		}
	}
	return nil
}

// offer queues work of a run unless a queue or a task already holds it. With wait it blocks until
// there is room or ctx ends. Otherwise it returns flow.ErrBusy if the queue is full.
func (e *Engine) offer(ctx context.Context, kind uint32, j job, wait bool) (err error) {
	if !e.runs.take(j.key, kind) {
		return nil
	}
	if wait {
		err = e.todo[kind].Send(ctx, j)
	} else if e.todo[kind].Len() < queueCap { // if it is full, the scheduler offers the run again
		err = e.todo[kind].TrySend(j)
	} else {
		err = flow.ErrBusy
	}
	if err != nil {
		e.runs.leave(j.key, kind)
	}
	return err
}

// consume calls do for each job of a queue until the queue is closed and empty, or ctx ends.
func (e *Engine) consume(ctx context.Context, kind uint32, do func(context.Context, job)) error {
	return e.todo[kind].Each(ctx, func(j job) {
		defer e.runs.leave(j.key, kind)
		do(ctx, j)
	})
}
