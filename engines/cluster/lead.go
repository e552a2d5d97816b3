package cluster

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// reign is one time as leader, from the election until its loss.
type reign struct {
	term   uint64
	lost   chan struct{} // closed when this node stops leading
	passed chan struct{} // closed when the barrier of the term is applied
	once   sync.Once     // closes passed
}

// observe is called by raft for each event, in the goroutine that has caused it.
func (n *Node) observe(o *raft.Observation) bool {
	if state, ok := o.Data.(raft.RaftState); ok {
		n.turn(state)
	}
	return false
}

// turn follows a change of raft's state. It never blocks.
func (n *Node) turn(state raft.RaftState) {
	if state == raft.Leader {
		r := &reign{term: n.raft.CurrentTerm(), lost: make(chan struct{}), passed: make(chan struct{})}
		if old := n.reign.Swap(r); old != nil {
			close(old.lost)
		}
		n.metrics.elections(1)
		n.notify(n.wake)
		if state = n.raft.State(); state == raft.Leader {
			return
		}
		// A heartbeat of another leader has overtaken the election: its change was reported first.
	}
	r := n.reign.Swap(nil)
	if r == nil {
		return
	}
	if state == raft.Shutdown { // raft may still store entries: closing ends what waits
		return
	}
	close(r.lost)
	if n.office.Load() {
		n.end(n.lossOf(r), nil)
	}
}

// lossOf returns why this node does not lead any more.
func (n *Node) lossOf(r *reign) Reason {
	switch why := n.leaving.Load(); {
	case why != nil:
		return *why
	case n.raft.CurrentTerm() == r.term && n.latch.full.Load() == nil:
		return ReasonLease
	}
	return ReasonLost
}

// notify wakes the task that waits for c.
func (n *Node) notify(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runLeadership takes office after each election that this node wins. In office it resigns when the
// watchdog wakes it.
func (n *Node) runLeadership(ctx context.Context) error {
	stays := ""
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.wake:
		}
		r := n.reign.Load()
		switch {
		case r == nil:
		case n.office.Load():
			stays = n.resign(ctx, stays)
		default:
			n.takeOffice(ctx, r)
		}
	}
}

// takeOffice waits until the entries of earlier leaders are in the file, then lets the store lead.
// The barrier is a command without data: its future is not awaited, because raft does not answer it
// if it shuts down.
func (n *Node) takeOffice(ctx context.Context, r *reign) {
	if !n.awaitBarrier(ctx, r) {
		return
	}
	n.office.Store(true)
	if n.reign.Load() != r { // lost before office was set
		n.end(ReasonLost, nil)
		return
	}
	if err := n.store.Lead(); err != nil {
		n.end(ReasonFailed, fmt.Errorf("lead: %w", err))
		return
	}
	n.showOffice()
	n.log.Info("leads", "term", r.term, "applied", n.store.Applied().Index)
	close(n.elected)
}

// awaitBarrier reports whether the barrier of the term has reached the FSM. It sends another one if
// raft did not take it in time.
func (n *Node) awaitBarrier(ctx context.Context, r *reign) bool {
	for {
		n.raft.Apply(nil, hungAfter)
		again := time.NewTimer(hungAfter)
		select {
		case <-r.passed:
			again.Stop()
			return true
		case <-again.C:
			continue
		case <-r.lost:
		case <-n.deposed:
		case <-n.closing:
		case <-ctx.Done():
		}
		again.Stop()
		return false
	}
}

// passBarrier is called by the FSM for a barrier. Entries before it are in the file, unless the
// node stops.
func (n *Node) passBarrier(term uint64) {
	if r := n.reign.Load(); r != nil && r.term == term && n.stalled.Load() == nil {
		r.once.Do(func() { close(r.passed) })
	}
}

// Leads reports whether this node is in office, to its knowledge.
func (n *Node) Leads() bool {
	return n.office.Load() && n.reign.Load() != nil && !n.over()
}

// Leader returns the id and the peer address of the leader. ok is false if none is known.
func (n *Node) Leader() (id, addr string, ok bool) {
	if !n.serving.Load() {
		return "", "", false
	}
	at, server := n.raft.LeaderWithID()
	addr, _ = splitAddress(at)
	return string(server), addr, server != ""
}

// Outage returns the time since this node has last heard a leader, and whether it knows none and
// has heard none for a heartbeat. The grant of a vote counts as a word of a leader. heard is false
// if it has heard none in this life; the time is then that since the life began. It does not block.
func (n *Node) Outage() (silent time.Duration, heard, yes bool) {
	if !n.serving.Load() {
		return 0, false, false
	}
	at := n.raft.LastContact()
	if heard = !at.IsZero(); !heard {
		at = n.begun
	}
	silent = time.Since(at)
	_, _, known := n.Leader()
	return silent, heard, !known && silent >= n.heartbeat()
}

// rounds holds the readers that wait for a confirmation.
type rounds struct {
	wake chan struct{}
	mu   sync.Mutex // a leaf
	next *round     // of readers whose round has not begun; nil: none; guarded by mu
}

// round is one question to the quorum.
type round struct {
	done chan struct{} // closed after err is set
	err  error
}

// Confirm returns nil if this node was the leader at some time after the call began. It asks a
// quorum; one round serves all callers that came before it began. It returns [store.ErrNotLeader]
// if the node does not lead.
func (n *Node) Confirm(ctx context.Context) error {
	if !n.Leads() {
		return store.ErrNotLeader
	}
	r := n.rounds.join()
	n.notify(n.rounds.wake)
	select {
	case <-r.done:
		return r.err
	case <-n.deposed:
		return store.ErrNotLeader
	case <-n.closing:
		return store.ErrNotLeader
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// join returns the next round.
func (r *rounds) join() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.next == nil {
		r.next = &round{done: make(chan struct{})}
	}
	return r.next
}

// take returns the round that begins now, nil if no reader waits.
func (r *rounds) take() *round {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := r.next
	r.next = nil
	return next
}

// runConfirmer runs the rounds.
func (n *Node) runConfirmer(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.rounds.wake:
		}
		if r := n.rounds.take(); r != nil {
			r.err = n.verifyLeader()
			close(r.done)
		}
	}
}

// verifyLeader asks a quorum. Raft also counts answers to messages that it sent before: after a
// pause of this process they may be older than another leader. So raft is asked again until a
// quorum has answered messages that were sent after the round began.
func (n *Node) verifyLeader() error {
	ticket := n.tickets.Add(1)
	for {
		if err := n.raft.VerifyLeader().Error(); err != nil {
			return fmt.Errorf("%w: %v", store.ErrNotLeader, err)
		}
		if !n.Leads() {
			return store.ErrNotLeader
		}
		if voters, answering := n.answersSince(ticket, ""); answering > voters/2 {
			return nil
		}
	}
}
