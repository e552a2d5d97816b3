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

// flightKey is a key of a principal.
type flightKey struct{ scope, key string }

// call is a request under way, with every caller that waits for it. Its fence is the fingerprint: a
// caller with another fingerprint is refused.
type call = flow.Call[flightKey, b3.Digest, *ledger.Outcome]

// flightCalls bounds the requests under way: as many as the front admits at most.
const flightCalls = 65_536

// flightWaiters is how many callers may wait for a request beside the one that began it.
const flightWaiters = 8

// job is one request on its way to the ledger. It is answered exactly once, through its call.
type job struct {
	e        *Engine
	by       engines.Actor
	call     *call
	op       ledger.Op
	prepared *ledger.Prepared // of op, once it is queued
	opens    bool             // its flags may open an account
	existing bool             // it must not open its payee
	batch    bool             // op is of Batch, and its ops are those of the caller
	weight   int              // operations
	deadline time.Time
	grace    time.Duration // that its caller waits beyond the deadline once it is begun
	corrID   string
	room     int    // places taken for the operations of a batch
	payer    string // the account that is debited first; or ""
}

// newJob returns the job of op, signed by its caller and key.
func (e *Engine) newJob(by engines.Actor, key, corrID string, op ledger.Op) *job {
	scope := scopeOf(by)
	op.Dedupe = ledger.DedupeKey{Scope: scope, Key: key}
	op.TTL = e.set.Load().IdempotencyTTL.D()
	op.Principal, op.CapID = scope, by.CapID
	if op.Code != record.OpBatch {
		op.Idem = key
	}
	return &job{e: e, by: by, op: op, weight: 1, corrID: corrID, payer: payerOf(&op)}
}

// fail settles j without an outcome.
func (j *job) fail(err error) {
	j.done()
	j.call.Fail(err)
}

// done releases the places of j.
func (j *job) done() {
	if j.room > 0 {
		j.e.batched.give(j.op.Principal, j.room)
		j.room = 0
	}
}

// Post carries out one op, at most once for by and key however often it is called: a repetition
// gets the first answer. Of op the members count that ledger.Takes names; the wallet fills in the
// others. It waits for no room, and for the answer until ctx ends or req_timeout has passed.
// Nothing happened after a *NotReadyError, flow.ErrBusy and any refusal. After an *OutcomeError
// that is Unknown the same call finds out.
func (e *Engine) Post(ctx context.Context, by engines.Actor, key, corrID string, op ledger.Op) (Answer, error) {
	return e.do(ctx, e.newJob(by, key, corrID, op))
}

// PostExisting is Post for a transfer or a hold that must not open an account: a payee that the
// ledger has not seen is refused with ErrUnknownPayee. The condition is not part of the request: a
// repetition gets the first answer, with the condition or without it.
func (e *Engine) PostExisting(ctx context.Context, by engines.Actor, key, corrID string, op ledger.Op) (Answer, error) {
	j := e.newJob(by, key, corrID, op)
	j.existing = true
	return e.do(ctx, j)
}

// SetFlags is Post for an op that changes flags. Unless opens, an account that the ledger has not
// seen is refused with ErrUnknownAccount.
func (e *Engine) SetFlags(
	ctx context.Context,
	by engines.Actor,
	key, corrID string,
	op ledger.Op,
	opens bool,
) (Answer, error) {
	j := e.newJob(by, key, corrID, op)
	j.opens = opens
	return e.do(ctx, j)
}

// DeclareAsset makes an asset known and, unless decimals is nil, sets its decimals for good. An
// asset that is known already, or has these decimals, is answered as the first time.
func (e *Engine) DeclareAsset(
	ctx context.Context,
	by engines.Actor,
	key, corrID, asset string,
	decimals *int,
) (Answer, error) {
	op := ledger.Op{Code: record.OpAsset, Asset: asset}
	if decimals != nil {
		op.Code, op.Amount = record.OpScale, engines.AmountOf(0, uint64(*decimals))
	}
	return e.Post(ctx, by, key, corrID, op)
}

// do checks j and takes it through readiness, flight, replay and queue to its answer. It counts the
// request and its end.
func (e *Engine) do(ctx context.Context, j *job) (a Answer, err error) {
	code := j.op.Code
	if n, ok := e.m.inflight[code]; ok {
		e.m.requests[code](1)
		n.Add(1)
		defer n.Add(-1)
	}
	if err = e.check(ctx, j); err == nil {
		a, err = e.fly(ctx, j)
	}
	switch {
	case err != nil:
		e.m.reject(ReasonOf(err))
	case a.Replayed:
		e.m.replays(1)
	}
	return a, err
}

// check returns an error if j is malformed or not allowed, and else signs it with its fingerprint.
func (e *Engine) check(ctx context.Context, j *job) error {
	key := j.op.Dedupe.Key
	if key == "" {
		return &FieldError{
			"idempotency_key",
			"is missing: send a new one with each new request, and the same one with each repetition",
		}
	}
	if err := record.CheckIdem(key); err != nil {
		return &FieldError{"idempotency_key", err.Error()}
	}
	if j.batch {
		return e.checkBatch(ctx, j)
	}
	if err := check(&j.op); err != nil {
		return err
	}
	j.op.Fingerprint = e.prints.single(&j.op, j.opens)
	return e.authorize(ctx, j.by, &j.op)
}

// fly joins the job of j's key, or begins j, and waits for the answer. If the job was another
// caller's and its token or its condition was refused, the next caller that begins is judged by its
// own.
func (e *Engine) fly(ctx context.Context, j *job) (a Answer, err error) {
	if err := e.WriteReady(); err != nil {
		return Answer{}, err
	}
	limit := e.set.Load().ReqTimeout.D()
	if end, ok := ctx.Deadline(); !ok || time.Until(end) > limit { // timers cost; the front has usually set one
		bounded, cancel := context.WithTimeout(ctx, limit)
		defer cancel()
		ctx = bounded
	}
	for {
		c, first, err := e.flights.Join(flightKey{j.op.Dedupe.Scope, j.op.Dedupe.Key}, j.op.Fingerprint)
		if err != nil {
			return Answer{}, joinError(err)
		}
		if first {
			j.call = c
			e.begin(ctx, j)
		}
		out, err := c.Wait(ctx)
		switch {
		case err != nil:
			err = e.waitError(ctx, err, first)
		case out.Reject == nil:
			a = Answer{*out}
			a.Replayed = a.Replayed || !first // another request has done it
		case len(out.Results) > 0: // a batch that stands or falls whole
			err = &IndexError{Index: out.Reject.Index, Err: out.Reject}
		default:
			err = out.Reject
		}
		other := ofToken(err) || errors.Is(err, ErrUnknownPayee) && !j.existing
		if first || !other || ctx.Err() != nil {
			return a, err
		}
	}
}

// ofToken reports whether a refusal is about the token of the caller that began, which the others
// who wait need not share.
func ofToken(err error) bool {
	var reject *ledger.Reject
	return isA[*engines.GrantError](err) || errors.As(err, &reject) && reject.Limit == ledger.LimitTokenDaily
}

// joinError returns why a caller may not wait for its key.
func joinError(err error) error {
	switch {
	case errors.Is(err, flow.ErrFenceMoved):
		return &ledger.Reject{Code: record.IdemConflict}
	case errors.Is(err, flow.ErrFlightFull):
		return ErrInFlight
	case errors.Is(err, flow.ErrClosed):
		return &NotReadyError{Cause: CauseDraining}
	}
	return err
}

// begin judges the limits, looks for a replay, and queues j, for all callers that wait for it.
// Whatever happens, the call is settled or a worker will settle it.
func (e *Engine) begin(ctx context.Context, j *job) {
	queued := false
	defer func() {
		if !queued {
			j.fail(errNotBegun) // does nothing after an answer
		}
	}()
	var refused error // it does not count if the request was done before
	switch {
	case j.batch:
		refused = e.boundBatch(ctx, j)
	case j.op.Code == record.OpFlags && !j.opens:
		refused = e.mustBeKnown(ctx, j.op.From, ErrUnknownAccount)
	default:
		refused = e.bound(ctx, j.by, &j.op)
	}
	if j.existing && refused == nil {
		refused = e.mustBeKnown(ctx, j.op.To, ErrUnknownPayee)
	}
	p, err := e.prepare(ctx, j)
	switch {
	case err != nil:
		j.fail(err)
		return
	case p.Known != nil:
		j.done()
		j.call.Answer(p.Known)
		return
	case refused != nil:
		j.fail(refused)
		return
	}
	j.prepared = p
	j.deadline, _ = ctx.Deadline()
	j.grace = flow.Grace(ctx)
	if err := e.work.TrySend(j); err != nil {
		e.full(err)
		j.fail(joinError(err))
		return
	}
	queued = true
}

// errNotBegun answers the callers of a request that its first caller could not begin, which only a
// bug can do.
var errNotBegun = errors.New("wallet: the request could not be begun")

// mustBeKnown returns unknown for an account that the ledger has never seen: flags or a payment
// would open a misspelled name. An account that is known stays known.
func (e *Engine) mustBeKnown(ctx context.Context, account string, unknown error) error {
	view, err := read(ctx, e, opAccount,
		func(ctx context.Context) (ledger.AccountView, error) { return e.ledger.Account(ctx, account) })
	if err == nil && !view.Known {
		err = unknown
	}
	return err
}

// prepare has the ledger check the op of j and look for what its key or reference has done.
func (e *Engine) prepare(ctx context.Context, j *job) (*ledger.Prepared, error) {
	p, err := read(ctx, e, opPrepare, func(ctx context.Context) (*ledger.Prepared, error) {
		return e.ledger.Prepare(ctx, &j.op)
	})
	if bad, malformed := errors.AsType[*ledger.OpError](err); malformed {
		err = &FieldError{bad.Field, bad.Reason}
	}
	if out, none := errors.AsType[*OutcomeError](err); none && mayBeDone(out.Cause) {
		err = &OutcomeError{Unknown: true, Cause: out.Cause} // by an earlier request under the same key
	}
	return p, err
}

// waitError returns the error of a caller without an answer: nothing happened, or the outcome is
// unknown. An *OutcomeError of the job stands, even if ctx has ended by then: its cause may be a
// deadline as well as the caller's.
func (e *Engine) waitError(ctx context.Context, err error, first bool) error {
	switch {
	case isA[*OutcomeError](err):
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
