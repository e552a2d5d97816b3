package appliance

import (
	"cmp"
	"io"
	"net"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/systemd"
	"ronbox/appliance/tokens"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	nodeapi "ronbox/httpapi/node"
	"ronbox/store"
)

// Names in the data directory.
const (
	DatabaseName = "ronbox.db"
	SecretName   = "node.key"    // root of all tokens
	TokenName    = "admin.token" // minted by init
)

// ownService is the node's name among the services: the first word of its commands and the owner of their bucket.
const ownService = "node"

// Build is the version of the binary.
type Build struct {
	Version string
	Commit  string
}

// Options are given to a node beside its configuration.
type Options struct {
	// Load reads the configuration anew, with where each value comes from. Without it a reload is refused.
	Load func() (*config.Config, []config.Entry, error)
	// Entries are the origins of the values of the first configuration.
	Entries []config.Entry
	// RunStep, in a test that stops the node there, is called at each step of a run of the rewarder that lasts, by its name.
	RunStep func(step string)

	inherited map[string]net.Listener // from the service manager, by name
	within    bounds                  // of its stop; zero: stopWithin
}

// Node is one appliance. New wires it, Run lives its one life.
type Node struct {
	boot  *config.Config // as New got it: for what only a restart changes
	opt   Options
	build Build
	now   func() time.Time

	within bounds // of the parts of a stop

	metrics *obs.Metrics
	ring    *obs.Ring
	levels  *obs.Control
	log     hclog.Logger
	tracer  *obs.Tracer
	flight  *obs.Flight
	catalog *flow.Catalog
	board   *obs.Board
	phase   *flow.Watch[flow.Phase] // written by Run alone
	healthy *flow.Watch[bool]       // no probe fails; written by the health gate
	config  *flow.Watch[current]    // written by the reloader
	reloads *flow.Queue[*reload]
	slow    *flow.Queue[slowCommit]
	audited *flow.Broadcast[nodeapi.AuditRow]

	healthTick   *flow.Ticker
	janitorTick  *flow.Ticker
	recorderTick *flow.Ticker

	store   *store.Store
	engines []running // those that are on, in the order of services
	*tokens.Issuer
	auth    *auth.Authority
	server  *httpapi.Server
	manager *manager

	drain request // the first stop
	abort request // the second
	died  request // a task that must not end has ended

	liveTasks atomic.Int64 // lives of engine tasks that have not returned
	profiling atomic.Bool  // one profile at a time

	onRunning func(nodeapi.Status)

	sup     *flow.Supervisor // set by Run
	state   state            // owned by Run
	started time.Time        // set by Run before the first listener
}

// current is a configuration and its number.
type current struct {
	version uint64 // 1 at start, one more with every reload that changes something
	cfg     *config.Config
	entries []config.Entry
}

// conf is the current configuration. It must not be changed.
func (n *Node) conf() *config.Config {
	now, _ := n.config.Load()
	return now.cfg
}

// request is asked for once; its waiters see the reason and the actor.
type request struct {
	once   sync.Once
	asked  chan struct{}
	reason string        // set before asked closes, as the next two are
	by     engines.Actor // zero: a signal, or the node itself
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

// New wires a node from a valid configuration, on the sockets that a service manager has opened for this process. It opens
// and starts nothing.
func New(cfg *config.Config, build Build, o Options) (*Node, error) {
	if err := config.Validate(cfg); err != nil {
		return nil, err
	}
	var err error
	if o.inherited, err = systemd.Listeners(); err != nil {
		return nil, err
	}
	return assemble(cfg, build, o, os.Stderr, time.Now)
}

// assemble builds every part on those below it.
func assemble(cfg *config.Config, build Build, o Options, out io.Writer, now func() time.Time) (*Node, error) {
	n := &Node{boot: cfg, opt: o, build: build, now: now, drain: newRequest(), abort: newRequest(), died: newRequest()}
	n.within = cmp.Or(o.within, stopWithin)
	n.metrics = obs.NewMetrics()
	n.metrics.Configure(cfg.Metrics)
	n.ring = obs.NewRing(out, n.metrics)
	n.levels = obs.NewControl(cfg.Log, n.ring)
	log := n.levels.Logger()
	n.log = log.Named(ownService)
	n.flight = obs.NewFlight()
	n.manager = newManager(n.log)
	n.catalog = flow.NewCatalog(n.metrics, log)
	n.board = obs.NewBoard(n.metrics)
	n.declare()
	var err error
	if n.tracer, err = obs.NewTracer(cfg.OTel, obs.TracerID{Version: build.Version, Log: log, Metrics: n.metrics}); err != nil {
		return nil, err
	}
	n.store = store.New(cfg.Store, n.storeOptions(log))
	n.store.Declare(ownService, tokens.Bucket)
	n.auth = auth.New(cfg.Auth, n.metrics)
	n.auth.SetAmnesia(cfg.Amnesia.Enabled)
	n.Issuer = tokens.New(tokens.Deps{
		Auth: n.auth, Store: n.store, Log: n.log, Now: n.now, Config: func() auth.Config { return n.conf().Auth },
	})
	n.buildEngines(cfg)
	n.server, err = httpapi.New(n.settings(cfg), n.serverDeps(log), n.apis()...)
	if err != nil {
		return nil, err
	}
	n.board.Add(n.probes()...)
	for _, r := range n.engines {
		n.catalog.DeclareTask(r.Tasks()...)
	}
	n.catalog.DeclareTask(n.server.Tasks()...)
	n.catalog.DeclareTask(n.tasks()...)
	n.catalog.DeclareTask(n.logWriter())
	n.describe()
	return n, nil
}

// storeOptions are the store's neighbours and hooks.
func (n *Node) storeOptions(log hclog.Logger) store.Options {
	o := store.Options{
		Path: n.boot.Path(DatabaseName), Catalog: n.catalog, Metrics: n.metrics, Log: log, Now: n.now, Tracer: n.tracer,
		Producers: map[store.Lane][]string{
			store.Control: {"node.supervisor", "node.reloader", "node.janitor", flow.HTTP},
			store.Work:    {"node.supervisor", "node.reloader", "node.janitor", flow.HTTP}, // and tasks of the engines, by their Lanes
			store.Bulk:    {"node.janitor", "node.supervisor", flow.HTTP},                  // uploads are dropped there
		},
		Migrations: Migrations(),
		Audit:      &n.boot.Audit, Audited: n.publishAudit, Slow: n.commitWasSlow, Progress: n.bootProgress,
	}
	if n.boot.Amnesia.Enabled {
		o.Memory = &n.boot.Amnesia
	}
	return o
}

// settings are the part of a configuration that the server is made from.
func (n *Node) settings(cfg *config.Config) httpapi.Settings {
	uds := cfg.UDS
	uds.Path = cfg.SocketPath()
	limits := map[string]httpapi.Limits{ownService: {Streams: streamLimits(cfg)}}
	for _, r := range n.engines {
		if r.limits != nil {
			limits[r.name] = r.limits(cfg)
		}
	}
	return httpapi.Settings{
		Server: cfg.Server, TLS: cfg.TLS, UDS: uds, DrainCap: drainDeadline(cfg), Limits: limits,
	}
}

// streamLimits bound the streams of each service.
func streamLimits(cfg *config.Config) httpapi.StreamLimits {
	sse := cfg.Registry.SSE
	return httpapi.StreamLimits{Max: sse.MaxClients, PerNetwork: sse.MaxPerIP, Replay: sse.ReplayMax, Ping: sse.Ping.D()}
}

// apis are the parts of the HTTP surface: those of the services that are on, and the node's own.
func (n *Node) apis() (all []httpapi.Service) {
	for _, r := range n.engines {
		if r.api != nil {
			all = append(all, r.api(n))
		}
	}
	return append(all, nodeapi.New(n))
}

// serverDeps are the server's neighbours.
func (n *Node) serverDeps(log hclog.Logger) httpapi.Deps {
	return httpapi.Deps{
		Catalog: n.catalog, Metrics: n.metrics, Log: log, Board: n.board, Auth: n.auth, Info: n.Version, Lifecycle: n.phase, Now: n.now,
		Tracer: n.tracer, Inherited: n.opt.inherited, Version: n.build.Version,
	}
}

// Catalog lists every channel, task and lock of the node.
func (n *Node) Catalog() *flow.Catalog { return n.catalog }

// Addr is the current TCP address, "" before the sockets are bound.
func (n *Node) Addr() string { return n.server.Addr() }

// Lifecycle is the phase the node is in, and a channel that closes at the next one.
func (n *Node) Lifecycle() (flow.Phase, <-chan struct{}) { return n.phase.Load() }

// OnRunning has f called once, when the node begins to serve. Call it before Run; f must not wait.
func (n *Node) OnRunning(f func(nodeapi.Status)) { n.onRunning = f }

// Abort asks a stop to stop waiting; before one it stops the node without a drain. It returns at once.
func (n *Node) Abort() { n.abort.ask("abort") }

// Sizes of the node's own channels.
const (
	reloadCap = 16   // requests to reload that wait; more collapse into the newest
	auditCap  = 1024 // audit rows that a slow reader may lag behind
	slowCap   = 1    // a dump takes long enough for the next slow commit to be the same story
	tickEvery = time.Second
)

// declare makes the node's own channels, and lists those that are hidden in a library or have a second name.
func (n *Node) declare() {
	n.declareCells()
	n.declareQueues()
	n.healthTick = flow.Every(n.catalog, flow.Spec{
		Service: ownService, Name: "health_tick", Consumers: []string{"health_gate"}, Doc: "samples the probe table",
	}, sampleEvery)
	n.janitorTick = flow.Every(n.catalog, flow.Spec{
		Service: ownService, Name: "janitor_tick", Consumers: []string{"janitor"}, Doc: "looks for what is due",
	}, tickEvery)
	n.recorderTick = flow.Every(n.catalog, flow.Spec{
		Service: ownService, Name: "recorder_tick", Consumers: []string{"flight_recorder"}, Doc: "looks how long the commit that runs has taken",
	}, recorderEvery)
	n.catalog.DeclareTask(flow.Task{
		Service: ownService, Name: "supervisor", Count: 1, Restart: flow.Never, Doc: "starts, restarts and joins all tasks; the lifecycle",
	})
}

// declareCells makes the watches.
func (n *Node) declareCells() {
	everyone := []string{"*"}
	n.phase = flow.NewWatch(n.catalog, flow.Spec{
		Service: ownService, Name: "lifecycle", Producers: []string{"supervisor"}, Consumers: everyone,
		Doc: "the phase the node is in",
	}, flow.Booting)
	for _, s := range services() {
		if s.isOn(n.boot) && s.drain != nil {
			n.catalog.Declare(flow.Spec{
				Service: s.name, Name: "shutdown_rx", Kind: flow.KindWatch, Cap: 1, Policy: flow.LastWins,
				Producers: []string{"node.supervisor"}, Consumers: everyone, Doc: "node.lifecycle by the " + s.name + "'s name",
			})
		}
	}
	n.config = flow.NewWatch(n.catalog, flow.Spec{
		Service: ownService, Name: "cfg", Producers: []string{"reloader"}, Consumers: everyone,
		Doc: "the configuration in force",
	}, current{version: 1, cfg: n.boot, entries: n.opt.Entries})
	n.healthy = flow.NewWatch(n.catalog, flow.Spec{
		Service: ownService, Name: "readiness", Producers: []string{"health_gate"}, Consumers: []string{"supervisor"},
		Doc: "whether every probe holds",
	}, false)
}

// declareQueues makes the queues and the broadcast.
func (n *Node) declareQueues() {
	n.reloads = flow.NewQueue[*reload](n.catalog, flow.Spec{
		Service: "registry", Name: "cfg_reload_tx", Cap: reloadCap, Policy: flow.Collapse,
		Producers: []string{flow.HTTP}, Consumers: []string{"node.reloader"},
		Doc: "requests to reload, by SIGHUP too; those that wait together get one answer, that of the newest",
	})
	n.slow = flow.NewQueue[slowCommit](n.catalog, flow.Spec{
		Service: ownService, Name: "slow_commits", Cap: slowCap, Policy: "drop newest",
		Producers: []string{"store.committer"}, Consumers: []string{"flight_recorder"},
		Doc: "commits over 2 s, to be looked into; one at a time",
	})
	n.audited = flow.NewBroadcast[nodeapi.AuditRow](n.catalog, flow.Spec{
		Service: ownService, Name: "audit_tx", Cap: auditCap, Policy: flow.DropOldest,
		Producers: []string{"store.committer"}, Consumers: []string{flow.HTTP},
		Doc: "audit rows once they are synced; a reader that is overrun reads the file",
	})
	n.catalog.DeclareHeld(flow.Spec{
		Service: ownService, Name: "log", Kind: flow.KindQueue, Cap: obs.RingCap(), Policy: "drop newest",
		Producers: []string{"*"}, Consumers: []string{"log_writer"}, Doc: "log lines, in bytes; a line without room is counted and dropped",
	}, n.ring.State)
	n.catalog.Declare(flow.Spec{
		Service: ownService, Name: "spans", Kind: flow.KindQueue, Cap: obs.SpanCap(), Policy: "drop newest",
		Producers: []string{"*"}, Doc: "spans on their way to the collector; one without room is counted and dropped",
	})
}

// describe makes the series of the build, the phase and the configuration, and those that must show at 0.
func (n *Node) describe() {
	n.metrics.Set("ronbox_build_info", ownService, "version", n.build.Version, "commit", n.build.Commit, "go", runtime.Version())(1)
	n.metrics.Gauge("config_version", ownService, func() float64 {
		now, _ := n.config.Load()
		return float64(now.version)
	})
	for p := flow.Booting; p <= flow.Poisoned; p++ {
		n.metrics.Gauge("lifecycle_state", ownService, func() float64 {
			if now, _ := n.phase.Load(); now == p {
				return 1
			}
			return 0
		}, "state", p.String())
	}
	for _, reason := range []string{reasonParse, reasonValidate, reasonRestart, reasonSource, reasonBind, reasonTLS, reasonPrepare} {
		n.metrics.Counter("registry_reload_fail_total", "registry", "reason", reason)
	}
	for _, source := range []string{sourceSignal, sourceAdmin} {
		n.metrics.Counter("registry_reload_success_total", "registry", "source", source)
	}
	n.describeAmnesia()
}
