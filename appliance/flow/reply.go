package flow

import (
	"context"
	"sync/atomic"
	"time"
)

// replyGrace bounds how long a waiter whose context has ended still waits for an item that is being
// processed. It is too short for a person to notice. Flight.Close gives aborted runs the whole of
// it.
const replyGrace = 250 * time.Millisecond

// Grace returns the grace of a wait that begins now: a tenth of the time until the deadline of ctx,
// at most 250 ms.
func Grace(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return replyGrace
	}
	return min(replyGrace, max(0, time.Until(end))/10)
}

// The states of a Reply: waiting → claimed → settling → answered, where claimed may be skipped, or
// waiting → left.
const (
	replyWaiting uint32 = iota
	replyClaimed
	replySettling // the result is being written
	replyAnswered
	replyLeft // the waiter has left before any work began
)

// Reply holds the result of one job: one task claims the job and answers it, one caller waits. A
// job is a struct with its context and a Reply.
type Reply[T any] struct {
	state atomic.Uint32
	done  chan struct{} // closed after value and err are set
	value T
	err   error
}

// NewReply returns an unclaimed Reply.
func NewReply[T any]() *Reply[T] {
	return &Reply[T]{done: make(chan struct{})}
}

// Claim claims the job. If it returns true, the caller must answer the job. If it returns false,
// the waiter has left or the job is already claimed, and the caller must not work on it.
func (r *Reply[T]) Claim() bool {
	return r.swap(replyWaiting, replyClaimed)
}

// Answer settles the job with v, claimed or not. It returns false if the job was already settled or
// the waiter has left.
func (r *Reply[T]) Answer(v T) bool {
	return r.Settle(v, nil)
}

// Fail settles the job with err, claimed or not. It returns false if the job was already settled or
// the waiter has left. A task may defer it to answer a job on which it panics; after an Answer it
// is a no-op.
func (r *Reply[T]) Fail(err error) bool {
	var zero T
	return r.Settle(zero, err)
}

func (r *Reply[T]) swap(from, to uint32) bool {
	point("Reply.swap")
	return r.state.CompareAndSwap(from, to)
}

// Settle calls Answer, or Fail if err is not nil.
func (r *Reply[T]) Settle(v T, err error) bool {
	if !r.swap(replyClaimed, replySettling) && !r.swap(replyWaiting, replySettling) {
		return false
	}
	point("settle")
	r.value, r.err = v, err
	point("settle, written")
	r.state.Store(replyAnswered)
	point("settle, answered")
	close(r.done)
	return true
}

// Canceled reports whether the waiter left before the job was claimed. Such a job must not be
// worked on.
func (r *Reply[T]) Canceled() bool {
	point("Canceled")
	return r.state.Load() == replyLeft
}

// Wait returns the result. If ctx ends first, an unclaimed job is cancelled and Wait returns the
// cause of ctx: the job has no effect. For a claimed job Wait continues for its [Grace] and then
// returns ErrUnknown: the job may or may not take effect. Only one caller may wait, once.
func (r *Reply[T]) Wait(ctx context.Context) (T, error) {
	assertFree("Reply.Wait")
	point("Wait")
	if r.state.Load() == replyAnswered {
		return r.value, r.err
	}
	late := Grace(ctx)
	done, over := either2("Wait, not answered", r.done, ctx.Done())
	select {
	case <-done:
		woken("Wait, done")
		return r.value, r.err
	case <-over:
		woken("Wait, over")
	}
	var zero T
	if r.swap(replyWaiting, replyLeft) || r.Canceled() {
		return zero, context.Cause(ctx)
	}
	point("Wait, claimed")
	grace := time.NewTimer(late)
	defer grace.Stop()
	select {
	case <-r.done:
		woken("Wait, done late")
		return r.value, r.err
	case <-grace.C:
		woken("Wait, too late")
		return zero, ErrUnknown
	}
}

// Late is a context with a deadline that creates its timer only when Done is first called, because
// most requests are answered from memory. Its creator must call Release.
type Late struct {
	context.Context // the parent; never a *Late itself
	end             time.Time
	made            atomic.Pointer[lateTimer]
}

// lateTimer is the context with a timer, created when Done is first called.
type lateTimer struct {
	context.Context
	stop context.CancelFunc
}

// LateBy returns a context that ends with ctx or at end, whichever is sooner.
func LateBy(ctx context.Context, end time.Time) *Late {
	if parent, ok := ctx.(*Late); ok { // so that a request has one timer at most
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

// Deadline returns the deadline.
func (l *Late) Deadline() (time.Time, bool) { return l.end, true }

// Done returns a channel that is closed when the context ends. The first call creates the timer.
func (l *Late) Done() <-chan struct{} { return l.timer().Done() }

// Err returns nil until the context has ended, and then the reason.
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
		t = l.timer() // the deadline has passed, so it has a cause
	}
	return t.Err()
}

// Value returns the value of the parent. Once there is a timer it goes through it, so that package
// context finds it.
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

// Release stops the timer, if there is one.
func (l *Late) Release() {
	if t := l.made.Load(); t != nil {
		t.stop()
	}
}
