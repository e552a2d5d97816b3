package peers

import (
	"crypto/ed25519"
	"slices"

	"ronbox/engines/fleet"
	"ronbox/engines/index/name"
)

// Set holds the peers and the owners of names as of one version of the registry. It is immutable.
type Set struct {
	Peers []*Peer          // those of the configuration, then those of the fleet
	nodes map[string]*Peer // peers of the fleet by the ids of their items
	view  *fleet.View      // nil: no fleet
	names []string         // "suffix identity" of every name of the fleet, sorted
	Era   uint64           // grows when names changes
}

// Node is the peer of a node of the fleet.
type Node struct {
	ID   string    // of its item
	Peer name.Peer // may be a peer of the configuration
}

// SetFleet makes v the view of the fleet, which may be nil, and nodes its peers, in the order of
// their ids. Peers that stay keep their breakers and counters; a peer stays if it is the same Peer.
// moved reports whether a name got another owner. Calls must not overlap. SetFleet does not block.
func (t *Table) SetFleet(v *fleet.View, nodes []Node) (moved bool) {
	was := t.Load()
	next := &Set{
		Peers: slices.Clone(t.configured),
		nodes: make(map[string]*Peer, len(nodes)),
		view:  v,
		names: namesOf(v),
		Era:   was.Era,
	}
	known := make(map[string]*Peer, len(was.Peers)) // by target
	for _, p := range was.Peers {
		known[p.Target()] = p
	}
	in := make(map[string]bool, len(nodes))
	for _, p := range t.configured {
		in[p.Target()] = true
	}
	for _, n := range nodes {
		target := n.Peer.Target()
		p := known[target]
		if p == nil || p.Peer != n.Peer {
			p = t.newPeer(n.Peer)
			known[target] = p
		}
		if next.nodes[n.ID] = p; !in[target] {
			in[target] = true
			next.Peers = append(next.Peers, p)
		}
	}
	moved = !slices.Equal(was.names, next.names)
	if moved {
		next.Era++
	}
	t.set.Store(next)
	for _, p := range was.Peers {
		if !in[p.Target()] {
			t.forget(p)
		}
	}
	return moved
}

// namesOf returns the names of a view and their owners.
func namesOf(v *fleet.View) (names []string) {
	if v == nil {
		return nil
	}
	for _, n := range v.Nodes {
		for _, suffix := range n.Names {
			names = append(names, suffix+" "+n.Identity)
		}
	}
	slices.Sort(names)
	return names
}

// Owner is another node that owns a name.
type Owner struct {
	Key  ed25519.PublicKey
	Peer *Peer // nil: it answers no lookups
}

// OwnerOf returns the other node that owns the name of k. It returns nil if no node of the fleet
// owns it, or the node with the identity self.
func (s *Set) OwnerOf(k name.Key, self name.PeerID) *Owner {
	n, owned := s.view.Owner(k.Name())
	if !owned || n.Identity == string(self) {
		return nil
	}
	key, _ := name.PeerID(n.Identity).Key() // a View has Ed25519 identities only
	return &Owner{key, s.nodes[n.ID]}
}

// Owns reports whether the fleet gives the name of k to the node with the identity self.
func (s *Set) Owns(k name.Key, self name.PeerID) bool {
	n, owned := s.view.Owner(k.Name())
	return owned && n.Identity == string(self)
}

// Check returns a *name.ForeignNameError if the name of k belongs to another node than the one with
// the identity self.
func (s *Set) Check(k name.Key, self name.PeerID) error {
	n, owned := s.view.Owner(k.Name())
	if owned && n.Identity != string(self) {
		return &name.ForeignNameError{Key: k, Node: n.ID}
	}
	return nil
}
