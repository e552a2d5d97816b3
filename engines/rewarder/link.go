package rewarder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/ledger"
	"ronbox/engines/rewarder/record"
)

// The ledger as a callee. Both calls may be repeated, a settlement by its id.
const (
	peer     = "ledger"
	opRef    = "ref"
	opSettle = "settle"
	maxCalls = 3
)

// errOpen says that the breaker is open: the ledger was not called.
var errOpen = errors.New("the circuit breaker is open")

// link is the way to the ledger: so many calls at a time, each bounded, repeated if it failed in passing, and none to a ledger that fails.
type link struct {
	ledger   ledger.Client
	breaker  *flow.Breaker
	live     func() *Config
	slots    chan struct{}
	retries  map[string]flow.Retrier
	timeouts map[string]func(int)
}

func newLink(l ledger.Client, c *flow.Catalog, live func() *Config, m *obs.Metrics, inflight int) *link {
	k := &link{
		//rawchan: slots is a semaphore, it queues nothing
		ledger: l, live: live, slots: make(chan struct{}, inflight), retries: map[string]flow.Retrier{}, timeouts: map[string]func(int){},
		breaker: flow.NewBreaker(flow.BreakerRule{
			Ratio: 0.5, Min: 20, Window: 10 * time.Second, Cooldown: time.Second, Drawn: 5 * time.Second, Probes: 1,
		}).Counting(c, service, peer),
	}
	for _, op := range []string{opRef, opSettle} {
		k.retries[op] = flow.Retry(callDelay, maxCalls, passing).Counting(c, service, op, "svc", peer)
		k.timeouts[op] = m.Counter("io_timeouts_total", service, "op", op, "peer", peer)
	}
	return k
}

// callDelay is what stands between two calls.
func callDelay(int) time.Duration { return 100*time.Millisecond + rand.N(150*time.Millisecond) }

// passing reports whether the same call may succeed soon.
func passing(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// do makes a call, and makes it again while it fails in passing. It waits until ctx ends.
func (k *link) do(ctx context.Context, op string, call func(context.Context) error) error {
	select {
	case k.slots <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-k.slots }()
	return k.retries[op].Do(ctx, func(ctx context.Context) error { return k.try(ctx, op, call) })
}

func (k *link) try(ctx context.Context, op string, call func(context.Context) error) error {
	k.breaker.Step(time.Now())
	pass, ok := k.breaker.Permit()
	if !ok {
		return errOpen
	}
	result := flow.Failed // a panic counts as one
	defer func() {
		k.breaker.Record(pass, result, 1)
		k.breaker.Step(time.Now())
	}()
	within, cancel := context.WithTimeout(ctx, k.live().ReadTimeout.D())
	defer cancel()
	err := call(within)
	switch late := err != nil && within.Err() != nil; {
	case ctx.Err() != nil:
		result = flow.Neither
	case late:
		k.timeouts[op](1)
		err = errors.Join(err, context.DeadlineExceeded)
	case !passing(err):
		result = flow.Succeeded
	}
	return err
}

// isOpen reports whether the ledger is left alone for now.
func (k *link) isOpen() bool { return k.breaker.Step(time.Now()) == flow.BreakerOpen }

// ref is what an account has, after the newest record of the ledger.
func (k *link) ref(ctx context.Context, account, asset string) (ref record.LedgerRef, err error) {
	ref = record.LedgerRef{Account: account, Asset: asset}
	if err = k.do(ctx, opRef, func(ctx context.Context) error {
		head, err := k.ledger.Head(ctx)
		if err != nil {
			return err
		}
		b, err := k.ledger.Balance(ctx, account, asset, head.Seq)
		ref.Root, ref.Seq, ref.Available = head.Root, head.Seq, b.Available
		return err
	}); err != nil {
		err = fmt.Errorf("%w: %w", ErrNoLedger, err)
	}
	return ref, err
}
