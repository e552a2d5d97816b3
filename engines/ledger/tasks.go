package ledger

import (
	"context"
	"errors"
	"time"

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

// dropOld drops the runs that are too old, one a commit.
func (l *Local) dropOld(ctx context.Context) error {
	view := func(fn func(store.Reader) error) error { return l.store.View(ctx, fn) }
	for {
		first, due, err := l.books.idem.Due(l.books.view.Load().At-l.keyLife(), view)
		if err != nil || !due {
			return err
		}
		if _, err := store.Commit(ctx, l.store, store.Bulk, drop{first}); err != nil {
			return err
		}
	}
}

// flushRows is how many changed rows do not wait for flush_after: some 3 MB, and a boot redoes
// their records in well under a second.
const flushRows = 1 << 14

// runFlusher writes changed rows behind, a slice a tick, and without rest while there is much to
// do. A store that takes nothing now is asked again at the next tick. While there is nothing to do,
// it does not tick.
func (l *Local) runFlusher(ctx context.Context) error {
	defer l.flushTick.Stop()
	var w wait
	for {
		_, news := l.unflushed.Load()
		l.asleep.Store(true) // from now on a change stores news
		var tick <-chan time.Time
		if l.waiting() {
			l.asleep.Store(false)
			tick, news = l.flushTick.C(), nil
		} else {
			l.flushTick.Stop()
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-news:
			continue
		case <-tick:
		}
		l.noteDoubt(ctx)
		if l.flushNow(&w, time.Now()) {
			l.flushDue(ctx)
		}
	}
}

// wakeFlusher makes the flusher look again, if it is asleep.
func (l *Local) wakeFlusher() {
	if l.asleep.Load() && l.asleep.CompareAndSwap(true, false) {
		l.unflushed.Store(struct{}{})
	}
}

// waiting reports whether the flusher has something to do, now or later.
func (l *Local) waiting() bool {
	if l.ready() != nil {
		return l.SafeMode() != "" && !l.noted.Load()
	}
	return l.lacking() || l.books.view.Load().hand.pass != nil || l.books.pinned() > 0
}

// wait is how long changes have waited to be written behind.
type wait struct {
	since time.Time // zero: none waits
	low   uint64    // up to which record the rows were written then
}

// flushNow reports whether the flusher should write a slice now. For a fifth of flush_after it lets
// a payment do so in its own commit, which saves most of the pages of another one.
func (l *Local) flushNow(w *wait, now time.Time) bool {
	v, after := l.books.view.Load(), l.reloaded.Load().FlushAfter.D()
	if w.since.IsZero() || w.low != v.hand.low.Seq {
		*w = wait{now, v.hand.low.Seq}
	}
	age := now.Sub(w.since)
	due := age >= after*6/5 || v.hand.pass != nil || l.behind() || l.books.dirty() >= flushRows
	if due {
		w.since = time.Time{}
	}
	l.ripe.Store(!due && age >= after)
	return due
}

// passFor returns what a payment writes behind: nothing, or a pass of one slice.
func (l *Local) passFor(rows int) *flushPass {
	if !l.ripe.Load() || !l.ripe.CompareAndSwap(true, false) {
		return nil
	}
	if p := l.books.newPass(); p != nil && !p.idle && p.len() <= rows {
		return p
	}
	return nil
}

// flushDue writes a slice, and more while there is much to do.
func (l *Local) flushDue(ctx context.Context) {
	for more := true; more && ctx.Err() == nil; {
		done, err := l.flushSlice(ctx)
		more = err == nil && !done && l.behind()
	}
}

// behind reports whether the flusher must not rest.
func (l *Local) behind() bool {
	v := l.books.view.Load()
	return v.Seq-v.hand.low.Seq > redoMost/2 || l.books.dirty() > l.reloaded.Load().DirtyMaxAccounts/2
}

// flushSlice writes one slice, and reports whether it was the last one.
func (l *Local) flushSlice(ctx context.Context) (done bool, err error) {
	if l.ready() != nil {
		return true, nil
	}
	f := flush{rows: l.reloaded.Load().FlushSlice}
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

// Flush writes behind what all records so far have made, until the file lacks nothing of it or ctx
// ends. Without it the next open has more to redo, and no period can be closed with these records.
// Recent rows stay where they are.
func (l *Local) Flush(ctx context.Context) error {
	l.noteDoubt(ctx)
	for upTo := l.books.view.Load().Seq; l.lacking() && l.books.view.Load().hand.low.Seq <= upTo; {
		if done, err := l.flushSlice(ctx); done || err != nil {
			return err
		}
	}
	return nil
}

// lacking reports whether the tables in the file lag behind the journal.
func (l *Local) lacking() bool {
	v := l.books.view.Load()
	return v.hand.low.Seq != v.Seq || l.books.dirty() > 0
}
