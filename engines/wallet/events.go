package wallet

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Names of the audit events beside "wallet.<op>.accepted".
const (
	eventHoldOpened   = "wallet.hold.opened"
	eventHoldCaptured = "wallet.hold.captured"
	eventHoldReleased = "wallet.hold.released"
	eventHoldExpired  = "wallet.hold.expired"
	eventRejected     = "wallet.request.rejected"
	eventRoot         = "ledger.root.published"
	eventSafeMode     = "ledger.safe_mode"
	eventHealth       = "kernel.health"
)

// AuditEvent describes a change or a refusal. The stream of events may miss some: the durable
// record is the ledger's journal.
type AuditEvent struct {
	Event  string
	CorrID string
	At     time.Time
	Op     record.Op
	Asset  string
	Amount engines.Amount
	TxID   record.TxID
	Reason string // why it was refused, or the cause of a failed readiness key
	Count  int    // accepted ops of a batch, or batches of the ledger
	Batch  uint64 // of the ledger

	account string // logged as a hash only
}

var acceptedEvents = map[record.Op]string{
	record.OpIssue:    "wallet.issue.accepted",
	record.OpTransfer: "wallet.transfer.accepted",
	record.OpBurn:     "wallet.burn.accepted",
	record.OpBatch:    "wallet.batch.accepted",
	record.OpHold:     eventHoldOpened,
	record.OpCapture:  eventHoldCaptured,
	record.OpRelease:  eventHoldReleased,
	record.OpFlags:    "wallet.flags.accepted",
	record.OpAsset:    "wallet.asset.accepted",
	record.OpScale:    "wallet.scale.accepted",
}

// audit puts ev on the bus.
func (e *Engine) audit(ev AuditEvent) {
	ev.At = e.now()
	e.events.Publish(ev)
}

// publish publishes the outcome of j.
func (e *Engine) publish(j *job, out *ledger.Outcome) {
	ev := AuditEvent{
		CorrID:  j.corrID,
		Op:      j.op.Code,
		Asset:   j.op.Asset,
		Amount:  j.op.Amount,
		Count:   j.weight,
		account: j.payer,
	}
	if ev.account == "" {
		ev.account = j.op.From
	}
	refused := out.Reject
	if refused == nil && out.Batch {
		ev.Count, refused = accepted(out)
	}
	if refused != nil {
		ev.Event, ev.Reason = eventRejected, refused.Code.String()
	} else {
		ev.Event, ev.TxID = acceptedEvents[j.op.Code], out.Receipt.TxID
	}
	e.audit(ev)
}

// accepted counts the accepted ops of a batch. If no op was accepted, it returns the first refusal.
func accepted(out *ledger.Outcome) (n int, none *ledger.Reject) {
	for i := range out.Results {
		if out.Results[i].Reject == nil {
			n++
		}
	}
	if n == 0 && len(out.Results) > 0 {
		none = out.Results[0].Reject
	}
	return n, none
}

// accountHash returns the hash that stands for an account in the log.
func (e *Engine) accountHash(account string) string {
	sum := e.salted.Sum([]byte(account))
	return hex.EncodeToString(sum[:8])
}

// Bounds of the stream: lines in a row, and the pause after them, so that logging does not slow
// down the requests. Events that the stream cannot follow are counted as lag.
const (
	auditRow   = 64
	auditPause = 100 * time.Millisecond
)

// runAudit writes the events to the log until the bus closes.
func (e *Engine) runAudit(ctx context.Context) error {
	sub := e.events.Subscribe(taskAudit)
	defer sub.Close()
	for n := 1; ; n++ {
		ev, lagged, err := sub.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err != nil {
			return err
		}
		e.m.dropped(int(lagged))
		e.log.Info(ev.Event, e.fields(ev)...)
		if n%auditRow == 0 {
			if err := e.rest(ctx, auditPause); err != nil {
				return err
			}
		}
	}
}

// rest waits for d, or less once the workers are gone.
func (e *Engine) rest(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	_, err := e.next(ctx, t.C)
	return err
}

// fields returns the members of an event that are set, as pairs of key and value.
func (e *Engine) fields(ev AuditEvent) []any {
	f := make([]any, 0, 16)
	add := func(key string, value any, has bool) {
		if has {
			f = append(f, key, value)
		}
	}
	add("corr_id", ev.CorrID, ev.CorrID != "")
	add("op", ev.Op.String(), ev.Op != 0)
	add("account_hash", e.accountHash(ev.account), ev.account != "")
	add("asset", ev.Asset, ev.Asset != "")
	add("amount_minor", ev.Amount.String(), !ev.Amount.IsZero())
	add("txid", ev.TxID.String(), !ev.TxID.IsZero())
	add("reason", ev.Reason, ev.Reason != "")
	add("count", ev.Count, ev.Count > 1)
	add("batch", ev.Batch, ev.Batch != 0)
	return f
}

// newSalt returns the hash of account names, keyed by salt or, if that is empty, by random bytes.
func newSalt(salt []byte) *b3.Mode {
	if len(salt) == 0 {
		salt = make([]byte, 32)
		_, _ = rand.Read(salt) // never fails
	}
	return b3.Keyed(b3.Sum(salt))
}

// invalidator is one life of the cache_invalidator task.
type invalidator struct {
	e       *Engine
	told    time.Time // when events were last published
	batches int       // since then
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
	within := flow.LateBy(ctx, time.Now().Add(v.e.set.Load().Retry.RPCTimeout.D()))
	defer within.Release()
	if err := v.e.warm(within, k.account, k.asset); err != nil {
		v.e.log.Debug("balance_not_warmed", "account_hash", v.e.accountHash(k.account), "reason", err.Error())
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// catchUp follows the batches that are there: the holds that ended by themselves, and the root.
func (v *invalidator) catchUp(sub *flow.Subscription[ledger.Committed]) {
	for ev, _, ok := sub.Next(); ok; ev, _, ok = sub.Next() {
		v.batches++
		v.last = ev
		for _, hold := range ev.Expired { // no caller asked for it, so no worker publishes it
			v.e.audit(AuditEvent{Event: eventHoldExpired, Op: record.OpExpire, TxID: hold, Batch: ev.Batch})
		}
		if now := time.Now(); now.Sub(v.told) >= tellEvery {
			v.tell(now)
		}
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
	v.e.audit(AuditEvent{Event: eventRoot, Batch: v.last.Batch, Count: v.batches, Reason: v.last.Root.String()})
	v.told, v.batches = now, 0
}
