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
	stall   func() time.Duration // least age of a call that stalls
	refused func(error)          // is told at once of what says that the ledger takes no writes
}

// errOpen: the breaker is not closed, so the ledger was not called.
var errOpen = errors.New("the circuit breaker is open")

// errShort: the ledger answered for another number of ops than it was asked for, which only a bug can do.
var errShort = errors.New("the ledger answered another number of ops")

// commit puts ops to the ledger, whose weight is that of all operations in them, and tells tried after each try. No try begins after until, and
// none lasts longer but for what it takes to see a stall: a ledger that hangs must show although nobody waits for it. The error is an
// *OutcomeError or a refusal, which says that nothing was applied.
func (l *link) commit(ctx context.Context, until time.Time, ops []ledger.Op, weight int, tried func()) (outs []ledger.Outcome, err error) {
	var was said
	within := flow.LateBy(ctx, until)
	defer within.Release()
	err = l.set().writes.Do(within, func(context.Context) error {
		got, err := l.try(ctx, until, opCommit, weight, func(ctx context.Context) error {
			outs, err = l.client.Commit(ctx, ops)
			if err == nil && len(outs) != len(ops) {
				err = errShort
			}
			return err
		})
		tried()
		was.unknown, was.ill = was.unknown || got.unknown, was.ill || got.ill
		return err
	})
	if err == nil {
		return outs, nil
	}
	if was.ill {
		l.m.upstreamFail(1)
	}
	if !was.unknown && refusal(err) {
		return nil, err
	}
	return nil, &OutcomeError{Unknown: was.unknown, Cause: err}
}

// probe asks the ledger to sync nothing, once, and says how long that took. It asks for nobody, so that the time of a call is all it has.
func (l *link) probe(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	_, err = l.try(ctx, began.Add(2*l.set().Retry.RPCTimeout.D()), opProbe, 1, l.client.Probe)
	return time.Since(began), err
}

// said is what a call that failed says.
type said struct {
	unknown bool // it may have been carried out
	ill     bool // the ledger takes no writes
}

// try makes one call that changes something, if the breaker lets it, for callers who wait until then.
func (l *link) try(ctx context.Context, until time.Time, op string, weight int, call func(context.Context) error) (was said, err error) {
	l.breaker.Step(time.Now())
	pass, ok := l.breaker.Permit()
	if !ok {
		return said{ill: true}, errOpen
	}
	result := flow.Failed
	defer func() { // a panic counts as a failure too
		l.breaker.Record(pass, result, weight)
		l.breaker.Step(time.Now())
	}()
	began := time.Now()
	left, err := l.timed(ctx, op, began, later(until, began.Add(l.stalls()+stallSeen)), call)
	result = verdict(left, err)
	safe := errors.Is(err, ledger.ErrSafeMode)
	if safe {
		l.refused(err)
	}
	return said{unknown: mayBeDone(err), ill: safe || result == flow.Failed}, err
}

// stalls is how old a call is that stalls.
func (l *link) stalls() time.Duration { return l.pace.stall(l.stall()) }

// stallSeen is how long after a call is old enough for a stall the watchdog has looked.
const stallSeen = 2 * watchEvery

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}

// timed makes one call within the time of a call, and within that of those who wait for it, and books it. left: they had no more time before its
// own was over, so that how it ended says nothing.
func (l *link) timed(ctx context.Context, op string, began, until time.Time, call func(context.Context) error) (left bool, err error) {
	own := began.Add(l.set().Retry.RPCTimeout.D())
	hurried := until.Before(own)
	if hurried {
		own = until
	}
	within := flow.LateBy(ctx, own)
	defer within.Release()
	if op == opCommit {
		defer l.calls.end(l.calls.begin(began))
	}
	err = call(within)
	took := time.Since(began)
	left = err != nil && (ctx.Err() != nil || hurried && within.Err() != nil)
	l.m.call(op, err, left, took)
	if err == nil && op == opCommit {
		l.pace.add(took)
	}
	return left, err
}

// refusal says whether err is the ledger's answer to what was asked, not a failure to answer, whatever caused that: nothing was applied.
func refusal(err error) bool {
	if errors.Is(err, ledger.ErrUnavailable) {
		return false
	}
	return isA[*ledger.OpError](err) || ofFile(err) || errors.Is(err, ledger.ErrSafeMode)
}

// ofFile says whether err is about the file: it is full, or restored and not accepted yet. The ledger is well, and answers each write so.
func ofFile(err error) bool {
	return errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrRestored)
}

// verdict is what the result of a call says about the ledger. One that it refused for good reason, or whose callers had left, says nothing: a
// client in a hurry must not shut the door for all.
func verdict(left bool, err error) flow.CallResult {
	switch {
	case err == nil, ofFile(err): // it has looked
		return flow.Succeeded
	case left, refusal(err):
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
		return l.ask(ctx, op, func(ctx context.Context) error {
			v, err = ask(ctx)
			return err
		})
	})
	return v, l.readError(ctx, err)
}

// readOnce is read without a second try, for who asks again by himself.
func readOnce[T any](ctx context.Context, l *link, op string, ask func(context.Context) (T, error)) (v T, err error) {
	err = l.ask(ctx, op, func(ctx context.Context) error {
		v, err = ask(ctx)
		return err
	})
	return v, l.readError(ctx, err)
}

// ask makes one call that changes nothing, for a caller who waits as long as ctx lasts.
func (l *link) ask(ctx context.Context, op string, call func(context.Context) error) error {
	began := time.Now()
	_, err := l.timed(ctx, op, began, began.Add(l.set().Retry.RPCTimeout.D()), call)
	return err
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
