package httpapi

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/julienschmidt/httprouter"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/systemd"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

// serviceNode is the service of everything that belongs to no engine.
const serviceNode = "node"

const (
	bypassInflight = 64
	nodeInflight   = 64
)

// Authority checks tokens.
type Authority interface {
	Check(token string, r auth.Request) (engines.Actor, error)
}

// Deps are the dependencies of the server. Only Metrics, Log, Catalog, Tracer, Inherited and
// Cluster may be nil.
type Deps struct {
	Version   string // of the program
	Catalog   *flow.Catalog
	Metrics   *obs.Metrics
	Log       hclog.Logger
	Tracer    *obs.Tracer
	Board     *obs.Board
	Auth      Authority
	Info      func() wire.VersionInfo
	Lifecycle *flow.Watch[flow.Phase]
	Now       func() time.Time
	Inherited map[string]net.Listener // from the service manager, by name
	Cluster   Cluster                 // nil: the node is alone and answers every request
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

// Settings are the settings that a reload may change.
type Settings struct {
	Server   front.Config
	TLS      front.TLSConfig
	UDS      front.UDSConfig   // no socket if its resolved path is empty
	Limits   map[string]Limits // by service
	DrainCap time.Duration     // the longest drain of any service
}

// limits returns the limits of a service, or those of the node's own service.
func (s *Settings) limits(service string) Limits {
	l, given := s.Limits[service]
	if !given || service == serviceNode {
		l.Inflight = cmp.Or(l.Inflight, nodeInflight)
	}
	return l
}

// settings are parsed Settings. They are immutable. Each request reads them once.
type settings struct {
	read, write  time.Duration
	maxBody      int64
	ratio        int
	maxInflated  int64
	metricsAllow []netip.Prefix
	adminOnTCP   bool
	hsts         bool // for connections with TLS
	cors         *cors
	peers        *auth.PeerMap
	drainCap     time.Duration
}

// newSettings returns an error if Validate of a part would.
func newSettings(s Settings) (*settings, error) {
	allow, err := front.ParseNetworks(s.Server.MetricsAllow)
	if err != nil {
		return nil, err
	}
	peers, err := auth.NewPeerMap(s.UDS.AllowUIDs, s.UDS.Map, uint32(os.Getuid()))
	if err != nil {
		return nil, err
	}
	return &settings{
		read:         s.Server.ReadTimeout.D(),
		write:        s.Server.WriteTimeout.D(),
		maxBody:      s.Server.MaxBody.Bytes(),
		ratio:        s.Server.RatioCap,
		maxInflated:  s.Server.AbsCap.Bytes(),
		metricsAllow: allow,
		adminOnTCP:   s.Server.AdminOnTCP,
		hsts:         s.Server.HSTS,
		cors:         newCORS(s.Server.CORS),
		peers:        peers,
		drainCap:     s.DrainCap,
	}, nil
}

// mayScrape reports whether address a may read the metrics.
func (s *settings) mayScrape(a netip.Addr) bool {
	a = a.Unmap()
	return slices.ContainsFunc(s.metricsAllow, func(p netip.Prefix) bool { return p.Contains(a) })
}

// Server serves HTTP on a TCP address and on the admin socket.
type Server struct {
	d       Deps
	current atomic.Pointer[settings] // each request reads it once

	router    *router
	doc       func() (*document, error)
	gate      *gate
	leader    *leaderReadiness // nil: the node is alone
	bypass    *limiter
	scrapes   *limiter // in addition to bypass
	services  map[string]*service
	expanding *flow.Slots // one slot per body that is decompressed
	refusals  sync.Map    // counters of rejected_total by service and reason

	front *front.Front
}

// New returns a server of the services and of the node's own routes. It opens nothing. cfg must be
// valid.
func New(cfg Settings, d Deps, services ...Service) (*Server, error) {
	now, err := newSettings(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{
		d:        withDefaults(d),
		gate:     newGate(),
		bypass:   newLimiter(bypassInflight),
		scrapes:  newLimiter(maxScrapes),
		services: map[string]*service{},
	}
	s.expanding = flow.NewSlots(s.d.Catalog, flow.Spec{
		Service: serviceNode, Name: "expansions", Policy: flow.WaitDeadline,
		Producers: []string{flow.HTTP}, Doc: "bodies that are decompressed at one time",
	})
	s.leader = newLeaderReadiness(&s.d)
	s.current.Store(now)
	routes := s.ownRoutes()
	own := Service{Name: serviceNode, Params: []PathParam{schemaParam()}}
	for _, def := range services {
		for i := range def.Routes {
			if def.Routes[i].Service == "" {
				def.Routes[i].Service = def.Name
			}
		}
		routes = append(routes, def.Routes...)
		if def.Name == serviceNode {
			def.Params = append(def.Params, own.Params...)
			own = def
			continue
		}
		s.services[def.Name] = s.newService(def, cfg.limits(def.Name))
	}
	s.services[serviceNode] = s.newService(own, cfg.limits(serviceNode))
	s.router = s.newRouter(routes)
	s.doc = sync.OnceValues(func() (*document, error) { return s.newDocument(routes) })
	s.front = front.New(cfg.Server, cfg.TLS, cfg.UDS, s.frontOptions(routes))
	return s, nil
}

// frontOptions returns the options of the listeners.
func (s *Server) frontOptions(routes []Route) front.Options {
	bypass := map[string]bool{}
	for i := range routes {
		bypass[routes[i].Pattern] = routes[i].Class == ClassBypass
	}
	return front.Options{
		Catalog: s.d.Catalog, Metrics: s.d.Metrics, Log: s.d.Log, Handler: s.router, Inherited: s.d.Inherited,
		Bypass:  func(r *http.Request) bool { return bypass[r.URL.Path] },
		Counted: func(reason string) { s.rejected(serviceNode, reason, 1) },
		Problem: s.frontProblem, TimedOut: s.timedOut,
		SocketMay: func(uid, gid uint32) bool {
			_, ok := s.current.Load().peers.Scopes(uid, gid)
			return ok
		},
	}
}

// Prepare prepares a change of the settings. The caller must call one of swap and undo, once: swap
// applies the change and cannot fail, undo discards it.
func (s *Server) Prepare(ctx context.Context, cfg Settings) (swap, undo func(), err error) {
	next, err := newSettings(cfg)
	if err != nil {
		return nil, nil, err
	}
	change, undo, err := s.front.Prepare(ctx, cfg.Server, cfg.TLS, cfg.UDS)
	if err != nil {
		return nil, nil, err
	}
	return func() {
		s.current.Store(next)
		for name, sv := range s.services {
			sv.set(cfg.limits(name))
		}
		change()
	}, undo, nil
}

// Handler returns the handler of all routes, for requests that the node makes of itself.
func (s *Server) Handler() http.Handler { return s.router }

func (s *Server) now() time.Time { return s.d.Now() }

// SetGate changes which requests are admitted. GateClosed is final and ends the streams.
func (s *Server) SetGate(g Gate) { s.gate.set(g, s.now()) }

// serve runs a request through its stages. A route that is hidden from the peer is replaced by the
// pseudo-route without a route, so that no stage reveals that it exists. A service that does not
// admit the peer is replaced by the node.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, b *boundRoute, p httprouter.Params) {
	c := &Request{
		w:        w,
		r:        r,
		server:   s,
		params:   p,
		peer:     front.PeerOf(r),
		settings: s.current.Load(),
		started:  time.Now(),
	}
	switch {
	case !c.admitted(b):
		b = s.router.pseudo(serviceNode, r.Method)
	case c.hidden(b.route):
		b = s.router.missing(r)
	}
	c.route, c.service = b.route, b.service
	c.peer.Serves(b.service.Name)
	if err := b.run(c); err != nil {
		panic(http.ErrAbortHandler) // makes net/http drop the connection
	}
	if c.status >= http.StatusBadRequest && !c.bodyOver && r.ContentLength != 0 {
		c.peer.DropBody(w, r) // the request holds no slot any more
	}
	if c.rests {
		s.rest(c)
	}
}

// Listen opens the TCP address and the admin socket.
func (s *Server) Listen(ctx context.Context) error { return s.front.Listen(ctx) }

// Addr returns the current TCP address. Call it after Listen.
func (s *Server) Addr() string { return s.front.Addr() }

// URL returns the URL of the TCP address.
func (s *Server) URL() string { return s.front.URL() }

// Certified reports whether the node serves TLS with a certificate that names a host.
func (s *Server) Certified(host string) bool { return s.front.Certified(host) }

// Conns returns the number of open TCP connections.
func (s *Server) Conns() int { return s.front.Conns() }

// SocketPath returns the path of the admin socket, or "".
func (s *Server) SocketPath() string { return s.front.SocketPath() }

// Tasks returns the accept loops.
func (s *Server) Tasks() []flow.Task { return s.front.Tasks() }

// Keep stops accepting and returns duplicates of the sockets for the next run of the process.
func (s *Server) Keep() ([]systemd.Socket, error) { return s.front.Keep() }

// Cut ends the contexts of all requests, so that their handlers answer at once.
func (s *Server) Cut() { s.front.Cut() }

// Shutdown stops accepting and waits for running requests until ctx ends. Then it closes the
// remaining connections and returns an error. Streams end by the gate.
func (s *Server) Shutdown(ctx context.Context) error {
	s.SetGate(GateClosed)
	err := s.front.Shutdown(ctx)
	if s.leader != nil {
		err = errors.Join(err, s.leader.flight.Close(ctx))
	}
	return err
}
