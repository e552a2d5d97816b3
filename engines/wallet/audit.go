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
	eventInvalidated  = "wallet.balance.invalidated"
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
	Count  int    // accepted ops of a batch, balances that changed, batches of the ledger
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
		ev.Event, ev.Reason = eventRejected, rejectCode(refused.Code).Reason
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
