package server

import (
	"cmp"
	"context"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/clock"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/systemd"
	"ronbox/cmd/ronbox/server/clocks"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/member"
	"ronbox/cmd/ronbox/server/process"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/cmd/ronbox/server/upkeep"
	"ronbox/cmd/ronbox/server/wiring"
	"ronbox/engines"
	"ronbox/engines/cluster"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	clusterhttp "ronbox/httpapi/cluster"
	nodehttp "ronbox/httpapi/node"
	nodeapi "ronbox/httpapi/wire/node"
	"ronbox/store"
)

// ownService is the name of the node among the services. Its commands and its bucket have this
// name.
const ownService = "node"

// Build is the version of the binary.
type Build struct {
	Version string
	Commit  string
	Made    time.Time // commit time; zero: unknown
}

// Options are the options of a node that are not configuration keys.
type Options struct {
	// Load reads the configuration again, with the origin of each value. If it is nil, a reload is
	// refused.
	Load func() (*config.Config, []config.Entry, error)
	// Entries are the keys and origins of the first configuration.
	Entries []config.Entry
	// RunStep is called by tests at each named step of a rewarder run.
	RunStep func(step string)
	// Quit ends the process. It is called if the database does not open and the node is to stop;
	// nil: the stop waits.
	Quit func()

	clock     clock.Options           // replaces the clocks of the machine in tests
	reading   func()                  // called by tests before each reading of the clock; may be nil
	inherited map[string]net.Listener // from the service manager or an earlier life, by name
	within    bounds                  // bounds of the stop; zero: stopWithin
	clustered bool                    // the file may belong to a cluster
	member    clusterMember           // replaces the one of the file in tests
	sketch    bool                    // a member for a topology
	window    time.Duration           // replaces the send windows of routes in tests; 0: their own
	// replaces systemd.Again in tests
	again func(kept []systemd.Socket, env ...string) error
}

// Node is one node. New wires it, Run runs it once.
type Node struct {
	boot  *config.Config // the configuration given to New, for keys that need a restart
	opt   Options
	build Build
	clock *clocks.Clocks
	now   func() time.Time // the reading of clock: of everything that is stored
	wall  func() time.Time // the wall clock: of everything that others sign or check

	within bounds // bounds of the parts of a stop

	metrics *obs.Metrics
	ring    *obs.Ring
	levels  *obs.Control
	log     hclog.Logger
	tracer  *obs.Tracer
	flight  *obs.Flight
	catalog *flow.Catalog
	board   *obs.Board
	phase   *flow.Watch[flow.Phase] // written only by Run
	healthy *flow.Watch[bool]       // no probe fails; written by the health gate
	config  *flow.Watch[current]    // written by the reloader
	reloads *flow.Queue[*reload]
	begin   func(ctx context.Context) error // called by offline before the tasks of the engines; may be nil
	audited *flow.Broadcast[nodeapi.AuditRow]

	healthTick *flow.Ticker

	backup   *upkeep.Backup
	archive  *upkeep.Archive
	closing  *upkeep.Closing
	expiries upkeep.Expiries
	janitor  *upkeep.Janitor
	recorder *upkeep.Recorder
	series   *upkeep.Series

	store    *store.Store
	services *wiring.Set
	copies   *wiring.Copies // of a member that does not lead; nil: a node alone
	*tokens.Issuer
	auth    *auth.Authority
	server  *httpapi.Server
	manager *process.Manager
	member  clusterMember // nil: a node alone
	unfit   error         // why the directory is neither that of a node alone nor of a member

	accepting sync.Once        // of accept
	kept      []systemd.Socket // for the next life; owned by Run

	drain request // the first stop signal
	abort request // the second stop signal
	died  request // a task that must not end has ended
	again request // another life is to follow this one
	// calls that take it out of its cluster: its deposition ends the process
	quits atomic.Int64

	liveTasks atomic.Int64 // running engine tasks

	onRunning func(nodeapi.Status)

	unapplied *pending // to be tried again; owned by waitElected, then by the reloader

	unnoted bool              // the audit row of the drain is to be written; owned by Run
	ended   chan struct{}     // closed when the work has ended in order
	endings nodeapi.DrainLine // set before ended closes

	sup     *flow.Supervisor // set by Run
	state   process.State    // owned by Run
	begun   time.Time        // of uptime; set by Run
	started time.Time        // reading; set by Run before the first listener
}

// current is a configuration and its version.
type current struct {
	version uint64 // 1 at the start, incremented by every reload that changes a key
	cfg     *config.Config
	entries []config.Entry
}

// conf returns the current configuration, which must not be modified.
func (n *Node) conf() *config.Config {
	now, _ := n.config.Load()
	return now.cfg
}

// request is a request that is made once. Its waiters see the reason and the actor.
type request struct {
	once   sync.Once
	asked  chan struct{}
	reason string        // this and the fields below are set before asked closes
	by     engines.Actor // zero: a signal or the node itself
	corrID string
}

func newRequest() request { return request{asked: make(chan struct{})} }

func (r *request) ask(reason string) { r.askBy(engines.Actor{}, "", reason) }

func (r *request) askBy(by engines.Actor, corrID, reason string) {
	r.once.Do(func() {
		r.by, r.corrID, r.reason = by, corrID, reason
		close(r.asked)
	})
}

// New wires a node from a valid configuration, with the sockets that the service manager has opened
// for this process. It opens and starts nothing.
func New(cfg *config.Config, build Build, o Options) (*Node, error) {
	if err := config.Validate(cfg); err != nil {
		return nil, err
	}
	var err error
	if o.inherited, err = systemd.Listeners(); err != nil {
		return nil, err
	}
	o.clustered = !cfg.Amnesia.Enabled
	return assemble(cfg, build, o, os.Stderr)
}

// assemble builds every part of the node after the parts that it uses.
func assemble(cfg *config.Config, build Build, o Options, out io.Writer) (*Node, error) {
	n := &Node{boot: cfg, opt: o, build: build, member: o.member}
	o.clock.Built, o.clock.Config = build.Made, cfg.Node.Clock()
	n.clock = clocks.New(o.clock, o.reading)
	n.now, n.wall = n.clock.Reading, n.clock.Wall
	n.drain, n.abort, n.died, n.again = newRequest(), newRequest(), newRequest(), newRequest()
	n.ended = make(chan struct{})
	n.within = cmp.Or(o.within, stopWithin)
	n.metrics = obs.NewMetrics()
	n.metrics.Declare(cluster.Families()...) // for the dashboard: only a member of a cluster has such series
	n.metrics.Configure(cfg.Metrics)
	n.ring = obs.NewRing(out, n.metrics)
	n.levels = obs.NewControl(cfg.Log, n.ring)
	log := n.levels.Logger()
	n.log = log.Named(ownService)
	n.flight = obs.NewFlight()
	n.manager = process.NewManager(n.log, time.Second) // of the health gate at rest
	n.catalog = flow.NewCatalog(n.metrics, log)
	n.board = obs.NewBoard(n.metrics)
	n.declare()
	n.buildRecorder()
	n.enroll()
	var err error
	if n.tracer, err = obs.NewTracer(
		cfg.OTel,
		obs.TracerID{Version: build.Version, Log: log, Metrics: n.metrics},
	); err != nil {
		return nil, err
	}
	if err = n.buildArchive(); err != nil {
		return nil, err
	}
	n.store = store.New(cfg.Store, n.storeOptions(log))
	n.store.Declare(ownService, tokens.Bucket)
	member.DeclareBuckets(n.store)
	n.auth = auth.New(cfg.Auth, n.metrics)
	n.auth.SetAmnesia(cfg.Amnesia.Enabled)
	n.Issuer = tokens.New(tokens.Deps{
		Auth: n.auth, Store: n.store, Log: n.log, Wall: n.wall, Now: n.now,
		Config: func() auth.Config { return n.conf().Auth },
	})
	n.services = wiring.Wire(n.env(), cfg)
	if n.member != nil {
		n.copies = n.services.NewCopies(n.untilElected)
	}
	n.buildUpkeep()
	n.server, err = httpapi.New(n.settings(cfg), n.serverDeps(log), n.apis()...)
	if err != nil {
		return nil, err
	}
	n.services.Attach(n.server)
	if m := n.part(); m != nil {
		m.Attach(n.store, n.server, o.inherited[systemd.PeerName])
	}
	n.board.Add(n.probes()...)
	for _, r := range n.services.Engines() {
		n.catalog.DeclareTask(r.Tasks()...)
	}
	n.catalog.DeclareTask(n.server.Tasks()...)
	n.catalog.DeclareTask(n.tasks()...)
	n.catalog.DeclareTask(n.logWriter())
	n.describe()
	return n, nil
}

// env returns the node as its services use it.
func (n *Node) env() wiring.Env {
	e := wiring.Env{
		Boot: n.boot, Config: n.conf, Catalog: n.catalog, Metrics: n.metrics, Log: n.levels.Logger(), Board: n.board,
		Tracer: n.tracer, Store: n.store, Phase: n.phase, Now: n.now, Wall: n.wall, Settled: n.clock.Settled,
		ClockOK: func() bool { return n.clock.Status().State == clock.OK },
		Note:    n.note, Progress: n.bootProgress, StandsBy: n.standsBy, Derive: n.Derive, Ready: n.Ready,
		Version: n.Version, RunStep: n.opt.RunStep, Clustered: n.member != nil, Archive: n.archive.Periods(),
	}
	if m := n.part(); m != nil {
		e.Members, e.Outage = m.Objects(), m.Answering().Outage
	}
	return e
}

// storeOptions returns the dependencies and hooks of the store.
func (n *Node) storeOptions(log hclog.Logger) store.Options {
	o := store.Options{
		Path: n.boot.Path(config.DatabaseName), Catalog: n.catalog, Metrics: n.metrics, Log: log, Tracer: n.tracer,
		Now: n.now, Opened: n.clock.Begin,
		Producers: map[store.Lane][]string{
			store.Control: {"node.supervisor", "node.reloader", "node.janitor", flow.HTTP},
			// engine tasks are added by their Lanes
			store.Work: {"node.supervisor", "node.reloader", "node.janitor", flow.HTTP},
			store.Bulk: {"node.janitor", "node.supervisor", flow.HTTP}, // HTTP drops uploads
		},
		Migrations: wiring.Migrations(),
		Audit:      &n.boot.Audit, Audited: n.publishAudit, Slow: n.recorder.Slow, Progress: n.bootProgress,
	}
	if n.boot.Amnesia.Enabled {
		o.Memory = &n.boot.Amnesia
	}
	if tap := n.archive.Tap(); tap != nil {
		o.Tap = tap
	}
	if n.member != nil {
		o.Replicator = n.member.Replicator()
	}
	return o
}

// settings returns the settings of the server for a configuration.
func (n *Node) settings(cfg *config.Config) httpapi.Settings {
	uds := cfg.UDS
	uds.Path = cfg.SocketPath()
	limits := map[string]httpapi.Limits{ownService: {Streams: wiring.StreamLimits(cfg)}}
	for _, r := range n.services.Engines() {
		if r.Limits != nil {
			limits[r.Name] = r.Limits(cfg)
		}
	}
	return httpapi.Settings{
		Server: cfg.Server, TLS: cfg.TLS, UDS: uds, DrainCap: wiring.DrainDeadline(cfg), Limits: limits,
	}
}

// apis returns the HTTP services of the enabled engines and of the node.
func (n *Node) apis() (all []httpapi.Service) {
	for _, r := range n.services.Engines() {
		if r.API != nil {
			all = append(all, r.API(n.services))
		}
	}
	all = append(all, nodehttp.New(n), clusterhttp.New(n.clusterAdmin()))
	if n.opt.window > 0 {
		setWindows(all, n.opt.window)
	}
	return all
}

// setWindows replaces the send window of each route that has one.
func setWindows(all []httpapi.Service, d time.Duration) {
	for _, s := range all {
		for i := range s.Routes {
			if s.Routes[i].Window > 0 {
				s.Routes[i].Window = d
			}
		}
	}
}

// serverDeps returns the dependencies of the server.
func (n *Node) serverDeps(log hclog.Logger) httpapi.Deps {
	d := httpapi.Deps{
		Catalog:   n.catalog,
		Metrics:   n.metrics,
		Log:       log,
		Board:     n.board,
		Auth:      n.auth,
		Info:      n.Version,
		Lifecycle: n.phase,
		Now:       n.wall,
		Tracer:    n.tracer,
		Inherited: n.opt.inherited,
		Version:   n.build.Version,
	}
	if m := n.part(); m != nil {
		d.Cluster = m.Answering()
	}
	return d
}

// Catalog returns the catalogue of all channels, tasks and locks of the node.
func (n *Node) Catalog() *flow.Catalog { return n.catalog }

// Metrics returns the metrics of the node, which are declared before it runs.
func (n *Node) Metrics() *obs.Metrics { return n.metrics }

// Refusals returns all kinds of refusals that the routes of the node may answer.
func (n *Node) Refusals() []httpapi.Refusal { return n.server.Refusals() }

// Addr returns the current TCP address, or "" before the sockets are bound.
func (n *Node) Addr() string { return n.server.Addr() }

// Lifecycle returns the current phase and a channel that closes when it changes.
func (n *Node) Lifecycle() (flow.Phase, <-chan struct{}) { return n.phase.Load() }

// OnRunning registers f to be called once when the node begins to serve. Call it before Run; f must
// not block.
func (n *Node) OnRunning(f func(nodeapi.Status)) { n.onRunning = f }

// Abort cuts a running stop short, or stops the node without a drain. It returns immediately.
func (n *Node) Abort() { n.abort.ask("abort") }
