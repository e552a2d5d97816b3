package wallet

import (
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
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

// Deps is what an Engine is built on. Catalog and Ledger are needed.
type Deps struct {
	Catalog *flow.Catalog
	Ledger  ledger.Client
	Metrics *obs.Metrics
	Log     hclog.Logger
	Board   *obs.Board
	Now     func() time.Time // wall clock; nil: time.Now
	// StallAfter is the age of a call of the ledger from which it counts as stalled, as the ledger's configuration has it now; nil: its default.
	StallAfter func() time.Duration
	// SafeMode says why the ledger takes no writes until it was verified, "" while it does. It must not wait; nil: the ledger's refusals tell.
	SafeMode func() string
	// AuthReady and PolicyReady say why requests cannot be judged now. They must not wait; nil: they can.
	AuthReady, PolicyReady func() error
	// Salt keys the hashes by which the log names accounts; empty: drawn anew with each Engine.
	Salt []byte
}

// Engine is the wallet. New builds it, the tasks do the work; its methods may be called from any goroutine.
type Engine struct {
	boot     Config                   // what only a restart changes is read from here
	set      atomic.Pointer[settings] // what Reload changes
	workers  int
	ledger   ledger.Client
	link     *link
	board    *obs.Board
	log      hclog.Logger
	now      func() time.Time
	stall    func() time.Duration
	safeMode func() string
	m        *metrics
	catalog  *flow.Catalog
	salted   *b3.Mode
	prints   fingerprints

	authReady, policyReady func() error

	work      *flow.Queue[*job]
	events    *flow.Broadcast[AuditEvent]
	tick      *flow.Ticker
	watchTick *flow.Ticker
	flights   *flow.Flight[flightKey, b3.Digest, *ledger.Outcome]
	nonces    *nonces
	ready     *ready
	turn      *turn
	balances  *balances
	receipts  *receipts
	declared  atomic.Pointer[assetSet] // as of the last look
	batched   room
	awaiting  atomic.Int64 // readers who wait for a record to come

	gates      gates
	queueOK    gate
	breakerOK  gate
	ledgerTime atomic.Uint64         // Unix ns
	ledgerSaid atomic.Pointer[error] // what a call said of the ledger since the watchdog looked
	left       atomic.Int32          // workers that have ended for good
	gone       chan struct{}         // closed when all workers have
	unclosed   runtime.Cleanup       // tells of an engine that is dropped without Close
}

// New wires an engine and declares its queues, metrics and probes. It does no I/O and starts nothing. It panics on a configuration that
// Validate refuses.
func New(cfg Config, d Deps) *Engine {
	e := &Engine{
		boot: cfg, ledger: d.Ledger, board: d.Board, log: d.Log, now: d.Now, stall: d.StallAfter, safeMode: d.SafeMode, catalog: d.Catalog,
		workers: workers(cfg), authReady: d.AuthReady, policyReady: d.PolicyReady,
		salted: newSalt(d.Salt), prints: newFingerprints(), gone: make(chan struct{}),
	}
	if e.now == nil {
		e.now = time.Now
	}
	if e.log == nil {
		e.log = hclog.NewNullLogger()
	}
	e.log = e.log.Named(service)
	e.set.Store(newSettings(d.Catalog, cfg))
	e.m = newMetrics(d.Metrics)
	e.declareChannels()
	e.link = &link{
		client: d.Ledger, breaker: flow.NewBreaker(cfg.CircuitBreaker.rule()).Counting(d.Catalog, service, upstream),
		set: e.live, m: e.m, calls: callTable{base: time.Now()}, stall: e.stallAfter, refused: func(err error) { e.ledgerSaid.Store(&err) },
	}
	e.nonces, e.ready, e.turn = newNonces(d.Catalog, cfg.Shards), newReady(d.Catalog), newTurn()
	e.batched.mu = flow.NewMutex(d.Catalog, service, flow.RankCounters)
	e.flights = flow.NewFlight[flightKey, b3.Digest, *ledger.Outcome](d.Catalog, flow.FlightSpec{
		Service: service, Name: "request", Shards: cfg.Shards, Waiters: flightWaiters, Calls: flightCalls,
	})
	e.balances, e.receipts = newBalances(d.Catalog, cfg.BalanceCacheBytes.Bytes()), newReceipts(d.Catalog)
	d.Board.Add(e.probes()...)
	d.Board.Set(service, keyConfig, nil)
	e.unclosed = runtime.AddCleanup(e, func(log hclog.Logger) {
		log.Debug("engine dropped without Close; its memory is reclaimed")
	}, e.log)
	return e
}

// workers is how many committers there are.
func workers(cfg Config) int {
	if cfg.Workers > 0 {
		return cfg.Workers
	}
	return min(max(2, runtime.NumCPU()), maxWorkers)
}

// workCap is how many jobs wait for a worker: the bound of what one sync of a slow disk can have behind it, and the place where too many
// requests are refused.
const workCap = 512

func (e *Engine) declareChannels() {
	e.work = flow.NewQueue[*job](e.catalog, flow.Spec{
		Service: service, Name: "work_tx", Cap: workCap, Policy: flow.RejectNew,
		Producers: []string{flow.HTTP}, Consumers: []string{taskWorker}, Doc: "requests for the ledger; full: 429, nothing happened",
	})
	e.events = flow.NewBroadcast[AuditEvent](e.catalog, flow.Spec{
		Service: service, Name: "events_tx", Cap: 1024, Policy: flow.DropOldest,
		Producers: []string{taskWorker, taskWatchdog, taskInvalidator, taskTicker}, Consumers: []string{taskAudit},
		Doc: "audit events; lossy, the journal is the record", Label: busAudit,
	})
	e.tick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "metrics_tick", Consumers: []string{taskTicker}, Doc: "samples of queue, clock and pace",
	}, tickEvery)
	e.watchTick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "watchdog_tick", Consumers: []string{taskWatchdog}, Doc: "age of the ledger's calls, and of waits for a nonce",
	}, watchEvery)
}

// Tasks lists the wallet's tasks for the supervisor. All but the workers end when the workers have drained.
func (e *Engine) Tasks() []flow.Task {
	lanes := []string{"store.work"} // through the ledger
	return []flow.Task{
		{Service: service, Name: taskWorker, Count: e.workers, Restart: flow.Always, Vital: true, Lanes: lanes,
			Doc: "puts bursts of requests to the ledger", Run: e.runWorker},
		{Service: service, Name: taskInvalidator, Count: 1, Restart: flow.Always, Doc: "drops cached balances that changed", Run: e.runInvalidator},
		{Service: service, Name: taskTicker, Count: 1, Restart: flow.Always, Doc: "samples readiness every second", Run: e.runTicker},
		{Service: service, Name: taskAudit, Count: 1, Restart: flow.Always, Doc: "writes audit events to the log", Run: e.runAudit},
		{Service: service, Name: taskWatchdog, Count: 1, Restart: flow.Always, Lanes: lanes,
			Doc: "follows the ledger's health and probes it", Run: e.runWatchdog},
	}
}

// Open makes the caches, which have goroutines of their own; Close ends them. An engine that is not open works, and caches nothing.
func (e *Engine) Open() error { return errors.Join(e.balances.kept.Open(), e.receipts.kept.Open()) }

// Close frees the caches. Call it after the last task and the last caller are gone.
func (e *Engine) Close() {
	e.unclosed.Stop()
	e.balances.kept.Close()
	e.receipts.kept.Close()
}

// Purge empties the caches; what is asked for again is read from the ledger.
func (e *Engine) Purge() {
	e.balances.kept.Purge()
	e.receipts.kept.Purge()
}
