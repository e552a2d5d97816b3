package store

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// Errors of a node of a cluster.
var (
	ErrNotLeader = errors.New("store: another node leads")            // nothing was written
	ErrClustered = errors.New("store: the file belongs to a cluster") // opened for writing without a Replicator
	ErrDiverged  = errors.New("store: the entry does not follow the state of the file")
	ErrTooLarge  = errors.New("store: too large for the log of the cluster") // nothing was written
)

// Place is the position of an entry in the log of a cluster.
type Place struct {
	Index uint64
	Term  uint64
}

// Applied describes the last entry that is in the file.
type Applied struct {
	Place
	Chain  b3.Digest // sum of the entry, which covers that of the entry before it
	Origin string    // "" if a group or Follow wrote it, "init" or "install" if SetMembership did
}

// Replicator is the log of a cluster. The committer calls it.
type Replicator interface {
	// Propose returns once e is in the log of a quorum and every entry before e has been passed to
	// Follow. It returns a NothingError if no log has e. After any other error a log may have e.
	// The log may keep e, which does not change.
	Propose(ctx context.Context, e []byte) (Place, error)
	// Applied is called once for each Place that Propose returned: its rows are in the file and
	// published, or the store has failed.
	Applied(Place)
}

// NothingError is returned by Propose for an entry that is in no log.
type NothingError struct{ Cause error }

func (e *NothingError) Error() string { return fmt.Sprintf("not proposed: %v", e.Cause) }

// Unwrap returns the cause.
func (e *NothingError) Unwrap() error { return e.Cause }

// office is whether a store accepts commands.
type office int32

const (
	alone    office = iota // no Replicator: it always does
	standby                // not until Lead; Follow writes
	leading                // until it is deposed
	departed               // never again: the process must end this life
)

// replica is the part of a Store that a node of a cluster uses.
type replica struct {
	office  atomic.Int32
	deposed chan struct{} // nil on a node alone, as follows is
	follows *flow.Queue[*followed]
}

// turn is the part of a group that the log of a cluster needs.
type turn struct {
	applied Applied    // of this group
	placed  bool       // the log has the entry and waits for Applied
	members *memberRow // that putLocal has written
}

// declareReplica declares the queue of a node of a cluster.
func (s *Store) declareReplica() {
	s.replica.office.Store(int32(standby))
	s.replica.deposed = make(chan struct{})
	s.replica.follows = flow.NewQueue[*followed](s.opt.Catalog, flow.Spec{
		Service: ownService, Name: "follow", Kind: flow.KindQueue, Cap: 1, Policy: flow.WaitDeadline,
		Producers: []string{"*"}, // goroutines of the library of raft
		Consumers: []string{"committer"},
		Doc:       "entries of the log of the cluster, on a node that does not lead",
	})
}

// accepts reports whether commands are accepted.
func (s *Store) accepts() bool {
	in := office(s.replica.office.Load())
	return in == alone || in == leading
}

// Lead makes the store accept commands. Until then Commit returns ErrNotLeader, and nothing is
// queued. It is called once, after Prepare, when every entry of a quorum has been passed to Follow,
// which accepts no entry afterwards.
func (s *Store) Lead() error {
	if err := s.Err(); err != nil {
		return err
	}
	if s.info.Load() == nil {
		return fmt.Errorf("store is not open: %w", ErrClosed)
	}
	if !s.replica.office.CompareAndSwap(int32(standby), int32(leading)) {
		return errors.New("store: Lead comes once, on a node of a cluster that was not deposed")
	}
	return nil
}

// Deposed is closed once a proposal has failed: every command was answered with ErrNotLeader or
// ErrUnknown, the committer has ended, and the store is not poisoned. The process must start again.
func (s *Store) Deposed() <-chan struct{} { return s.replica.deposed }

// groupBytes returns the size of the commands at which a group is closed.
func (s *Store) groupBytes(c *Config) int {
	if s.opt.Replicator != nil {
		return min(int(c.GroupBytes), maxGroupBytes)
	}
	return int(c.GroupBytes)
}

// overshoot bounds the growth of the file of a clustered node beyond max_bytes. A group that a
// quorum has must be written, and the room that it needs is an estimate.
const overshoot = 64 << 20

// mostBytes returns the size that the file never exceeds, which is also that of its map: a commit
// that must map more waits for all readers, and then the log waits, too.
func (s *Store) mostBytes() int64 {
	if s.opt.Replicator != nil {
		return s.maxBytes() + overshoot
	}
	return s.maxBytes()
}

// holds reports whether the file can take n more bytes, whatever must be kept free. large of them
// are in runs of pages, which may find no place between the rows. With firm set the disk has
// refused a write, and only pages that the file already has count.
func (p space) holds(n, large int64, firm bool) bool {
	inside := p.size - p.used
	most := p.capacity - p.used
	switch {
	case firm:
		most = min(most, inside)
	case p.disk >= 0:
		most = min(most, p.disk+inside)
	}
	return n <= most && (large == 0 || large <= p.capacity+overshoot/2-p.size)
}

// fits returns ErrFull if the rows of the group, n bytes as an entry, may find no room in the file.
// It overestimates: after the proposal there is no way back.
func (g *group) fits(tx *bolt.Tx, n int) error {
	p := g.s.room.last.Load()
	stats := tx.Stats()
	// every page that was opened is written again, rows split pages in halves, and the list of free
	// pages has 8 bytes for each
	need := stats.GetNodeCount()*PageSize + 2*int64(n) + 8*(p.size-p.used)/PageSize
	if p.holds(need, 2*int64(g.pen.large), g.s.room.pending) {
		return nil
	}
	return fmt.Errorf("%w: the group may need %d KiB; make room, raise store.max_bytes, or compact the file", ErrFull,
		need>>10)
}

// propose gets the rows of the group into the log of a quorum, with the transaction open. A group
// without commands, such as a probe, has none. Whatever can refuse the rows does so before. It
// returns the entry of the group, for the tap, which alone takes that of a node alone.
func (g *group) propose(ctx context.Context, tx *bolt.Tx) (raw [][]byte, end ending) {
	if !g.pen.capture || g.done == 0 {
		return nil, ending{}
	}
	if g.s.opt.Replicator == nil {
		e := &entry{prev: g.s.opt.Tap.Last(), from: g.s.info.Load().position(), to: g.pos}
		return [][]byte{g.pen.lend(e)}, ending{}
	}
	e, err := g.encode()
	if err == nil {
		err = g.fits(tx, len(e))
	}
	if err != nil {
		return nil, g.undone(tx, ending{unwritten, err})
	}
	if g.turn.applied.Place, err = g.ask(ctx, e); err != nil {
		return nil, g.undone(tx, ending{deposed, err})
	}
	g.turn.placed = true
	g.turn.applied.Chain, g.turn.applied.Origin = entrySum(e), ""
	if err = g.s.Err(); err == nil {
		g.reader.inside = true
		err = g.putLocal()
		g.reader.inside = false
	}
	if err != nil {
		return nil, ending{unsound, err} // the log has the entry: the next life applies it
	}
	return [][]byte{e}, ending{}
}

// encode returns the entry of the group.
func (g *group) encode() ([]byte, error) {
	nonce, err := newNonce()
	if err != nil {
		return nil, fmt.Errorf("%w: nonce of an entry: %w", ErrInternal, err)
	}
	raw := g.pen.entry(&entry{
		nonce: nonce, prev: g.s.Applied().Chain, from: g.s.info.Load().position(), to: g.pos,
	})
	if len(raw) > MaxEntry {
		return nil, fmt.Errorf("%w: an entry of %d bytes, the limit is %d", ErrTooLarge, len(raw), MaxEntry)
	}
	return raw, nil
}

// ask proposes e. The wait is not part of the pace of commits, which is that of the disk.
func (g *group) ask(ctx context.Context, e []byte) (Place, error) {
	start := g.s.mono()
	g.s.heart.drop()
	g.sealed = true
	at, err := g.s.opt.Replicator.Propose(ctx, e)
	g.began += g.s.mono() - start
	g.s.heart.begin(g.began)
	return at, err
}

// putLocal writes what the file of this node alone has: the place of the group in the log, and the
// members of the cluster if they have changed. It bypasses the pen.
func (g *group) putLocal() error {
	local := localRows(g.reader.tx)
	if err := local.Put(keyApplied, g.turn.applied.row()); err != nil {
		return err
	}
	g.turn.members = g.s.unwrittenMembers()
	if m := g.turn.members; m != nil {
		return putMembers(local, m)
	}
	return nil
}

// publishLocal publishes what putLocal wrote.
func (g *group) publishLocal() {
	at := g.turn.applied
	g.s.applied.Store(&at)
	if m := g.turn.members; m != nil {
		g.s.membersAt = m.Index
	}
	g.turn.members = nil
}

// turnOver lets the log go on after a proposal.
func (g *group) turnOver() {
	if !g.turn.placed {
		return
	}
	g.turn.placed = false
	g.s.opt.Replicator.Applied(g.turn.applied.Place)
}

// errDeposed ends the committer of a node that leads no more.
var errDeposed = errors.New("store: deposed")

// depose answers a group whose proposal failed, and refuses all later commands.
func (g *group) depose(cause error) error {
	g.s.replica.office.Store(int32(departed))
	g.s.log.Warn("deposed", "reason", cause.Error())
	g.aborted()
	// the cause is not wrapped: it may be any error
	refused := fmt.Errorf("%w: %v", ErrNotLeader, cause)
	outcome := fmt.Errorf("%w: another node may have committed it: %v", ErrUnknown, cause)
	if _, nothing := errors.AsType[*NothingError](cause); nothing {
		outcome = refused
	}
	for _, j := range g.jobs {
		if j.header().err != nil {
			j.fail(refused) // it has written nothing; its refusal may be that of a state that never was
			continue
		}
		j.fail(outcome)
	}
	for _, j := range g.rest {
		j.fail(refused)
	}
	g.release()
	return errDeposed
}

// bounded returns ErrTooLarge if the rows of one command are too large for the log of a cluster.
func (w *Writes) bounded() error {
	n := 0
	for i := range w.ops {
		n += w.ops[i].size()
	}
	if n > maxCommand {
		return fmt.Errorf("%w: %d bytes of rows, the limit of a command is %d", ErrTooLarge, n, maxCommand)
	}
	return nil
}
