package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// The states of a proposal in the log of this node: unseen → withdrawn, or unseen → storing →
// stored or refused.
const (
	logUnseen uint32 = iota
	logWithdrawn
	logStoring
	logStored
	logRefused // the log does not have it
)

// The states of a proposal at the FSM.
const (
	turnWaiting uint32 = iota
	turnPlaced         // the FSM has seen the entry and waits for Applied
	turnAbandoned
)

// errWithdrawn refuses an entry whose proposer has left before it was stored.
var errWithdrawn = errors.New("cluster: the proposal was withdrawn")

// errTerm refuses an entry of a term in which this node has not led.
var errTerm = errors.New("cluster: the entry has the term of another leader")

// proposal is the one entry that the committer waits for.
type proposal struct {
	nonce [16]byte
	term  uint64 // in which this node leads
	begun time.Time

	log     atomic.Uint32
	turn    atomic.Uint32
	place   store.Place   // set before placed is closed
	placed  chan struct{} // closed by the FSM
	applied chan struct{} // closed by Applied
}

func newProposal(nonce [16]byte, term uint64) *proposal {
	return &proposal{
		nonce: nonce, term: term, begun: time.Now(), placed: make(chan struct{}), applied: make(chan struct{}),
	}
}

// withdraw reports whether the log of this node does not have the entry and never will. A leader
// sends nothing that its own log does not have.
func (p *proposal) withdraw() bool {
	return p.log.CompareAndSwap(logUnseen, logWithdrawn) || p.log.Load() == logRefused
}

// stored records the result of storing the entry.
func (p *proposal) stored(err error) {
	if err != nil && cleanLogError(err) {
		p.log.Store(logRefused)
		return
	}
	p.log.Store(logStored)
}

// replicator implements store.Replicator.
type replicator struct{ n *Node }

// Replicator returns the log of the cluster for the store.
func (n *Node) Replicator() store.Replicator { return replicator{n} }

// Propose implements store.Replicator. It returns the place of e after every entry before it is in
// the file. The wait ends when this node stops leading, its life ends or ctx ends.
func (r replicator) Propose(ctx context.Context, e []byte) (store.Place, error) {
	n := r.n
	nonce, ok := n.nonce(e)
	if !ok {
		return store.Place{}, &store.NothingError{Cause: errors.New("cluster: the entry has no nonce")}
	}
	at := n.reign.Load()
	if at == nil || !n.Leads() {
		if n.office.Load() {
			n.end(ReasonLost, nil) // before the committer ends
		}
		return store.Place{}, &store.NothingError{Cause: store.ErrNotLeader}
	}
	if err := n.enter(ctx, at); err != nil {
		return store.Place{}, &store.NothingError{Cause: err}
	}
	p := newProposal(nonce, at.term)
	n.pending.Store(p)
	// The future is not awaited: raft may never answer it when it shuts down, and does not know
	// what became of the entry. The latch and the FSM do. After a timeout raft does not have it.
	n.raft.Apply(e, hungAfter)
	cause := n.awaitTurn(ctx, p, at)
	if !p.turn.CompareAndSwap(turnWaiting, turnAbandoned) {
		<-p.placed
		return p.place, nil
	}
	n.metrics.failed(1)
	n.end(n.lossOf(at), cause)
	if p.withdraw() {
		return store.Place{}, &store.NothingError{Cause: cause}
	}
	return store.Place{}, errors.Join(errUnknown, cause)
}

// enter waits at the gate, which Applied opens. A failed proposal leaves it closed: its entry may
// still be on its way to the log.
func (n *Node) enter(ctx context.Context, at *reign) error {
	select {
	case n.gate <- struct{}{}:
		return nil
	case <-at.lost:
		return store.ErrNotLeader
	case <-n.deposed:
		return store.ErrNotLeader
	case <-n.closing:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// awaitTurn waits until the FSM has met the entry, and then returns nil. Otherwise it returns why
// the wait has ended.
func (n *Node) awaitTurn(ctx context.Context, p *proposal, at *reign) error {
	if time.Since(p.begun) >= hungAfter {
		return errHung
	}
	select {
	case <-p.placed:
		return nil
	case <-at.lost:
		return store.ErrNotLeader
	case <-n.deposed:
		return errOver
	case <-n.closing:
		return errClosed
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

var (
	errHung = errors.New("cluster: raft takes no entry")
	errOver = errors.New("cluster: the life of the node ends")
)

// errUnknown is the error of a proposal that some log may have.
var errUnknown = errors.New("cluster: it is unknown whether the entry is in the log of a quorum")

// Applied implements store.Replicator. It lets the FSM continue.
func (r replicator) Applied(store.Place) {
	p := r.n.pending.Load()
	if p == nil || p.turn.Load() != turnPlaced {
		return
	}
	r.n.metrics.propose(time.Since(p.begun).Seconds())
	r.n.pending.Store(nil)
	<-r.n.gate
	close(p.applied)
}

// intake returns the proposal of a command that the log is about to store, nil if the command is
// not the pending one. It refuses a withdrawn proposal, and one that raft has given the term of
// another leader: a heartbeat may raise the term while raft still takes entries as the old leader.
// The new leader may have another entry of that term at the same place.
func (n *Node) intake(l *raft.Log) (*proposal, error) {
	p := n.pendingOf(l)
	if p == nil {
		return nil, nil
	}
	if l.Term != p.term {
		p.log.CompareAndSwap(logUnseen, logRefused)
		return nil, errTerm
	}
	if !p.log.CompareAndSwap(logUnseen, logStoring) && p.log.Load() == logWithdrawn {
		return nil, errWithdrawn
	}
	return p, nil
}

// pendingOf returns the pending proposal if l is its entry, else nil.
func (n *Node) pendingOf(l *raft.Log) *proposal {
	p := n.pending.Load()
	if p == nil || l.Type != raft.LogCommand {
		return nil
	}
	if nonce, ok := n.nonce(l.Data); !ok || nonce != p.nonce {
		return nil
	}
	return p
}

// handOver gives the entry of the pending proposal to the committer and waits until its group is in
// the file. It reports whether l was such an entry.
func (n *Node) handOver(l *raft.Log) bool {
	p := n.pendingOf(l)
	if p == nil || !p.turn.CompareAndSwap(turnWaiting, turnPlaced) {
		return false
	}
	p.place = store.Place{Index: l.Index, Term: l.Term}
	close(p.placed)
	end := n.commits.begin()
	defer end()
	select {
	case <-p.applied:
	case <-n.closing:
	}
	return true
}
