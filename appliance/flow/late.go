package flow

import (
	"context"
	"sync/atomic"
	"time"
)

// Late is a context that ends with its parent or at a moment of its own, and has a timer for that only once somebody waits for it: most
// questions are answered from memory. Who makes one releases it.
type Late struct {
	context.Context // the parent, none of whose kind
	end             time.Time
	made            atomic.Pointer[lateTimer]
}

// lateTimer is what a Late is once it must wake somebody.
type lateTimer struct {
	context.Context
	stop context.CancelFunc
}

// LateBy is ctx up to end, at most as long as ctx.
func LateBy(ctx context.Context, end time.Time) *Late {
	if parent, ok := ctx.(*Late); ok { // so that no call has two timers
		if parent.end.Before(end) {
			end = parent.end
		}
		ctx = parent.Context
	}
	if sooner, ok := ctx.Deadline(); ok && sooner.Before(end) {
		end = sooner
	}
	return &Late{Context: ctx, end: end}
}

// Deadline is when it ends at the latest.
func (l *Late) Deadline() (time.Time, bool) { return l.end, true }

// Done is closed when it ends.
func (l *Late) Done() <-chan struct{} { return l.timer().Done() }

// Err says why it has ended.
func (l *Late) Err() error {
	point("Late.Err")
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
func (l *Late) Value(key any) any {
	if t := l.made.Load(); t != nil {
		return t.Value(key)
	}
	return l.Context.Value(key)
}

func (l *Late) timer() *lateTimer {
	point("Late.timer")
	if t := l.made.Load(); t != nil {
		return t
	}
	t := new(lateTimer)
	t.Context, t.stop = context.WithDeadline(l.Context, l.end)
	point("Late.timer, new")
	if !l.made.CompareAndSwap(nil, t) {
		t.stop()
		return l.made.Load()
	}
	return t
}

// Release frees the timer, if there is one.
func (l *Late) Release() {
	if t := l.made.Load(); t != nil {
		t.stop()
	}
}
