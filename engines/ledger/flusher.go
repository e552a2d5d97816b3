package ledger

import (
	"context"
	"errors"

	"ronbox/store"
)

// runFlusher writes changed rows behind, a slice a tick, and without rest while there is much to do. A store that takes nothing now is
// asked again at the next tick.
func (l *Local) runFlusher(ctx context.Context) error {
	defer l.flushTick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-l.flushTick.C():
		}
		l.noteDoubt(ctx)
		l.flushDue(ctx)
	}
}

// flushDue writes a slice, and more while there is much to do.
func (l *Local) flushDue(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		done, err := l.flushSlice(ctx)
		more = err == nil && !done && l.behind()
	}
}

// behind tells whether the flusher must not rest.
func (l *Local) behind() bool {
	v := l.books.view.Load()
	return v.Seq-v.hand.low.Seq > redoMost/2 || l.books.dirty() > l.live().DirtyMaxAccounts/2
}

// flushSlice writes one slice, and tells whether nothing is left to write.
func (l *Local) flushSlice(ctx context.Context) (done bool, err error) {
	if l.ready() != nil {
		return true, nil
	}
	f := flush{rows: l.live().FlushSlice}
	if l.books.view.Load().hand.pass == nil {
		if f.pass = l.books.newPass(); f.pass == nil || f.pass.idle && l.rested.Add(1) <= recentRests {
			return true, nil
		}
		f.pass.home = f.pass.idle
		l.rested.Store(0)
	}
	_, err = store.Commit(ctx, l.store, store.Bulk, f)
	var none refusal
	if errors.As(err, &none) {
		err = nil
	}
	l.noticed(err)
	return false, err
}

// noticed puts the ledger into safe mode if a sweep met a row that does not decode.
func (l *Local) noticed(err error) {
	if errors.Is(err, store.ErrCorrupt) {
		l.enterSafeMode(err)
	}
}

// Flush writes everything behind, until the file lacks nothing or ctx ends. Without it the next open has more to redo, no more than that.
// Recent rows stay where they are.
func (l *Local) Flush(ctx context.Context) error {
	l.noteDoubt(ctx)
	for l.lacking() {
		if done, err := l.flushSlice(ctx); done || err != nil {
			return err
		}
	}
	return nil
}

// lacking tells whether the tables in the file are behind the journal.
func (l *Local) lacking() bool {
	v := l.books.view.Load()
	return v.hand.low.Seq != v.Seq || l.books.dirty() > 0
}
