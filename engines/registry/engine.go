package registry

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/follow"
	"ronbox/engines/registry/highwater"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
	"ronbox/store"
)

// service is the name of the registry in metrics, logs, probes and the catalogue.
const service = tables.Service

// Task names.
const (
	taskPublisher = "publisher"
	taskVerifier  = "deep_verifier"
)

// Buckets returns the buckets of the registry.
func Buckets() []*store.Bucket { return tables.Buckets() }

// Deps holds the dependencies of an Engine. Metrics, Log and Board may be nil.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Metrics *obs.Metrics
	Log     hclog.Logger
	Board   *obs.Board
	Tracer  *obs.Tracer      // nil: no spans
	Now     func() time.Time // the clock of everything that is stored; nil: time.Now
	Wall    func() time.Time // the clock of what others sign; nil: Now
	// Progress is called at each step of a long Recover. A total of 0 means unknown. It must not
	// wait; nil: no calls.
	Progress func(stage string, done, total int64)
	// LogKeyFile holds the key that signs checkpoints. HighWaterFile keeps the last checkpoint
	// outside the database. Both are "" in a node that keeps nothing.
	LogKeyFile, HighWaterFile string
	// Replicated is set if the file has rows that other nodes with the same log key have written.
	Replicated bool
	Hub        follow.Hub // read if Config.Follow names a node
	// Segment is the number of versions that retention removes together; 0: as many as a tile has.
	Segment uint64
}

// Engine is the registry. New builds it, Recover reads the file, and the tasks do the work. Its
// methods are safe for concurrent use and read the last published state.
type Engine struct {
	*views.Reader
	*pipeline.Writer

	boot     Config                 // for keys that only a restart changes
	reloaded atomic.Pointer[Config] // for keys that Reload changes
	store    *store.Store
	board    *obs.Board
	log      hclog.Logger
	tracer   *obs.Tracer
	now      func() time.Time // of everything that is stored
	wall     func() time.Time // of what others sign
	progress func(stage string, done, total int64)
	m        *metrics

	committed  *flow.Broadcast[document.Update]
	updated    *flow.Broadcast[document.Update]
	verifyTick *flow.Ticker
	catalog    *flow.Catalog

	readSlots *flow.Slots // one for each processor: reads of old versions

	pub tables.Published // stored by Recover and, after the sync, by the committer

	pipeline *pipeline.Pipeline
	seal     *seal.Sealer
	retain   *retain.Retainer

	follow     *follow.Follower // nil unless the node follows another
	followRule follow.Rule      // the limits that are no key of the configuration

	chainError atomic.Pointer[string] // set by the deep verifier, never cleared
	told       atomic.Uint64          // last version published to streams; after a boot that of HEAD
	verifiedTo atomic.Uint64          // version that this pass of the deep verifier has reached
	unclosed   runtime.Cleanup        // logs an engine that is dropped without Close
}

// New builds an engine and declares its buckets, queues, metrics and probes. It does no I/O and
// starts no task.
func New(cfg Config, d Deps) *Engine {
	e := &Engine{
		boot: cfg, store: d.Store, board: d.Board, log: d.Log, tracer: d.Tracer, now: d.Now, wall: d.Wall,
		catalog: d.Catalog,
	}
	e.reloaded.Store(&cfg)
	e.pub.Tree.Store(&tables.TreeRow{})
	if e.now == nil {
		e.now = time.Now
	}
	if e.wall == nil {
		e.wall = e.now
	}
	e.progress = d.Progress
	if e.progress == nil {
		e.progress = func(string, int64, int64) {}
	}
	if e.log == nil {
		e.log = hclog.NewNullLogger()
	}
	e.log = e.log.Named(service)
	d.Store.Declare(service, Buckets()...)
	e.declareChannels()
	e.Reader = views.New(views.Deps{
		Catalog: d.Catalog, Store: d.Store, Published: &e.pub, Log: e.log, Board: d.Board, Slots: e.readSlots,
		Copy: cfg.Follow.URL != "",
		Counts: views.Counts{
			Timeouts: func(n int) { e.m.timeouts(n) },
			Backoff:  func(n int) { e.m.backoff(n) },
		},
	})
	mark := highwater.Mark{Path: d.HighWaterFile}
	if cfg.Follow.URL != "" {
		genesis, _ := b3.Parse(cfg.Follow.Genesis) // Validate has checked it
		e.follow = follow.New(d.Hub, genesis, follow.Deps{
			Catalog: d.Catalog, Store: d.Store, Reader: e.Reader, Published: &e.pub, Mark: mark, Log: e.log,
			Clock: follow.Clock{Now: e.now, Wall: e.wall}, Keeper: followKeeper{e},
		})
	}
	e.pub.State.Store(tables.NewState(tables.NewHeadView(tables.HeadView{})))
	e.m = newMetrics(d.Metrics, e)
	e.pipeline = pipeline.New(pipelineConfig(cfg, e.follow), pipeline.Deps{
		Catalog: d.Catalog, Metrics: d.Metrics, Store: d.Store, Reader: e.Reader, Published: &e.pub, Log: e.log,
		Tracer: d.Tracer, Keeper: pipelineKeeper{e},
	})
	e.Writer = pipeline.NewWriter(e.pipeline)
	e.seal = seal.New(seal.Config{
		KeyFile: d.LogKeyFile, Mark: mark, Replicated: d.Replicated, Copy: e.follow != nil,
	}, seal.Deps{
		Catalog: d.Catalog, Metrics: d.Metrics, Store: d.Store, Reader: e.Reader, Published: &e.pub, Board: d.Board,
		Log: e.log, Keeper: sealKeeper{e},
	})
	e.retain = retain.New(cmp.Or(d.Segment, retain.SegmentVersions), retain.Deps{
		Catalog: d.Catalog, Metrics: d.Metrics, Store: d.Store, Reader: e.Reader, Published: &e.pub, Log: e.log,
		Keeper: retainKeeper{e},
	})
	d.Board.Add(e.probes()...)
	e.unclosed = runtime.AddCleanup(e, func(log hclog.Logger) {
		log.Debug("engine dropped without Close; its memory is reclaimed")
	}, e.log)
	return e
}

func (e *Engine) declareChannels() {
	own := func(task string) []string { return []string{task} }
	if e.boot.Follow.URL != "" {
		own = func(task string) []string { return []string{task, follow.TaskName} }
	}
	e.committed = flow.NewBroadcast[document.Update](e.catalog, flow.Spec{
		Service: service, Name: "committed_tx", Cap: e.boot.Bus.ChannelBound, Policy: flow.DropOldest,
		Producers: own(pipeline.TaskName), Consumers: []string{taskPublisher, taskVerifier, seal.TaskCheckpointor},
		Doc: "new versions; a reader that loses some reconciles from HEAD",
	})
	e.updated = flow.NewBroadcast[document.Update](e.catalog, flow.Spec{
		Service: service, Name: "updated", Cap: e.boot.Bus.ChannelBound, Policy: flow.DropOldest,
		Producers: []string{taskPublisher}, Consumers: []string{flow.HTTP},
		Doc: "new versions for event streams; " +
			"a stream that loses some reports lagged and continues from HEAD",
	})
	e.verifyTick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "verify_tick", Consumers: []string{taskVerifier}, Doc: "one slice of the log",
	}, e.boot.Verify.Period.D())
	e.readSlots = flow.NewSlots(e.catalog, flow.Spec{
		Service: service, Name: "replays", Policy: "reject new, after 3 tries", Producers: []string{flow.HTTP},
		Doc: "reads of old versions at one time; full: 503, as from slow storage",
	})
}

// Tasks returns the tasks of the registry for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	tasks := []flow.Task{
		e.pipeline.Task(),
		{
			Service: service, Name: taskPublisher, Count: 1, Restart: flow.Always,
			Doc: "sends new versions to event streams", Run: e.runPublisher,
		},
	}
	tasks = append(tasks, e.seal.Tasks()...)
	tasks = append(tasks,
		e.retain.Task(),
		flow.Task{
			Service:    service,
			Name:       taskVerifier,
			Count:      1,
			Restart:    flow.Always,
			Background: true,
			Lanes:      []string{"store.bulk"},
			Doc:        "verifies the log again, in slices",
			Run:        e.runVerifier,
		},
	)
	if e.follow != nil {
		tasks = append(tasks, e.follow.Task())
	}
	return tasks
}

// Reload applies a valid configuration to the calls and batches that begin from now on. Keys that
// need a restart keep their value. It does not block.
func (e *Engine) Reload(cfg Config) {
	e.reloaded.Store(&cfg)
	e.verifyTick.Set(cfg.Verify.Period.D())
}

// live returns the configuration in force.
func (e *Engine) live() *Config { return e.reloaded.Load() }

// Head returns HEAD as of the last synced commit, never nil. Before Recover it is an empty log.
func (e *Engine) Head() *tables.HeadView { return e.pub.Head() }

// Errors of HeadIn.
var (
	errNoHead = errors.New("the registry has no version yet")
	errMoving = errors.New("a version of the registry is being committed")
)

// HeadIn returns HEAD as the transaction of r has it. r may be that of a command of another
// service, which so decides by the version that is in force when it is committed. HeadIn returns an
// error if there is no HEAD, if a version is committed in the same transaction, if the file is not
// the newest copy of its log or does not verify, or if the node follows another one that is not to
// be believed or has not signed for too long.
func (e *Engine) HeadIn(r store.Reader) (*tables.HeadView, error) {
	head, _ := tables.MetaHead.Get(store.Foreign(r, service), tables.KeyHead)
	now := e.pub.State.Load()
	switch {
	case head.Version == 0 || now == nil:
		return nil, errNoHead
	case head != now.View.Head:
		return nil, errMoving
	case e.seal.Tripped() != nil:
		return nil, e.seal.Tripped().Err()
	case e.chainError.Load() != nil:
		return nil, &document.NotReadyError{Cause: document.CauseChainError}
	case e.follow != nil:
		if err := e.follow.OK(); err != nil {
			return nil, err
		}
	}
	return now.View, nil
}

// Subscribe returns a subscription to the versions that the publisher sends from now on. Subscribe
// first, then read Head, then skip the versions that it covers. After a lag or a restart of the
// publisher, versions are missing: the next event is then more than one version ahead. The caller
// closes the subscription.
func (e *Engine) Subscribe(consumer string) *flow.Subscription[document.Update] {
	return e.updated.Subscribe(consumer)
}

// Emits returns a *NotReadyError while bus.emit_updates is false: the publisher then sends no
// version.
func (e *Engine) Emits() error {
	if !e.live().Bus.EmitUpdates {
		return &document.NotReadyError{Cause: document.CauseUpdatesOff}
	}
	return nil
}

// closeWithin bounds the time that Close waits for a load without callers.
const closeWithin = time.Second

// Close ends the running loads of old versions and frees the cache. Call it after the last task and
// the last caller have ended. It may be called again, and without a Recover before it.
func (e *Engine) Close(ctx context.Context) error {
	e.unclosed.Stop()
	ctx, cancel := context.WithTimeout(ctx, closeWithin)
	defer cancel()
	err := e.Reader.Close(ctx)
	e.seal.Close()
	return err
}

// ready returns the reason why writes are refused now, or nil.
func (e *Engine) ready() error {
	// until accept-restore the store itself refuses
	if why := e.seal.Tripped(); why != nil && !e.store.Info().Restored {
		return why.Err()
	}
	return e.sound()
}

// sound is ready without the fork guard, which has a readiness key of its own.
func (e *Engine) sound() error {
	if !e.pub.Loaded.Load() {
		return &document.NotReadyError{Cause: document.CauseLoading}
	}
	if e.chainError.Load() != nil {
		return &document.NotReadyError{Cause: document.CauseChainError}
	}
	return nil
}

// Origin returns the name of the log: the stored one after genesis, the configured one before it.
func (e *Engine) Origin() string {
	return cmp.Or(e.Head().Origin, e.boot.Origin, "ronbox.local/"+strings.ToLower(e.store.Info().NodeID))
}
