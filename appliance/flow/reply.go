package flow

import (
	"context"
	"sync/atomic"
	"time"
)

// replyGrace bounds how long a waiter whose context has ended still waits for the answer to an item that is being worked on: no longer than
// a person notices. Close of a Flight gives it whole to runs that it has aborted.
const replyGrace = 250 * time.Millisecond

// Grace is how long that is for a wait that begins now: a tenth of the time it has, so that a deadline is kept to a tenth.
func Grace(ctx context.Context) time.Duration {
	end, ok := ctx.Deadline()
	if !ok {
		return replyGrace
	}
	return min(replyGrace, max(0, time.Until(end))/10)
}

// The states of a Reply: waiting → claimed → settling → answered, where claimed may be skipped, or waiting → left.
const (
	replyWaiting uint32 = iota
	replyClaimed
	replySettling // the outcome is being written
	replyAnswered
	replyLeft // the waiter has gone and nothing was begun
)

// Reply is the answer cell of one job: one task claims the job and answers, one caller waits. A job is a struct with its context and a Reply.
type Reply[T any] struct {
	state atomic.Uint32
	done  chan struct{} // closed after value and err are set
	value T
	err   error
}

// NewReply returns a Reply nobody has claimed.
func NewReply[T any]() *Reply[T] {
	return &Reply[T]{done: make(chan struct{})}
}

// Claim takes the job: true means it must be answered, false that its caller has left or that it is taken, and nothing may be done.
func (r *Reply[T]) Claim() bool {
	return r.swap(replyWaiting, replyClaimed)
}

// Answer settles the job with v, claimed or not, and reports whether this was its outcome: false if it was settled before or the caller left.
func (r *Reply[T]) Answer(v T) bool {
	return r.Settle(v, nil)
}

// Fail settles the job with err, claimed or not, and reports whether this was its outcome. Deferred around the work on a job it answers
// for a panic and does nothing after an Answer.
func (r *Reply[T]) Fail(err error) bool {
	var zero T
	return r.Settle(zero, err)
}

func (r *Reply[T]) swap(from, to uint32) bool {
	point("Reply.swap")
	return r.state.CompareAndSwap(from, to)
}

// Settle is Answer or, with an error, Fail.
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

// Canceled reports whether the caller left before the job was claimed: nobody waits and nothing may be done.
func (r *Reply[T]) Canceled() bool {
	point("Canceled")
	return r.state.Load() == replyLeft
}

// Wait returns the answer. When ctx ends first, an unclaimed job is cancelled and the cause of ctx returned: nothing was done. A claimed one
// gets its Grace more, then ErrUnknown: it may take effect or not. Only one caller may wait, once.
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
