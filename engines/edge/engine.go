package edge

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/cache"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/cas"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/extract"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/origin"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/sites"
	"ronbox/store"
)

// Deps holds the dependencies of an Engine. Metrics, Board and Names may be nil.
type Deps struct {
	Catalog   *flow.Catalog
	Store     *store.Store
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Board     *obs.Board
	Now       func() time.Time        // wall clock
	Lifecycle *flow.Watch[flow.Phase] // of the node; from Draining on no fill is begun
	DataDir   string                  // contains edge/cas, and packs unless edge.packs_dir names another folder
	Amnesia   bool                    // the node writes nothing to a disk: packs are served, fills are refused
	Names     Names                   // nil if the index is off; then no site is served
	Fleet     *FleetConfig            // nil if the fleet is off
	Members   content.Members         // nil on a node alone
	Faults    cas.Faults              // of the content store; only tests set them
}

// Names looks up names and publishes which objects this node provides. The node implements it with
// the index. Its methods return soon after ctx ends and are safe for concurrent use.
type Names interface {
	near.Names
	sites.Names
	announce.Names
}

// Engine is the edge. Its methods may be called from any goroutine after Recover has returned.
type Engine struct {
	boot    config.Config // at the start; for keys that need a restart
	d       Deps
	log     hclog.Logger
	now     func() time.Time
	m       *metrics
	packs   *pack.Set
	extract *extract.Extractor
	content *content.Store
	get     func(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error

	cooldown time.Duration // of the breaker of a host; tests replace it
	// synced is called after each sync of a new pack; only tests set it.
	synced func()
	// rehash is pack.Set.Rehash; tests replace it.
	rehash func(ctx context.Context, each func(pack.Info, error)) error

	live    atomic.Pointer[config.Config] // current
	origins atomic.Pointer[origin.Hosts]  // of the current configuration; nil before Recover

	fills   *fill.Filler
	events  *flow.Broadcast[asset.Event]
	flights *flow.Flight[string, struct{}, fill.Filled] // of fills
	sample  *flow.Ticker                                // triggers the sampling of readiness

	sites *sites.Server

	announcer *announce.Announcer

	damage atomic.Int64 // Unix ns of the last damage found

	absent *cache.Cache[string, fill.Answer] // refusals by hosts, by URL

	near   *near.Searcher // nil if the fleet is off
	placer *placed.Placer // nil if the fleet is off
	meter  *meter.Meter   // nil without FleetConfig.Signer
}

// New creates an engine and declares its buckets, queues, tasks, metrics and probes. It does no I/O
// and starts nothing.
func New(cfg config.Config, d Deps) *Engine {
	e := &Engine{boot: cfg, d: d, log: d.Log.Named(service), now: d.Now}
	e.get = e.ask
	e.live.Store(&cfg)
	d.Store.Declare(service, Buckets()...)
	e.declareChannels()
	e.cooldown = origin.Cooldown
	e.newContentStore()
	e.newFills()
	e.newFleet()
	e.packs = pack.New(cfg.PacksDir, cfg.Packs, pack.Deps{
		Catalog: d.Catalog,
		Store:   d.Store,
		Log:     e.log,
		DataDir: d.DataDir,
		Amnesia: d.Amnesia,
		Spare:   cfg.CAS.MinFree.Bytes(),
		Synced:  e.afterSync,
		Event: func(p pack.Info) {
			e.events.Publish(asset.Event{Kind: "pack_state", Of: p.ID, Result: string(p.State), Size: p.Size})
		},
	})
	e.rehash = e.packs.Rehash
	e.extract = extract.New(extract.Deps{
		Catalog: d.Catalog,
		Metrics: d.Metrics,
		Log:     e.log,
		Config:  e.Config,
		Now:     func() time.Time { return e.now() },
		Packs:   e.packs,
		Amnesia: d.Amnesia,
		Owner:   owner{e},
		Synced:  e.afterSync,
	})
	e.m = newMetrics(d.Metrics, e)
	d.Board.Add(e.probes()...)
	return e
}

// newContentStore makes the content store and its announcer.
func (e *Engine) newContentStore() {
	writers := []string{flow.HTTP, fill.TaskName, taskMetrics, content.TaskScrubber}
	if e.d.Fleet != nil {
		writers = append(writers, placed.TaskName)
	}
	e.content = content.New(writers, content.Deps{
		Catalog: e.d.Catalog,
		Store:   e.d.Store,
		Dir:     cas.In(e.d.DataDir, e.d.Faults),
		Log:     e.log,
		Now:     func() time.Time { return e.now() },
		Config:  e.Config,
		Members: e.d.Members,
		Owner:   owner{e},
	})
	e.announcer = announce.New(announce.Deps{
		Catalog: e.d.Catalog,
		Store:   e.d.Store,
		Content: e.content,
		Log:     e.log,
		Now:     func() time.Time { return e.now() },
		Names:   e.d.Names,
		Fleet:   e.d.Fleet != nil,
	})
}

// newFills makes the fills, with what they share with searches of the fleet.
func (e *Engine) newFills() {
	e.flights = flow.NewFlight[string, struct{}, fill.Filled](e.d.Catalog, flow.FlightSpec{
		Service: service, Name: "fill", Shards: 16, Waiters: maxWaiters,
		Calls: e.boot.Queues.WorkTX + 2*e.boot.Fill.Workers,
	})
	e.absent = cache.New[string, fill.Answer](e.d.Catalog, cache.Spec[string, fill.Answer]{
		Service:   service,
		Name:      "absent_set",
		Producers: []string{flow.HTTP, fill.TaskName},
		Doc:       "404s and 5xx of hosts",
		Bytes:     maxAbsent,
		Entry:     1,
	})
	e.fills = fill.New(fill.Deps{
		Catalog: e.d.Catalog,
		Metrics: e.d.Metrics,
		Content: e.content,
		Config:  e.Config,
		Now:     func() time.Time { return e.now() },
		Absent:  e.absent,
		Flights: e.flights,
		Owner:   owner{e},
	})
}

func (e *Engine) declareChannels() {
	e.events = flow.NewBroadcast[asset.Event](e.d.Catalog, flow.Spec{
		Service: service,
		Name:    "events_tx",
		Cap:     eventRing,
		Policy:  flow.DropOldest,
		Producers: []string{
			flow.HTTP, fill.TaskName, content.TaskWriter, content.TaskScrubber,
			pack.TaskScanner, pack.TaskOpener, pack.TaskVerifier, extract.TaskName,
		},
		Consumers: []string{taskMetrics},
		Doc:       "for the log",
	})
	e.sample = flow.Every(e.d.Catalog, flow.Spec{
		Service: service, Name: "metrics_tick", Consumers: []string{taskMetrics}, Doc: "samples readiness",
	}, 100*time.Millisecond)
}

// Tasks returns the tasks of the edge for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	tasks := append(append(e.content.Tasks(), e.fills.Tasks()...), flow.Task{
		Service:    service,
		Name:       taskMetrics,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Doc:        "samples readiness and logs events",
		Run:        e.runMetrics,
	})
	tasks = append(append(tasks, e.packs.Tasks()...), e.extract.Tasks()...)
	tasks = append(tasks, e.announcer.Tasks()...)
	tasks = append(tasks, e.placer.Tasks()...)
	return append(tasks, e.meter.Tasks()...)
}

// Recover opens the content store and the packs. Call it once, after the store was opened and its
// committer has started. In amnesia the content store stays closed.
func (e *Engine) Recover(ctx context.Context) error {
	hosts, err := e.newHosts(&e.boot)
	e.origins.Store(hosts)
	if err = errors.Join(err, e.absent.Open(), e.sites.Open()); err == nil {
		err = e.content.Recover(ctx)
	}
	if err == nil {
		err = e.packs.Recover(ctx)
	}
	if err != nil {
		return fmt.Errorf("recover the edge: %w", err)
	}
	e.extract.Recover()
	return nil
}

// afterSync calls synced.
func (e *Engine) afterSync() {
	if e.synced != nil {
		e.synced()
	}
}

// newHosts creates the clients for the hosts of a configuration.
func (e *Engine) newHosts(c *config.Config) (*origin.Hosts, error) {
	return origin.New(c, origin.Deps{Catalog: e.d.Catalog, Metrics: e.d.Metrics, Cooldown: e.cooldown})
}

// ask requests an object from a host of the current configuration.
func (e *Engine) ask(ctx context.Context, host string, r upstream.Request, take func(*upstream.Answer) error) error {
	return e.origins.Load().Ask(ctx, host, r, take)
}

// Stand makes reads answer from the file and the folders of a member that does not lead: Asset for
// an object by its hash, Site, and the tiles and the list of packs. Other nodes write the file. The
// caller repeats Stand after the file has changed, and calls Recover when the node leads, but never
// both at once. Reads may run meanwhile. Until Recover nothing is fetched, written or verified: a
// pack with an unknown digest stays PackVerifying, and a file that replaces it waits.
func (e *Engine) Stand(ctx context.Context) error {
	if err := errors.Join(e.sites.Stand(), e.content.Stand()); err != nil {
		return fmt.Errorf("read the copy of the edge: %w", err)
	}
	return e.packs.Stand(ctx)
}

// Reload applies a valid configuration to requests and fills that begin after the call, and does
// not wait for running ones. Keys that need a restart keep their old values.
func (e *Engine) Reload(cfg config.Config) {
	current := e.origins.Load()
	if current == nil { // Recover failed
		e.live.Store(&cfg)
		return
	}
	defer e.packs.Reload() // even if the hosts do not change
	if !current.Serve(e.live.Load(), &cfg) {
		hosts, err := e.newHosts(&cfg)
		if err != nil {
			e.log.Error("reload", "reason", err.Error(), "next",
				"the edge keeps the old hosts; fix edge.ca_file and reload again")
			return
		}
		defer e.origins.Swap(hosts).Close()
	}
	e.live.Store(&cfg)
}

// Purge empties the caches. Objects and tiles are read from the disk again.
func (e *Engine) Purge() {
	e.content.Purge()
	e.absent.Purge()
	e.sites.Purge()
	e.packs.Purge()
}

// Close ends running flights, closes connections and frees the memory. Call it after the last task
// has ended and the last caller has returned.
func (e *Engine) Close(ctx context.Context) error {
	err := errors.Join(e.near.Close(ctx), e.flights.Close(ctx), e.content.Close(ctx), e.sites.Close(ctx))
	e.fills.Shed()
	if o := e.origins.Load(); o != nil {
		o.Close()
	}
	e.absent.Close()
	e.packs.Close()
	return err
}

// Packs returns the set of map packs.
func (e *Engine) Packs() *pack.Set { return e.packs }

// Extracts returns the extracts of packs at hosts.
func (e *Engine) Extracts() *extract.Extractor { return e.extract }

// Fill fetches the object of a URL unless it is stored, as package fill describes.
func (e *Engine) Fill(ctx context.Context, r fill.Request) (fill.Filled, error) {
	return e.fills.Fill(ctx, r)
}

// Config returns the current configuration, which must not be modified.
func (e *Engine) Config() *config.Config { return e.live.Load() }
