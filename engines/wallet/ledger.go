package wallet

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
)

// ledgerName is the name of the ledger as a callee, in metrics.
const ledgerName = "ledger"

// maxWorkers bounds the workers, and with them the calls that change something at one time.
const maxWorkers = 64

// callSpec describes the calls that change something. A burst counts once for the breaker, however
// many ops it has.
func (e *Engine) callSpec() upstream.CallSpec {
	cfg := e.set.Load()
	return upstream.CallSpec{
		Service:  service,
		Svc:      ledgerName,
		Ops:      []string{opCommit, opProbe},
		Inflight: maxWorkers + 1, // the workers and the watchdog
		Callers:  []string{taskWorker, taskWatchdog},
		Timeout:  e.tryTime,
		Tries:    cfg.Retry.Tries,
		Delay:    cfg.Retry.delay,
		Passing:  transient,
		Breaker:  cfg.CircuitBreaker.rule(),
		TimedOut: func(string) {}, // metrics.call counts them
	}
}

// Names of the calls of the ledger in metrics.
const (
	opCommit      = "commit"
	opProbe       = "probe"
	opPrepare     = "prepare"
	opBalance     = "balance"
	opAccount     = "account"
	opAssets      = "assets"
	opTx          = "tx"
	opHistory     = "history"
	opRoots       = "roots"
	opHead        = "head"
	opProve       = "prove"
	opConsistency = "consistency"
)

// callSeries holds the series of one call of the ledger, which the first such call exports.
type callSeries struct {
	ok, refused, timeout, failed, left func(int)
	seconds                            func(float64)
}

func newCallSeries(reg *obs.Metrics, op string) *callSeries {
	outcome := func(word string) func(int) {
		return reg.Counter("upstream_calls_total", service, "svc", ledgerName, "op", op, "outcome", word)
	}
	return &callSeries{
		ok:      outcome("ok"),
		refused: outcome("refused"),
		timeout: outcome("timeout"),
		failed:  outcome("failed"),
		left:    outcome("left"),
		seconds: reg.Histogram("upstream_latency_seconds", service, "svc", ledgerName, "op", op),
	}
}

// call counts one call of the ledger. left: its callers had no more time, so its end is not the
// ledger's fault.
func (m *metrics) call(op string, err error, left bool, took time.Duration) {
	s := m.calls[op]()
	s.seconds(took.Seconds())
	switch {
	case err == nil:
		s.ok(1)
	case errors.Is(err, ledger.ErrNotFound),
		errors.Is(err, ledger.ErrCursor),
		errors.Is(err, ledger.ErrRange),
		isA[*ledger.ClosedError](err),
		refusal(err):
		s.refused(1)
	case left:
		s.left(1)
	case errors.Is(err, context.DeadlineExceeded):
		s.timeout(1)
		m.ledgerTimeouts(1)
	default:
		s.failed(1)
	}
}

// transient reports whether the same call may succeed soon. A refusal is an outcome, not an error.
func transient(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// errShort is returned when the ledger answers for another number of ops, which only a bug can do.
var errShort = errors.New("the ledger answered another number of ops")

// commit sends ops to the ledger, and sends them again after a transient failure until no caller
// waits any more. It lasts at least until it counts as stalled, so that a ledger that hangs shows
// even if all callers are in a hurry. commit calls sent once the ops are queued, in the order of
// the calls, and tried after each try. The error is an *OutcomeError, or a refusal, after which no
// op was applied.
func (e *Engine) commit(
	ctx context.Context,
	until time.Time,
	ops []*ledger.Prepared,
	sent func(),
	tried func(),
) (outs []ledger.Outcome, err error) {
	unknown := false
	if least := time.Now().Add(max(e.tryTime(), e.stalls()) + time.Millisecond); until.Before(least) {
		until = least
	}
	within := flow.LateBy(ctx, until)
	defer within.Release()
	first := e.progress.begin()
	e.watchTick.Wake()
	answer := error(context.DeadlineExceeded) // a panic is no answer
	defer func() { e.progress.end(answer) }()
	err = e.calls.Do(within, opCommit, func(ctx context.Context) (err error) {
		defer tried()
		began := time.Now()
		pending, err := e.ledger.Submit(ctx, ops)
		if err == nil {
			sent()
			outs, err = pending.Wait(ctx)
		}
		if err == nil && len(outs) != len(ops) {
			err = errShort
		}
		answer = err
		e.m.call(opCommit, err, within.Err() != nil, time.Since(began))
		if err != nil {
			unknown = unknown || mayBeDone(err)
		}
		return err
	})
	if err == nil {
		e.progress.note(time.Since(first))
		return outs, nil
	}
	if limit := e.stalls(); transient(err) && time.Since(first) >= limit {
		late := stalled(limit) // the watchdog may look only after this call
		e.ledgerSaid.Store(&late)
	}
	if safe := errors.Is(err, ledger.ErrSafeMode); safe || !refusal(err) && ctx.Err() == nil {
		e.m.upstreamFail(1)
		if safe {
			e.ledgerSaid.Store(&err)
		}
	}
	if !unknown && refusal(err) {
		return nil, err
	}
	return nil, &OutcomeError{Unknown: unknown, Cause: err}
}

// refusal reports whether err is an answer of the ledger, not a failure to answer. After a refusal
// no op was applied.
func refusal(err error) bool {
	if errors.Is(err, ledger.ErrUnavailable) {
		return false
	}
	return isA[*ledger.OpError](err) || ofFile(err) || errors.Is(err, ledger.ErrSafeMode)
}

// ofFile reports whether err is about the file, which is full, or restored and not accepted yet.
// The ledger is well and answers each write so.
func ofFile(err error) bool {
	return errors.Is(err, ledger.ErrFull) || errors.Is(err, ledger.ErrRestored)
}

// mayBeDone reports whether a call that ended with err may have been carried out.
func mayBeDone(err error) bool {
	var unavailable *ledger.UnavailableError
	if errors.As(err, &unavailable) {
		return unavailable.Unknown
	}
	return err != nil && !refusal(err) && !errors.Is(err, ledger.ErrLoading)
}

// progress notes since when the ledger has answered no call although one is under way.
type progress struct {
	since atomic.Int64 // ns after base
	calls atomic.Int32 // under way, with their repetitions
	mean  atomic.Int64 // ns: moving average of the time of a commit; 0: none has ended
	base  time.Time
}

// begin notes a call and returns the time.
func (p *progress) begin() time.Time {
	now := time.Now()
	if p.calls.Load() == 0 { // before the call counts, so that age never sees it with an old time
		p.since.Store(int64(now.Sub(p.base)))
	}
	p.calls.Add(1)
	return now
}

// end notes that a call ended with err. The ledger has answered it unless err is transient.
func (p *progress) end(err error) {
	if !transient(err) {
		p.since.Store(int64(time.Since(p.base)))
	}
	p.calls.Add(-1)
}

// note adds the time of a commit, with its repetitions, to the average, which rises faster than it
// falls.
func (p *progress) note(took time.Duration) {
	was, share := p.mean.Load(), int64(32)
	switch {
	case was == 0:
		share = 1
	case int64(took) > was:
		share = 4
	}
	p.mean.Store(max(was+(int64(took)-was)/share, 1))
}

// age returns for how long the ledger has answered no call, 0 if no call is under way.
func (p *progress) age(now time.Time) time.Duration {
	if p.calls.Load() == 0 {
		return 0
	}
	return now.Sub(p.base) - time.Duration(p.since.Load())
}

// quiet returns for how long no call has been under way, 0 if one is.
func (p *progress) quiet(now time.Time) time.Duration {
	if p.calls.Load() > 0 {
		return 0
	}
	return now.Sub(p.base) - time.Duration(p.since.Load())
}

// slowest bounds the times of a call on a slow disk.
const slowest = 2 * time.Second

// pace returns least, or four times the average commit on a slow disk, up to slowest. Until the
// first commit has ended the disk counts as slow.
func (p *progress) pace(least time.Duration) time.Duration {
	mean := p.mean.Load()
	if mean == 0 {
		return max(least, slowest)
	}
	return max(least, min(4*time.Duration(mean), slowest))
}

// stalls returns the age from which a call counts as stalled.
func (e *Engine) stalls() time.Duration { return e.progress.pace(e.stall()) }

// tryTime returns the time of one try of a call. A slow disk has more of it, so that no commit that
// makes progress is sent again.
func (e *Engine) tryTime() time.Duration { return e.progress.pace(e.set.Load().Retry.RPCTimeout.D()) }

// probe asks the ledger once to sync nothing, and returns how long that took.
func (e *Engine) probe(ctx context.Context) (took time.Duration, err error) {
	began := time.Now()
	err = e.calls.Once(ctx, opProbe, func(ctx context.Context) error {
		err := e.ledger.Probe(ctx)
		e.m.call(opProbe, err, false, time.Since(began))
		return err
	})
	return time.Since(began), err
}

// read asks the ledger, and asks again after a transient failure. It goes round the breaker, so
// that reads go on while writes fail. The ledger's answer to the question is returned as it is; a
// failure to answer is an *OutcomeError.
func read[T any](ctx context.Context, e *Engine, op string, ask func(context.Context) (T, error)) (v T, err error) {
	err = e.set.Load().reads.Do(ctx, func(ctx context.Context) error {
		v, err = try(ctx, e, op, ask)
		return err
	})
	if err != nil {
		err = e.readError(ctx, err)
	}
	return v, err
}

func try[T any](ctx context.Context, e *Engine, op string, ask func(context.Context) (T, error)) (v T, err error) {
	began := time.Now()
	within := flow.LateBy(ctx, began.Add(e.set.Load().Retry.RPCTimeout.D()))
	defer within.Release()
	v, err = ask(within)
	e.m.call(op, err, ctx.Err() != nil, time.Since(began))
	return v, err
}

// readError returns err, of a read, as its callers see it.
func (e *Engine) readError(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil:
		return leftError(ctx)
	case transient(err):
		e.m.upstreamFail(1)
		return &OutcomeError{Cause: err}
	}
	return err
}

// leftError returns the error of a call if its ctx ended before any op was sent.
func leftError(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
		return &NotReadyError{Cause: CauseDeadline}
	}
	return &NotReadyError{Cause: CauseCanceled}
}
