package sites

import (
	"context"
	"net/netip"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/near"
)

// service is the name of the edge in metrics, logs and the catalogue.
const service = "edge"

// maxWaiters is the number of requests that wait for one manifest.
const maxWaiters = 4096

// Deps holds the dependencies of a Server.
type Deps struct {
	Catalog *flow.Catalog
	Config  func() *config.Config
	Now     func() time.Time // wall clock
	Content *content.Store
	Near    *near.Searcher // nil if the fleet is off
	Names   Names          // nil if the index is off; then no site is served but those that Keep names
}

// Server serves the files of sites. Its methods may be called from any goroutine after Open.
type Server struct {
	d         Deps
	manifests *manifests
	listing   listing // empty if the fleet is off
	kept      atomic.Pointer[kept]
	stands    bool // the cache is open; owned by Stand
}

// kept holds the sites that are stored here in full. It is immutable.
type kept struct {
	sites map[string]Named
	at    time.Time // when their names were last looked up
}

// New returns a Server, and declares its cache, flight and slots. readers are HTTP and the tasks
// that need manifests.
func New(readers []string, d Deps) *Server {
	return &Server{d: d, manifests: newManifests(d.Catalog, readers)}
}

// Open opens the cache.
func (s *Server) Open() error { return s.manifests.cache.Open() }

// Stand opens the cache unless an earlier Stand has. It must not be called at the same time as
// Open.
func (s *Server) Stand() error {
	if s.stands {
		return nil
	}
	err := s.Open()
	s.stands = err == nil
	return err
}

// Purge empties the cache.
func (s *Server) Purge() { s.manifests.cache.Purge() }

// Close ends running flights until ctx ends, and frees the memory.
func (s *Server) Close(ctx context.Context) error {
	err := s.manifests.flights.Close(ctx)
	s.manifests.cache.Close()
	return err
}

// Keep tells the server which sites are stored here in full, by name. They are served as they were
// when all of their objects were there, and their names count as looked up now. The caller must not
// change all afterwards.
func (s *Server) Keep(all map[string]Named) { s.kept.Store(&kept{all, s.d.Now()}) }

// named returns the manifest of a site. A site that is kept is served as it is kept; others are
// looked up.
func (s *Server) named(ctx context.Context, name string, from netip.Addr) (Named, error) {
	if k := s.kept.Load(); k != nil {
		if n, ok := k.sites[name]; ok {
			n.Age = max(0, s.d.Now().Sub(k.at))
			return n, nil
		}
	}
	if s.d.Names == nil {
		return Named{}, asset.ErrNotFound
	}
	return s.d.Names.Manifest(ctx, name, from)
}
