package wiring

import (
	"errors"

	"ronbox/engines/fleet"
	"ronbox/engines/index"
	indexapi "ronbox/httpapi/index"
)

// fleetPeers holds the index's peers for the nodes of the fleet, by host and port. It is owned by
// the callers of SetFleet, which do not overlap.
type fleetPeers struct {
	n  *Set
	of map[string]*indexapi.Peer
}

// SetFleet makes the nodes of v that offer the index its peers, beside those of the configuration.
// A peer stays the same as long as host and port of its node do.
func (e *indexEngine) SetFleet(v *fleet.View) {
	configured := make(map[string]*indexapi.Peer, len(e.peers))
	for _, p := range e.peers {
		configured[p.Target()] = p
	}
	var nodes []index.NodePeer
	stay := map[string]*indexapi.Peer{}
	for _, n := range e.fleet.others(v) {
		target, err := indexapi.NodeTarget(n)
		p := configured[target]
		switch {
		case err != nil || p != nil:
		case stay[target] != nil:
			err = errors.New("another node has the same endpoint")
		default:
			if p, err = e.fleet.peer(v, n, target); err == nil {
				stay[target] = p
			}
		}
		if err != nil {
			e.fleet.n.log.Warn("fleet_node_not_asked", "node", n.ID, "reason", err.Error(),
				"next", "correct the endpoint or the spki of its item")
			continue
		}
		nodes = append(nodes, index.NodePeer{Node: n.ID, Peer: p})
	}
	e.Engine.SetFleet(v, nodes)
	for target, p := range e.fleet.of {
		if stay[target] == nil {
			p.Close()
		}
	}
	e.fleet.of = stay
}

// others returns the nodes that offer the index, without this node.
func (f *fleetPeers) others(v *fleet.View) (nodes []fleet.Node) {
	if v == nil {
		return nil
	}
	own := engineOf[*fleetEngine](f.n).own
	for _, n := range v.Nodes {
		if n.Has(fleet.ServiceIndex) && n.ID != v.Self && n.Identity != own {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// peer returns the peer of a node: the one that asks its host and port now, or a new one.
func (f *fleetPeers) peer(v *fleet.View, n fleet.Node, target string) (*indexapi.Peer, error) {
	rule := engineOf[*fleetEngine](f.n).rule(v)
	if p := f.of[target]; p != nil {
		return p, p.SetNode(n, rule)
	}
	return indexapi.NewNodePeer(f.n.Catalog, f.n.Metrics, n, rule)
}

// close closes the connections to the nodes.
func (f *fleetPeers) close() {
	for _, p := range f.of {
		p.Close()
	}
}
