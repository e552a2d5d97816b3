package cluster

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// The backlog of a follower holds at most backlogEntries entries and backlogBytes bytes, or one
// larger entry: what gathers while a transaction is synced on a slow disk.
const (
	backlogEntries = 256
	backlogBytes   = 8 << 20
)

// backlog holds the entries of another leader that are not in the file yet. Raft's goroutine runFSM
// adds them, and the task follower writes all that have gathered in one transaction.
type backlog struct {
	queue   *flow.Queue[store.Placed]
	entries atomic.Int64  // queued or being written
	bytes   atomic.Int64  // of these entries
	less    chan struct{} // a signal to runFSM: entries are in the file
}

func newBacklog(c *flow.Catalog) *backlog {
	return &backlog{
		queue: flow.NewQueue[store.Placed](c, flow.Spec{
			Service: service, Name: "backlog", Cap: backlogEntries, Policy: flow.Wait,
			Producers: []string{taskFollower}, Consumers: []string{taskFollower},
			Doc: "entries of the leader, at most 8 MiB, which raft adds; a full one makes raft wait",
		}),
		less: make(chan struct{}, 1),
	}
}

// left records that entries have left the backlog.
func (b *backlog) left(run []store.Placed) {
	b.entries.Add(-int64(len(run)))
	b.bytes.Add(-sizeOf(run))
	select {
	case b.less <- struct{}{}:
	default:
	}
}

// sizeOf returns the bytes of entries.
func sizeOf(run []store.Placed) (n int64) {
	for _, p := range run {
		n += int64(len(p.Entry))
	}
	return n
}

// postpone adds an entry to the backlog. It waits for room, until the life is over or the node
// closes.
func (n *Node) postpone(p store.Placed) {
	b, size := n.backlog, int64(len(p.Entry))
	if !n.awaitBacklog(func() bool { return b.bytes.Load() == 0 || b.bytes.Load()+size <= backlogBytes }) {
		return
	}
	b.entries.Add(1)
	b.bytes.Add(size)
	if err := b.queue.Send(n.ctx, p); err != nil { // a stop: the file lacks the entry
		n.stalled.Store(&err)
	}
}

// caughtUp waits until the backlog is empty. It reports whether all entries of it are in the file:
// not if the life is over or the node stops.
func (n *Node) caughtUp() bool {
	return n.awaitBacklog(func() bool { return n.backlog.entries.Load() == 0 }) && !n.over()
}

// awaitBacklog waits until ok returns true, which stays so until runFSM, the caller, adds an entry.
// It reports false if the life is over or the node closes.
func (n *Node) awaitBacklog(ok func() bool) bool {
	for !ok() {
		select {
		case <-n.backlog.less:
		case <-n.deposed:
			return false
		case <-n.ctx.Done():
			return false
		}
	}
	return true
}

// runFollower is the task follower.
func (n *Node) runFollower(ctx context.Context) error {
	for {
		first, err := n.backlog.queue.Recv(ctx)
		if err != nil {
			return err
		}
		run := n.gather(first)
		if !n.over() {
			n.followAll(run)
		}
		n.backlog.left(run)
	}
}

// gather returns an entry and all that are queued behind it.
func (n *Node) gather(first store.Placed) []store.Placed {
	run := []store.Placed{first}
	for len(run) < backlogEntries {
		select {
		case p, ok := <-n.backlog.queue.C():
			if !ok {
				return run
			}
			run = append(run, p)
		default:
			return run
		}
	}
	return run
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
