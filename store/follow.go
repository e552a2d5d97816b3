package store

import (
	"context"
	"errors"
	"fmt"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/flow"
)

// Placed is an entry of a quorum and its place in the log. Without an Entry it only moves the
// place.
type Placed struct {
	Place
	Entry []byte // must not change, even if the ctx of Follow ends
}

// followed is a call to Follow or BindLog.
type followed struct {
	entries []Placed
	log     []byte // of BindLog
	reply   *flow.Reply[struct{}]
}

// Follow applies entries of a quorum, in the order of their places, in one transaction. An entry
// whose place the file has passed is skipped. Follow returns nil once the rows are synced and
// published: [Store.Info], views and Options.Audited show them; the hooks of a Group are not
// called.
//
// ErrDiverged and ErrCorrupt, for an entry that does not follow the file or is damaged, poison the
// store. ErrFormat and ErrFull mean that nothing was written and that another call may succeed,
// with another program or after there is space. Once Lead was called, even while Follow waits, an
// entry is refused with ErrNotLeader, and a place without an entry has no effect: the next group is
// beyond it. Follow then does not wait for a group, which may be waiting for the log.
func (s *Store) Follow(ctx context.Context, es []Placed) error {
	return s.follow(ctx, &followed{entries: es, reply: flow.NewReply[struct{}]()})
}

// BindLog records that the file goes on with the log that has the given id: no other log knows what
// this node acknowledges from now on. [ReadMembership] returns the id until SetMembership or
// Reincarnate. After Lead, BindLog returns ErrNotLeader.
func (s *Store) BindLog(ctx context.Context, id []byte) error {
	return s.follow(ctx, &followed{log: id, reply: flow.NewReply[struct{}]()})
}

func (s *Store) follow(ctx context.Context, f *followed) error {
	if s.opt.Replicator == nil {
		return errors.New("store: Follow on a node alone")
	}
	if err := s.Err(); err != nil {
		return err
	}
	if s.info.Load() == nil {
		return fmt.Errorf("store is not open: %w", ErrClosed)
	}
	if office(s.replica.office.Load()) != standby {
		return s.refuses(f)
	}
	if err := s.replica.follows.Send(ctx, f); err != nil {
		return errors.Join(s.Err(), err)
	}
	if office(s.replica.office.Load()) != standby && f.reply.Claim() { // Lead was called since
		return s.refuses(f)
	}
	_, err := f.reply.Wait(ctx)
	return err
}

// refuses returns ErrNotLeader if f has an entry that the file lacks, or is of BindLog. The store
// was told to lead.
func (s *Store) refuses(f *followed) error {
	if f.log != nil {
		return fmt.Errorf("%w: the log was to be bound while this one was told to lead", ErrNotLeader)
	}
	for _, e := range f.entries {
		if e.Entry != nil && e.Index > s.Applied().Index {
			return fmt.Errorf("%w: it wrote entry %d while this one was told to lead", ErrNotLeader, e.Index)
		}
	}
	return nil
}

// answerFollows ends the calls to Follow that were queued before Lead. A group may wait for the
// log, and the reader of the log for them.
func (c *committer) answerFollows() error {
	for c.follows != nil {
		select {
		case f, more := <-c.follows:
			if !more {
				c.follows = nil
				return nil
			}
			if err := c.follow(f); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// follow applies entries. An error ends the committer.
func (c *committer) follow(f *followed) error {
	if !f.reply.Claim() {
		return nil
	}
	c.following = f
	fatal, err := c.group.follow(f)
	c.following = nil
	if fatal != nil {
		err = fatal
	}
	f.reply.Settle(struct{}{}, err)
	return fatal
}

// pass is a call to Follow that was checked and is not written yet.
type pass struct {
	entries []entry
	raw     [][]byte // of entries
	to      position
	applied Applied
	log     []byte // of BindLog
}

// follow writes entries in one transaction. fatal ends the committer; after err the state is the
// old one.
func (g *group) follow(f *followed) (fatal, err error) {
	if !g.standsBy() {
		return nil, g.s.refuses(f)
	}
	p, err := g.check(f.entries)
	p.log = f.log
	switch {
	case errors.Is(err, ErrFormat):
		return nil, err
	case err != nil:
		g.s.poison(err, false)
		return g.s.Err(), nil
	case p.applied.Place == g.s.Applied().Place && p.log == nil:
		return nil, nil
	}
	g.begun(nil)
	g.began = g.s.mono()
	g.s.heart.begin(g.began)
	info, e := g.write(p)
	if e.outcome == committed && g.s.Err() != nil {
		e = ending{unsound, g.s.Err()}
	}
	switch e.outcome {
	case committed:
		g.s.heart.end(g.s.mono())
		g.publishFollowed(info)
		g.release()
		return nil, nil
	case unwritten:
		g.s.heart.drop()
		g.release()
		return nil, e.err
	}
	g.s.poison(e.err, false)
	return g.s.Err(), nil
}

func (g *group) standsBy() bool { return office(g.s.replica.office.Load()) == standby }

// check decodes the entries that the file lacks. It returns ErrDiverged unless each of them follows
// the one before it.
func (g *group) check(es []Placed) (pass, error) {
	return checkEntries(es, g.s.info.Load().position(), g.s.Applied(), g.s.knows)
}

// checkEntries decodes the entries that a file lacks, which is at the given position and place.
func checkEntries(es []Placed, at position, a Applied, knows func(*entry) error) (p pass, err error) {
	p.to, p.applied = at, a
	for _, placed := range es {
		if placed.Index <= p.applied.Index {
			continue
		}
		p.applied.Place, p.applied.Origin = placed.Place, ""
		if placed.Entry == nil {
			continue
		}
		e, err := parseEntry(placed.Entry, MaxEntry)
		if err == nil {
			err = knows(&e)
		}
		if err == nil && (e.from != p.to || e.prev != p.applied.Chain) {
			err = fmt.Errorf("%w: it begins at command %d of chain %s, the file is at command %d of chain %s",
				ErrDiverged, e.from.seq, e.prev, p.to.seq, p.applied.Chain)
		}
		if err != nil {
			return p, fmt.Errorf("entry %d of term %d: %w", placed.Index, placed.Term, err)
		}
		p.entries, p.raw = append(p.entries, e), append(p.raw, placed.Entry)
		p.to, p.applied.Chain = e.to, e.sum
	}
	return p, nil
}

// knows returns ErrFormat if e has rows of a bucket that this program does not declare.
func (s *Store) knows(e *entry) error {
	for _, o := range e.ops {
		d, known := s.schema[o.bucket]
		if !known || d.Subs != (o.sub != "") {
			return fmt.Errorf("%w: this program has no bucket %q", ErrFormat, o.bucket)
		}
	}
	return nil
}

// write writes the entries of p in a transaction and commits it.
func (g *group) write(p pass) (info Info, e ending) {
	g.reader.inside = true
	tx, err := g.s.db.Begin(true)
	if err != nil {
		return info, ending{unsound, fmt.Errorf("begin: %w", err)}
	}
	g.use(tx)
	g.s.look(g.s.db, tx.Size(), false)
	g.reader.inside, g.reader.confined = true, false
	info, err = g.writeEntries(tx, p)
	g.reader.inside, g.reader.confined = false, true
	if err != nil {
		return info, g.failed(errors.Join(err, g.rollback(tx)))
	}
	return info, g.tapped(tx, p.raw...)
}

// writeEntries writes the rows of p and returns the state that results.
func (g *group) writeEntries(tx *bolt.Tx, p pass) (info Info, err error) {
	for i := range p.entries {
		for _, o := range p.entries[i].ops {
			c := g.change(o)
			g.pen.names.note(c.t.home().Bucket, c.t.rows, o)
			if err := c.merge(); err != nil {
				return info, fmt.Errorf("merge into %s: %w", o.bucket, err)
			}
		}
	}
	if err := g.pen.names.write(tx); err != nil {
		return info, err
	}
	if info, err = readInfo(tx); err != nil {
		return info, err
	}
	if info.position() != p.to {
		return info, fmt.Errorf("%w: its rows lead to command %d, not to command %d", ErrDiverged, info.Seq, p.to.seq)
	}
	if g.s.inUseUnset {
		err = putClean(tx, false)
	}
	if p.log != nil {
		err = errors.Join(err, localRows(tx).Put(keyLog, AddSum(keyLog, p.log)))
	}
	g.turn.applied = p.applied
	return info, errors.Join(err, g.putLocal())
}

// change returns o as a change of a bucket of the transaction, and notes an audit row.
func (g *group) change(o op) *write {
	b := g.s.schema[o.bucket].Bucket
	if o.sub != "" {
		b = b.Sub(o.sub)
	}
	c := &write{t: g.reader.table(b)}
	switch o.kind {
	case opPut:
		c.key, c.value = o.key, o.value
	case opDelete:
		c.key = o.key
	}
	if o.kind == opPut && b == auditBucket && g.s.opt.Audited != nil {
		if row, err := parseAudit(o.key, o.value); err == nil { // the chain was checked by the node that wrote it
			g.rows = append(g.rows, row)
		}
	}
	return c
}

// publishFollowed publishes the state after entries.
func (g *group) publishFollowed(info Info) {
	info.Clean = g.s.info.Load().Clean // of the last stop before this boot
	g.s.inUseUnset = false
	g.s.restored.Store(info.Restored)
	g.s.info.Store(&info)
	g.publishLocal()
	if len(g.rows) > 0 {
		g.s.opt.Audited(append([]AuditRow{}, g.rows...))
	}
}
