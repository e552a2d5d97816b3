package edge

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/origin"
	"ronbox/engines/edge/partial"
	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
)

// FleetConfig holds the settings of [fleet] that the edge uses. They need a restart.
type FleetConfig struct {
	MaxPlaced int64        // bytes that placements may keep here; 0: half of edge.cas.max_bytes
	Signer    meter.Signer // signs the statements of usage; nil: nothing is counted

	// Share takes a token of the share that a network has of rps searches a second, or returns the
	// time until the next token. nil: no share. It does not block.
	Share func(network netip.Addr, rps int) (ok bool, wait time.Duration)
}

// HopHeader asks a node to answer from its own store. It gives the sender no rights. Nodes send it
// when they ask each other, so that only the node that a client asked looks elsewhere.
const HopHeader = "Ron-Hop-Budget"

// neighbors holds the other nodes of one view that have an edge. It is immutable once it is
// current.
type neighbors struct {
	view   *fleet.View
	region string      // of this node's item; "": none
	nodes  []*neighbor // by id
	byName map[string]*neighbor
}

// neighbor is another node of the fleet.
type neighbor struct {
	fleet.Node
	*line
	host string // with its port, as lanes of work_tx are named
}

// line is the way to a node, with its breaker. It is kept as long as the line of the pool is.
type line struct {
	origin.Host
	to      *lines.Line
	breaker *flow.Breaker
}

// Weights of failures in the breaker of a node, which counts a good answer as 1 and opens if most
// of 20 results failed.
const (
	lieWeight   = 20 // bytes with another hash than the one that was asked for
	stallWeight = 5  // a body that broke off, or that came too slowly
)

// SetFleet tells the engine the lines of a version of the registry; nil means none. Nodes whose
// lines stay keep their breakers. It is a no-op in an engine without Deps.Fleet. It must not be
// called concurrently.
func (e *Engine) SetFleet(l *lines.Lines) {
	if e.d.Fleet == nil {
		return
	}
	old, _ := e.fleet.Load()
	e.fleet.Store(e.newNeighbors(l, old))
}

// newFleet declares what a fleet needs, if there is one.
func (e *Engine) newFleet() {
	if e.d.Fleet == nil {
		return
	}
	e.fleet = flow.NewWatch[*neighbors](e.d.Catalog, flow.Spec{
		Service:   service,
		Name:      "nodes",
		Producers: []string{flow.HTTP},
		Consumers: []string{flow.HTTP, taskPlacer, meter.TaskName},
		Doc:       "the other nodes of the fleet",
	}, nil)
	e.seeks = flow.NewFlight[seekKey, struct{}, Filled](e.d.Catalog, flow.FlightSpec{
		Service: service, Name: "fetch", Shards: 16, Waiters: maxWaiters, Calls: e.boot.Queues.WorkTX,
	})
	e.declarePlacer()
	e.asks = make(chan struct{}, probesMost) //rawchan: a semaphore
}

// competing reports whether several hosts or nodes may be asked, so that none may take all workers.
func (e *Engine) competing() bool {
	hosts := len(e.Config().Allow)
	if n := e.neighbors(); n != nil {
		hosts += len(n.nodes)
	}
	return hosts > 1
}

// neighbors returns the current nodes, or nil.
func (e *Engine) neighbors() *neighbors {
	if e.fleet == nil {
		return nil
	}
	n, _ := e.fleet.Load()
	return n
}

// view returns the current version of the registry, or nil.
func (e *Engine) view() *fleet.View {
	if n := e.neighbors(); n != nil {
		return n.view
	}
	return nil
}

// newNeighbors returns the nodes of a view, with the breakers of old where the lines are the same.
// A node that must not be called is left out.
func (e *Engine) newNeighbors(l *lines.Lines, old *neighbors) *neighbors {
	if l == nil {
		return nil
	}
	next := &neighbors{view: l.View, byName: map[string]*neighbor{}}
	if self, ok := l.View.Node(l.View.Self); ok {
		next.region = self.Region
	}
	for _, n := range l.With(fleet.ServiceEdge) {
		if n.Fault != nil {
			e.log.Warn("fleet.node", "node", n.ID, "reason", n.Fault.Error(), "effect", "it is not asked",
				"next", "correct the endpoint or the keys of its item in the registry")
			continue
		}
		one := &neighbor{Node: n.Node, host: n.Host, line: old.lineOver(n)}
		if one.line == nil {
			one.line = e.newLine(n.Line)
		}
		next.nodes = append(next.nodes, one)
		next.byName[n.ID], next.byName[n.Identity] = one, one
	}
	return next
}

// lineOver returns the line of a node whose line of the pool has stayed, or nil.
func (n *neighbors) lineOver(want lines.Node) *line {
	if n == nil {
		return nil
	}
	if has := n.byName[want.ID]; has != nil && has.to == want.Line {
		return has.line
	}
	return nil
}

// newLine returns a line with a breaker that has counted nothing.
func (e *Engine) newLine(to *lines.Line) *line {
	l := &line{to: to, breaker: flow.NewBreaker(flow.BreakerRule{
		Ratio: 0.5, Min: 20, Window: origin.FaultWindow, Cooldown: e.cooldown, Probes: 1,
	}).Counting(e.d.Catalog, service, svcNode)}
	l.Client = to.Client(upstream.Spec{
		Service: service,
		Svc:     svcNode,
		Op:      "fetch",
		Timeout: e.Config().Timeout(),
		Tries:   1, // the next node is asked instead
		Delay:   func(int) time.Duration { return 0 },
		Breaker: l.breaker,
	})
	return l
}

// svcNode is the label svc of all nodes of a fleet: a registry may name very many over time.
const svcNode = "node"

// askNode requests an object from the store of a node, or the rest of an object if the header of r
// has a Range. Like ask, it calls take with an answer that may be stored.
func (e *Engine) askNode(
	ctx context.Context,
	n *neighbor,
	r upstream.Request,
	take func(*upstream.Answer) error,
) error {
	r.URL = n.to.URL(r.URL)
	r.Blame = func(err error) bool { return n.Blames(r.URL, err, time.Now()) }
	if r.Header == nil {
		r.Header = http.Header{}
	}
	r.Header.Set(HopHeader, "0")
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "ronbox")
	return n.Get(ctx, r, func(a *upstream.Answer) error {
		if r.Head {
			return nil
		}
		part := a.Status == http.StatusPartialContent && r.Header.Get("Range") != ""
		if err := origin.Storable(a, part); err != nil {
			return err
		}
		return take(a)
	})
}

// lied counts bytes with a wrong hash against the node that sent all of them.
func (j *fillJob) lied(p *partial.Partial) {
	if j.node != nil && p.From == j.Host {
		j.node.fault(lieWeight)
	}
}

// stalled counts an answer that broke off against its node, and one that timed out unless its bytes
// came at slowRate.
func (l *line) stalled(err error, got int64, took time.Duration) {
	if err == nil || upstream.IsOwn(err) || errors.Is(err, context.Canceled) {
		return
	}
	switch origin.ReasonOf(err) {
	case asset.Timeout:
		if got > 0 && float64(got) >= slowRate*took.Seconds() {
			return
		}
		l.fault(stallWeight)
	case asset.UpstreamTruncated:
		l.fault(stallWeight)
	}
}

// fault counts a failure of a node that its status did not show.
func (l *line) fault(weight int) {
	if pass, ok := l.breaker.Permit(); ok {
		l.breaker.Record(pass, flow.Failed, weight)
	}
	l.breaker.Step(time.Now())
}
