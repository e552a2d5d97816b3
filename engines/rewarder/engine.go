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
	"ronbox/engines/ledger"
	"ronbox/engines/upstream"
	"ronbox/store"
)

// service is the rewarder's name in metrics, logs, probes and the catalogue.
const service = "rewarder"

const (
	taskScheduler = "scheduler"
	taskWorker    = "worker"
	taskWriter    = "artifact_writer"
	taskEmitter   = "intent_emitter"
	taskHealth    = "health_reporter"
)

const (
	queueCap  = 512         // so much is refused late enough, and answered soon enough
	maxPayers = 8           // runs that are paid at a time
	lookEvery = time.Second // for what is left to do, and at the queues
)

// Deps is what an Engine is built on. Metrics, Log and Board may be nil.
type Deps struct {
	Catalog   *flow.Catalog
	Store     *store.Store
	Ledger    ledger.Client
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Board     *obs.Board
	Now       func() time.Time // wall clock
	Artifacts string           // folder of the runs' files; "": none are written
	Step      func(string)     // is told of each step of a run that lasts, and may end the process; nil: nobody is
}

// Engine is the rewarder. New builds it, the tasks do the work; its methods may be called from any goroutine.
type Engine struct {
	boot     Config
	reloaded atomic.Pointer[Config]
	store    *store.Store
	ledger   ledger.Client
	calls    *upstream.Calls // of the ledger
	log      hclog.Logger
	board    *obs.Board
	now      func() time.Time
	m        *metrics
	folder   string
	step     func(string)

	requests *flow.Queue[*request]
	todo     [3]*flow.Queue[job] // work, intents and results, by what is to be done
	events   *flow.Broadcast[Event]
	look     *flow.Ticker
	tick     *flow.Ticker
	room     flow.Retrier
	patience flow.Retrier  // of the tasks, with a store that takes nothing for now
	answers  time.Duration // within which a call of Compute has its answer

	runs     registry
	quota    *quota
	damage   *damage
	draining atomic.Bool // set by the scheduler once its intake has ended
	unwrote  atomic.Bool // the last files could not be written
}

// Event says that a run has reached a state.
type Event struct {
	Tenant, Epoch string
	State         State
}

// job names a run: its slot and its key. It is all that queues carry, since the file has the rest.
type job struct {
	slot string
	key  b3.Digest
}

func (j job) todo(kind uint32) piece { return piece{j.key, kind} }

func (j job) names() (tenant, epoch string) {
	tenant, epoch, _ = strings.Cut(j.slot, "\x00")
	return tenant, epoch
}

// New wires an engine and declares its buckets, queues, metrics and probes. It does no I/O and starts nothing.
func New(cfg Config, d Deps) *Engine {
	log := cmp.Or(d.Log, hclog.NewNullLogger()).Named(service)
	e := &Engine{
		boot: cfg, store: d.Store, ledger: d.Ledger, log: log, board: d.Board, now: d.Now, folder: d.Artifacts, step: d.Step, answers: answerWithin,
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
	e.calls = upstream.NewCalls(d.Catalog, d.Metrics, e.callSpec())
	e.room = flow.Retry(roomDelay, 2, isNoRoom).Counting(d.Catalog, service, "work")
	e.patience = flow.Retry(func(int) time.Duration { return lookEvery }, math.MaxInt, refuses)
	for _, key := range []string{keyQueue, keyLedger, keyStore, keyArtifact} {
		d.Board.Add(obs.Probe{Service: service, Key: key, Plane: obs.WritePlane})
	}
	return e
}

func (e *Engine) declareChannels(c *flow.Catalog) {
	queue := func(name string, p flow.Policy, to, doc string, from ...string) flow.Spec {
		return flow.Spec{Service: service, Name: name, Cap: queueCap, Policy: p, Producers: from, Consumers: []string{to}, Doc: doc}
	}
	e.requests = flow.NewQueue[*request](c, queue("work_req", flow.RejectNew, taskScheduler, "compute; full: 429, nothing happened", flow.HTTP))
	e.todo[toCompute] = flow.NewQueue[job](c, queue("work", flow.RetryOnce, taskWorker, "accepted runs; full twice: 429, nothing happened", taskScheduler))
	e.todo[toWrite] = flow.NewQueue[job](c, queue("results", flow.Wait, taskWriter, "sealed runs to write; what shutdown cuts off is found at boot", taskWorker, taskScheduler))
	e.todo[toPay] = flow.NewQueue[job](c, queue("intents", flow.Wait, taskEmitter, "sealed runs to pay; one that finds no room in time is paused", taskWorker, taskScheduler))
	e.events = flow.NewBroadcast[Event](c, flow.Spec{Service: service, Name: "events", Cap: 1024, Policy: flow.DropOldest,
		Producers: []string{taskScheduler, taskWorker, taskEmitter}, Consumers: []string{"*"}, Doc: "states of runs; who lags reads the slot"})
	ticker := func(name, to, doc string) *flow.Ticker {
		return flow.Every(c, flow.Spec{Service: service, Name: name, Consumers: []string{to}, Doc: doc}, lookEvery)
	}
	e.look, e.tick = ticker("look_tick", taskScheduler, "what is left to do"), ticker("health_tick", taskHealth, "readiness")
}

// Tasks lists the rewarder's tasks for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	work := []string{"store.work"}
	c := e.boot.Concurrency
	return []flow.Task{
		{Service: service, Name: taskScheduler, Lanes: work, Doc: "accepts one run an epoch, hands out what is left to do", Run: e.runScheduler},
		{Service: service, Name: taskWorker, Count: c.ComputeWorkers, Lanes: append(work, "store.bulk"), Doc: "computes, reads back and seals runs", Run: e.runWorker},
		{Service: service, Name: taskWriter, Lanes: work, Doc: "writes the files of runs", Run: e.runWriter},
		{Service: service, Name: taskEmitter, Count: min(maxPayers, c.IOInflight), Lanes: work, Doc: "has the ledger pay runs, a chunk at a time", Run: e.runEmitter},
		{Service: service, Name: taskHealth, Background: true, Doc: "readiness", Run: e.runHealth},
	}
}

// Recover has nothing to read: the scheduler finds what is left to do.
func (e *Engine) Recover(context.Context) error { return nil }

// Reload puts a valid configuration in force. Keys that need a restart keep the value they had. It does not wait.
func (e *Engine) Reload(cfg Config) { e.reloaded.Store(&cfg) }

func (e *Engine) live() *Config { return e.reloaded.Load() }

// Purge and Close have nothing to empty or free: what is read comes from the file.
func (e *Engine) Purge()                      {}
func (e *Engine) Close(context.Context) error { return nil }

// publish tells of the state of a run.
func (e *Engine) publish(run Run) { e.events.Publish(Event{run.Tenant, run.Epoch, run.State}) }

// registry is what this start of the node knows of runs beside the file.
type registry struct {
	mu   *flow.Mutex
	runs map[b3.Digest]entry // guarded by mu
}

// entry is a run: which of its jobs a queue holds or a task works on, its computations without a result, and what it waits for, if it does.
type entry struct {
	taken  [3]bool
	failed int
	stuck  error
}

// take notes that a job of a run is in a queue or at work, and reports whether it was not yet.
func (g *registry) take(key b3.Digest, kind uint32) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	free := !run.taken[kind]
	run.taken[kind] = true
	g.runs[key] = run
	return free
}

// leave notes that nobody has the job any more.
func (g *registry) leave(key b3.Digest, kind uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	run.taken[kind] = false
	g.put(key, run)
}

// fail counts a computation without a result, and reports whether the run has had its tries; then they begin anew.
func (g *registry) fail(key b3.Digest) (last bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	run.failed = (run.failed + 1) % maxTries
	g.put(key, run)
	return run.failed == 0
}

// wait notes what a run waits for, nil if it does not, and returns what it was.
func (g *registry) wait(key b3.Digest, why error) (was error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	run := g.runs[key]
	was, run.stuck = run.stuck, why
	g.put(key, run)
	return was
}

// put keeps a run of which there is something to know. The caller holds mu.
func (g *registry) put(key b3.Digest, run entry) {
	if g.runs[key] = run; run == (entry{}) {
		delete(g.runs, key)
	}
}

// trouble is what a run waits for, nil if none does.
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

// offer puts a run into the queue of what is to be done, unless somebody has it. It waits for room until ctx ends, or not at all.
func (e *Engine) offer(ctx context.Context, kind uint32, j job, wait bool) (err error) {
	if !e.runs.take(j.key, kind) {
		return nil
	}
	if wait {
		err = e.todo[kind].Send(ctx, j)
	} else if e.todo[kind].Len() < queueCap { // a full one is no loss: the scheduler looks again
		err = e.todo[kind].TrySend(j)
	} else {
		err = flow.ErrBusy
	}
	if err != nil {
		e.runs.leave(j.key, kind)
	}
	return err
}

// consume has do called for what is in a queue, until that is closed and empty, or ctx ends.
func (e *Engine) consume(ctx context.Context, kind uint32, do func(context.Context, job)) error {
	return e.todo[kind].Each(ctx, func(j job) {
		defer e.runs.leave(j.key, kind)
		do(ctx, j)
	})
}
