package upstream

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// CallSpec describes the calls of one callee. Every call may be repeated.
type CallSpec struct {
	Service, Svc string   // labels of its metrics: the engine, the callee
	Ops          []string // the names of the calls
	Inflight     int      // calls at one time
	Callers      []string // the tasks that make them, or flow.HTTP
	Timeout      func() time.Duration
	Tries        int
	Delay        func(n int) time.Duration // after failure n, from 0
	// Passing reports whether the same call may succeed soon; such a failure is the callee's.
	Passing func(error) bool
	Breaker flow.BreakerRule
	// TimedOut is told of each call that took longer than Timeout; nil: io_timeouts_total counts it
	// by op and peer.
	TimedOut func(op string)
}

// Calls makes the calls of a callee in this process. It bounds the number of calls at one time and
// the time of each, repeats a call after a transient failure, and makes none while its breaker is
// open. Its methods may be called from any goroutine.
type Calls struct {
	catalog  *flow.Catalog
	now      atomic.Pointer[callPlan] // what Reload changes
	breaker  *flow.Breaker
	slots    *flow.Slots
	timedOut func(op string)
}

// callPlan is a spec in force with its retriers, by op. It is never changed.
type callPlan struct {
	CallSpec
	retries map[string]flow.Retrier
}

// NewCalls wires the calls and their metrics. It calls nothing.
func NewCalls(c *flow.Catalog, m *obs.Metrics, s CallSpec) *Calls {
	k := &Calls{
		catalog: c,
		slots: flow.NewSlots(c, flow.Spec{
			Service: s.Service, Name: s.Svc + "_calls", Cap: s.Inflight, Policy: flow.WaitDeadline,
			Producers: s.Callers, Doc: "calls of " + s.Svc + " at one time",
		}),
		breaker:  flow.NewBreaker(s.Breaker).Counting(c, s.Service, s.Svc),
		timedOut: s.TimedOut,
	}
	if k.timedOut == nil {
		timeouts := map[string]func(int){}
		for _, op := range s.Ops {
			timeouts[op] = m.Counter("io_timeouts_total", s.Service, "op", op, "peer", s.Svc)
		}
		k.timedOut = func(op string) { timeouts[op](1) }
	}
	k.plan(s)
	return k
}

func (k *Calls) plan(s CallSpec) {
	p := &callPlan{CallSpec: s, retries: map[string]flow.Retrier{}}
	for _, op := range s.Ops {
		p.retries[op] = flow.Retry(s.Delay, s.Tries, s.Passing).Counting(k.catalog, s.Service, op, "svc", s.Svc)
	}
	k.now.Store(p)
}

// Reload puts the times, tries and breaker of s in force for the calls that begin from now on. The
// rest of the spec stays as NewCalls got it. The breaker keeps its state unless its rule changed.
func (k *Calls) Reload(s CallSpec) {
	if s.Breaker != k.now.Load().Breaker {
		k.breaker.Reload(s.Breaker)
	}
	k.plan(s)
}

// Do makes a call, and makes it again after a transient failure. It waits until ctx ends. ErrOpen
// is returned when the breaker is open; the callee was not asked.
func (k *Calls) Do(ctx context.Context, op string, call func(context.Context) error) error {
	return k.enter(ctx, func(p *callPlan) error {
		return p.retries[op].Do(ctx, func(ctx context.Context) error { return k.try(ctx, p, op, call) })
	})
}

// Once is Do without a repetition.
func (k *Calls) Once(ctx context.Context, op string, call func(context.Context) error) error {
	return k.enter(ctx, func(p *callPlan) error { return k.try(ctx, p, op, call) })
}

func (k *Calls) enter(ctx context.Context, do func(*callPlan) error) error {
	if err := k.slots.Acquire(ctx); err != nil {
		return err
	}
	defer k.slots.Release()
	return do(k.now.Load())
}

func (k *Calls) try(ctx context.Context, p *callPlan, op string, call func(context.Context) error) error {
	k.breaker.Step(time.Now())
	pass, ok := k.breaker.Permit()
	if !ok {
		return ErrOpen
	}
	result := flow.Failed // a panic counts as a failure
	defer func() {
		k.breaker.Record(pass, result, 1)
		k.breaker.Step(time.Now())
	}()
	within := flow.LateBy(ctx, time.Now().Add(p.Timeout()))
	defer within.Release()
	err := call(within)
	switch late := err != nil && within.Err() != nil; {
	case err != nil && ctx.Err() != nil:
		result = flow.Neither
	case late:
		k.timedOut(op)
		err = errors.Join(err, context.DeadlineExceeded)
	case !p.Passing(err):
		result = flow.Succeeded
	}
	return err
}

// IsOpen reports whether the breaker is open.
func (k *Calls) IsOpen() bool { return k.State() == flow.BreakerOpen }

// State returns the state of the breaker.
func (k *Calls) State() flow.BreakerState { return k.breaker.Step(time.Now()) }

// RetryAfter returns how long an open breaker stays open.
func (k *Calls) RetryAfter() time.Duration { return k.breaker.RetryAfter(time.Now()) }
