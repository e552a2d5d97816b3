package ledger

import (
	"time"

	"context"
	"errors"
	"fmt"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// Sweep ends the expired holds, as the expirer does at a tick.
func (l *Local) Sweep(ctx context.Context) error {
	return l.expire(ctx)
}

// FlushSlice flushes one slice.
func (l *Local) FlushSlice(ctx context.Context) (done bool, err error) { return l.flushSlice(ctx) }

// ForgetEvents pushes all events out of the bus, which drops the oldest.
func (l *Local) ForgetEvents() {
	for range 1024 {
		l.bus.Publish(Committed{})
	}
}

// Strays returns the number of keys that the committer still holds although their callers have
// left.
func (l *Local) Strays() int {
	n := l.strays.len()
	l.strays.mu.Lock()
	defer l.strays.mu.Unlock()
	for _, p := range l.strays.past {
		n -= len(p.keys)
	}
	return n
}

// Calls returns the number of write calls in progress.
func (l *Local) Calls() int { return l.calls.len() }

// Dirty returns the number of rows that wait to be flushed.
func (l *Local) Dirty() int { return l.books.dirty() }

// Seal seals every closed slot and drops the slots that are too old.
func (l *Local) Seal(ctx context.Context) error {
	if err := l.seal(ctx); err != nil {
		return err
	}
	return l.dropOld(ctx)
}

// Flushes reports what the flusher would do d after a change: whether the next payment takes a pass
// along, and whether the flusher begins one.
func (l *Local) Flushes(d time.Duration) (ripe, now bool) {
	begun := time.Now()
	var w wait
	l.flushNow(&w, begun)
	now = l.flushNow(&w, begun.Add(d))
	return l.ripe.Load(), now
}

// Behind returns how many records the rows in the file lack.
func (l *Local) Behind() uint64 {
	v := l.books.view.Load()
	return v.Seq - v.hand.low.Seq
}

// Sleeps reports whether the flusher waits for a change.
func (l *Local) Sleeps() bool { return l.asleep.Load() && !l.waiting() }

// Forgetful limits the number of clean rows in memory. It must not be called during another call.
func (l *Local) Forgetful(rows int) {
	l.books.clean = int64(rows)
	l.books.newPass() // what was flushed lately may leave memory, too
}

// SealSlice writes the first slice of a closed slot.
func (l *Local) SealSlice(ctx context.Context) error {
	slice, ok := l.books.idem.Sealer().Next()
	if !ok {
		return errors.New("no slot is closed")
	}
	_, err := store.Commit(ctx, l.store, store.Bulk, &seal{slice})
	return err
}

// broken is a command that panics after its ops are applied.
type broken struct{ *post }

// Kind returns the name of the command.
func (broken) Kind() string { return "ledger.broken/1" }

// Apply panics.
func (c broken) Apply(r store.Reader, at store.Stamp, w *store.Writes) (*posted, error) {
	if _, err := c.post.Apply(r, at, w); err != nil {
		return nil, err
	}
	panic("a bug")
}

// Break commits op with a command that panics at its end.
func (l *Local) Break(ctx context.Context, op Op) error {
	s := l.resolver(ctx)
	actions, err := s.resolve([]Op{op})
	if err == nil {
		_, err = store.Commit[*posted](ctx, l.store, store.Work, broken{&post{
			ops: actions, size: s.size, seed: newSeed(), strays: l.strays,
			reply: flow.NewReply[*posted](),
		}})
	}
	if err != nil && !errors.Is(err, store.ErrInternal) {
		err = l.unavailable(err)
	}
	return err
}

// CommitBug commits an op with an invalid record.
func (l *Local) CommitBug(ctx context.Context, op Op) error {
	s := l.resolver(ctx)
	actions, err := s.resolve([]Op{op})
	if err != nil {
		return err
	}
	bug := op
	bug.Code = 99
	actions[0].op = &bug
	out, err := l.send(ctx, &post{size: s.size}, actions)
	if err == nil {
		_, err = out.Wait(ctx)
	}
	return err
}

// StrayUnknown ends op with an unknown outcome, after its caller has left.
func (l *Local) StrayUnknown(op Op) {
	c := &post{
		ops:    []action{{op: &op, keyed: true, key: l.keyed.Load().hash(op.Dedupe)}},
		strays: l.strays,
		reply:  flow.NewReply[*posted](),
	}
	l.strays.add(c)
	c.ended(nil, fmt.Errorf("a test: %w", store.ErrUnknown))
}

// Warm reads all balances, as a boot with many accounts does.
func (l *Local) Warm(ctx context.Context) error {
	return l.store.View(ctx, func(r store.Reader) error {
		l.books.warm(r, 1, l.books.cur.Seq+1)
		return nil
	})
}

// FlushDue flushes as the flusher does at a tick.
func (l *Local) FlushDue(ctx context.Context) { l.flushDue(ctx) }

// Bar puts the ledger into safe mode.
func (l *Local) Bar() { l.enterSafeMode(errors.New("a test")) }

// ViewStale runs a view that misses a row while stale returns true.
func (l *Local) ViewStale(ctx context.Context, stale func() bool) error {
	return l.readError(l.view(ctx, func(store.Reader) error {
		if stale() {
			return fmt.Errorf("account 1: %w", errStale)
		}
		return nil
	}))
}

// Closed returns the number of slots of the index that wait to be sealed.
func (l *Local) Closed() int { return l.books.idem.Closed() }

// HoldScan is the number of open holds that one call of Holds examines.
const HoldScan = holdScan

// KeepHead keeps the published head. The function that it returns publishes that head again, as
// before the newest commits were published; its own result publishes the newest one.
func (l *Local) KeepHead() (older func() (newest func())) {
	kept := l.books.view.Load()
	return func() (newest func()) {
		now := l.books.view.Swap(kept)
		return func() {
			l.books.view.Store(now)
			l.bus.Publish(Committed{Last: now.Seq})
		}
	}
}
