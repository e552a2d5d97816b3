package ledger

import (
	"context"

	"ronbox/engines/ledger/idem"
	"ronbox/store"
)

// seal is the command of one slice of a run of the idempotency index.
type seal struct {
	slice idem.Slice
}

// Kind names the command.
func (*seal) Kind() string { return "ledger.seal/1" }

// Size returns the weight of the command in its group, bytes.
func (c *seal) Size() int { return c.slice.Size() }

// Apply writes the slice.
func (c *seal) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	b := store.GroupOf[*books](r)
	if _, err := b.start(r, at, w, 0); err != nil {
		return struct{}{}, err
	}
	if err := b.idem.Seal(r, w, &c.slice); err != nil {
		return struct{}{}, err
	}
	w.Then(b.keep)
	return struct{}{}, nil
}

// drop is the command that deletes a run of expired keys.
type drop struct{ first uint64 }

// Kind names the command.
func (drop) Kind() string { return "ledger.drop/1" }

// Apply drops the run.
func (c drop) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	b := store.GroupOf[*books](r)
	if _, err := b.start(r, at, w, 0); err != nil {
		return struct{}{}, err
	}
	b.idem.Drop(w, c.first)
	w.Then(b.keep)
	return struct{}{}, nil
}

// runSealer seals slots that are closed and drops runs that are too old. Slots close early when
// much is written, so it looks often.
func (l *Local) runSealer(ctx context.Context) error {
	defer l.sealTick.Stop()
	mistaken := l.books.idem.Stats().Mistaken
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.sealTick.C():
		}
		is := l.books.idem.Stats().Mistaken
		l.m.probes(int(is - mistaken))
		if mistaken = is; l.ready() != nil {
			continue
		}
		err := l.seal(ctx)
		if err == nil {
			err = l.dropOld(ctx)
		}
		l.noticed(err)
	}
}

// seal seals every closed slot.
func (l *Local) seal(ctx context.Context) error {
	s := l.books.idem.Sealer()
	for slice, ok := s.Next(); ok; slice, ok = s.Next() {
		if _, err := store.Commit(ctx, l.store, store.Bulk, &seal{slice}); err != nil {
			return err
		}
	}
	return nil
}

// dropOld drops the runs that are too old, one a commit, unless no key may be forgotten.
func (l *Local) dropOld(ctx context.Context) error {
	view := func(fn func(store.Reader) error) error { return l.store.View(ctx, fn) }
	for l.settled() {
		first, due, err := l.books.idem.Due(l.books.view.Load().At-int64(l.reloaded.Load().KeyTTL), view)
		if err != nil || !due {
			return err
		}
		if _, err := store.Commit(ctx, l.store, store.Bulk, drop{first}); err != nil {
			return err
		}
	}
	return nil
}
