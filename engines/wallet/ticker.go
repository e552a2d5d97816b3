package wallet

import (
	"context"
	"errors"
	"time"

	"ronbox/engines/ledger/record"
)

const tickEvery = time.Second

// runTicker samples what changes slowly: the fill of the queue, the clock, the services that answer from this process, the pace of the disk.
func (e *Engine) runTicker(ctx context.Context) error {
	defer e.tick.Stop()
	tick := e.tick.C()
	for {
		if err := e.sample(ctx); err != nil {
			return err
		}
		if more, err := e.next(ctx, tick); !more {
			return err
		}
	}
}

// next waits for a tick. It reports false when ctx ends, or when the workers are gone and there is nothing more to look at.
func (e *Engine) next(ctx context.Context, tick <-chan time.Time) (more bool, err error) {
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-e.gone:
		return false, nil
	case <-tick:
		return true, nil
	}
}

func (e *Engine) sample(ctx context.Context) error {
	e.sampleQueue()
	e.m.busySeen.Store(e.m.busy.Load())
	e.sampleJudge(svcAuth, keyAuth, &e.gates.auth, e.authReady)
	e.sampleJudge(svcPolicy, keyPolicy, &e.gates.policy, e.policyReady)
	var unread error
	if e.ledgerTime.Load() == 0 {
		if unread = e.readLedgerTime(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	e.sampleClock(unread)
	e.link.pace.measure()
	return nil
}

// readLedgerTime learns the time of the ledger from its last batch, before anything is committed; a ledger without one has none. One that cannot
// be read now is asked again at the next tick.
func (e *Engine) readLedgerTime(ctx context.Context) error {
	head, err := readOnce(ctx, e.link, opHead, e.ledger.Head)
	if err != nil || head.Batches == 0 {
		return err
	}
	last, err := readOnce(ctx, e.link, opRoots, func(ctx context.Context) ([]record.Batch, error) { return e.ledger.Roots(ctx, head.Batches-1, 1) })
	if err != nil {
		return err
	}
	if len(last) == 0 {
		return errNoBatch
	}
	e.sawLedgerTime(last[0].At)
	return nil
}

// errNoBatch: the ledger has batches and does not show the last one, which only a bug can do.
var errNoBatch = errors.New("the ledger does not show its last batch")
