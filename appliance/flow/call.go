package flow

import (
	"context"
	"time"
)

// callState is the state of a Call: waiting → claimed → settled, where claimed may be skipped, or
// waiting → left.
type callState uint8

const (
	callWaiting callState = iota
	callClaimed
	callSettled
	callLeft // the last waiter has left before any work began
)

// Call is one call of a Flight with its result: a Reply with several waiters.
type Call[K, F comparable, V any] struct {
	flight *Flight[K, F, V]
	shard  *flightShard[K, F, V]
	key    K
	fence  F
	done   chan struct{} // closed after value and err are set

	state   callState               // guarded by shard.mu
	waiting int                     // number of waiters; guarded by shard.mu
	cancel  context.CancelCauseFunc // ends the run, if started by Do; guarded by shard.mu
	value   V                       // set before done is closed
	err     error                   // set before done is closed
}

// Key returns the key of the call.
func (c *Call[K, F, V]) Key() K {
	return c.key
}

// Claim claims the call. If it returns true, the caller must answer the call. If it returns false,
// all waiters have left or the call is already claimed, and the caller must not work on it.
func (c *Call[K, F, V]) Claim() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.state != callWaiting {
		return false
	}
	c.state = callClaimed
	return true
}

// Canceled reports whether all waiters left before the call was claimed. Such a call must not be
// worked on.
func (c *Call[K, F, V]) Canceled() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	return c.state == callLeft
}

// Answer settles the call with v, claimed or not. It returns false if the call was already settled
// or all waiters have left. The key is free again before the waiters get the result.
func (c *Call[K, F, V]) Answer(v V) bool {
	return c.settle(v, nil)
}

// Fail settles the call with err, claimed or not. It returns false if the call was already settled
// or all waiters have left.
func (c *Call[K, F, V]) Fail(err error) bool {
	var zero V
	return c.settle(zero, err)
}

func (c *Call[K, F, V]) settle(v V, err error) bool {
	c.shard.mu.Lock()
	if c.state == callSettled || c.state == callLeft {
		c.shard.mu.Unlock()
		return false
	}
	c.value, c.err = v, err
	c.end(callSettled)
	c.shard.mu.Unlock()
	point("settle")
	close(c.done)
	c.flight.leave()
	return true
}

// end ends the call and frees its key. Called with shard.mu held.
func (c *Call[K, F, V]) end(s callState) {
	c.state, c.cancel = s, nil
	delete(c.shard.keys, c.key)
	c.flight.calls.Add(-1)
}

// hold claims the call for a run that cancel ends.
func (c *Call[K, F, V]) hold(cancel context.CancelCauseFunc) {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	c.state, c.cancel = callClaimed, cancel
}

// Wait returns the result. If ctx ends first and the call is not claimed, Wait returns the cause of
// ctx; the call has no effect if no other caller waits for it. For a claimed call Wait continues
// for its [Grace] and then returns ErrUnknown: the call may or may not take effect.
func (c *Call[K, F, V]) Wait(ctx context.Context) (V, error) {
	assertFree("Call.Wait")
	point("Call.Wait")
	select {
	case <-c.done:
		return c.value, c.err
	default:
	}
	late := Grace(ctx)
	done, over := either2("Call.Wait, not settled", c.done, ctx.Done())
	select {
	case <-done:
		woken("Call.Wait, done")
		return c.value, c.err
	case <-over:
		woken("Call.Wait, over")
	}
	var zero V
	if c.withdraw() {
		return zero, context.Cause(ctx)
	}
	point("Call.Wait, claimed")
	grace := time.NewTimer(late)
	defer grace.Stop()
	select {
	case <-c.done:
		woken("Call.Wait, done late")
		return c.value, c.err
	case <-grace.C:
		woken("Call.Wait, too late")
	}
	if c.detach() {
		return zero, ErrUnknown
	}
	<-c.done // settled when the grace ended
	woken("Call.Wait, settled")
	return c.value, c.err
}

// Await is Wait without the grace: it returns the cause of ctx as soon as ctx ends. A claimed call
// continues. An unclaimed call ends with its last waiter, and [Call.Canceled] then returns true.
func (c *Call[K, F, V]) Await(ctx context.Context) (V, error) {
	assertFree("Call.Await")
	done, over := either2("Await", c.done, ctx.Done())
	select {
	case <-done:
		woken("Await, done")
		return c.value, c.err
	case <-over:
		woken("Await, over")
	}
	if c.withdraw() || c.detach() {
		var zero V
		return zero, context.Cause(ctx)
	}
	<-c.done // settled when ctx ended
	woken("Await, settled")
	return c.value, c.err
}

// withdraw removes a waiter from an unclaimed call, and ends the call with the last one. It returns
// false if the call is claimed, settled or ended.
func (c *Call[K, F, V]) withdraw() bool {
	c.shard.mu.Lock()
	if c.state != callWaiting {
		c.shard.mu.Unlock()
		return false
	}
	c.waiting--
	last := c.waiting == 0
	if last {
		c.end(callLeft)
	}
	c.shard.mu.Unlock()
	if last {
		c.flight.leave()
	}
	return true
}

// detach removes a waiter from a claimed call, which continues. It returns false if the call is
// settled.
func (c *Call[K, F, V]) detach() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.state == callSettled {
		return false
	}
	c.waiting--
	return true
}
