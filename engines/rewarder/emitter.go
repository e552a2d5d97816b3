package rewarder

import (
	"context"
	"errors"
	"slices"

	"ronbox/appliance/upstream"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

var (
	unpaid = []State{Sealed, Settling}                       // payment is pending
	final  = []State{Sealed, Settling, Settled, Quarantined} // the allocations are final
)

// runEmitter pays runs, one at a time.
func (e *Engine) runEmitter(ctx context.Context) error { return e.consume(ctx, toPay, e.pay) }

// maxAcks bounds the chunks that one command acknowledges. A chunk that was paid but not
// acknowledged is sent again under its key, and the ledger answers that it is done.
const maxAcks = 16

// pay sends the unpaid chunks in order, one at a time, and then the parked payees if Emit has asked
// for them. If the ledger takes no writes for now, the scheduler offers the run again. If the
// ledger refuses the run or fails for good, the run is paused.
func (e *Engine) pay(ctx context.Context, j job) {
	m, run, err := e.load(ctx, j)
	if err == nil {
		run, err = e.payChunks(ctx, j, &m, run)
	}
	if err == nil && slices.Contains(unpaid, run.State) && run.Acked == run.Transactions {
		err = e.payParked(ctx, j, &m, run)
	}
	refused, is := errors.AsType[*refusal](err)
	switch {
	case is:
		e.hold(ctx, j, refused.reason(), refused.account)
	case errors.Is(err, errOthers):
		e.hold(ctx, j, "ledger: its answer names other payees", "")
	case ctx.Err() == nil && passing(err):
		e.log.Warn("run_not_paid", "run", j.key.String()[:19], "reason", err.Error())
		e.hold(ctx, j, "ledger: no answer", "")
	case !errors.Is(err, upstream.ErrOpen):
		e.waits(ctx, j, err)
	}
}

// payChunks pays the remaining chunks and acknowledges up to maxAcks of them at once.
func (e *Engine) payChunks(ctx context.Context, j job, m *material, run Run) (_ Run, err error) {
	var done []payment
	for err == nil && slices.Contains(unpaid, run.State) && !e.draining.Load() {
		n := run.Acked + uint32(len(done))
		if n == run.Transactions {
			break
		}
		var one payment
		one, err = e.payChunk(ctx, j, m, &run, n)
		if err == nil {
			e.step("settled_chunk")
			done = append(done, one)
		}
		if k := len(done); k > 0 && (err != nil || k == maxAcks || n+1 == run.Transactions || e.draining.Load()) {
			failed := err
			run, err = e.ack(ctx, j, done)
			if err == nil {
				e.step("acked_chunk")
				e.publish(run)
				done, err = nil, failed
			}
		}
	}
	return run, err
}

// hold pauses the payment of a run until Emit. account is the account that the ledger refuses, or
// "".
func (e *Engine) hold(ctx context.Context, j job, why, account string) {
	ctx, cancel := brief(ctx)
	defer cancel()
	c := change{kind: "hold_run", from: unpaid, what: "run.quarantined", why: why}
	if account != "" {
		c.more = map[string]string{"account": account}
	}
	run, err := e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		run.State, run.Quarantine = Quarantined, &Quarantine{Kind: KindEgress, Reason: why, Account: account}
		todos.Delete(w, j.todo(toPay))
		todos.Put(w, j.todo(paused), []byte(j.slot))
		return nil
	})
	if err == nil {
		e.log.Warn("run_paused", "tenant", run.Tenant, "epoch", run.Epoch, "reason", why, "account", account,
			"next", "remove the cause, then `ronbox rewarder retry "+run.Epoch+"`")
		e.m.quarantined.Add(run.Epoch)
		e.publish(run)
	}
}

// ack records paid chunks and the payees of them that stay parked.
func (e *Engine) ack(ctx context.Context, j job, done []payment) (Run, error) {
	c := change{kind: "ack_intents", from: unpaid, more: parkedDetail(done)}
	if c.more != nil {
		c.what = "run.parked"
	}
	return e.change(ctx, store.Work, j, c, func(r store.Reader, run *Run, w *store.Writes) error {
		if run.Acked != done[0].intent.Index {
			return errGone
		}
		t := tallyOf(r, run)
		for i := range done {
			intents.Put(w, piece{j.key, done[i].intent.Index}, done[i].intent)
			for k := range done[i].all {
				row := done[i].row(k)
				t.count(&row)
				if row.Result == IntentParked {
					parked.Put(w, piece{j.key, uint32(row.Index)}, row)
				}
			}
		}
		t.enter(run)
		run.State = Settling
		run.Acked += uint32(len(done))
		if run.Acked == run.Transactions && settleRun(run) {
			todos.Delete(w, j.todo(toPay))
			w.Audit(Call{}.event("ledger.emit", "", j.detail()))
		}
		return nil
	})
}

// settleRun marks a run as settled after its last chunk was paid. It returns false if Emit was
// called in the meantime and payees are parked: they are sent once more first.
func settleRun(run *Run) bool {
	again := run.Again && run.Parked > 0
	run.Again = false
	if again {
		return false
	}
	run.State = Settled
	return true
}

// Emit resumes a paused payment, under the same keys, and retries the parked payees of a settled
// run. If the run is being paid, it retries its parked payees once more before it is settled. With
// skip, payees that the ledger refuses are parked from now on. A run that is paid in full does not
// change. Errors: ErrNotFound, ErrDraining, *ConflictError, *QuarantineError.
func (e *Engine) Emit(ctx context.Context, by Call, epoch string, skip bool) (run Run, err error) {
	if e.draining.Load() {
		return run, ErrDraining
	}
	run, err = e.final(ctx, by.Tenant, epoch)
	if err != nil {
		return run, err
	}
	if run.Quarantine != nil && run.Quarantine.Kind == KindInvariant {
		return run, &QuarantineError{run}
	}
	j := job{scoped(by.Tenant, epoch), run.RunKey}
	c := change{kind: "release_run", by: by, from: final, what: "emit.requested"}
	run, err = e.change(ctx, store.Work, j, c, func(_ store.Reader, run *Run, w *store.Writes) error {
		run.SkipRefused = run.SkipRefused || skip
		switch {
		case slices.Contains(unpaid, run.State):
			run.Again = true
		case run.State == Quarantined, run.Parked > 0:
			run.State, run.Quarantine = Settling, nil
			todos.Delete(w, j.todo(paused))
			todos.Put(w, j.todo(toPay), []byte(j.slot))
		}
		return nil
	})
	if err == nil && run.State != Settled {
		_ = e.offer(ctx, toPay, j, false) // on failure the scheduler offers it later
	}
	return run, err
}

// Settlement returns the progress of the payment of a run with a page of its intents. Errors:
// ErrNotFound, *ConflictError.
func (e *Engine) Settlement(ctx context.Context, tenant, epoch string, from uint32, limit int) (Settlement, error) {
	run, err := e.final(ctx, tenant, epoch)
	out := Settlement{
		State:        run.State,
		RunKey:       run.RunKey,
		PayoutMinor:  run.PayoutMinor,
		Transactions: run.Transactions,
		Acked:        run.Acked,
		PaidMinor:    run.PaidMinor,
		Parked:       run.Parked,
		Intents:      []Intent{},
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
				done = Intent{
					Index:  n,
					Key:    record.IntentKey(run.RunKey, run.Commitment, n, root),
					Result: IntentPending,
				}
			}
			out.Intents = append(out.Intents, done)
		}
		return nil
	})
	return out, err
}
