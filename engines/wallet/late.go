package wallet

import (
	"context"
	"sync/atomic"
	"time"
)

// late is a context that ends with its parent or at a moment of its own, and has a timer for that only once somebody waits for it: most calls
// of the ledger are answered from memory. Who makes one releases it.
type late struct {
	context.Context // the parent, none of whose kind
	end             time.Time
	made            atomic.Pointer[timer]
}

// timer is what a late context is once it must wake somebody.
type timer struct {
	context.Context
	stop context.CancelFunc
}

// lateBy is ctx up to end.
func lateBy(ctx context.Context, end time.Time) *late {
	if parent, ok := ctx.(*late); ok { // so that no call has two timers
		if parent.end.Before(end) {
			end = parent.end
		}
		ctx = parent.Context
	}
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(end) {
		end = sooner
	}
	return &late{Context: ctx, end: end}
}

// Deadline is when it ends at the latest.
func (l *late) Deadline() (time.Time, bool) { return l.end, true }

// Done is closed when it ends.
func (l *late) Done() <-chan struct{} { return l.timer().Done() }

// Err says why it has ended.
func (l *late) Err() error {
	t := l.made.Load()
	if t == nil {
		if err := l.Context.Err(); err != nil {
			return err
		}
		if time.Now().Before(l.end) {
			return nil
		}
		t = l.timer() // which has run out, and so has a cause
	}
	return t.Err()
}

// Value is the parent's, and how package context finds the timer.
func (l *late) Value(key any) any {
	if t := l.made.Load(); t != nil {
		return t.Value(key)
	}
	return l.Context.Value(key)
}

func (l *late) timer() *timer {
	if t := l.made.Load(); t != nil {
		return t
	}
	t := new(timer)
	t.Context, t.stop = context.WithDeadline(l.Context, l.end)
	if !l.made.CompareAndSwap(nil, t) {
		t.stop()
		return l.made.Load()
	}
	return t
}

// release frees the timer, if there is one.
func (l *late) release() {
	if t := l.made.Load(); t != nil {
		t.stop()
	}
}
