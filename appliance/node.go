package appliance

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/config"
	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines"
	"ronbox/engines/registry"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
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

// Node is one appliance. New wires it, Run lives its one life.
type Node struct {
	cfg   *config.Config
	build Build
	now   func() time.Time

	metrics *obs.Metrics
	ring    *obs.Ring
	log     hclog.Logger
	catalog *flow.Catalog
	board   *obs.Board
	cell    *flow.Watch[flow.Phase] // written by Run alone
	healthy *flow.Watch[bool]       // no probe fails; written by the health gate
	pulse   *flow.Ticker            // of the health gate

	store    *store.Store
	registry *registry.Engine
	keys     *keyring
	auth     *auth.Authority
	server   *httpapi.Server

	drain request // the first stop
	abort request // the second
	died  request // a task that must not end has ended

	inside atomic.Int64 // lives of engine tasks that have not returned

	onRunning func(wire.Status)

	sup     *flow.Supervisor // set by Run
	state   state            // owned by Run
	started time.Time        // set by Run before the first listener
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

// New wires a node from a valid configuration. It does no I/O and starts nothing.
func New(cfg *config.Config, build Build) (*Node, error) {
	if err := config.Validate(cfg); err != nil {
		return nil, err
	}
	return assemble(cfg, build, os.Stderr, time.Now), nil
}

// assemble builds every part on those below it.
func assemble(cfg *config.Config, build Build, out io.Writer, now func() time.Time) *Node {
	n := &Node{cfg: cfg, build: build, now: now, drain: newRequest(), abort: newRequest(), died: newRequest()}
	n.metrics = obs.NewMetrics()
	n.ring = obs.NewRing(out, n.metrics)
	log := obs.NewLogger(cfg.Log, n.ring)
	n.log = log.Named(ownService)
	n.catalog = flow.NewCatalog(n.metrics, log)
	n.board = obs.NewBoard(n.metrics)
	n.declare()
	n.store = store.New(cfg.Store, store.Options{
		Path: cfg.Path(DatabaseName), Catalog: n.catalog, Metrics: n.metrics, Log: log, Now: now,
		Producers: map[store.Lane][]string{
			store.Control: {"node.supervisor", flow.HTTP},
			store.Work:    {"registry.pipeline"},
		},
	})
	n.store.Declare(ownService, authBucket)
	n.registry = registry.New(cfg.Registry, registry.Deps{
		Catalog: n.catalog, Store: n.store, Metrics: n.metrics, Log: log, Board: n.board, Now: now,
	})
	n.keys = &keyring{}
	n.auth = auth.New(cfg.Auth, n.keys, n.metrics)
	n.server = httpapi.New(cfg.Server, httpapi.Deps{
		Catalog: n.catalog, Metrics: n.metrics, Log: log, Board: n.board, Auth: n.auth, Node: n, Registry: n.registry,
		Lifecycle: n.cell, Now: now, UDS: front.UDSConfig{Path: cfg.SocketPath()}, SSE: cfg.Registry.SSE,
		Inflight: cfg.Registry.Limits.Inflight, DrainCap: n.drainDeadline(),
	})
	n.board.Add(n.probes()...)
	n.catalog.DeclareTask(n.registry.Tasks()...)
	n.catalog.DeclareTask(n.server.Tasks()...)
	n.catalog.DeclareTask(n.tasks()...)
	n.describe()
	return n
}

// declare makes the node's own cells, and lists what stands under a second name or is hidden in a library.
func (n *Node) declare() {
	everyone := []string{"*"}
	cell := flow.Spec{
		Service: ownService, Name: "lifecycle", Producers: []string{"supervisor"}, Consumers: everyone,
		Doc: "the phase the node is in",
	}
	n.cell = flow.NewWatch(n.catalog, cell, flow.Booting)
	n.catalog.Declare(flow.Spec{
		Service: "registry", Name: "shutdown_rx", Kind: flow.KindWatch, Cap: 1, Policy: flow.LastWins,
		Producers: []string{"node.supervisor"}, Consumers: everyone, Doc: "node.lifecycle by the registry's name",
	})
	n.healthy = flow.NewWatch(n.catalog, flow.Spec{
		Service: ownService, Name: "readiness", Producers: []string{"health_gate"}, Consumers: []string{"supervisor"},
		Doc: "whether every probe holds",
	}, false)
	n.pulse = flow.Every(n.catalog, flow.Spec{
		Service: ownService, Name: "health_tick", Consumers: []string{"health_gate"}, Doc: "samples the probe table",
	}, sampleEvery)
	n.catalog.Declare(flow.Spec{
		Service: ownService, Name: "log", Kind: flow.KindQueue, Cap: obs.RingCap(), Policy: "drop newest",
		Producers: everyone, Consumers: []string{"log_writer"}, Doc: "log lines, in bytes; a line without room is counted and dropped",
	})
	n.catalog.DeclareTask(flow.Task{
		Service: ownService, Name: "supervisor", Count: 1, Restart: flow.Never, Doc: "starts, restarts and joins all tasks; the lifecycle",
	})
}

// describe makes the series that say what runs here, and those that must show before anything has happened.
func (n *Node) describe() {
	n.metrics.Set("ronbox_build_info", ownService, "version", n.build.Version, "commit", n.build.Commit, "go", runtime.Version())(1)
	n.metrics.Set("config_version", ownService)(1)
	for p := flow.Booting; p <= flow.Poisoned; p++ {
		n.metrics.Gauge("lifecycle_state", ownService, func() float64 {
			if now, _ := n.cell.Load(); now == p {
				return 1
			}
			return 0
		}, "state", p.String())
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

// drainDeadline is the longest that any service drains.
func (n *Node) drainDeadline() time.Duration {
	return min(n.cfg.Registry.DrainDeadline.D(), n.cfg.Node.DrainCap.D())
}
