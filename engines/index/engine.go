package index

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"fmt"
	"net/netip"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/fleet"
	"ronbox/engines/index/line"
	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
	"ronbox/engines/index/records"
	"ronbox/store"
)

// service names the index in metrics, logs, probes and the catalogue.
const service = "index"

// Task names.
const (
	taskWorker     = "worker"
	taskCache      = "cache_janitor"
	taskPrefetcher = "prefetcher"
	taskObserver   = "observer"
)

// Capacities.
const (
	workCap    = 512
	eventsCap  = 1024
	bgCap      = 64
	reindexCap = 16
	fillsCap   = 1024
)

// Bounds of the flight: waiters of one lookup, and concurrent lookups. They exceed the capacity of
// the queue and the pool.
const (
	flightShards  = 64
	flightWaiters = 1 << 16
	flightCalls   = 1 << 16
)

// Deps holds the dependencies of an Engine. Metrics, Log and Board may be nil.
type Deps struct {
	Catalog  *flow.Catalog
	Store    *store.Store
	Metrics  *obs.Metrics
	Log      hclog.Logger
	Board    *obs.Board
	Now      func() time.Time          // the clock of everything that is stored; nil: time.Now
	Wall     func() time.Time          // the clock of signed records; nil: Now
	Peers    []name.Peer               // in the order of Config.Peers
	Fleet    bool                      // SetFleet will be called: records of owners of names are kept
	Identity func() ed25519.PrivateKey // called by Recover; nil: use a random key for this process
	// Admit takes cost tokens of the rate of a network for a lookup that leaves the node, or
	// returns the time until the next token. nil: no rate. It does not block.
	Admit func(network netip.Addr, cost int) (ok bool, wait time.Duration)
	// Quiet reports whether a network that asks for a lookup among peers has asked for few in the
	// last minute. nil: none has a reserve. It does not block.
	Quiet func(network netip.Addr) bool
}

// Engine is the index. New builds it, Recover opens it, and its tasks do the work. Its methods are
// safe for concurrent use.
type Engine struct {
	boot    Config // for keys that only a restart changes
	workers int
	board   *obs.Board
	log     hclog.Logger
	now     func() time.Time // of everything that is stored
	wall    func() time.Time // of signed records
	m       *metrics

	admit    func(network netip.Addr, cost int) (ok bool, wait time.Duration) // nil: no rate
	quiet    func(network netip.Addr) bool                                    // nil: none is
	identity func() ed25519.PrivateKey
	key      ed25519.PrivateKey // set by Recover
	id       name.PeerID

	work      *flow.Queue[turn]
	line      *line.Line[*job] // the jobs of work_tx
	bg        *flow.Queue[*job]
	reindexes *flow.Queue[[]string]
	fills     *flow.Queue[*lookup.Entry]
	events    *flow.Broadcast[name.Event]
	config    *flow.Watch[*settings]
	cacheTick *flow.Ticker
	probeTick *flow.Ticker

	flight  *flow.Flight[flightKey, struct{}, result]
	answers *lookup.Answers // open between Recover and Close
	asker   *lookup.Asker
	peers   *peers.Table

	records *records.Records
	held    *records.Held // nil without a fleet

	meta   atomic.Pointer[CacheMeta] // written only by the cache janitor
	purges atomic.Uint64             // calls of Purge
	lives  atomic.Int64              // workers started so far
	warmed atomic.Bool               // the warm-up keys were queued
}

// New returns an engine and declares its buckets, queues, metrics and probes. It does no I/O and
// starts nothing.
func New(cfg Config, d Deps) *Engine {
	e := &Engine{
		boot:     cfg,
		workers:  cfg.Resolver.workers(),
		board:    d.Board,
		log:      d.Log,
		now:      d.Now,
		admit:    d.Admit,
		quiet:    d.Quiet,
		identity: d.Identity,
	}
	e.line = line.New[*job](e.workers, workCap)
	if e.now == nil {
		e.now = time.Now
	}
	if e.wall = d.Wall; e.wall == nil {
		e.wall = e.now
	}
	if e.log == nil {
		e.log = hclog.NewNullLogger()
	}
	e.log = e.log.Named(service)
	e.meta.Store(&CacheMeta{})
	e.m = newMetrics(d.Metrics, e)
	e.declareChannels(d.Catalog, d.Fleet)
	e.answers = lookup.NewAnswers(d.Catalog, d.Metrics, e.now, int64(cfg.Cache.Entries)<<10)
	e.asker = lookup.New(lookup.Deps{
		Catalog: d.Catalog,
		Metrics: d.Metrics,
		Log:     e.log,
		Now:     e.now,
		Wall:    e.wall,
		Answers: e.answers,
	})
	e.records = records.New(records.Deps{
		Catalog: d.Catalog,
		Store:   d.Store,
		Metrics: d.Metrics,
		Log:     e.log,
		Now:     e.now,
		Wall:    e.wall,
		Hub:     hub{e},
		Owners:  owners{e},
	})
	if d.Fleet {
		e.held = records.NewHeld(e.records, e.renew)
	}
	e.peers = peers.New(d.Peers, peers.Deps{
		Catalog: d.Catalog,
		Metrics: d.Metrics,
		Log:     e.log,
		Rule: func() (flow.BreakerRule, <-chan struct{}) {
			s, changed := e.config.Load()
			return s.Breaker.rule(), changed
		},
	})
	d.Board.Add(
		obs.Probe{Service: service, Key: keyCache, Plane: obs.ReadPlane},
		obs.Probe{Service: service, Key: keyRows, Plane: obs.ReadPlane, Every: time.Second, Func: e.records.Ready},
		obs.Probe{
			Service: service,
			Key:     keyPeers,
			Plane:   obs.ReadPlane,
			Every:   peers.Every,
			Bad:     2,
			Good:    1,
			Func:    e.peers.Ready,
		},
	)
	return e
}

// Readiness keys, all soft.
const (
	keyRows  = "rows"             // no damaged row is known
	keyCache = "cache_open"       // the cache is open
	keyPeers = "dht_client_ready" // some breaker is not open, or there are no peers
)

func (e *Engine) declareChannels(c *flow.Catalog, fleet bool) {
	e.work = flow.NewQueue[turn](c, flow.Spec{
		Service:   service,
		Name:      "work_tx",
		Cap:       workCap,
		Policy:    flow.RejectNew,
		Producers: []string{flow.HTTP},
		Consumers: []string{taskWorker},
		Doc: "lookups among peers, one per key, with a share per network; " +
			"full, or too long: 429, nothing happened",
	})
	background := []string{taskPrefetcher}
	if fleet {
		background = append(background, records.Renewer)
	}
	e.bg = flow.NewQueue[*job](c, flow.Spec{
		Service:   service,
		Name:      "bg_tx",
		Cap:       bgCap,
		Policy:    flow.Wait,
		Producers: background,
		Consumers: []string{taskWorker},
		Doc: "warm-up, reindexing and probes of peers, taken while work_tx is empty; " +
			"jobs left at a stop are dropped",
	})
	e.reindexes = flow.NewQueue[[]string](c, flow.Spec{
		Service:   service,
		Name:      "reindex_tx",
		Cap:       reindexCap,
		Policy:    flow.RejectNew,
		Producers: []string{flow.HTTP},
		Consumers: []string{taskPrefetcher},
		Doc:       "keys to look up again; full: 429, nothing happened",
	})
	e.fills = flow.NewQueue[*lookup.Entry](c, flow.Spec{
		Service:   service,
		Name:      "fills_tx",
		Cap:       fillsCap,
		Policy:    "drop new",
		Producers: []string{flow.HTTP, taskWorker},
		Consumers: []string{taskCache},
		Doc:       "new entries of the cache; a dropped one expires by the cache's own clock and is never hot",
	})
	e.events = flow.NewBroadcast[name.Event](c, flow.Spec{
		Service:   service,
		Name:      "events_tx",
		Cap:       eventsCap,
		Policy:    flow.DropOldest,
		Producers: []string{flow.HTTP, taskWorker, taskCache},
		Consumers: []string{taskObserver},
		Doc:       "changes and failed lookups, to be counted; loss is counted",
	})
	e.config = flow.NewWatch(c, flow.Spec{
		Service:   service,
		Name:      "cfg_watch",
		Producers: []string{"node.reloader"},
		Consumers: []string{"*"},
		Doc:       "the current configuration",
	}, settle(e.boot))
	tick := func(name, task, doc string, every time.Duration) *flow.Ticker {
		return flow.Every(c, flow.Spec{Service: service, Name: name, Consumers: []string{task}, Doc: doc}, every)
	}
	e.cacheTick = tick("cache_tick", taskCache, "expiry of entries and records", cacheEvery)
	e.probeTick = tick("probe_tick", taskPrefetcher, "probes of peers whose breaker is half-open", probeEvery)
	e.flight = flow.NewFlight[flightKey, struct{}, result](c, flow.FlightSpec{
		Service: service, Name: "lookup", Shards: flightShards, Waiters: flightWaiters, Calls: flightCalls,
	})
}

// Tasks lists the index's tasks for the supervisor.
func (e *Engine) Tasks() []flow.Task {
	tasks := []flow.Task{
		{
			Service: service,
			Name:    taskWorker,
			Count:   e.workers,
			Restart: flow.Always,
			Doc:     "answers lookups that leave the node: peers, rank",
			Run:     e.runWorker,
		},
		{
			Service: service,
			Name:    taskCache,
			Restart: flow.Always,
			Lanes:   []string{"store.bulk"},
			Doc:     "sole writer of cache_meta",
			Run:     e.runCacheJanitor,
		},
		e.peers.Task(),
		{
			Service:    service,
			Name:       taskPrefetcher,
			Restart:    flow.Always,
			Background: true,
			Doc:        "feeds bg_tx",
			Run:        e.runPrefetcher,
		},
		{Service: service, Name: taskObserver, Restart: flow.Always, Doc: "counts events", Run: e.runObserver},
	}
	if e.held != nil {
		tasks = append(tasks, e.held.Task())
	}
	return tasks
}

// Recover opens the cache and takes the node's identity. It reads no rows.
func (e *Engine) Recover(context.Context) error {
	if e.identity != nil {
		e.key = e.identity()
	} else {
		_, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return fmt.Errorf("index key: %w", err)
		}
		e.key = key
	}
	e.id = name.PeerIDOf(e.key.Public().(ed25519.PublicKey))
	e.records.Open(e.key)
	if err := e.answers.Open(); err != nil {
		return err
	}
	e.board.Set(service, keyCache, nil)
	return nil
}

// Reload applies a valid configuration to lookups that begin from now on. Keys that need a restart
// keep their values. It does not block.
func (e *Engine) Reload(cfg Config) { e.config.Store(settle(cfg)) }

// live returns the current configuration.
func (e *Engine) live() *settings {
	s, _ := e.config.Load()
	return s
}

// SetFleet makes v the view of the fleet for lookups that begin from now on, and nodes its peers,
// in the order of their ids. Peers that stay keep their breakers and counters; a peer stays if it
// is the same Peer. If a name gets another owner, the cache is emptied. Calls must not overlap. v
// may be nil; otherwise Deps.Fleet must have been set. SetFleet does not block.
func (e *Engine) SetFleet(v *fleet.View, nodes []peers.Node) {
	if moved := e.peers.SetFleet(v, nodes); moved {
		e.Purge()
	}
}

// Peers returns the state of every peer: those of the configuration in its order, then those of the
// fleet by the ids of their items.
func (e *Engine) Peers() []name.PeerStatus { return e.peers.Status() }

// Subscribe returns a subscription to events_tx. The caller closes it.
func (e *Engine) Subscribe(consumer string) *flow.Subscription[name.Event] {
	return e.events.Subscribe(consumer)
}

// Purge empties the cache.
func (e *Engine) Purge() {
	e.answers.Purge()
	e.purges.Add(1)
}

// Close frees the cache. It must be called after the last task and the last caller have ended.
func (e *Engine) Close() { e.answers.Close() }
