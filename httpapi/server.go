package httpapi

import (
	"context"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
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
	serviceWallet   = "wallet"

	bypassInflight = 64
	adminInflight  = 64
)

// Server answers HTTP on one TCP address and on the admin socket.
type Server struct {
	d    Deps
	live atomic.Pointer[live] // what a reload may change; each request reads it once

	routes       []Route
	rows         []row
	router       *router
	doc          *document
	gate         *gate
	bypass       *limiter
	scrapes      *limiter // within bypass
	services     map[string]*service
	streams      *streams // of the registry
	auditStreams *streams
	exports      *streams      // of the ledger
	expanding    chan struct{} // a place for each body that is decompressed
	refusals     sync.Map      // service and reason to the counter of rejected_total

	front *front.Front
}

// New wires a server; it opens nothing. cfg is valid.
func New(cfg Settings, d Deps) (*Server, error) {
	d = withDefaults(d)
	now, err := newLive(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{
		d: d, rows: problemRows(), gate: newGate(), bypass: newLimiter(bypassInflight), scrapes: newLimiter(maxScrapes),
		services: map[string]*service{}, streams: newStreams(d.Catalog), auditStreams: newStreams(d.Catalog),
		exports:   newStreams(d.Catalog),
		expanding: make(chan struct{}, runtime.GOMAXPROCS(0)),
	}
	s.live.Store(now)
	for _, name := range s.served() {
		s.services[name] = newService(name, limitsOf(cfg, name), d.Metrics)
	}
	d.Metrics.Declare(obs.Family{
		Name: "registry_sse_clients", Type: obs.Gauge, Help: "Clients of the registry's event stream.",
	})
	d.Metrics.Gauge("registry_sse_clients", serviceRegistry, s.streams.count)
	s.routes = s.table()
	s.router = s.newRouter(s.routes)
	if s.doc, err = newDocument(d.Version, s.routes); err != nil {
		return nil, err
	}
	s.front = front.New(cfg.Server, cfg.TLS, cfg.UDS, s.frontOptions())
	return s, nil
}

// served are the services that are on.
func (s *Server) served() []string {
	out := []string{serviceNode}
	if s.d.Registry != nil {
		out = append(out, serviceRegistry)
	}
	if s.d.Wallet != nil {
		out = append(out, serviceWallet)
	}
	return out
}

func withDefaults(d Deps) Deps {
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
	return d
}

// limitsOf gives the node's own service a default: its places are the operator's alone.
func limitsOf(cfg Settings, name string) Limits {
	l, ok := cfg.Limits[name]
	if !ok && name == serviceNode {
		return Limits{Inflight: adminInflight}
	}
	return l
}

// frontOptions is what the listeners know of the server.
func (s *Server) frontOptions() front.Options {
	bypass := map[string]bool{}
	for _, r := range s.routes {
		bypass[r.Pattern] = r.Class == ClassBypass
	}
	return front.Options{
		Catalog: s.d.Catalog, Metrics: s.d.Metrics, Log: s.d.Log, Handler: s.router, Inherited: s.d.Inherited,
		Bypass:  func(r *http.Request) bool { return bypass[r.URL.Path] },
		Counted: func(reason string) { s.rejected(serviceNode, reason) },
		Problem: s.frontProblem, TimedOut: s.timedOut,
		SocketMay: func(uid, gid uint32) bool {
			_, ok := s.live.Load().peers.Scopes(uid, gid)
			return ok
		},
	}
}

// Prepare readies a change of the settings: swap puts it in force and cannot fail, undo lets go of what was made ready.
// One of them is called, once.
func (s *Server) Prepare(ctx context.Context, cfg Settings) (swap, undo func(), err error) {
	next, err := newLive(cfg)
	if err != nil {
		return nil, nil, err
	}
	change, undo, err := s.front.Prepare(ctx, cfg.Server, cfg.TLS, cfg.UDS)
	if err != nil {
		return nil, nil, err
	}
	return func() {
		s.live.Store(next)
		for name, sv := range s.services {
			sv.set(limitsOf(cfg, name))
		}
		change()
	}, undo, nil
}

func (s *Server) now() time.Time { return s.d.Now() }

// SetGate says which requests are let in from now on. GateClosed is final and ends the streams.
func (s *Server) SetGate(g Gate) { s.gate.set(g, s.now()) }

// serve runs one request through its stages. What is hidden from its peer has no row for it, and so no stage that could
// tell it from a path that nothing has.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, b *bound, p httprouter.Params) {
	c := &call{w: w, r: r, params: p, peer: front.PeerOf(r), live: s.live.Load(), started: time.Now()}
	if hidden(c, b.route) {
		b = s.router.missing(r)
	}
	c.route = b.route
	c.peer.Serves(b.route.Service)
	if err := b.run(c); err != nil {
		panic(http.ErrAbortHandler) // how net/http is told to drop the connection
	}
	if c.rests {
		s.rest(c)
	}
}

// Listen opens the TCP address and the admin socket.
func (s *Server) Listen(ctx context.Context) error { return s.front.Listen(ctx) }

// Addr is the TCP address in force, once Listen has returned.
func (s *Server) Addr() string { return s.front.Addr() }

// URL is where the TCP address is reached.
func (s *Server) URL() string { return s.front.URL() }

// Conns counts the open TCP connections.
func (s *Server) Conns() int { return s.front.Conns() }

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
