package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/obs"
)

// outcome is the way in which a transaction ended.
type outcome int

const (
	committed outcome = iota // in the file, synced
	unwritten                // rolled back: the state is the old one
	deposed                  // rolled back: this node leads no more
	unsound                  // nothing that the process reads can be trusted
)

// ending is the outcome of a transaction and its reason.
type ending struct {
	outcome outcome
	err     error // nil if committed
}

// failed returns the ending of a transaction that failed with err. An error is clean only while no
// log has the rows: after that the file must get them.
func (g *group) failed(err error) ending {
	if g.turn.placed || !clean(err) {
		return ending{unsound, err}
	}
	g.s.refused(err)
	return ending{unwritten, fullError(err)}
}

// undone rolls the transaction back and returns e.
func (g *group) undone(tx *bolt.Tx, e ending) ending {
	if err := g.rollback(tx); err != nil {
		return ending{unsound, errors.Join(e.err, err)}
	}
	return e
}

// commit writes the position, gets the rows into the log of the cluster and commits the
// transaction, which syncs twice.
func (g *group) commit(ctx context.Context, tx *bolt.Tx) ending {
	g.reader.inside = true
	if err := g.putMeta(); err != nil {
		return g.failed(errors.Join(err, g.rollback(tx)))
	}
	g.reader.inside = false
	span := g.span(ctx)
	raw, e := g.propose(ctx, tx)
	if e.outcome == committed {
		e = g.tapped(tx, raw...)
	}
	span.Fail(e.err)
	span.End()
	return e
}

// tapped passes entries to the tap, if there is one, and commits the transaction.
func (g *group) tapped(tx *bolt.Tx, entries ...[]byte) ending {
	tap := g.s.opt.Tap
	if tap == nil || len(entries) == 0 {
		return g.sync(tx)
	}
	tap.Write(entries...)
	e := g.sync(tx)
	if e.outcome == unwritten {
		tap.Undo()
	}
	return e
}

// sync commits the transaction.
func (g *group) sync(tx *bolt.Tx) ending {
	id, start := tx.ID(), g.s.mono()
	g.reader.inside = true
	g.sealed = true
	err := tx.Commit()
	took := time.Duration(g.s.mono() - start)
	if err != nil && clean(err) && g.visible(id) {
		err = fmt.Errorf("the meta page was written: %v", err) // so the error is no longer clean
	}
	g.reader.inside = false
	if took > commitStuck && g.s.opt.Slow != nil {
		g.s.opt.Slow("commit", took)
	}
	if err != nil {
		return g.failed(err)
	}
	g.s.metrics.committed(phasesOf(tx.Stats(), time.Duration(start-g.began), took), len(g.jobs))
	return ending{}
}

// settle publishes a committed group, or answers a failed one.
func (g *group) settle(e ending) error {
	if e.outcome == committed && g.s.Err() != nil {
		e = ending{unsound, g.s.Err()} // a view has met a fault since: do not report success
	}
	switch e.outcome {
	case unsound:
		return g.failGroup(e.err)
	case deposed:
		g.s.heart.drop()
		return g.depose(e.err)
	case unwritten:
		g.s.heart.drop()
		g.aborted()
		g.unwritten(e.err)
		return nil
	}
	g.s.heart.end(g.s.mono())
	g.publish()
	g.turnOver()
	g.answer()
	return nil
}

// unwritten answers a group that was rolled back.
func (g *group) unwritten(err error) {
	for _, j := range g.jobs {
		j.fail(err)
		if errors.Is(err, ErrFull) {
			g.s.metrics.kind(j.header().kind).full(1)
		}
	}
	g.release()
}

// putMeta writes the position, and the cleared clean flag if the boot of a full file could not
// write it.
func (g *group) putMeta() error {
	if g.s.inUseUnset {
		if err := putClean(g.reader.tx, false); err != nil {
			return err
		}
	}
	return g.pos.put(&g.meta, g.s.info.Load().position())
}

// look checks the free space once a second. It opens and rolls back a transaction: of a full store
// a write transaction, which releases the pages that no reader pins any more.
func (g *group) look() error {
	g.reader.inside = true
	tx, err := g.s.db.Begin(g.s.room.full())
	if err != nil {
		return g.failGroup(fmt.Errorf("begin: %w", err))
	}
	size := tx.Size()
	if err := tx.Rollback(); err != nil {
		return g.failGroup(err)
	}
	g.reader.inside = false
	g.s.look(g.s.db, size, true)
	return nil
}

// span begins the trace of one commit and links it to the requests that wait for it.
func (g *group) span(ctx context.Context) obs.Span {
	if g.s.opt.Tracer == nil {
		return obs.Span{}
	}
	_, span := g.s.opt.Tracer.Start(ctx, "store.commit", ownService)
	span.Int("commands", len(g.jobs))
	for _, j := range g.jobs {
		span.Link(j.header().ctx)
	}
	return span
}

// visible reports whether readers see transaction id. It returns true if that is unknown.
func (g *group) visible(id int) bool {
	tx, err := g.s.db.Begin(false)
	if err != nil {
		return true
	}
	return tx.ID() >= id || tx.Rollback() != nil
}

func (g *group) rollback(tx *bolt.Tx) error {
	g.reader.inside = true
	err := tx.Rollback()
	g.reader.inside = false
	return err
}
