package rewarder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/rewarder/record"
	"ronbox/engines/upstream"
)

// The calls of the ledger. Both may be repeated, a settlement by its id.
const (
	opRef    = "ref"
	opSettle = "settle"
)

// callSpec is the way to the ledger.
func (e *Engine) callSpec() upstream.CallSpec {
	return upstream.CallSpec{
		Service: service, Svc: "ledger", Ops: []string{opRef, opSettle}, Inflight: e.boot.Concurrency.IOInflight, Tries: 3, Passing: passing,
		Timeout: func() time.Duration { return e.live().ReadTimeout.D() },
		Delay:   func(int) time.Duration { return 100*time.Millisecond + rand.N(150*time.Millisecond) },
		Breaker: flow.BreakerRule{Ratio: 0.5, Min: 20, Window: 10 * time.Second, Cooldown: time.Second, Drawn: 5 * time.Second, Probes: 1},
	}
}

// passing reports whether the same call may succeed soon.
func passing(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// ledgerRef is what an account has, after the newest record of the ledger.
func (e *Engine) ledgerRef(ctx context.Context, account, asset string) (ref record.LedgerRef, err error) {
	ref = record.LedgerRef{Account: account, Asset: asset}
	if err = e.calls.Do(ctx, opRef, func(ctx context.Context) error {
		head, err := e.ledger.Head(ctx)
		if err != nil {
			return err
		}
		b, err := e.ledger.Balance(ctx, account, asset, head.Seq)
		ref.Root, ref.Seq, ref.Available = head.Root, head.Seq, b.Available
		return err
	}); err != nil {
		err = fmt.Errorf("%w: %w", ErrNoLedger, err)
	}
	return ref, err
}
