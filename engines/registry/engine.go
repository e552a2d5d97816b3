package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/engines/upstream"
	"ronbox/store"
)

// service is the registry's name in metrics, logs, probes and the catalogue.
const service = "registry"

// Task names.
const (
	taskPipeline  = "pipeline"
	taskPublisher = "publisher"
	taskVerifier  = "deep_verifier"

	taskCheckpointor = "checkpointor"
	taskPruner       = "pruner"
)

// Deps is what an Engine is built on. Metrics, Log and Board may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Metrics *obs.Metrics
	Log     hclog.Logger
	Board   *obs.Board
	Tracer  *obs.Tracer      // nil: no spans
	Now     func() time.Time // wall clock; nil: time.Now
	// Progress is told of a long Recover at each of its steps; a total of 0 is not known. It must not wait. nil: nobody is.
	Progress func(stage string, done, total int64)
	// LogKeyFile holds the key that signs checkpoints, and HighWaterFile keeps the last one outside the database; "" for none, as
	// in a node that forgets.
	LogKeyFile, HighWaterFile string
}

// Engine is the registry. New builds it, Recover reads the file, the tasks do the work; its methods may be called from any
// goroutine and read what was last published.
type Engine struct {
	boot     Config                 // what only a restart changes is read from here
	reloaded atomic.Pointer[Config] // what Reload changes
	store    *store.Store
	board    *obs.Board
	log      hclog.Logger
	tracer   *obs.Tracer
	now      func() time.Time
	progress func(stage string, done, total int64)
	m        *metrics

	proposals  *flow.Queue[*job]
	approvals  *flow.Queue[*job]
	committed  *flow.Broadcast[Update]
	updated    *flow.Broadcast[Updated]
	tick       *flow.Ticker
	verifyTick *flow.Ticker
	catalog    *flow.Catalog

	rebuild   flow.Retrier
	reread    flow.Retrier
	codec     codec
	cache     versionCache  // open from Recover to Close
	slots     chan struct{} // one for each core: work on a caller's goroutine
	readSlots chan struct{} // one for each core: reads of old versions

	docFlight  *flow.Flight[docKey, struct{}, Document]     // encodings under way
	itemFlight *flow.Flight[uint64, struct{}, record.Items] // loads of old versions under way

	current atomic.Pointer[state] // what readers see; stored by Recover and by the committer, after the sync

	keyFile        string
	mark           checkpoint.HighWater
	key            atomic.Pointer[checkpoint.Key]    // read once
	latest         atomic.Pointer[checkpoint.Signed] // the checkpoint that readers see; nil: none yet
	tree           atomic.Pointer[treeRow]           // as of the last synced commit
	guard          atomic.Pointer[Rollback]          // nil: the log may be extended
	objections     atomic.Pointer[objections]        // of witnesses; stored by Recover, by the task checkpointor and by an adoption
	checkpointed   *flow.Watch[Checkpoint]
	archived       *flow.Watch[*checkpoint.Signed] // the last archived one of this boot, for witnesses; nil: none yet
	witness        *upstream.Client
	checkpointCmd  *flow.Queue[*flow.Reply[Checkpoint]]
	checkpointTick *flow.Ticker
	retentionCmd   *flow.Queue[uint64] // sizes of archived checkpoints
	segment        uint64              // versions that retention takes at a time

	loaded     atomic.Bool            // Recover is done
	chainError atomic.Pointer[string] // latched by the deep verifier
	running    atomic.Bool            // the pipeline is
	busySince  atomic.Int64           // Unix ns at which the oldest job in hand was queued; 0: none in hand
	configs    atomic.Int64           // configurations put in force so far
	verifiedTo atomic.Uint64          // version up to which this pass of the deep verifier is
	unclosed   runtime.Cleanup        // tells of an engine that is dropped without Close
}

// New wires an engine and declares its buckets, queues, metrics and probes. It does no I/O and starts nothing.
func New(cfg Config, d Deps) *Engine {
	e := &Engine{
		boot: cfg, store: d.Store, board: d.Board, log: d.Log, tracer: d.Tracer, now: d.Now, catalog: d.Catalog,
		//rawchan: slots is a semaphore, it queues nothing
		codec: newCodec(), slots: make(chan struct{}, runtime.GOMAXPROCS(0)),
		//rawchan: readSlots is a semaphore, it queues nothing
		readSlots: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	e.segment = segmentVersions
	e.reloaded.Store(&cfg)
	e.keyFile, e.mark = d.LogKeyFile, checkpoint.HighWater{Path: d.HighWaterFile}
	e.tree.Store(&treeRow{})
	e.objections.Store(&objections{})
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
	e.reread = flow.Retry(readDelay, readTries, func(err error) bool { return errors.Is(err, errReadsBusy) }).Counting(d.Catalog, service, "read")
	e.current.Store(newState(newHeadView(HeadView{})))
	e.m = newMetrics(d.Metrics, e)
	e.m.configVersion(float64(e.configs.Add(1)))
	e.witness = newWitnessClient(d.Catalog, d.Metrics)
	d.Board.Add(e.probes()...)
	e.unclosed = runtime.AddCleanup(e, func(log hclog.Logger) {
		log.Debug("engine dropped without Close; its memory is reclaimed")
	}, e.log)
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
	e.committed = flow.NewBroadcast[Update](e.catalog, flow.Spec{
		Service: service, Name: "committed_tx", Cap: e.boot.Bus.ChannelBound, Policy: flow.DropOldest,
		Producers: []string{taskPipeline}, Consumers: []string{taskPublisher, taskVerifier, taskCheckpointor, flow.HTTP},
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
	e.checkpointTick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "checkpoint_tick", Consumers: []string{taskCheckpointor}, Doc: "whether HEAD has moved, every second",
	}, checkpointEvery)
	e.checkpointCmd = flow.NewQueue[*flow.Reply[Checkpoint]](e.catalog, flow.Spec{
		Service: service, Name: "checkpoint_cmd", Cap: maxCheckpoints, Policy: flow.RejectNew,
		Producers: []string{flow.HTTP}, Consumers: []string{taskCheckpointor}, Doc: "checkpoints that were asked for; full: 429, nothing happened",
	})
	e.checkpointed = flow.NewWatch[Checkpoint](e.catalog, flow.Spec{
		Service: service, Name: "checkpoints", Producers: []string{taskCheckpointor}, Consumers: []string{flow.HTTP}, Doc: "the latest checkpoint",
	}, Checkpoint{})
	e.archived = flow.NewWatch[*checkpoint.Signed](e.catalog, flow.Spec{
		Service: service, Name: "archived", Producers: []string{taskCheckpointor}, Consumers: []string{taskCheckpointor},
		Doc: "the archived checkpoint that witnesses are shown at once; a newer one supersedes",
	}, nil)
	e.retentionCmd = flow.NewQueue[uint64](e.catalog, flow.Spec{
		Service: service, Name: "retention_cmd_tx", Cap: maxRetentionCmds, Policy: flow.RejectNew,
		Producers: []string{taskCheckpointor}, Consumers: []string{taskPruner}, Doc: "archived checkpoints to prune under; full: the cycle is skipped",
	})
	e.cache = newVersionCache(e.catalog)
	e.docFlight = flow.NewFlight[docKey, struct{}, Document](e.catalog, flow.FlightSpec{
		Service: service, Name: "encode_version", Waiters: maxLoads, Calls: maxLoads,
	})
	e.itemFlight = flow.NewFlight[uint64, struct{}, record.Items](e.catalog, flow.FlightSpec{
		Service: service, Name: "load_version", Waiters: maxLoads, Calls: maxLoads,
	})
}

// Tasks lists the registry's tasks for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	return []flow.Task{
		{Service: service, Name: taskPipeline, Count: 1, Restart: flow.Always, Vital: true, Lanes: []string{"store.work", "store.bulk"},
			Doc: "sole writer of HEAD", Run: e.runPipeline},
		{Service: service, Name: taskPublisher, Count: 1, Restart: flow.Always, Doc: "tells the node of new versions", Run: e.runPublisher},
		{Service: service, Name: taskCheckpointor, Count: 1, Restart: flow.Always, Lanes: []string{"store.work", "store.bulk"},
			Doc: "signs checkpoints, keeps sets for old reads", Run: e.runCheckpointor},
		{Service: service, Name: taskPruner, Count: 1, Restart: flow.Always, Background: true, Lanes: []string{"store.bulk"},
			Doc: "removes what retention lets go, in slices", Run: e.runPruner},
		{Service: service, Name: taskVerifier, Count: 1, Restart: flow.Always, Background: true, Doc: "verifies the log again, in slices", Run: e.runVerifier},
	}
}

// Reload puts a valid configuration in force, for the calls and the batches that begin from now on. Keys that need a
// restart keep the value they had. It does not wait.
func (e *Engine) Reload(cfg Config) {
	e.reloaded.Store(&cfg)
	e.m.configVersion(float64(e.configs.Add(1)))
	e.verifyTick.Set(cfg.Verify.Period.D())
}

// live is the configuration in force.
func (e *Engine) live() *Config { return e.reloaded.Load() }

// Head is HEAD as of the last synced commit; never nil. Before Recover it is an empty log.
func (e *Engine) Head() *HeadView { return e.current.Load().view }

// Subscribe gives a cursor over the versions committed from now on. Subscribe first, then read Head, then skip what it
// covers. The caller closes the subscription.
func (e *Engine) Subscribe(consumer string) *flow.Subscription[Update] {
	return e.committed.Subscribe(consumer)
}

// SubscribeUpdates gives a cursor over the publisher's bus.
func (e *Engine) SubscribeUpdates(consumer string) *flow.Subscription[Updated] {
	return e.updated.Subscribe(consumer)
}

// closeWithin bounds how long Close waits for a load that its callers have left.
const closeWithin = time.Second

// Close ends the loads of old versions that are still under way and frees the cache. Call it after the last task and the last caller
// have ended. It may be called again, and without a Recover before it.
func (e *Engine) Close(ctx context.Context) error {
	e.unclosed.Stop()
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	err := errors.Join(e.docFlight.Close(ctx), e.itemFlight.Close(ctx))
	e.witness.Close()
	e.cache.Close()
	return err
}

// Purge empties the cache of old versions; what is asked for again is read from the file.
func (e *Engine) Purge() {
	e.cache.Purge()
}

// ready returns the reason for which writes cannot be taken now, or nil.
func (e *Engine) ready() error {
	if why := e.guard.Load(); why != nil && !e.store.Info().Restored { // until accept-restore the store itself refuses
		return why.err()
	}
	return e.sound()
}

// sound is ready but for the fork guard, which has a readiness key of its own.
func (e *Engine) sound() error {
	if !e.loaded.Load() {
		return &NotReadyError{Cause: CauseLoading}
	}
	if e.chainError.Load() != nil {
		return &NotReadyError{Cause: CauseChainError}
	}
	return e.clockReady()
}

// checkpointSize is the size of the latest checkpoint; 0 before the first.
func (e *Engine) checkpointSize() uint64 {
	if s := e.latest.Load(); s != nil {
		return s.Size
	}
	return 0
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

// Origin is the log's name: the stored one after genesis, before it the configured one.
func (e *Engine) Origin() string {
	return cmp.Or(e.Head().Origin, e.boot.Origin, "ronbox.local/"+strings.ToLower(e.store.Info().NodeID))
}
