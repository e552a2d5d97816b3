package announce

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Bounds of announcements.
const (
	recordLife = 24 * time.Hour
	mostAtOnce = 100 // objects of one call of Names
	every      = time.Minute
)

// service is the name of the edge in metrics, logs, probes and the catalogue.
const service = "edge"

// TaskName is the task that renews announcements.
const TaskName = "announcer"

// Names publishes which objects this node provides. Its methods return soon after ctx ends and are
// safe for concurrent use.
type Names interface {
	// Announce publishes that this node provides objects, for ttl. It returns those that it has
	// announced, and the reasons of the others.
	Announce(ctx context.Context, objects []b3.Digest, ttl time.Duration) (done []b3.Digest, err error)
	// Withdraw ends that. An object that was not announced is not an error.
	Withdraw(ctx context.Context, objects []b3.Digest) error
}

// Deps holds the dependencies of an Announcer.
type Deps struct {
	Catalog *flow.Catalog
	Store   *store.Store
	Content *content.Store
	Log     hclog.Logger
	Now     func() time.Time
	Names   Names // nil: the index is off, and nothing is announced
	Fleet   bool  // the node is in a fleet; if not, nothing is announced
}

// Announcer announces to other nodes which objects this node provides. Its methods may be called
// from any goroutine.
type Announcer struct {
	d    Deps
	tick *flow.Ticker // nil if nothing is announced
}

// New returns an announcer. It declares its ticker if there is anything to announce, and starts
// nothing.
func New(d Deps) *Announcer {
	a := &Announcer{d: d}
	if d.Fleet && d.Names != nil {
		a.tick = flow.Every(d.Catalog, flow.Spec{
			Service: service, Name: "announce_tick", Consumers: []string{TaskName}, Doc: "renews own provider records",
		}, every)
	}
	return a
}

// Tasks returns the task that renews the announcements of this node, if there is anything to
// announce.
func (a *Announcer) Tasks() []flow.Task {
	if a.tick == nil {
		return nil
	}
	return []flow.Task{{
		Service:    service,
		Name:       TaskName,
		Count:      1,
		Restart:    flow.Always,
		Background: true,
		Lanes:      []string{"store.work"},
		Doc:        "renews own provider records at half of their life",
		Run:        a.run,
	}}
}

// run announces the objects of edge/announced when half of the life of their records has
// passed.
func (a *Announcer) run(ctx context.Context) error {
	defer a.tick.Stop()
	tick := a.tick.C()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick:
			if err := a.renew(ctx); err != nil && ctx.Err() == nil {
				a.d.Log.Warn("announce", "reason", err.Error(), "next", "the next try is in a minute")
			}
		}
	}
}

// renew announces the objects that are due, and drops those that are no longer stored.
func (a *Announcer) renew(ctx context.Context) error {
	var due, gone []b3.Digest
	err := tables.Scan(ctx, a.d.Store, tables.Announced, func(name b3.Digest, row tables.AnnouncedRow) error {
		if a.d.Now().Sub(time.Unix(0, row.At)) < recordLife/2 {
			return nil
		}
		_, err := tables.Find(ctx, a.d.Store, tables.Blobs, name)
		if errors.Is(err, asset.ErrNotFound) {
			gone = append(gone, name)
			return nil
		}
		if a.d.Content.HasFile(name) { // after a restore it has a row and no file, until it is put again
			due = append(due, name)
		}
		return err
	})
	if errors.Is(err, store.ErrCorrupt) {
		return errors.Join(err, a.d.Content.Repair(ctx))
	}
	if err != nil {
		return err
	}
	for burst := range slices.Chunk(due, mostAtOnce) {
		if ctx.Err() == nil {
			err = errors.Join(err, a.announce(ctx, burst))
		}
	}
	if len(gone) == 0 {
		return err
	}
	ended := a.withdraw(ctx, gone)
	if ended == nil {
		_, ended = store.Commit(ctx, a.d.Store, store.Work, tables.Announce{Objects: gone, Ended: true})
	}
	return errors.Join(err, ended)
}

// Announce announces an object that was marked, if the node is in a fleet. If that fails, the task
// announcer tries again.
func (a *Announcer) Announce(ctx context.Context, name b3.Digest) {
	if a.tick == nil {
		return
	}
	if err := a.announce(ctx, []b3.Digest{name}); err != nil {
		a.d.Log.Warn("announce", "digest", name.String(), "reason", err.Error(), "next", "the next try is in a minute")
	}
}

// announce publishes that this node provides objects, and records the time of those that were
// not refused.
func (a *Announcer) announce(ctx context.Context, names []b3.Digest) error {
	done, err := a.d.Names.Announce(ctx, names, recordLife)
	if len(done) == 0 {
		return err
	}
	_, noted := store.Commit(ctx, a.d.Store, store.Work, tables.Announce{Objects: done})
	return errors.Join(err, noted)
}

// withdraw ends the announcements of objects.
func (a *Announcer) withdraw(ctx context.Context, names []b3.Digest) error {
	if a.d.Names == nil || len(names) == 0 {
		return nil
	}
	return a.d.Names.Withdraw(ctx, names)
}

// Withdraw ends the announcements of objects that are no longer to be announced. If that fails,
// their records expire.
func (a *Announcer) Withdraw(ctx context.Context, names []b3.Digest) {
	if err := a.withdraw(ctx, names); err != nil {
		a.d.Log.Warn("withdraw", "objects", len(names), "reason", err.Error(), "next",
			"their records expire within a day")
	}
}
