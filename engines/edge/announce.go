package edge

import (
	"context"
	"errors"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Bounds of announcements.
const (
	announceFor   = 24 * time.Hour
	announceBurst = 100 // objects of one call of Names
	announceEvery = time.Minute
)

const taskAnnouncer = "announcer"

// declareAnnouncer declares the ticker of the task announcer, which exists only in a fleet.
func (e *Engine) declareAnnouncer() {
	e.announceTick = flow.Every(e.d.Catalog, flow.Spec{
		Service: service, Name: "announce_tick", Consumers: []string{taskAnnouncer}, Doc: "renews own provider records",
	}, announceEvery)
}

// announcer returns the task that renews the announcements of this node.
func (e *Engine) announcer() flow.Task {
	return flow.Task{
		Service:    service,
		Name:       taskAnnouncer,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "renews own provider records at half of their life",
		Run:        e.runAnnouncer,
	}
}

// runAnnouncer announces the objects of edge/announced when half of the life of their records has
// passed.
func (e *Engine) runAnnouncer(ctx context.Context) error {
	defer e.announceTick.Stop()
	tick := e.announceTick.C()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
			if err := e.renew(ctx); err != nil && ctx.Err() == nil {
				e.log.Warn("announce", "reason", err.Error(), "next", "the next try is in a minute")
			}
		}
	}
}

// renew announces the objects that are due, and drops those that are no longer stored.
func (e *Engine) renew(ctx context.Context) error {
	var due, gone []b3.Digest
	err := tables.Scan(ctx, e.d.Store, tables.Announced, func(name b3.Digest, row tables.AnnouncedRow) error {
		if e.now().Sub(time.Unix(0, row.At)) < announceFor/2 {
			return nil
		}
		_, err := tables.Find(ctx, e.d.Store, tables.Blobs, name)
		if errors.Is(err, asset.ErrNotFound) {
			gone = append(gone, name)
			return nil
		}
		if e.content.HasFile(name) { // after a restore it has a row and no file, until it is put again
			due = append(due, name)
		}
		return err
	})
	if errors.Is(err, store.ErrCorrupt) {
		return errors.Join(err, e.content.Repair(ctx))
	}
	if err != nil {
		return err
	}
	for burst := range slices.Chunk(due, announceBurst) {
		if ctx.Err() == nil {
			err = errors.Join(err, e.announceNow(ctx, burst))
		}
	}
	if len(gone) == 0 {
		return err
	}
	ended := e.withdraw(ctx, gone)
	if ended == nil {
		_, ended = store.Commit(ctx, e.d.Store, store.Work, tables.Announce{Objects: gone, Ended: true})
	}
	return errors.Join(err, ended)
}

// announce announces an object that was marked, if the node is in a fleet. If that fails, the task
// announcer tries again.
func (e *Engine) announce(ctx context.Context, name b3.Digest) {
	if e.announceTick == nil {
		return
	}
	if err := e.announceNow(ctx, []b3.Digest{name}); err != nil {
		e.log.Warn("announce", "digest", name.String(), "reason", err.Error(), "next", "the next try is in a minute")
	}
}

// announceNow publishes that this node provides objects, and records the time of those that were
// not refused.
func (e *Engine) announceNow(ctx context.Context, names []b3.Digest) error {
	done, err := e.d.Names.Announce(ctx, names, announceFor)
	if len(done) == 0 {
		return err
	}
	_, noted := store.Commit(ctx, e.d.Store, store.Work, tables.Announce{Objects: done})
	return errors.Join(err, noted)
}

// withdraw ends the announcements of objects.
func (e *Engine) withdraw(ctx context.Context, names []b3.Digest) error {
	if e.d.Names == nil || len(names) == 0 {
		return nil
	}
	return e.d.Names.Withdraw(ctx, names)
}

// withdrawn ends the announcements of objects that are no longer to be announced. If that fails,
// their records expire.
func (e *Engine) withdrawn(ctx context.Context, names []b3.Digest) {
	if err := e.withdraw(ctx, names); err != nil {
		e.log.Warn("withdraw", "objects", len(names), "reason", err.Error(), "next",
			"their records expire within a day")
	}
}
