package httpapi

import (
	"context"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/julienschmidt/httprouter"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/httpapi/front"
)

const (
	serviceNode     = "node"
	serviceRegistry = "registry"

	bypassDeadline = 5 * time.Second
	bypassInflight = 64
	adminInflight  = 64
)

// Server answers HTTP on one TCP address and on the admin socket.
type Server struct {
	cfg          front.Config
	d            Deps
	metricsAllow []netip.Prefix
	maxBody      int64

	routes   []Route
	rows     []row
	router   *router
	gate     *gate
	bypass   *limiter
	inflight map[string]*limiter // by service
	streams  *streams
	refusals sync.Map // service and reason to the counter of rejected_total

	front *front.Front
}

// New wires a server; it opens nothing. cfg is valid.
func New(cfg front.Config, d Deps) *Server {
	if d.Log == nil {
		d.Log = hclog.NewNullLogger()
	}
	d.Log = d.Log.Named(serviceNode)
	if d.Catalog == nil {
		d.Catalog = flow.NewCatalog(nil, nil)
	}
	if d.Now == nil {
		d.Now = time.Now
	}
	allow, _ := front.ParseNetworks(cfg.MetricsAllow) // Validate has seen them
	s := &Server{
		cfg: cfg, d: d, metricsAllow: allow, maxBody: cfg.MaxBody.Bytes(),
		rows: problemRows(), gate: newGate(), bypass: newLimiter(bypassInflight),
		inflight: map[string]*limiter{
			serviceNode: newLimiter(adminInflight), serviceRegistry: newLimiter(d.Inflight),
		},
		streams: newStreams(d.Catalog, d.SSE.MaxClients, d.SSE.MaxPerIP),
	}
	d.Metrics.Declare(obs.Family{
		Name: "registry_sse_clients", Type: obs.Gauge, Help: "Clients of the registry's event stream.",
	})
	d.Metrics.Gauge("registry_sse_clients", serviceRegistry, s.streams.count)
	s.routes = s.table()
	s.router = s.newRouter(s.routes)
	s.front = front.New(cfg, front.DefaultTLSConfig(), d.UDS, front.Options{Metrics: d.Metrics, Log: d.Log, Handler: s.router})
	return s
}

func (s *Server) now() time.Time { return s.d.Now() }

// SetGate says which requests are let in from now on. GateClosed is final and ends the streams.
func (s *Server) SetGate(g Gate) { s.gate.set(g, s.now()) }

// Handler serves the table without a listener, as tests want it.
func (s *Server) Handler() http.Handler { return s.router }

// serve runs one request through its stages.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, b *bound, p httprouter.Params) {
	c := &call{w: w, r: r, route: b.route, params: p, peer: front.PeerOf(r), started: time.Now()}
	if err := b.run(c); err != nil {
		panic(http.ErrAbortHandler) // how net/http is told to drop the connection
	}
}

// Listen opens the TCP address and the admin socket.
func (s *Server) Listen(ctx context.Context) error { return s.front.Listen(ctx) }

// Addr is the TCP address in force, once Listen has returned.
func (s *Server) Addr() string { return s.front.Addr() }

// SocketPath is the admin socket's, "" without one.
func (s *Server) SocketPath() string { return s.front.SocketPath() }

// Tasks are the accept loops.
func (s *Server) Tasks() []flow.Task { return s.front.Tasks() }

// Shutdown stops accepting and waits for the calls in hand until ctx ends; then it cuts what is left, and says so.
// Streams end by the gate.
func (s *Server) Shutdown(ctx context.Context) error {
	s.SetGate(GateClosed)
	return s.front.Shutdown(ctx)
}
