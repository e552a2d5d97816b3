package near

import (
	"cmp"
	"context"
	"net/netip"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/origin"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
)

// service is the name of the edge in metrics, logs and the catalogue.
const service = "edge"

// maxWaiters is the number of requests that wait for one search.
const maxWaiters = 4096

// Config holds the settings of a Searcher. They need a restart.
type Config struct {
	Readers   []string // HTTP and the tasks that read the view
	Searchers []string // HTTP and the tasks that search

	ProbeWithin time.Duration // for the answer of a node whether it has an object; 0: 1 s

	// Share takes a token of the share that a network has of rps searches a second, or returns the
	// time until the next token. nil: no share. It does not block.
	Share func(network netip.Addr, rps int) (ok bool, wait time.Duration)
}

// Deps holds the dependencies of a Searcher.
type Deps struct {
	Catalog *flow.Catalog
	Log     hclog.Logger
	Config  func() *config.Config
	Content *content.Store
	Fills   *fill.Filler
	Names   Names // nil if the index is off
	Owner   Owner
}

// Names finds the nodes that provide an object. Its method returns soon after ctx ends and is safe
// for concurrent use.
type Names interface {
	// Providers returns the identities of the nodes that have announced an object.
	Providers(ctx context.Context, object b3.Digest) ([]string, error)
}

// Owner is the engine, as far as searches need it. Its methods are safe for concurrent use.
type Owner interface {
	// Event publishes an event. Draining reports whether no work may begin.
	Event(asset.Event)
	Draining() bool
	// Received is called after each object that a node of the fleet has sent, with the bytes that
	// it sent itself.
	Received(node string, d b3.Digest, size int64, placed bool)
}

// Searcher fetches objects from the other nodes of the fleet. Its methods may be called from any
// goroutine. A nil *Searcher is that of a node without a fleet, and finds nothing.
type Searcher struct {
	cfg   Config
	d     Deps
	nodes *flow.Watch[*neighbors]
	seeks *flow.Flight[seekKey, struct{}, fill.Filled]
	asks  *flow.Slots // questions whether nodes have an object
}

// New returns a Searcher without nodes, and declares its watch, flight and slots. It starts
// nothing.
func New(cfg Config, d Deps) *Searcher {
	cfg.ProbeWithin = cmp.Or(cfg.ProbeWithin, time.Second)
	return &Searcher{
		cfg: cfg,
		d:   d,
		nodes: flow.NewWatch[*neighbors](d.Catalog, flow.Spec{
			Service:   service,
			Name:      "nodes",
			Producers: []string{flow.HTTP},
			Consumers: cfg.Readers,
			Doc:       "the other nodes of the fleet",
		}, nil),
		seeks: flow.NewFlight[seekKey, struct{}, fill.Filled](d.Catalog, flow.FlightSpec{
			Service: service, Name: "fetch", Shards: 16, Waiters: maxWaiters, Calls: d.Config().Queues.WorkTX,
		}),
		asks: flow.NewSlots(d.Catalog, flow.Spec{
			Service: service, Name: "probes", Cap: probesMost, Policy: flow.WaitDeadline,
			Producers: cfg.Searchers,
			Doc:       "nodes that are asked at one time whether they have an object",
		}),
	}
}

// Close ends running searches until ctx ends, and forgets the nodes.
func (s *Searcher) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	err := s.seeks.Close(ctx)
	s.Set(nil)
	return err
}

// Set tells the searcher the lines of a version of the registry; nil means none. Nodes whose lines
// stay keep their breakers. It must not be called concurrently.
func (s *Searcher) Set(l *lines.Lines) {
	if s != nil {
		old, _ := s.nodes.Load()
		s.nodes.Store(s.newNeighbors(l, old))
	}
}

// View returns the current version of the registry, or nil. changed is closed when there is
// another one.
func (s *Searcher) View() (v *fleet.View, changed <-chan struct{}) {
	if s == nil {
		return nil, nil
	}
	n, changed := s.nodes.Load()
	if n != nil {
		v = n.view
	}
	return v, changed
}

// Len returns the number of nodes that may be asked.
func (s *Searcher) Len() int {
	if n := s.neighbors(); n != nil {
		return len(n.nodes)
	}
	return 0
}

// neighbors returns the current nodes, or nil.
func (s *Searcher) neighbors() *neighbors {
	if s == nil {
		return nil
	}
	n, _ := s.nodes.Load()
	return n
}

// newNeighbors returns the nodes of a view, with the breakers of old where the lines are the same.
// A node that must not be called is left out.
func (s *Searcher) newNeighbors(l *lines.Lines, old *neighbors) *neighbors {
	if l == nil {
		return nil
	}
	next := &neighbors{view: l.View, byName: map[string]*neighbor{}}
	if self, ok := l.View.Node(l.View.Self); ok {
		next.region = self.Region
	}
	for _, n := range l.With(fleet.ServiceEdge) {
		if n.Fault != nil {
			s.d.Log.Warn("fleet.node", "node", n.ID, "reason", n.Fault.Error(), "effect", "it is not asked",
				"next", "correct the endpoint or the keys of its item in the registry")
			continue
		}
		one := &neighbor{Node: n.Node, host: n.Host, line: old.lineOver(n)}
		if one.line == nil {
			one.line = s.newLine(n.Line)
		}
		next.nodes = append(next.nodes, one)
		next.byName[n.ID], next.byName[n.Identity] = one, one
	}
	return next
}

// newLine returns a line with a breaker that has counted nothing.
func (s *Searcher) newLine(to *lines.Line) *line {
	l := &line{to: to, breaker: flow.NewBreaker(flow.BreakerRule{
		Ratio: 0.5, Min: 20, Window: origin.FaultWindow, Cooldown: origin.Cooldown, Probes: 1,
	}).Counting(s.d.Catalog, service, svcNode)}
	l.Client = to.Client(upstream.Spec{
		Service: service,
		Svc:     svcNode,
		Op:      "fetch",
		Timeout: s.d.Config().Timeout(),
		Tries:   1, // the next node is asked instead
		Delay:   func(int) time.Duration { return 0 },
		Breaker: l.breaker,
	})
	return l
}

// svcNode is the label svc of all nodes of a fleet: a registry may name very many over time.
const svcNode = "node"
