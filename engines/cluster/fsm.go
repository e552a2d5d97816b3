package cluster

import (
	"io"

	"github.com/hashicorp/raft"

	"ronbox/store"
)

// fsm applies committed entries to the store. Raft calls it from one goroutine.
type fsm struct{ n *Node }

// Apply implements raft.FSM. Raft calls ApplyBatch instead.
func (f *fsm) Apply(l *raft.Log) any { return f.ApplyBatch([]*raft.Log{l})[0] }

// ApplyBatch implements raft.BatchingFSM. Entries of another leader are in the backlog when it
// returns, those of this node in the file. Once the life of the node is over it does nothing: the
// next life gets the entries again.
func (f *fsm) ApplyBatch(logs []*raft.Log) []any {
	n := f.n
	for _, l := range logs {
		switch {
		case n.over():
		case l.Type == raft.LogConfiguration:
			if n.caughtUp() {
				n.keepMembers(l)
			}
		case l.Type != raft.LogCommand:
		case len(l.Data) == 0:
			if n.caughtUp() {
				n.passBarrier(l.Term)
			}
		case n.handOver(l):
		case n.office.Load():
			n.end(ReasonForeign, nil)
		default:
			n.postpone(store.Placed{Place: store.Place{Index: l.Index, Term: l.Term}, Entry: l.Data})
		}
	}
	return make([]any, len(logs))
}

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

// Snapshot implements raft.FSM. The file is the snapshot, so there is nothing to copy. Raft then
// truncates its log up to the last entry that it has applied, which must be in the file.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if !f.n.caughtUp() {
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
