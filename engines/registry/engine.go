package registry

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/oklog/ulid/v2"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/store"
)

// service is the registry's name in metrics, logs, probes and the catalogue.
const service = "registry"

// Task names.
const (
	taskPipeline  = "pipeline"
	taskPublisher = "publisher"
	taskVerifier  = "deep_verifier"
)

// Deps is what an Engine is built on. Metrics, Log and Board may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Metrics *obs.Metrics
	Log     hclog.Logger
	Board   *obs.Board
	Now     func() time.Time // wall clock; nil: time.Now
	// Progress is told of a long Recover at each of its steps; a total of 0 is not known. It must not wait. nil: nobody is.
	Progress func(stage string, done, total int64)
}

// Engine is the registry. New builds it, Recover reads the file, the tasks do the work; its methods may be called from any
// goroutine and read what was last published.
type Engine struct {
	boot     Config                 // what only a restart changes is read from here
	reloaded atomic.Pointer[Config] // what Reload changes
	store    *store.Store
	board    *obs.Board
	log      hclog.Logger
	now      func() time.Time
	progress func(stage string, done, total int64)
	m        *metrics

	proposals  *flow.Queue[*job]
	approvals  *flow.Queue[*job]
	committed  *flow.Broadcast[Event]
	updated    *flow.Broadcast[Updated]
	tick       *flow.Ticker
	verifyTick *flow.Ticker
	catalog    *flow.Catalog

	rebuild flow.Retrier
	reread  flow.Retrier
	codec   codec
	cache   atomic.Pointer[cache] // nil until Recover and after Close
	slots   chan struct{}         // one for each core: work on a caller's goroutine
	current atomic.Pointer[state] // what readers see; stored by Recover and by the committer, after the sync

	loaded     atomic.Bool            // Recover is done
	chainError atomic.Pointer[string] // latched by the deep verifier
	running    atomic.Bool            // the pipeline is
	busySince  atomic.Int64           // Unix ns at which the oldest job in hand was queued; 0: none in hand
	verifiedTo atomic.Uint64          // version up to which this pass of the deep verifier is
}

// New wires an engine and declares its buckets, queues, metrics and probes. It does no I/O and starts nothing.
func New(cfg Config, d Deps) *Engine {
	e := &Engine{
		boot: cfg, store: d.Store, board: d.Board, log: d.Log, now: d.Now, catalog: d.Catalog,
		codec: newCodec(), slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	e.reloaded.Store(&cfg)
	if e.now == nil {
		e.now = time.Now
	}
	if e.progress = d.Progress; e.progress == nil {
		e.progress = func(string, int64, int64) {}
	}
	if e.log == nil {
		e.log = hclog.NewNullLogger()
	}
	e.log = e.log.Named(service)
	d.Store.Declare(service, Buckets()...)
	e.declareChannels()
	e.rebuild = flow.Retry(e.backOff, rebuilds+1, isGuard).Counting(d.Catalog, service, "commit")
	e.reread = flow.Retry(readDelay, readTries, isTransient).Counting(d.Catalog, service, "read")
	e.current.Store(newState(newHeadView(HeadView{})))
	e.m = newMetrics(d.Metrics, e)
	d.Board.Add(e.probes()...)
	return e
}

func (e *Engine) declareChannels() {
	queue := func(name string, bound int, doc string) *flow.Queue[*job] {
		return flow.NewQueue[*job](e.catalog, flow.Spec{
			Service: service, Name: name, Cap: bound, Policy: flow.RejectNew,
			Producers: []string{flow.HTTP}, Consumers: []string{taskPipeline}, Doc: doc,
		})
	}
	e.proposals = queue("proposals_tx", e.boot.Queues.Proposals, "propose and genesis; full: 429, nothing happened")
	e.approvals = queue("approvals_tx", e.boot.Queues.Approvals, "approve, commit and withdraw, in order; full: 429, nothing happened")
	e.committed = flow.NewBroadcast[Event](e.catalog, flow.Spec{
		Service: service, Name: "committed_tx", Cap: e.boot.Bus.ChannelBound, Policy: flow.DropOldest,
		Producers: []string{taskPipeline}, Consumers: []string{taskPublisher, taskVerifier, flow.HTTP},
		Doc: "new versions; a reader that is overrun reconciles from HEAD",
	})
	e.updated = flow.NewBroadcast[Updated](e.catalog, flow.Spec{
		Service: service, Name: "updated", Cap: e.boot.Bus.ChannelBound, Policy: flow.DropOldest,
		Producers: []string{taskPublisher}, Doc: "registry.updated for the rest of the node; loss is healed by HEAD",
	})
	e.tick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "pipeline_tick", Consumers: []string{taskPipeline}, Doc: "expiry sweep, every second",
	}, tickEvery)
	e.verifyTick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "verify_tick", Consumers: []string{taskVerifier}, Doc: "one slice of the log",
	}, e.boot.Verify.Period.D())
	e.catalog.Declare(cacheSpec())
}

// Tasks lists the registry's tasks for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	return []flow.Task{
		{Service: service, Name: taskPipeline, Count: 1, Restart: flow.Always, Doc: "sole writer of HEAD", Run: e.runPipeline},
		{Service: service, Name: taskPublisher, Count: 1, Restart: flow.Always, Doc: "tells the node of new versions", Run: e.runPublisher},
		{Service: service, Name: taskVerifier, Count: 1, Restart: flow.Always, Background: true, Doc: "verifies the log again, in slices", Run: e.runVerifier},
	}
}

// Reload puts a valid configuration in force, for the calls and the batches that begin from now on. Keys that need a
// restart keep the value they had. It does not wait.
func (e *Engine) Reload(cfg Config) {
	e.reloaded.Store(&cfg)
	e.verifyTick.Set(cfg.Verify.Period.D())
}

// live is the configuration in force.
func (e *Engine) live() *Config { return e.reloaded.Load() }

// Head is HEAD as of the last synced commit; never nil. Before Recover it is an empty log.
func (e *Engine) Head() *HeadView { return e.current.Load().view }

// Subscribe gives a cursor over the versions committed from now on. Subscribe first, then read Head, then skip what it
// covers. The caller closes the subscription.
func (e *Engine) Subscribe(consumer string) *flow.Subscription[Event] {
	return e.committed.Subscribe(consumer)
}

// SubscribeUpdates gives a cursor over the publisher's bus.
func (e *Engine) SubscribeUpdates(consumer string) *flow.Subscription[Updated] {
	return e.updated.Subscribe(consumer)
}

// Close frees the cache of old versions. Call it after the last task and the last caller are gone.
func (e *Engine) Close() {
	if c := e.cache.Swap(nil); c != nil {
		c.close()
	}
}

// Purge empties the cache of old versions; what is asked for again is read from the file.
func (e *Engine) Purge() {
	if c := e.cache.Load(); c != nil {
		c.purge()
	}
}

// ready says why writes cannot be taken now, or nil.
func (e *Engine) ready() error {
	if !e.loaded.Load() {
		return &NotReadyError{Cause: CauseLoading}
	}
	if e.chainError.Load() != nil {
		return &NotReadyError{Cause: CauseChainError}
	}
	return e.clockReady()
}

// maxClockLag is how far the wall clock may be behind HEAD.
const maxClockLag = 5 * time.Minute

// clockReady refuses writes while the clock is so far behind HEAD that the times of new versions would be made up.
func (e *Engine) clockReady() error {
	head := e.Head().Head
	if head.Version == 0 {
		return nil
	}
	at, err := time.Parse(time.RFC3339, head.CommittedAt)
	if err != nil {
		return fmt.Errorf("time of HEAD: %w", err)
	}
	if e.now().Add(maxClockLag).Before(at) {
		return &NotReadyError{Cause: CauseClockBehind}
	}
	return nil
}

// readOutcome says how a proposal ended, from the file.
func (e *Engine) readOutcome(ctx context.Context, id ulid.ULID) (how doneRow, known bool, err error) {
	err = e.view(ctx, func(r store.Reader) error {
		how, known = doneOutcome.Get(r, id)
		return nil
	})
	return how, known, err
}

// Origin is the log's name: the stored one after genesis, before it the configured one.
func (e *Engine) Origin() string {
	if o := e.Head().Origin; o != "" {
		return o
	}
	if e.boot.Origin != "" {
		return e.boot.Origin
	}
	return "ronbox.local/" + strings.ToLower(e.store.Info().NodeID)
}
