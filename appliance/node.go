package appliance

import (
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/systemd"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/registry"
	"ronbox/engines/wallet"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/wire"
	"ronbox/store"
)

// Names in the data directory.
const (
	DatabaseName = "ronbox.db"
	SecretName   = "node.key"                // root of all tokens
	TokenName    = "admin.token"             // what init minted
	SignerName   = "registry/dev-signer.key" // of init --dev
	LogKeyName   = "registry/log.key"        // signs checkpoints
)

// Build says what the binary was made from.
type Build struct {
	Version string
	Commit  string
}

// Options are what a node is given beside its configuration.
type Options struct {
	// Load reads the configuration anew, with where each value comes from. Without it a reload is refused.
	Load func() (*config.Config, []config.Entry, error)
	// Entries say where the values of the first configuration come from.
	Entries []config.Entry

	inherited map[string]net.Listener // from the service manager, by name

	money func(ledger.Client) ledger.Client // of tests: stands between the wallet and the ledger; nil: nothing does
}

// Node is one appliance. New wires it, Run lives its one life.
type Node struct {
	boot  *config.Config // as New got it: for what only a restart changes
	opt   Options
	build Build
	now   func() time.Time

	metrics *obs.Metrics
	ring    *obs.Ring
	levels  *obs.Control
	log     hclog.Logger
	tracer  *obs.Tracer
	flight  *obs.Flight
	catalog *flow.Catalog
	board   *obs.Board
	cell    *flow.Watch[flow.Phase] // written by Run alone
	healthy *flow.Watch[bool]       // no probe fails; written by the health gate
	config  *flow.Watch[inForce]    // written by the reloader
	reloads *flow.Queue[*reload]
	slow    *flow.Queue[slowCommit]
	audited *flow.Broadcast[wire.AuditRow]
	pulse   *flow.Ticker // of the health gate
	chime   *flow.Ticker // of the janitor
	glance  *flow.Ticker // of the flight recorder

	store    *store.Store
	registry *registry.Engine // nil: it is off
	ledger   *ledger.Local
	wallet   *wallet.Engine // nil: it is off
	keys     *keyring
	auth     *auth.Authority
	server   *httpapi.Server
	manager  *manager

	drain request // the first stop
	abort request // the second
	died  request // a task that must not end has ended

	inside    atomic.Int64             // lives of engine tasks that have not returned
	profiling atomic.Bool              // one profile at a time
	declared  atomic.Pointer[[]string] // assets of the configuration that the ledger has

	onRunning func(wire.Status)

	sup     *flow.Supervisor // set by Run
	state   state            // owned by Run
	started time.Time        // set by Run before the first listener
}

// inForce is a configuration and its number.
type inForce struct {
	version uint64 // 1 at start, one more with every reload that changes something
	cfg     *config.Config
	entries []config.Entry
}

// conf is the configuration in force. It must not be changed.
func (n *Node) conf() *config.Config {
	now, _ := n.config.Load()
	return now.cfg
}

// request is asked for once; whoever waits for it sees why, and who asked.
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
	n.store.Declare(ownService, authBucket)
	n.auth = auth.New(cfg.Auth, n.metrics)
	n.auth.SetAmnesia(cfg.Amnesia.Enabled)
	n.keys = newKeyring(n.auth)
	n.assembleEngines(cfg, log)
	n.server, err = httpapi.New(n.settings(cfg), n.serverDeps(log))
	if err != nil {
		return nil, err
	}
	n.board.Add(n.probes()...)
	for _, s := range n.served() {
		n.catalog.DeclareTask(s.tasks...)
	}
	n.catalog.DeclareTask(n.server.Tasks()...)
	n.catalog.DeclareTask(n.tasks()...)
	n.catalog.DeclareTask(n.logWriter())
	n.describe()
	return n, nil
}

// storeOptions are what the store is given.
func (n *Node) storeOptions(log hclog.Logger) store.Options {
	o := store.Options{
		Path: n.boot.Path(DatabaseName), Catalog: n.catalog, Metrics: n.metrics, Log: log, Now: n.now, Tracer: n.tracer,
		Producers: map[store.Lane][]string{
			store.Control: {"node.supervisor", "node.reloader", "node.janitor", flow.HTTP},
			store.Work:    n.workProducers(),
			store.Bulk:    n.bulkProducers(),
		},
		Audit: &n.boot.Audit, Audited: n.publishAudit, Slow: n.commitWasSlow, Progress: n.bootProgress,
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
	return httpapi.Settings{
		Server: cfg.Server, TLS: cfg.TLS, UDS: uds, SSE: cfg.Registry.SSE, DrainCap: drainDeadline(cfg), Limits: engineLimits(cfg),
		WalletTimeout: cfg.Wallet.ReqTimeout.D(),
	}
}

// Catalog lists every channel, task and lock of the node.
func (n *Node) Catalog() *flow.Catalog { return n.catalog }

// Addr is the TCP address in force, "" before the sockets are bound.
func (n *Node) Addr() string { return n.server.Addr() }

// Lifecycle is the phase the node is in, and a channel that closes at the next one.
func (n *Node) Lifecycle() (flow.Phase, <-chan struct{}) { return n.cell.Load() }

// OnRunning has f called once, when the node begins to serve. Call it before Run; f must not wait.
func (n *Node) OnRunning(f func(wire.Status)) { n.onRunning = f }

// Abort asks a stop to stop waiting; before one it stops the node without a drain. It returns at once.
func (n *Node) Abort() { n.abort.ask("abort") }
