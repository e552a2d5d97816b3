package index

import (
	"errors"

	"github.com/hashicorp/go-hclog"

	"ronbox/engines/fleet"
	"ronbox/engines/fleet/lines"
	"ronbox/engines/index/peers"
)

// Nodes holds the peers for the nodes of the fleet, by host and port. Its methods must not be
// called concurrently.
type Nodes struct {
	of map[string]*Peer
}

// Set returns the peers for the nodes of l that offer the index, in the order of their ids, without
// the node with the identity own. A peer stays the same as long as host and port of its node do. A
// node with the target of a configured peer gets that peer. A node that must not be called, or that
// has the endpoint of another, is left out and logged.
func (s *Nodes) Set(l *lines.Lines, own string, configured []*Peer, log hclog.Logger) (all []peers.Node) {
	known := make(map[string]*Peer, len(configured)) // by target
	for _, p := range configured {
		known[p.Target()] = p
	}
	stay := map[string]*Peer{}
	for _, n := range l.With(fleet.ServiceIndex) {
		if n.Identity == own {
			continue
		}
		p, err := known[n.Host], n.Fault
		switch {
		case p != nil:
			err = nil
		case stay[n.Host] != nil:
			err = errors.New("another node has the same endpoint")
		case err == nil:
			p = s.peer(n)
			stay[n.Host] = p
		}
		if err != nil {
			log.Warn("fleet_node_not_asked", "node", n.ID, "reason", err.Error(),
				"next", "correct the endpoint or the spki of its item")
			continue
		}
		all = append(all, peers.Node{ID: n.ID, Peer: p})
	}
	s.of = stay
	return all
}

// peer returns the peer of a node: the one that asks its host and port now, or a new one. Calls
// that begin from now on use the line of n, and the pool of lines shuts the old one.
func (s *Nodes) peer(n lines.Node) *Peer {
	p := s.of[n.Host]
	if p == nil {
		p = &Peer{target: n.Host}
	}
	p.region.Store(&n.Region)
	if now := p.access.Load(); now == nil || now.line != n.Line {
		p.access.Store(&access{base: n.Line.URL(""), line: n.Line, client: n.Line.Client(p.spec()), header: header()})
	}
	return p
}
