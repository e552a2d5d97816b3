package wallet

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
)

// service is the wallet's name in metrics, logs, probes and the catalogue.
const service = "wallet"

// Task names.
const (
	taskWorker      = "worker"
	taskInvalidator = "cache_invalidator"
	taskTicker      = "metrics_ticker"
	taskAudit       = "audit_stream"
	taskWatchdog    = "watchdog"
)

// Deps are the neighbours of an Engine. Catalog and Ledger are required.
type Deps struct {
	Catalog *flow.Catalog
	Ledger  ledger.Client
	Metrics *obs.Metrics
	Log     hclog.Logger
	Board   *obs.Board
	Now     func() time.Time // the clock of the node; nil: time.Now
	// StallAfter returns the age from which a call of the ledger counts as stalled; nil: the
	// default of the ledger.
	StallAfter func() time.Duration
	// SafeMode returns why the ledger takes no writes until it was verified, or "". It must not
	// wait; nil: the wallet learns of safe mode from refusals.
	SafeMode func() string
	// Warm has the ledger keep the balance of an account in an asset in memory; nil: balances that
	// are in the file only are read from there each time.
	Warm func(ctx context.Context, account, asset string) error
	// AuthReady returns why requests cannot be authorized now. It must not wait; nil: they can.
	AuthReady func() error
	// Salt keys the hashes by which the log names accounts; empty: a random one for each Engine.
	Salt []byte
}

// Engine is the wallet. New builds it, the tasks do the work; its methods may be called from any
// goroutine.
type Engine struct {
	boot     Config                   // for the keys that need a restart
	set      atomic.Pointer[settings] // what Reload changes
	workers  int
	ledger   ledger.Client
	calls    *upstream.Calls // the ledger's calls that change something
	progress progress        // of these calls
	board    *obs.Board
	log      hclog.Logger
	now      func() time.Time
	stall    func() time.Duration // least age of a call that stalls
	safeMode func() string
	warm     func(ctx context.Context, account, asset string) error
	m        *metrics
	catalog  *flow.Catalog
	salted   *b3.Mode
	prints   fingerprints

	authReady func() error

	work      *flow.Queue[*job]
	cold      *flow.Queue[balanceKey]
	events    *flow.Broadcast[AuditEvent]
	tick      *flow.Ticker
	watchTick *flow.Ticker
	flights   *flow.Flight[flightKey, b3.Digest, *ledger.Outcome]
	turn      *turn
	declared  atomic.Pointer[assetSet] // as of the last look
	batched   room
	awaiting  atomic.Int64 // readers who wait for a record to come

	gates      gates
	queueOK    gate
	breakerOK  gate
	ledgerSaid atomic.Pointer[error] // safe mode, as a call met it since the watchdog looked
	left       atomic.Int32          // workers that have ended for good
	gone       chan struct{}         // closed when all workers have
	unclosed   runtime.Cleanup       // logs an engine that is dropped without Close
}

// New wires an engine and declares its queues, metrics and probes. It does no I/O and starts
// nothing. It panics on a configuration that Validate refuses.
func New(cfg Config, d Deps) *Engine {
	e := &Engine{
		boot:      cfg,
		ledger:    d.Ledger,
		board:     d.Board,
		log:       d.Log,
		now:       d.Now,
		stall:     d.StallAfter,
		safeMode:  d.SafeMode,
		warm:      d.Warm,
		catalog:   d.Catalog,
		workers:   workers(cfg),
		authReady: d.AuthReady,
		salted:    newSalt(d.Salt),
		prints:    newFingerprints(),
		turn:      newTurn(),
		gone:      make(chan struct{}),
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.stall == nil {
		e.stall = ledger.DefaultConfig().StallAfter.D
	}
	if e.log == nil {
		e.log = hclog.NewNullLogger()
	}
	e.log = e.log.Named(service)
	e.set.Store(newSettings(d.Catalog, cfg))
	e.m = newMetrics(d.Metrics)
	e.declareChannels()
	e.progress.base = time.Now()
	e.calls = upstream.NewCalls(d.Catalog, d.Metrics, e.callSpec())
	e.batched.mu = flow.NewMutex(d.Catalog, service, flow.RankCounters)
	e.flights = flow.NewFlight[flightKey, b3.Digest, *ledger.Outcome](d.Catalog, flow.FlightSpec{
		Service: service, Name: "request", Shards: cfg.Shards, Waiters: flightWaiters, Calls: flightCalls,
	})
	d.Board.Add(e.probes()...)
	d.Board.Set(service, keyConfig, nil)
	e.unclosed = runtime.AddCleanup(e, func(log hclog.Logger) {
		log.Debug("engine dropped without Close; its memory is reclaimed")
	}, e.log)
	return e
}

// workers returns the number of workers.
func workers(cfg Config) int {
	if cfg.Workers > 0 {
		return cfg.Workers
	}
	return min(max(2, runtime.NumCPU()), maxWorkers)
}

// workCap is how many jobs wait for a worker. It bounds the jobs that one sync of a slow disk holds
// up; requests beyond it are refused.
const workCap = 512

// coldCap is how many balances wait to be brought into memory. A balance that does not fit is
// brought by a later read.
const coldCap = 64

func (e *Engine) declareChannels() {
	e.work = flow.NewQueue[*job](e.catalog, flow.Spec{
		Service:   service,
		Name:      "work_tx",
		Cap:       workCap,
		Policy:    flow.RejectNew,
		Producers: []string{flow.HTTP},
		Consumers: []string{taskWorker},
		Doc:       "requests for the ledger; full: 429, nothing happened",
	})
	e.cold = flow.NewQueue[balanceKey](e.catalog, flow.Spec{
		Service:   service,
		Name:      "cold_tx",
		Cap:       coldCap,
		Policy:    flow.RejectNew,
		Producers: []string{flow.HTTP},
		Consumers: []string{taskInvalidator},
		Doc:       "balances that were read from the file; full: a later read brings them into memory",
	})
	e.events = flow.NewBroadcast[AuditEvent](e.catalog, flow.Spec{
		Service: service, Name: "events_tx", Cap: 1024, Policy: flow.DropOldest,
		Producers: []string{taskWorker, taskWatchdog, taskInvalidator, taskTicker}, Consumers: []string{taskAudit},
		Doc: "audit events; lossy, the journal is the record", Label: busAudit,
	})
	e.tick = flow.Every(e.catalog, flow.Spec{
		Service:   service,
		Name:      "metrics_tick",
		Consumers: []string{taskTicker},
		Doc:       "samples of queue and clock",
	}, tickEvery)
	e.watchTick = flow.Every(e.catalog, flow.Spec{
		Service:   service,
		Name:      "watchdog_tick",
		Consumers: []string{taskWatchdog},
		Doc:       "age of the ledger's calls",
	}, watchEvery)
}

// Tasks lists the wallet's tasks for the supervisor. All but the workers end when the workers have
// drained.
func (e *Engine) Tasks() []flow.Task {
	task := func(name, doc string, run func(context.Context) error, lanes ...string) flow.Task {
		return flow.Task{
			Service: service, Name: name, Count: 1, Restart: flow.Always, Doc: doc, Run: run, Lanes: lanes,
		}
	}
	worker := task(taskWorker, "sends bursts of requests to the ledger", e.runWorker, "store.work")
	worker.Count, worker.Vital = e.workers, true
	return []flow.Task{
		worker,
		task(taskInvalidator, "keeps balances in memory that are read, and follows the ledger", e.runInvalidator,
			"store.bulk"),
		task(taskTicker, "samples readiness every second", e.runTicker),
		task(taskAudit, "writes audit events to the log", e.runAudit),
		task(taskWatchdog, "follows the ledger's health and probes it", e.runWatchdog, "store.work"),
	}
}

// Close ends the engine. Call it after the last task and the last caller are gone.
func (e *Engine) Close() { e.unclosed.Stop() }

// Purge drops nothing: the wallet keeps no copy of a balance or of a receipt.
func (e *Engine) Purge() {}
