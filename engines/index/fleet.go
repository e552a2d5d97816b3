package index

import (
	"crypto/ed25519"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/fleet"
	"ronbox/engines/index/name"
)

// peerSet holds the peers and the owners of names as of one version of the registry. It is
// immutable.
type peerSet struct {
	peers []*peer          // those of the configuration, then those of the fleet
	nodes map[string]*peer // peers of the fleet by the ids of their items
	view  *fleet.View      // nil: no fleet
	names []string         // "suffix identity" of every name of the fleet, sorted
	era   uint64           // grows when names changes
}

// NodePeer is the peer of a node of the fleet.
type NodePeer struct {
	Node string    // id of its item
	Peer name.Peer // may be a peer of the configuration
}

// SetFleet makes v the view of the fleet for lookups that begin from now on, and nodes its peers,
// in the order of their ids. Peers that stay keep their breakers and counters; a peer stays if it
// is the same Peer. If a name gets another owner, the cache is emptied. Calls must not overlap. v
// may be nil; otherwise Deps.Fleet must have been set. SetFleet does not block.
func (e *Engine) SetFleet(v *fleet.View, nodes []NodePeer) {
	was := e.set.Load()
	next := &peerSet{
		peers: slices.Clone(e.configured),
		nodes: make(map[string]*peer, len(nodes)),
		view:  v,
		names: namesOf(v),
		era:   was.era,
	}
	known := make(map[string]*peer, len(was.peers)) // by target
	for _, p := range was.peers {
		known[p.Target()] = p
	}
	in := make(map[string]bool, len(nodes))
	for _, p := range e.configured {
		in[p.Target()] = true
	}
	for _, n := range nodes {
		target := n.Peer.Target()
		p := known[target]
		if p == nil || p.Peer != n.Peer {
			p = e.newPeer(n.Peer)
			known[target] = p
		}
		if next.nodes[n.Node] = p; !in[target] {
			in[target] = true
			next.peers = append(next.peers, p)
		}
	}
	moved := !slices.Equal(was.names, next.names)
	if moved {
		next.era++
	}
	e.set.Store(next)
	for _, p := range was.peers {
		if !in[p.Target()] {
			e.forget(p)
		}
	}
	if moved {
		e.Purge()
	}
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

// owner is another node that owns a name.
type owner struct {
	key  ed25519.PublicKey
	peer *peer // nil: it answers no lookups
}

// ownerOf returns the other node that owns the name of k. It returns nil if no node of the fleet
// owns it, or the node with the identity self.
func (s *peerSet) ownerOf(k name.Key, self name.PeerID) *owner {
	n, owned := s.view.Owner(k.Name())
	if !owned || n.Identity == string(self) {
		return nil
	}
	key, _ := name.PeerID(n.Identity).Key() // a View has Ed25519 identities only
	return &owner{key, s.nodes[n.ID]}
}

// owns reports whether the fleet gives the name of k to the node with the identity self.
func (s *peerSet) owns(k name.Key, self name.PeerID) bool {
	n, owned := s.view.Owner(k.Name())
	return owned && n.Identity == string(self)
}

// checkOwner returns a *name.ForeignNameError if the name of k belongs to another node.
func (e *Engine) checkOwner(k name.Key) error {
	n, owned := e.set.Load().view.Owner(k.Name())
	if owned && n.Identity != string(e.id) {
		return &name.ForeignNameError{Key: k, Node: n.ID}
	}
	return nil
}

// declareFleet declares the channels of the renewer.
func (e *Engine) declareFleet() {
	e.records = flow.NewQueue[ownerRecord](e.catalog, flow.Spec{
		Service:   service,
		Name:      "records_tx",
		Cap:       maxHeld,
		Policy:    "drop new",
		Producers: []string{taskWorker},
		Consumers: []string{taskRenewer},
		Doc:       "records of names by their owners, to be kept; a dropped one is kept by a later lookup",
	})
	e.renewTick = flow.Every(e.catalog, flow.Spec{
		Service: service, Name: "renew_tick", Consumers: []string{taskRenewer}, Doc: "renewal of the kept records",
	}, renewEvery)
}

// renewer returns the task that keeps the records of owners.
func (e *Engine) renewer() flow.Task {
	return flow.Task{
		Service:    service,
		Name:       taskRenewer,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.bulk"},
		Doc:        "keeps the records of names by their owners, and renews them every " + renewEvery.String(),
		Run:        e.runRenewer,
	}
}

// renewEvery is the time between two renewals of a kept record.
const renewEvery = time.Hour
