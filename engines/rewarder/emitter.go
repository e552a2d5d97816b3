package rewarder

import (
	"context"
	"errors"
	"slices"

	"ronbox/engines/ledger"
	ledgerrecord "ronbox/engines/ledger/record"
	"ronbox/engines/rewarder/record"
	"ronbox/engines/upstream"
	"ronbox/store"
)

// unpaid are the states of a run that is to be paid, final those of one whose allocations stand.
var (
	unpaid = []State{Sealed, Settling}
	final  = []State{Sealed, Settling, Settled, Quarantined}
)

// runEmitter has the ledger pay runs, one at a time.
func (e *Engine) runEmitter(ctx context.Context) error { return e.consume(ctx, toPay, e.pay) }

// maxAcks is how many chunks are noted at once. One that is paid and not noted is asked for again by its key, and found done.
const maxAcks = 16

// pay sends the chunks that are not paid yet, in order, one at a time. A ledger that takes nothing for now leaves the run to the scheduler, one
// that refuses it or fails for good pauses it.
func (e *Engine) pay(ctx context.Context, j job) {
	m, run, err := e.load(ctx, j)
	var done []Intent
	for err == nil && slices.Contains(unpaid, run.State) && !e.draining.Load() {
		var one Intent
		if one, err = e.payChunk(ctx, j, &m, run, run.Acked+uint32(len(done))); err == nil {
			done = append(done, one)
		}
		if n := len(done); n > 0 && (err != nil || n == maxAcks || one.Index+1 == run.Transactions || e.draining.Load()) {
			was := err
			if run, err = e.ack(ctx, j, done); err == nil {
				e.step("acked_chunk")
				e.publish(run)
				done, err = nil, was
			}
		}
	}
	refused, is := errors.AsType[*ledger.Reject](err)
	switch {
	case is:
		e.hold(ctx, j, "ledger: "+refused.Code.String())
	case ctx.Err() == nil && passing(err):
		e.log.Warn("run_not_paid", "run", j.key.String()[:19], "reason", err.Error())
		e.hold(ctx, j, "ledger: no answer")
	case !errors.Is(err, upstream.ErrOpen):
		e.waits(ctx, j, err)
	}
}

// hold pauses the payment of a run until Emit.
func (e *Engine) hold(ctx context.Context, j job, why string) {
	ctx, cancel := brief(ctx)
	defer cancel()
	c := change{kind: "hold_run", from: unpaid, what: "run.quarantined", why: why}
	run, err := e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		run.State, run.Quarantine = Quarantined, &Quarantine{Kind: KindEgress, Reason: why}
		todos.Delete(w, j.todo(toPay))
		return nil
	})
	if err == nil {
		e.m.quarantined.Add(run.Epoch)
		e.publish(run)
	}
}

// maxMemo is how much of an epoch's id fits behind the word reward.
const maxMemo = ledgerrecord.MaxMemo - len("reward ")

// payChunk has the ledger pay chunk n.
func (e *Engine) payChunk(ctx context.Context, j job, m *material, run Run, n uint32) (done Intent, err error) {
	var ops []ledger.Op
	op := ledger.Op{
		Code: ledgerrecord.OpTransfer, From: m.policy.Account, Asset: m.policy.Asset, Memo: "reward " + run.Epoch[:min(len(run.Epoch), maxMemo)],
		Principal: service,
	}
	if err = e.view(ctx, func(r store.Reader) error {
		all, _ := readChunk(r, j.key, m.roots, n)
		for _, a := range all {
			op.To, op.Amount = a.Actor, a.Amount
			ops = append(ops, op)
		}
		return nil
	}); err != nil {
		return done, err
	}
	root := m.roots[n]
	once := ledger.Once{
		Domain: service, ID: record.IntentKey(j.key, run.Commitment, n, root), Digest: root, Principal: service,
		Guard: ledger.Guard{Key: j.slot, Owner: j.key.String()},
	}
	var out ledger.Outcome
	done = Intent{Index: n, Key: once.ID, Result: IntentAccepted}
	err = e.calls.Do(ctx, opSettle, func(ctx context.Context) (err error) {
		done.Attempts++
		out, err = e.ledger.Settle(ctx, once, ops)
		return err
	})
	switch {
	case err != nil:
		return done, err
	case out.Reject != nil:
		return done, out.Reject
	case out.Replayed:
		done.Result = IntentDup
	}
	if len(out.Results) > 0 {
		done.TxID, done.Seq = out.Results[0].Receipt.TxID.String(), out.Results[0].Receipt.Seq
	}
	e.step("settled_chunk")
	return done, nil
}

// ack notes chunks that are paid.
func (e *Engine) ack(ctx context.Context, j job, done []Intent) (Run, error) {
	return e.change(ctx, store.Work, j, change{kind: "ack_intents", from: unpaid}, func(_ store.Reader, run *Run, w *store.Writes) error {
		if run.Acked != done[0].Index {
			return errGone
		}
		for _, one := range done {
			intents.Put(w, piece{j.key, one.Index}, one)
		}
		if run.State, run.Acked = Settling, run.Acked+uint32(len(done)); run.Acked == run.Transactions {
			run.State = Settled
			todos.Delete(w, j.todo(toPay))
			w.Audit(Call{}.event("ledger.emit", "", j.detail()))
		}
		return nil
	})
}

// Emit has the ledger asked again for a run whose payment is paused, by the same keys. A run that is paid, or on its way, stays what it is.
// Errors: ErrNotFound, ErrDraining, *ConflictError, *QuarantineError.
func (e *Engine) Emit(ctx context.Context, by Call, epoch string) (run Run, err error) {
	if e.draining.Load() {
		return run, ErrDraining
	}
	if run, err = e.final(ctx, by.Tenant, epoch); err != nil {
		return run, err
	}
	if run.Quarantine != nil && run.Quarantine.Kind == KindInvariant {
		return run, &QuarantineError{run}
	}
	j := job{scoped(by.Tenant, epoch), run.RunKey}
	c := change{kind: "release_run", by: by, from: final, what: "emit.requested"}
	run, err = e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		if run.State == Quarantined {
			run.State, run.Quarantine = Settling, nil
			todos.Put(w, j.todo(toPay), []byte(j.slot))
		}
		return nil
	})
	if err == nil && run.State != Settled {
		_ = e.offer(ctx, toPay, j, false) // else the scheduler offers it
	}
	return run, err
}

// Settlement is how far the payment of a run has come, with a page of its intents. Errors: ErrNotFound, *ConflictError.
func (e *Engine) Settlement(ctx context.Context, tenant, epoch string, from uint32, limit int) (Settlement, error) {
	run, err := e.final(ctx, tenant, epoch)
	out := Settlement{
		State: run.State, RunKey: run.RunKey, PayoutMinor: run.PayoutMinor, Transactions: run.Transactions, Acked: run.Acked, Intents: []Intent{},
	}
	if err != nil {
		return out, err
	}
	err = e.view(ctx, func(r store.Reader) error {
		for i, root := range must(r, sealed, run.RunKey).Roots {
			n := uint32(i)
			if n < from {
				continue
			}
			if len(out.Intents) == limit {
				out.Next = n
				break
			}
			done, ok := get(r, intents, piece{run.RunKey, n})
			if !ok {
				done = Intent{Index: n, Key: record.IntentKey(run.RunKey, run.Commitment, n, root), Result: IntentPending}
			}
			out.Intents = append(out.Intents, done)
		}
		return nil
	})
	return out, err
}
