package cluster

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// fsm applies committed entries to the store. Raft calls it from one goroutine.
type fsm struct{ n *Node }

// Apply implements raft.FSM. Raft calls ApplyBatch instead.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. It returns after the entries are in the file. Once the
// life of the node is over it does nothing: the next life gets the entries again.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	var run []store.Placed
	for _, l := range logs {
		switch {
		case f.n.over():
		case l.Type == raft.LogConfiguration:
			run = f.follow(run)
			f.n.keepMembers(l)
		case l.Type != raft.LogCommand:
		case len(l.Data) == 0:
			run = f.follow(run)
			f.n.passBarrier(l.Term)
		case f.n.handOver(l):
		default:
			run = append(run, store.Placed{Place: store.Place{Index: l.Index, Term: l.Term}, Entry: l.Data})
		}
	}
	f.follow(run)
	return make([]any, len(logs))
}

// follow applies entries of another leader and returns the empty run.
func (f *fsm) follow(run []store.Placed) []store.Placed {
	n := f.n
	switch {
	case len(run) == 0 || n.over():
	case n.office.Load():
		n.end(ReasonForeign, nil)
	default:
		n.followAll(run)
	}
	return run[:0:0]
}

// followAll applies entries. While there is no room for them, or this program does not know their
// format, it tries again: the node then does not acknowledge what its file cannot hold. If it was
// elected meanwhile, it makes way for a node that can: raft would lead on without an office.
func (n *Node) followAll(run []store.Placed) {
	for {
		end := n.commits.begin()
		err := n.store.Follow(n.ctx, run)
		end()
		if !errors.Is(err, store.ErrFull) && !errors.Is(err, store.ErrFormat) {
			n.stalled.Store(nil)
			switch {
			case err == nil:
			case n.ctx.Err() != nil || errors.Is(err, store.ErrClosed): // a stop: the file lacks the entries
				n.stalled.Store(&err)
			default:
				n.end(ReasonFailed, err)
			}
			return
		}
		if len(run) > 1 {
			n.followEach(run)
			return
		}
		if n.stalled.Swap(&err) == nil {
			n.log.Error("follower_stalls", "index", run[0].Index, "error", err)
		}
		if n.reign.Load() != nil && !n.onlyVoter() {
			n.end(ReasonLost, err)
			return
		}
		again := time.NewTimer(stallEvery)
		select {
		case <-again.C:
		case <-n.ctx.Done():
		case <-n.deposed:
		}
		again.Stop()
		if n.ctx.Err() != nil || n.over() {
			return
		}
	}
}

// followEach applies entries one by one: those before the one that must wait, and those that only
// one transaction cannot hold.
func (n *Node) followEach(run []store.Placed) {
	for i := range run {
		n.followAll(run[i : i+1])
		if n.over() || n.stalled.Load() != nil {
			return
		}
	}
}

// stallEvery is the time between two attempts of a follower that stalls.
const stallEvery = time.Second

// configuration is a configuration of the cluster and its place in the log.
type configuration struct {
	index uint64
	raw   []byte
}

// keepMembers gives a committed configuration to the store, which writes it with the next group.
// The committer may hold its transaction open and wait for a later entry.
func (n *Node) keepMembers(l *raft.Log) {
	n.latest.Store(&configuration{l.Index, l.Data})
	n.store.KeepMembers(l.Index, l.Data)
	n.peers.forgetOthers(raft.DecodeConfiguration(l.Data))
}

// Snapshot implements raft.FSM. The file is the snapshot, so there is nothing to copy.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if f.n.over() {
		return nil, errClosed
	}
	return truncation{}, nil
}

// Restore implements raft.FSM. The sink has ended the life already: the next boot opens the file.
func (f *fsm) Restore(r io.ReadCloser) error { return r.Close() }

// truncation is a snapshot that only lets raft truncate its log.
type truncation struct{}

// Persist implements raft.FSMSnapshot. Raft then closes the sink, which moves the place.
func (truncation) Persist(raft.SnapshotSink) error { return nil }

// Release implements raft.FSMSnapshot.
func (truncation) Release() {}
