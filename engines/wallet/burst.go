package wallet

import (
	"context"
	"errors"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// burst is what one call of the ledger carries. It belongs to one worker.
type burst struct {
	e      *Engine
	jobs   []*job // claimed and not yet answered
	ops    []ledger.Op
	weight int
	slots  []*slot // that this burst has
	last   *job    // that was admitted last
	sent   bool    // the ledger has had it

	pass func() // gives the turn to gather on, after each try
}

// admit takes j into the burst, parks it behind another one, or drops it because its callers have left.
func (b *burst) admit(j *job) {
	if b.holdBack(j) || !b.claim(j) {
		return
	}
	b.jobs = append(b.jobs, j)
	b.ops = append(b.ops, j.op)
	b.weight += j.weight
	b.last = j
}

// early is the job that came before the one admitted last, and follows it.
func (b *burst) early() *job {
	if b.last == nil {
		return nil
	}
	j := b.e.nonces.after(b, b.last)
	b.last = nil
	return j
}

// holdBack finds the place of j. It reports true if j has to wait for a job in other hands, or may not any more. It reserves nothing before
// j waits for nothing: what follows j in one account would else go ahead of it while it waits in another.
func (b *burst) holdBack(j *job) bool {
	set := b.e.live()
	for i := range j.needs {
		where, woken := b.e.nonces.wait(b, j, &j.needs[i], set)
		b.e.wake(woken)
		switch where {
		case crowded:
			b.e.refuse(j, flow.ErrBusy)
			return true
		case parked, early:
			return true
		}
	}
	for i := range j.needs {
		b.e.nonces.take(b, &j.needs[i], set.limits.Monotonic)
	}
	return false
}

// claim says whether anybody still waits for j.
func (b *burst) claim(j *job) bool {
	if j.claimed = j.claimed || j.call.Claim(); j.claimed {
		return true
	}
	j.done(nil)
	b.e.m.canceled(1)
	return false
}

// commit puts the burst to the ledger and answers its jobs. A job that the ledger cannot read is answered by itself, and the others go on.
func (b *burst) commit(ctx context.Context) {
	for len(b.jobs) > 0 {
		b.sent = true
		outs, err := b.call(ctx)
		var bad *ledger.OpError
		switch {
		case err == nil:
			b.settle(outs)
			return
		case !isA[*OutcomeError](err) && errors.As(err, &bad) && bad.Index >= 0 && bad.Index < len(b.jobs):
			b.sent = false
			b.drop(bad)
		default:
			b.failAll(b.told(ctx, err))
			return
		}
	}
}

// call makes the call, for as long as any of its jobs has time: it is not given up when a client leaves.
func (b *burst) call(ctx context.Context) ([]ledger.Outcome, error) {
	var until time.Time
	for _, j := range b.jobs {
		if end := j.deadline.Add(j.grace); end.After(until) {
			until = end
		}
	}
	defer b.pass() // should there be no time even for one try
	return b.e.link.commit(ctx, until, b.ops, b.weight, b.pass)
}

// told is err as a caller is told of it. A worker that is told to stop leaves unknown what the ledger has had.
func (b *burst) told(ctx context.Context, err error) error {
	var out *OutcomeError
	if ctx.Err() != nil && !(errors.As(err, &out) && out.Unknown) {
		b.e.m.canceled(len(b.jobs))
		return &NotReadyError{CauseDraining}
	}
	return err
}

// drop answers the job whose op is malformed.
func (b *burst) drop(bad *ledger.OpError) {
	b.e.refuse(b.jobs[bad.Index], &FieldError{bad.Field, bad.Reason})
	b.jobs = slices.Delete(b.jobs, bad.Index, bad.Index+1)
	b.ops = slices.Delete(b.ops, bad.Index, bad.Index+1)
}

// settle answers each job with its outcome, but for those that came early.
func (b *burst) settle(outs []ledger.Outcome) {
	b.leave()
	for i := range outs {
		j := b.jobs[0]
		if b.e.putOff(j, &outs[i]) {
			b.jobs = b.jobs[1:]
			continue
		}
		b.e.m.rejected(&outs[i])
		b.e.publish(j, &outs[i])
		j.answer(&outs[i])
		b.jobs = b.jobs[1:] // now that nothing can go wrong with it
	}
}

// putOff has a job that the ledger refused as ahead of its account wait for those before it. It reports false if it may not.
func (e *Engine) putOff(j *job, out *ledger.Outcome) bool {
	if out.Reject == nil || out.Reject.Code != record.NonceGap || j.op.Code == record.OpBatch {
		return false
	}
	woken, ok := e.nonces.putOff(j, out.Reject.Expected, e.live())
	e.wake(woken)
	return ok
}

// failAll answers every job with err.
func (b *burst) failAll(err error) {
	b.leave()
	for len(b.jobs) > 0 {
		b.e.refuse(b.jobs[0], err)
		b.jobs = b.jobs[1:]
	}
}

// refuse answers a job with an error and tells of it.
func (e *Engine) refuse(j *job, err error) {
	e.audit(AuditEvent{Event: eventRejected, CorrID: j.corrID, Op: j.op.Code, Reason: CodeOf(err).Reason, account: j.first().account, Asset: j.op.Asset})
	j.fail(err)
}
