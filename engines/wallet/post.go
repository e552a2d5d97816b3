package wallet

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// ask is one request with who sent it.
type ask struct {
	by     engines.Actor
	key    string
	corrID string
	op     record.Op
	print  b3.Digest
	one    Request
	ops    []Request // of a batch, in place of one
	atomic bool      // likewise
	oldest int64     // Unix ns: what was done up to then under the key does not count
}

// Post has one operation done, at most once for by and key however often it is called: a repetition gets the first answer. It waits for
// room nowhere, and for the answer until ctx ends or req_timeout is over. A *NotReadyError, flow.ErrBusy and any refusal say that nothing
// happened; after an *OutcomeError that is Unknown only the same call again finds out.
func (e *Engine) Post(ctx context.Context, by engines.Actor, key, corrID string, r Request) (Answer, error) {
	return e.counted(r.Op, func() (Answer, error) {
		if err := checkKey(key); err != nil {
			return Answer{}, err
		}
		if err := r.check(); err != nil {
			return Answer{}, err
		}
		if err := e.authorize(ctx, by, &r); err != nil {
			return Answer{}, err
		}
		return e.do(ctx, &ask{by: by, key: key, corrID: corrID, op: r.Op, print: e.prints.single(&r), one: r})
	})
}

// DeclareAsset makes an asset known. One that is known already is answered as it was the first time.
func (e *Engine) DeclareAsset(ctx context.Context, by engines.Actor, key, corrID, asset string) (Answer, error) {
	return e.Post(ctx, by, key, corrID, Request{Op: record.OpAsset, Asset: asset})
}

// counted books a request around fn.
func (e *Engine) counted(op record.Op, fn func() (Answer, error)) (Answer, error) {
	if n, ok := e.m.inflight[op]; ok {
		e.m.requests[op](1)
		n.Add(1)
		defer n.Add(-1)
	}
	a, err := fn()
	switch {
	case err != nil:
		e.m.reject(CodeOf(err))
	case a.Replayed:
		e.m.replays(1)
	}
	return a, err
}

// newJob judges what a is bounded by, and makes its job.
func (e *Engine) newJob(ctx context.Context, a *ask) (*job, error) {
	if a.op == record.OpBatch {
		return e.newBatchJob(ctx, a.by, a.atomic, a.ops)
	}
	r := &a.one
	op, err := e.newOp(ctx, a.by, r)
	if err != nil {
		return nil, err
	}
	j := &job{e: e, op: op, weight: 1}
	j.wants(r.debited(), r.Nonce)
	return j, nil
}

// newOp is r as the ledger has it.
func (e *Engine) newOp(ctx context.Context, by engines.Actor, r *Request) (ledger.Op, error) {
	perDay, err := e.ceilings(ctx, by, r)
	if err == nil && r.Op == record.OpFlags && !r.New {
		err = e.mustBeKnown(ctx, r.From)
	}
	if err != nil {
		return ledger.Op{}, err
	}
	return ledger.Op{
		Code: r.Op, From: r.From, To: r.To, Asset: r.Asset, Amount: r.Amount, Nonce: r.Nonce, Hold: r.Hold, ExpiresIn: r.ExpiresIn,
		Set: r.Set, Clear: r.Clear, Memo: r.Memo, ValidUntil: validUntil(r), Limits: e.live().limits, Daily: perDay,
	}, nil
}

// mustBeKnown refuses an account that the ledger has never seen: flags on a slip of the pen would open it, and leave the one that was meant as
// it is. An account that is known stays so.
func (e *Engine) mustBeKnown(ctx context.Context, account string) error {
	view, err := read(ctx, e.link, opAccount, func(ctx context.Context) (ledger.AccountView, error) { return e.ledger.Account(ctx, account) })
	if err == nil && !view.Known {
		err = ErrUnknownAccount
	}
	return err
}

// do takes a request that is well-formed and allowed through readiness, flight, replay and queue to its answer.
func (e *Engine) do(ctx context.Context, a *ask) (Answer, error) {
	if err := e.WriteReady(); err != nil {
		return Answer{}, err
	}
	scope := scopeOf(a.by)
	a.oldest = e.oldest()
	if answer, ok := e.receipts.replay(scope, a.key, a.print, a.oldest); ok {
		return answer, nil
	}
	ctx, cancel := boundedBy(ctx, e.live().ReqTimeout.D())
	defer cancel()
	for {
		answer, first, err := e.fly(ctx, scope, a)
		if first || !ofToken(err) || ctx.Err() != nil {
			return answer, err
		} // else the next one to begin is judged by a token of its own
	}
}

// fly joins the job of a's key, or begins it, and waits for its answer. first: it was begun.
func (e *Engine) fly(ctx context.Context, scope string, a *ask) (answer Answer, first bool, err error) {
	c, first, err := e.flights.Join(flightKey{scope, a.key}, a.print)
	if err != nil {
		return Answer{}, first, joinError(err)
	}
	if first {
		e.begin(ctx, c, a)
	}
	out, err := c.Wait(ctx)
	if err != nil {
		return Answer{}, first, e.waitError(ctx, err, first)
	}
	answer, err = answerOf(out)
	if err == nil && answer.Replayed {
		e.receipts.keep(scope, a.key, a.print, out, answer)
	}
	answer.Replayed = answer.Replayed || err == nil && !first // what another request has done
	return answer, first, err
}

// ofToken says whether a refusal is about the token of the one who began, which others who wait need not share.
func ofToken(err error) bool {
	var reject *ledger.Reject
	return isA[*engines.GrantError](err) || errors.As(err, &reject) && reject.Limit == ledger.LimitTokenDaily
}

// boundedBy bounds ctx, unless it ends by itself in that time: timers cost, and the front has set one as a rule.
func boundedBy(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return ctx, func() {}
	}
	return context.WithTimeout(ctx, d)
}

// oldest is the time before which a key does not count any more. The ledger's time goes on from its last batch if the wall clock is behind that.
func (e *Engine) oldest() int64 {
	return max(e.now().UnixNano(), int64(e.ledgerTime.Load())) - int64(e.live().IdempotencyTTL)
}

// joinError says why a caller may not wait for its key.
func joinError(err error) error {
	switch {
	case errors.Is(err, flow.ErrFenceMoved):
		return &ledger.Reject{Code: record.IdemConflict}
	case errors.Is(err, flow.ErrFlightFull):
		return ErrInFlight
	case errors.Is(err, flow.ErrClosed):
		return &NotReadyError{CauseDraining}
	}
	return err
}

// begin does for all who wait what the first of them came for, as far as the queue: it looks for a replay, judges the limits, and queues a
// job. Whatever happens, the call is settled or a worker will see to it.
func (e *Engine) begin(ctx context.Context, c *call, a *ask) {
	queued := false
	defer func() {
		if !queued {
			c.Fail(errNotBegun) // does nothing after an answer
		}
	}()
	out, err := e.find(ctx, a)
	if err != nil {
		c.Fail(err)
		return
	}
	if out != nil {
		c.Answer(out)
		return
	}
	j, err := e.newJob(ctx, a)
	if err != nil {
		c.Fail(err)
		return
	}
	j.call, j.corrID = c, a.corrID
	j.deadline, _ = ctx.Deadline()
	j.grace = flow.Grace(ctx)
	e.sign(&j.op, a)
	e.nonces.note(j)
	if err := e.work.TrySend(j); err != nil {
		e.full(err)
		j.fail(joinError(err))
		return
	}
	queued = true
}

// errNotBegun answers those who wait when the first of them broke off, which only a bug can do.
var errNotBegun = errors.New("wallet: the request could not be begun")

// sign puts on an op who asked for it, and by which key. The records of a batch's ops bear its key too, so that a statement says what paid.
func (e *Engine) sign(op *ledger.Op, a *ask) {
	op.Dedupe = ledger.DedupeKey{Scope: scopeOf(a.by), Key: a.key}
	op.Fingerprint, op.TTL = a.print, e.live().IdempotencyTTL.D()
	op.Principal, op.CapID = scopeOf(a.by), a.by.CapID
	if op.Code != record.OpBatch {
		op.Idem = a.key
	}
	for i := range op.Ops {
		op.Ops[i].Idem = a.key
	}
}

// found is what the ledger says of a key.
type found struct {
	out ledger.Outcome
	ok  bool
}

// find gives what was done under a's key, nil if nothing was.
func (e *Engine) find(ctx context.Context, a *ask) (*ledger.Outcome, error) {
	k := ledger.DedupeKey{Scope: scopeOf(a.by), Key: a.key}
	f, err := read(ctx, e.link, opFind, func(ctx context.Context) (f found, err error) {
		f.out, f.ok, err = e.ledger.Find(ctx, k, a.print, a.oldest)
		return f, err
	})
	if err != nil || !f.ok {
		return nil, err
	}
	out := f.out // else f would be on the heap, found or not
	return &out, nil
}

// waitError says what a caller that has no answer is to know: nothing happened, or nobody knows yet. What the job was told of the ledger stands,
// whatever has ended by then: its cause may be a deadline as well as the caller's.
func (e *Engine) waitError(ctx context.Context, err error, first bool) error {
	var told *OutcomeError
	switch {
	case errors.As(err, &told):
		return err
	case ctx.Err() == nil || !errors.Is(err, flow.ErrUnknown) && !errors.Is(err, context.Cause(ctx)):
		return err
	case !first:
		return ErrInFlight
	case errors.Is(err, flow.ErrUnknown):
		return &OutcomeError{Unknown: true, Cause: context.Cause(ctx)}
	}
	return leftError(ctx)
}
