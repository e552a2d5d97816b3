package upstream

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

// CallSpec is what Calls are made of. Every call may be repeated.
type CallSpec struct {
	Service, Svc string   // labels of its metrics: the engine, the callee
	Ops          []string // the calls
	Inflight     int      // calls at one time
	Timeout      func() time.Duration
	Tries        int
	Delay        func(n int) time.Duration // after failure n, from 0
	Passing      func(error) bool          // reports whether the same call may succeed soon; such a failure is the callee's
	Breaker      flow.BreakerRule
}

// Calls is the way to a callee in this process: so many calls at a time, each bounded, repeated if it failed in passing, and none to a callee that
// fails. Its methods may be called from any goroutine.
type Calls struct {
	spec     CallSpec
	breaker  *flow.Breaker
	slots    chan struct{}
	retries  map[string]flow.Retrier
	timeouts map[string]func(int)
}

// NewCalls wires the way and its metrics. It calls nothing.
func NewCalls(c *flow.Catalog, m *obs.Metrics, s CallSpec) *Calls {
	k := &Calls{
		//rawchan: slots is a semaphore, it queues nothing
		spec: s, slots: make(chan struct{}, s.Inflight), retries: map[string]flow.Retrier{}, timeouts: map[string]func(int){},
		breaker: flow.NewBreaker(s.Breaker).Counting(c, s.Service, s.Svc),
	}
	for _, op := range s.Ops {
		k.retries[op] = flow.Retry(s.Delay, s.Tries, s.Passing).Counting(c, s.Service, op, "svc", s.Svc)
		k.timeouts[op] = m.Counter("io_timeouts_total", s.Service, "op", op, "peer", s.Svc)
	}
	return k
}

// Do makes a call, and makes it again while it fails in passing. It waits until ctx ends. ErrOpen says that the callee was not asked.
func (k *Calls) Do(ctx context.Context, op string, call func(context.Context) error) error {
	select {
	case k.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-k.slots }()
	return k.retries[op].Do(ctx, func(ctx context.Context) error { return k.try(ctx, op, call) })
}

func (k *Calls) try(ctx context.Context, op string, call func(context.Context) error) error {
	k.breaker.Step(time.Now())
	pass, ok := k.breaker.Permit()
	if !ok {
		return ErrOpen
	}
	result := flow.Failed // a panic counts as one
	defer func() {
		k.breaker.Record(pass, result, 1)
		k.breaker.Step(time.Now())
	}()
	within, cancel := context.WithTimeout(ctx, k.spec.Timeout())
	defer cancel()
	err := call(within)
	switch late := err != nil && within.Err() != nil; {
	case ctx.Err() != nil:
		result = flow.Neither
	case late:
		k.timeouts[op](1)
		err = errors.Join(err, context.DeadlineExceeded)
	case !k.spec.Passing(err):
		result = flow.Succeeded
	}
	return err
}

// IsOpen reports whether the callee is left alone for now.
func (k *Calls) IsOpen() bool { return k.breaker.Step(time.Now()) == flow.BreakerOpen }
