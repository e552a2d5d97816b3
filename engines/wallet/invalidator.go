package wallet

import (
	"context"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// invalidator is one life of the cache_invalidator task.
type invalidator struct {
	e       *Engine
	told    time.Time // when events were last published
	touched int       // balances since then
	batches int
	last    ledger.Committed
}

// runInvalidator makes the ledger keep balances that are read in memory, and publishes the
// operations that the ledger starts itself. The balances in memory are the ledger's own, so a
// lagging reader of ledger_bus loses events, never the newest balance. The task ends with the
// workers.
func (e *Engine) runInvalidator(ctx context.Context) error {
	sub := e.ledger.Events(taskInvalidator)
	defer sub.Close()
	v, cold := &invalidator{e: e}, e.cold.C()
	for {
		v.catchUp(sub)
		more := sub.Ready()
		if sub.Closed() {
			more = nil // the ledger is gone; wait for the workers
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.gone:
			v.tell(time.Now())
			return nil
		case k, ok := <-cold:
			if !ok {
				cold = nil // no more reads come
			} else if err := v.warm(ctx, k); err != nil {
				return err
			}
		case <-more:
		}
	}
}

// warm brings a balance into memory. After a failure a later read asks for it again.
func (v *invalidator) warm(ctx context.Context, k balanceKey) error {
	if v.e.warm == nil {
		return nil
	}
	within := flow.LateBy(ctx, time.Now().Add(v.e.live().Retry.RPCTimeout.D()))
	defer within.Release()
	if err := v.e.warm(within, k.account, k.asset); err != nil {
		v.e.log.Debug("balance_not_warmed", "account_hash", v.e.accountHash(k.account), "reason", err.Error())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// catchUp takes the events that are there.
func (v *invalidator) catchUp(sub *flow.Subscription[ledger.Committed]) {
	for ev, _, ok := sub.Next(); ok; ev, _, ok = sub.Next() {
		v.take(ev)
	}
}

// take follows one batch: the ledger's time, the holds that ended by themselves, and the root.
func (v *invalidator) take(ev ledger.Committed) {
	v.e.sawLedgerTime(ev.At)
	v.touched += len(ev.Touched)
	v.batches++
	v.last = ev
	for _, hold := range ev.Expired { // no caller asked for it, so no worker publishes it
		v.e.audit(AuditEvent{Event: eventHoldExpired, Op: record.OpExpire, TxID: hold, Batch: ev.Batch})
	}
	if now := time.Now(); now.Sub(v.told) >= tellEvery {
		v.tell(now)
	}
}

// tellEvery is how often the audit stream gets the events that come with every commit: as often as
// a person can read them.
const tellEvery = time.Second

// tell publishes what came since the last time.
func (v *invalidator) tell(now time.Time) {
	if v.batches == 0 {
		return
	}
	v.e.audit(AuditEvent{Event: eventInvalidated, Count: v.touched})
	v.e.audit(AuditEvent{Event: eventRoot, Batch: v.last.Batch, Count: v.batches, Reason: v.last.Root.String()})
	v.told, v.touched, v.batches = now, 0, 0
}
