package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/obs"
)

// chain writes the audit rows of one command, unless none are wanted.
func (g *group) chain(at int64) error {
	cfg := g.s.audit.Load()
	if !cfg.Enabled {
		return nil
	}
	for _, e := range g.writes.events {
		row, err := appendAudit(g.audit.rows, &g.pos, uint64(cfg.Retain), at, e)
		if err != nil {
			return err
		}
		if g.s.opt.Audited != nil {
			g.rows = append(g.rows, row)
		}
	}
	return nil
}

// putMeta writes the position, and what the boot of a full file could not write.
func (g *group) putMeta() error {
	if g.s.owed {
		if err := g.meta.rows.Put(keyClean, cleanFlag(false)); err != nil {
			return err
		}
	}
	return g.pos.put(g.meta.rows, g.s.info.Load().position())
}

// look judges the room for writes once a second, by a transaction of its own that changes nothing in the file: of a full store one that
// gives back the pages which no reader holds any more.
func (g *group) look() error {
	g.reader.inside = true
	tx, err := g.s.db.Begin(g.s.room.full())
	if err != nil {
		return g.give(fmt.Errorf("begin: %w", err))
	}
	size := tx.Size()
	if err := tx.Rollback(); err != nil {
		return g.give(err)
	}
	g.reader.inside = false
	g.s.look(g.s.db, size, true)
	return nil
}

// commit writes the position and syncs twice.
func (g *group) commit(ctx context.Context, tx *bolt.Tx) error {
	g.reader.inside = true
	if err := g.putMeta(); err != nil {
		return errors.Join(err, g.rollback(tx))
	}
	id, start := tx.ID(), g.s.mono()
	span := g.span(ctx)
	g.sealed = true
	err := tx.Commit()
	took := time.Duration(g.s.mono() - start)
	if err != nil && clean(err) && g.shows(id) {
		err = fmt.Errorf("the meta page was written: %v", err) // not clean any more, whatever it was
	}
	g.reader.inside = false
	span.Fail(err)
	span.End()
	if err == nil {
		g.s.metrics.committed(phasesOf(tx.Stats(), time.Duration(start-g.began), took), len(g.jobs))
	}
	if took > commitStuck && g.s.opt.Slow != nil {
		g.s.opt.Slow("commit", took)
	}
	return err
}

// span begins the trace of one commit, tied to the requests that wait for it. Without a tracer it costs nothing.
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

// shows tells whether readers see the transaction id, or cannot tell.
func (g *group) shows(id int) bool {
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
