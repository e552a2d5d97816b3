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
	dropped int       // balances since then
	batches int
	last    ledger.Committed
}

// runInvalidator voids cached balances that the ledger has changed, and tells of what the ledger does by itself. It ends with the workers,
// after which nothing changes, or with the bus.
func (e *Engine) runInvalidator(ctx context.Context) error {
	sub := e.ledger.Events(taskInvalidator)
	defer sub.Close()
	v := &invalidator{e: e}
	e.balances.dropAll() // of what was published before this life
	for {
		v.catchUp(sub)
		more := sub.Ready()
		if sub.Closed() {
			more = nil // the ledger is gone; wait to be told so too
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.gone:
			v.tell(time.Now())
			return nil
		case <-more:
		}
	}
}

// catchUp takes what is there.
func (v *invalidator) catchUp(sub *flow.Subscription[ledger.Committed]) {
	for ev, lagged, ok := sub.Next(); ok; ev, lagged, ok = sub.Next() {
		v.take(ev, lagged)
	}
}

// take drops what one batch has touched; after lag, or where the event has no room for it, that is everything.
func (v *invalidator) take(ev ledger.Committed, lagged uint64) {
	if lagged > 0 || ev.All {
		v.e.balances.dropAll()
	}
	v.e.balances.drop(ev.Touched, ev.Last)
	v.e.sawLedgerTime(ev.At)
	v.dropped += len(ev.Touched)
	v.batches++
	v.last = ev
	for _, hold := range ev.Expired { // nobody asked for it, so no worker tells
		v.e.audit(AuditEvent{Event: eventHoldExpired, Op: record.OpExpire, TxID: hold, Batch: ev.Batch})
	}
	if now := time.Now(); now.Sub(v.told) >= tellEvery {
		v.tell(now)
	}
}

// tellEvery is how often the audit stream hears of what comes with every commit: as often as a person can read it.
const tellEvery = time.Second

// tell publishes what has come since the last time.
func (v *invalidator) tell(now time.Time) {
	if v.batches == 0 {
		return
	}
	v.e.audit(AuditEvent{Event: eventInvalidated, Count: v.dropped})
	v.e.audit(AuditEvent{Event: eventRoot, Batch: v.last.Batch, Count: v.batches, Reason: v.last.Root.String()})
	v.told, v.dropped, v.batches = now, 0, 0
}
