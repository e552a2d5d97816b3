package edge

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/cache"
	"ronbox/engines/edge/cas"
	"ronbox/engines/upstream"
	"ronbox/store"
)

// service is the edge's name in metrics, logs, probes and the catalogue.
const service = "edge"

// Task names. Those of the packs are in verifier.go.
const (
	taskWorker   = "worker"
	taskWriter   = "cas_writer"
	taskMetrics  = "metrics"
	taskScrubber = "scrubber"
)

// Deps is what an Engine is built on. Metrics and Board may be nil.
type Deps struct {
	Catalog   *flow.Catalog
	Store     *store.Store
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Board     *obs.Board
	Now       func() time.Time        // wall clock
	Lifecycle *flow.Watch[flow.Phase] // of the node: from Draining on no fill is begun
	DataDir   string                  // holds edge/cas, and packs unless edge.packs_dir says otherwise
	Amnesia   bool                    // nothing may be written to a disk: packs are served, fills are refused
	// Faults is asked before each change of a file of the content store, and its error taken for the system's. Tests only; nil: none.
	Faults func(op string) error
}

// Engine is the edge. New builds it, Recover reads the file, the tasks do the work; its methods may be called from any goroutine.
type Engine struct {
	boot  Config // what only a restart changes is read from here
	d     Deps
	log   hclog.Logger
	now   func() time.Time
	m     *metrics
	packs *PackSet
	cas   *cas.Dir
	get   func(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error
	hot   *cache.Cache[string, *hotEntry]

	diskFree func() (int64, error) // bytes; tests replace it
	// rehash is Rehash of the packs; tests replace it.
	rehash func(ctx context.Context, each func(PackInfo, error)) error

	live    atomic.Pointer[Config]  // current
	origins atomic.Pointer[origins] // of the current configuration; nil before Recover

	work    *fillQueue
	writes  *flow.Queue[*writeJob]
	events  *flow.Broadcast[Event]
	flights *flow.Flight[string, struct{}, Filled]
	sample  *flow.Ticker // of what readiness depends on
	sums    *sums

	scrubTick *flow.Ticker
	verifying atomic.Bool  // by a caller of Verify
	damage    atomic.Int64 // Unix ns of the last damage that was found

	absent *cache.Cache[string, pastAnswer] // refusals of hosts, by URL
	rate   bucket
	room   room
	epoch  atomic.Uint64 // of the rows: it ends when one changes or goes

	workers  atomic.Int64 // that run
	lastBusy atomic.Int64 // Unix ns of the last fill that was refused for the queue
}

// New wires an engine and declares its buckets, queues, tasks, metrics and probes. It does no I/O and starts nothing.
func New(cfg Config, d Deps) *Engine {
	e := &Engine{boot: cfg, d: d, log: d.Log.Named(service), now: d.Now}
	e.get = e.ask
	e.live.Store(&cfg)
	d.Store.Declare(service, Buckets()...)
	e.declareChannels()
	e.cas = cas.New(filepath.Join(d.DataDir, "edge", "cas"), d.Faults)
	e.diskFree = e.cas.Free
	e.hot = cache.New[string, *hotEntry](d.Catalog, cache.Spec[string, *hotEntry]{
		Service: service, Name: "hot_set", Producers: []string{flow.HTTP}, Doc: "objects up to 1 MiB", Bytes: hotBytes, Entry: 16 << 10,
	})
	e.flights = flow.NewFlight[string, struct{}, Filled](d.Catalog, flow.FlightSpec{
		Service: service, Name: "fill", Shards: 16, Waiters: maxWaiters, Calls: cfg.Queues.WorkTX + 2*cfg.Fill.Workers,
	})
	e.sums = newSums(d.Catalog, cfg.Ingress.MaxInflight)
	e.absent = cache.New[string, pastAnswer](d.Catalog, cache.Spec[string, pastAnswer]{
		Service: service, Name: "absent_set", Producers: []string{flow.HTTP, taskWorker}, Doc: "hosts' 404s and 5xx", Bytes: maxAbsent, Entry: 1,
	})
	e.rate.mu, e.room.mu = flow.NewMutex(d.Catalog, service, flow.RankCounters), flow.NewMutex(d.Catalog, service, flow.RankCounters)
	dir := cmp.Or(cfg.PacksDir, "packs")
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(d.DataDir, dir)
	}
	d.Log = e.log
	e.packs = newPackSet(dir, cfg.Packs, d, func(p PackInfo) {
		e.events.Publish(Event{Kind: "pack_state", Of: p.ID, Result: string(p.State), Size: p.Size})
	})
	e.rehash = e.packs.Rehash
	e.m = newMetrics(d.Metrics, e)
	d.Board.Add(e.probes()...)
	return e
}

// Bounds of the queues.
const (
	writeQueue = 64   // changes that wait for the CAS writer
	eventRing  = 1024 // events that a reader may lag behind
	maxWaiters = 4096 // requests that wait for one fill
	maxAbsent  = 4096 // refusals of hosts that are remembered
)

func (e *Engine) declareChannels() {
	e.work = newFillQueue(e.d.Catalog, e.d.Metrics, &e.boot, func() bool { return len(e.Config().Allow) > 1 })
	e.writes = flow.NewQueue[*writeJob](e.d.Catalog, flow.Spec{
		Service: service, Name: "cas_tx", Cap: writeQueue, Policy: flow.Wait, Producers: []string{flow.HTTP, taskWorker, taskMetrics, taskScrubber}, Consumers: []string{taskWriter},
		Doc: "objects to install, to make room for and to set aside; a worker waits, others are refused",
	})
	e.events = flow.NewBroadcast[Event](e.d.Catalog, flow.Spec{
		Service: service, Name: "events_tx", Cap: eventRing, Policy: flow.DropOldest,
		Producers: []string{flow.HTTP, taskWorker, taskWriter, taskScrubber, taskScanner, taskOpener, taskVerifier}, Consumers: []string{taskMetrics},
		Doc: "for the log",
	})
	e.sample = flow.Every(e.d.Catalog, flow.Spec{
		Service: service, Name: "metrics_tick", Consumers: []string{taskMetrics}, Doc: "what readiness depends on",
	}, 100*time.Millisecond)
	e.scrubTick = flow.Every(e.d.Catalog, flow.Spec{
		Service: service, Name: "scrub_tick", Consumers: []string{taskScrubber}, Doc: "whether edge.scrub.every has passed",
	}, time.Minute)
}

// Tasks lists the edge's tasks for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	return append([]flow.Task{
		{Service: service, Name: taskWriter, Count: 1, Restart: flow.Always, Lanes: []string{"store.work"},
			Doc: "the only one that names, moves or removes files of the content store", Run: e.runWriter},
		{Service: service, Name: taskWorker, Count: e.boot.Fill.Workers, Restart: flow.Always, Doc: "fetches what is missing, one object at a time", Run: e.runWorker},
		{Service: service, Name: taskMetrics, Count: 1, Restart: flow.Always, Background: true, Doc: "readiness, and events to the log", Run: e.runMetrics},
		{Service: service, Name: taskScrubber, Count: 1, Restart: flow.Always, Background: true, Lanes: []string{"store.work"},
			Doc: "reads every object and pack again, slowly", Run: e.runScrubber},
	}, e.packs.Tasks()...)
}

// Recover opens the content store and the packs. Call it once, after the store was opened and its committer runs. In amnesia the content store
// stays closed.
func (e *Engine) Recover(ctx context.Context) error {
	origins, err := e.newOrigins(&e.boot)
	e.origins.Store(origins)
	if err = errors.Join(err, e.hot.Open(), e.absent.Open()); err == nil && !e.d.Amnesia {
		err = e.recoverStore(ctx)
	}
	if err == nil {
		err = e.packs.Recover(ctx)
	}
	if err != nil {
		return fmt.Errorf("recover the edge: %w", err)
	}
	return nil
}

// Reload takes a valid configuration for the requests and the fills that begin from now on. Keys that need a restart keep the value they had.
// It does not wait for them.
func (e *Engine) Reload(cfg Config) {
	current := e.origins.Load()
	if current == nil { // Recover failed
		e.live.Store(&cfg)
		return
	}
	if !current.serve(e.live.Load(), &cfg) {
		origins, err := e.newOrigins(&cfg)
		if err != nil {
			e.log.Error("reload", "reason", err.Error(), "next", "the edge goes on as before; mend edge.ca_file and reload again")
			return
		}
		defer e.origins.Swap(origins).close()
	}
	e.live.Store(&cfg)
	e.packs.Reload()
}

// Purge empties the caches; what is asked for again is read from the disk.
func (e *Engine) Purge() {
	e.hot.Purge()
	e.absent.Purge()
	e.packs.Purge()
}

// Close ends what is under way, lets connections go and frees the memory. Call it after the last task and the last caller are gone.
func (e *Engine) Close(ctx context.Context) error {
	err := errors.Join(e.flights.Close(ctx), e.sums.flights.Close(ctx))
	if o := e.origins.Load(); o != nil {
		o.close()
	}
	e.hot.Close()
	e.absent.Close()
	e.packs.Close()
	return err
}

// Packs is the set of map packs.
func (e *Engine) Packs() *PackSet { return e.packs }

// Config is the current configuration. It is not to be changed.
func (e *Engine) Config() *Config { return e.live.Load() }

// draining reports whether the node is on its way down, so that nothing new is begun.
func (e *Engine) draining() bool {
	phase, _ := e.d.Lifecycle.Load()
	return phase >= flow.Draining
}
