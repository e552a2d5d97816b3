package ledger

import (
	"context"
	"errors"
	"fmt"

	"ronbox/appliance/flow"
	"ronbox/store"
)

// Sweep ends the holds whose time is over, as the expirer does at a tick.
func (l *Local) Sweep(ctx context.Context) error {
	for more := true; more; {
		var err error
		if more, err = l.expireDue(ctx); err != nil {
			return err
		}
	}
	return nil
}

// FlushSlice writes one slice behind.
func (l *Local) FlushSlice(ctx context.Context) (done bool, err error) { return l.flushSlice(ctx) }

// ForgetEvents pushes all events out of the bus, which drops the oldest.
func (l *Local) ForgetEvents() {
	for range 1024 {
		l.bus.Publish(Committed{})
	}
}

// Pending is how many calls were left on their way.
func (l *Local) Pending() int { return int(l.left.size.Load()) }

// Calls is how many calls that write are under way.
func (l *Local) Calls() int { return l.calls.len() }

// Dirty is how many rows wait to be written behind.
func (l *Local) Dirty() int { return l.books.dirty() }

// Seal seals every closed slot, and drops those that are too old.
func (l *Local) Seal(ctx context.Context) error {
	if err := l.seal(ctx); err != nil {
		return err
	}
	return l.dropOld(ctx)
}

// Forgetful has the ledger keep few rows in memory that are as in the file. No call may be under way.
func (l *Local) Forgetful(rows int) { l.books.clean = rows }

// SealSlice writes the first slice of a closed slot, and no more.
func (l *Local) SealSlice(ctx context.Context) error {
	slice, ok := l.books.idem.Sealer().Next()
	if !ok {
		return errors.New("no slot is closed")
	}
	_, err := store.Commit(ctx, l.store, store.Bulk, &seal{slice})
	return err
}

// broken is a command that panics once its ops are done.
type broken struct{ *post }

// Kind names the command.
func (broken) Kind() string { return "ledger.broken/1" }

// Apply panics.
func (c broken) Apply(r store.Reader, at store.Stamp, w *store.Writes) (*posted, error) {
	if _, err := c.post.Apply(r, at, w); err != nil {
		return nil, err
	}
	panic("a bug")
}

// Break commits op by a command that panics at its end.
func (l *Local) Break(ctx context.Context, op Op) error {
	s := l.resolver(ctx)
	actions, err := s.resolve([]Op{op})
	if err == nil {
		c := s.share(actions)
		c.reply = flow.NewReply[*posted]()
		_, err = store.Commit[*posted](ctx, l.store, store.Work, broken{l.post(c)})
	}
	if err != nil && !errors.Is(err, store.ErrInternal) {
		err = l.unavailable(err)
	}
	return err
}

// Waiting is how many ops are in the command that waits for the committer.
func (l *Local) Waiting() int {
	l.joint.mu.Lock()
	defer l.joint.mu.Unlock()
	if l.joint.waiting == nil {
		return 0
	}
	return l.joint.waiting.ops
}

// CommitBug commits an op that has a bug of its own: its record is not one.
func (l *Local) CommitBug(ctx context.Context, op Op) error {
	s := l.resolver(ctx)
	actions, err := s.resolve([]Op{op})
	if err != nil {
		return err
	}
	bug := op
	bug.Code = 99
	actions[0].op = &bug
	_, err = l.submit(ctx, s.share(actions))
	return err
}

// StrayUnknown has an op end with the group of which nobody knows whether it is in the file, after its caller has left.
func (l *Local) StrayUnknown(op Op) {
	s := &share{ops: []action{{op: &op, keyed: true, key: l.keyed.Load().hash(op.Dedupe)}}, reply: flow.NewReply[*posted]()}
	l.left.add(s)
	s.end(nil, fmt.Errorf("a test: %w", store.ErrUnknown))
}

// Warm asks for all balances, as a boot does that finds many accounts.
func (l *Local) Warm(ctx context.Context) error {
	return l.store.View(ctx, func(r store.Reader) error {
		l.books.warm(r, 1, l.books.cur.Seq+1)
		return nil
	})
}

// FlushDue does what the flusher does at a tick.
func (l *Local) FlushDue(ctx context.Context) { l.flushDue(ctx) }

// Bar puts the ledger into safe mode.
func (l *Local) Bar() { l.enterSafeMode(errors.New("a test")) }

// ViewStale reads with a view that misses a row while stale says so.
func (l *Local) ViewStale(ctx context.Context, stale func() bool) error {
	return l.readError(l.view(ctx, func(store.Reader) error {
		if stale() {
			return fmt.Errorf("account 1: %w", errStale)
		}
		return nil
	}))
}

// Closed is how many slots of the index wait to be sealed.
func (l *Local) Closed() int { return l.books.idem.Closed() }
