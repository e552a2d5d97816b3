package flow

import (
	"context"
	"time"
)

// callState is where a Call stands: waiting → claimed → settled, where claimed may be skipped, or waiting → left.
type callState uint8

const (
	callWaiting callState = iota
	callClaimed
	callSettled
	callLeft // the last who waited has gone and nothing was begun
)

// Call is one call of a Flight and its answer: a Reply for which several wait.
type Call[K, F comparable, V any] struct {
	flight *Flight[K, F, V]
	shard  *flightShard[K, F, V]
	key    K
	fence  F
	done   chan struct{} // closed after value and err are set

	state   callState               // guarded by shard.mu
	waiting int                     // callers that wait; guarded by shard.mu
	cancel  context.CancelCauseFunc // ends the run, if Do made one; guarded by shard.mu
	value   V                       // set before done is closed
	err     error                   // set before done is closed
}

// Key returns what the call is for.
func (c *Call[K, F, V]) Key() K {
	return c.key
}

// Claim takes the call: true means it must be answered, false that all who waited have left or that it is taken, and nothing may be done.
func (c *Call[K, F, V]) Claim() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.state != callWaiting {
		return false
	}
	c.state = callClaimed
	return true
}

// Canceled reports whether all who waited left before the call was claimed: nobody waits and nothing may be done.
func (c *Call[K, F, V]) Canceled() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	return c.state == callLeft
}

// Answer settles the call with v, claimed or not, and reports whether this was its outcome. Who asks for the key from now on begins a new
// call, even before those who wait have the answer.
func (c *Call[K, F, V]) Answer(v V) bool {
	return c.settle(v, nil)
}

// Fail settles the call with err, claimed or not, and reports whether this was its outcome.
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
	c.over(callSettled)
	c.shard.mu.Unlock()
	point("settle")
	close(c.done)
	c.flight.leave()
	return true
}

// over ends the call and frees its key. Called with the shard's lock held.
func (c *Call[K, F, V]) over(s callState) {
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

// Wait returns the answer. When ctx ends first, it returns the cause of ctx if the call is not claimed: nothing was done, and nothing will
// be once the last who waits has left. A claimed call gets its Grace more, then ErrUnknown: it may take effect or not.
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
	if c.part() {
		return zero, ErrUnknown
	}
	<-c.done // settled as the grace ran out
	woken("Call.Wait, settled")
	return c.value, c.err
}

// Await is Wait without the grace: it returns the cause of ctx as soon as ctx ends. A claimed call goes on; one that is not claimed ends with
// the last caller that waits for it, and [Call.Canceled] then reports true.
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
	if c.withdraw() || c.part() {
		var zero V
		return zero, context.Cause(ctx)
	}
	<-c.done // settled while ctx ended
	woken("Await, settled")
	return c.value, c.err
}

// withdraw takes a waiter out of a call that is not claimed, and with the last the call. It reports false for any other call.
func (c *Call[K, F, V]) withdraw() bool {
	c.shard.mu.Lock()
	if c.state != callWaiting {
		c.shard.mu.Unlock()
		return false
	}
	c.waiting--
	last := c.waiting == 0
	if last {
		c.over(callLeft)
	}
	c.shard.mu.Unlock()
	if last {
		c.flight.leave()
	}
	return true
}

// part takes a waiter out of a call that goes on without it. It reports false if the call is settled.
func (c *Call[K, F, V]) part() bool {
	c.shard.mu.Lock()
	defer c.shard.mu.Unlock()
	if c.state == callSettled {
		return false
	}
	c.waiting--
	return true
}
