package wallet

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// upstream is the ledger's name as a callee, in metrics.
const upstream = "ledger"

// link is the way to the ledger. A write is bounded in time, tried again, and kept from a ledger that fails; a read is bounded and tried
// again only, so that reads go on while writes fail.
type link struct {
	client  ledger.Client
	breaker *flow.Breaker
	set     func() *settings
	m       *metrics
	calls   callTable
	pace    pace
	refused func(error) // is told at once of what says that the ledger takes no writes
}

// errOpen: the breaker is not closed, so the ledger was not called.
var errOpen = errors.New("the circuit breaker is open")

// errShort: the ledger answered for another number of ops than it was asked for, which only a bug can do.
var errShort = errors.New("the ledger answered another number of ops")

// commit puts ops to the ledger, whose weight is that of all operations in them, and tells tried after each try. ctx bounds all tries
// together. The error is an *OutcomeError or a refusal, which says that nothing was applied.
func (l *link) commit(ctx context.Context, ops []ledger.Op, weight int, tried func()) (outs []ledger.Outcome, err error) {
	unknown := false
	err = l.set().writes.Do(ctx, func(ctx context.Context) error {
		got, err := l.try(ctx, opCommit, weight, func(ctx context.Context) error {
			outs, err = l.client.Commit(ctx, ops)
			if err == nil && len(outs) != len(ops) {
				err = errShort
			}
			return err
		})
		tried()
		unknown = unknown || got
		return err
	})
	if err == nil {
		return outs, nil
	}
	if safe := errors.Is(err, ledger.ErrSafeMode); safe || unknown || !refusal(err) {
		l.m.upstreamFail(1)
	}
	if !unknown && refusal(err) {
		return nil, err
	}
	return nil, &OutcomeError{Unknown: unknown, Cause: err}
}

// probe asks the ledger to sync nothing, once, and says how long that took.
func (l *link) probe(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	_, err = l.try(ctx, opProbe, 1, l.client.Probe)
	return time.Since(began), err
}

// try makes one call that changes something, if the breaker lets it. unknown: it may have been carried out although it failed.
func (l *link) try(ctx context.Context, op string, weight int, call func(context.Context) error) (unknown bool, err error) {
	l.breaker.Step(time.Now())
	pass, ok := l.breaker.Permit()
	if !ok {
		return false, errOpen
	}
	result := flow.Failed
	defer func() { // a panic counts as a failure too
		l.breaker.Record(pass, result, weight)
		l.breaker.Step(time.Now())
	}()
	err = l.timed(ctx, op, call)
	result = verdict(ctx, err)
	if errors.Is(err, ledger.ErrSafeMode) {
		l.refused(err)
	}
	return mayBeDone(err), err
}

// timed makes one call within the time of a call and books it.
func (l *link) timed(ctx context.Context, op string, call func(context.Context) error) error {
	began := time.Now()
	within := flow.LateBy(ctx, began.Add(l.set().Retry.RPCTimeout.D()))
	defer within.Release()
	if op == opCommit {
		defer l.calls.end(l.calls.begin(began))
	}
	err := call(within)
	took := time.Since(began)
	l.m.call(op, err, took)
	if err == nil && op == opCommit {
		l.pace.add(took)
	}
	return err
}

// refusal says whether err is the ledger's answer to what was asked, not a failure to answer, whatever caused that: nothing was applied.
func refusal(err error) bool {
	if errors.Is(err, ledger.ErrUnavailable) {
		return false
	}
	return isA[*ledger.OpError](err) || errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrSafeMode)
}

// verdict is what the result of a call says about the ledger. One that it refused for good reason, or whose caller was gone before the time
// of a call was up, says nothing: a hurried caller must not shut the door for all.
func verdict(ctx context.Context, err error) flow.CallResult {
	switch {
	case err == nil, errors.Is(err, ledger.ErrFull): // it has looked at its disk
		return flow.Succeeded
	case ctx.Err() != nil, refusal(err):
		return flow.Neither
	}
	return flow.Failed
}

// mayBeDone says whether a call that ended with err may have been carried out.
func mayBeDone(err error) bool {
	var unavailable *ledger.UnavailableError
	if errors.As(err, &unavailable) {
		return unavailable.Unknown
	}
	return err != nil && !refusal(err) && !errors.Is(err, ledger.ErrLoading)
}

// read asks the ledger, again if it must. What the ledger says of the question comes back as it is; no answer is an *OutcomeError.
func read[T any](ctx context.Context, l *link, op string, ask func(context.Context) (T, error)) (v T, err error) {
	err = l.set().reads.Do(ctx, func(ctx context.Context) error {
		return l.timed(ctx, op, func(ctx context.Context) error {
			v, err = ask(ctx)
			return err
		})
	})
	return v, l.readError(ctx, err)
}

// readOnce is read without a second try, for who asks again by himself.
func readOnce[T any](ctx context.Context, l *link, op string, ask func(context.Context) (T, error)) (v T, err error) {
	err = l.timed(ctx, op, func(ctx context.Context) error {
		v, err = ask(ctx)
		return err
	})
	return v, l.readError(ctx, err)
}

func (l *link) readError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return leftError(ctx)
	case errors.Is(err, ledger.ErrUnavailable), errors.Is(err, context.DeadlineExceeded):
		l.m.upstreamFail(1)
		return &OutcomeError{Cause: err}
	}
	return err
}

// leftError says why a caller whose ctx has ended got nothing, and that nothing happened.
func leftError(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return &NotReadyError{CauseDeadline}
	}
	return &NotReadyError{CauseCanceled}
}
