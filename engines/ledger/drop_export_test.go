package ledger

import (
	"context"

	"ronbox/store"
)

// Runs returns the number of runs of the idempotency index in the file.
func (l *Local) Runs() int { return l.books.idem.Stats().Runs }

// DropOld drops the runs that are too old.
func (l *Local) DropOld(ctx context.Context) error { return l.dropOld(ctx) }

// SealSteps seals every closed slot and calls each after every slice.
func (l *Local) SealSteps(ctx context.Context, each func()) error {
	s := l.books.idem.Sealer()
	for slice, ok := s.Next(); ok; slice, ok = s.Next() {
		if _, err := store.Commit(ctx, l.store, store.Bulk, &seal{slice}); err != nil {
			return err
		}
		each()
	}
	return nil
}

// DropSteps drops the runs that are too old. It calls each before and after every drop.
func (l *Local) DropSteps(ctx context.Context, each func()) error {
	view := func(fn func(store.Reader) error) error { return l.store.View(ctx, fn) }
	for {
		first, due, err := l.books.idem.Due(l.books.view.Load().At-l.keyLife(), view)
		if err != nil || !due {
			return err
		}
		each()
		if _, err := store.Commit(ctx, l.store, store.Bulk, drop{first}); err != nil {
			return err
		}
		each()
	}
}
