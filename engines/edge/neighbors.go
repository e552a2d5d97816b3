package edge

import (
	"net/netip"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/meter"
	"ronbox/engines/edge/origin"
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
	e.seeks = flow.NewFlight[seekKey, struct{}, fill.Filled](e.d.Catalog, flow.FlightSpec{
		Service: service, Name: "fetch", Shards: 16, Waiters: maxWaiters, Calls: e.boot.Queues.WorkTX,
	})
	e.declarePlacer()
	e.asks = flow.NewSlots(e.d.Catalog, flow.Spec{
		Service: service, Name: "probes", Cap: probesMost, Policy: flow.WaitDeadline,
		Producers: []string{flow.HTTP, content.TaskScrubber, taskPlacer},
		Doc:       "nodes that are asked at one time whether they have an object",
	})
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
