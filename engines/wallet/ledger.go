package wallet

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
)

// ledgerName is the name of the ledger as a callee, in metrics.
const ledgerName = "ledger"

// maxWorkers bounds the workers, and with them the calls that change something at one time.
const maxWorkers = 64

// settings is a configuration in force with the values that are made from it. It is never changed.
type settings struct {
	Config
	limits *ledger.Limits
	reads  flow.Retrier
}

func newSettings(c *flow.Catalog, cfg Config) *settings {
	return &settings{
		Config: cfg,
		limits: cfg.limits(),
		reads:  flow.Retry(cfg.Retry.delay, cfg.Retry.Tries, transient).Counting(c, service, "read", "svc", ledgerName),
	}
}

// live returns the configuration in force.
func (e *Engine) live() *settings { return e.set.Load() }

// Reload puts a valid configuration in force, for the requests and the calls of the ledger that
// begin from now on. Keys that need a restart keep the value they had. It does not wait.
func (e *Engine) Reload(cfg Config) {
	e.set.Store(newSettings(e.catalog, cfg))
	e.calls.Reload(e.callSpec())
}

// delay returns the wait after failure n, the first being 0: min(base·factorⁿ, max) ± jitter.
func (c RetryConfig) delay(n int) time.Duration {
	d := time.Duration(min(float64(c.Base)*math.Pow(c.Factor, float64(n)), float64(c.Max)))
	if j := c.Jitter.D(); j > 0 {
		d += rand.N(2*j+1) - j
	}
	return d // base is no less than jitter
}

// callSpec describes the calls that change something. A burst counts once for the breaker, however
// many ops it has.
func (e *Engine) callSpec() upstream.CallSpec {
	cfg := e.live()
	return upstream.CallSpec{
		Service:  service,
		Svc:      ledgerName,
		Ops:      []string{opCommit, opProbe},
		Inflight: maxWorkers + 1, // the workers and the watchdog
		Timeout:  func() time.Duration { return e.live().Retry.RPCTimeout.D() },
		Tries:    cfg.Retry.Tries,
		Delay:    cfg.Retry.delay,
		Passing:  transient,
		Breaker:  cfg.CircuitBreaker.rule(),
		TimedOut: func(string) {}, // metrics.call counts them
	}
}

// transient reports whether the same call may succeed soon. A refusal is an outcome, not an error.
func transient(err error) bool {
	return errors.Is(err, ledger.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// errShort is returned when the ledger answers for another number of ops, which only a bug can do.
var errShort = errors.New("the ledger answered another number of ops")

// commit sends ops to the ledger, and sends them again after a transient failure until no caller
// waits any more. The first try has the whole time of a call, so that a ledger that hangs shows
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
	if least := time.Now().Add(e.live().Retry.RPCTimeout.D() + time.Millisecond); until.Before(least) {
		until = least
	}
	within := flow.LateBy(ctx, until)
	defer within.Release()
	err = e.calls.Do(within, opCommit, func(ctx context.Context) (err error) {
		defer tried()
		began := e.progress.begin()
		answer := error(context.DeadlineExceeded) // a panic is no answer
		defer func() { e.progress.end(began, answer) }()
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
		unknown = unknown || mayBeDone(err)
		return err
	})
	if err == nil {
		return outs, nil
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
	calls atomic.Int32 // under way
	mean  atomic.Int64 // ns: moving average of the time of a call
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
func (p *progress) end(began time.Time, err error) {
	now := time.Now()
	if err == nil {
		was := p.mean.Load()
		p.mean.Store(was + (int64(now.Sub(began))-was)/32)
	}
	if !transient(err) {
		p.since.Store(int64(now.Sub(p.base)))
	}
	p.calls.Add(-1)
}

// age returns for how long the ledger has answered no call, 0 if no call is under way.
func (p *progress) age(now time.Time) time.Duration {
	if p.calls.Load() == 0 {
		return 0
	}
	return now.Sub(p.base) - time.Duration(p.since.Load())
}

// stall returns the age from which a call counts as stalled: least, or four times the average call
// on a slow disk, up to a second.
func (p *progress) stall(least time.Duration) time.Duration {
	return max(least, min(4*time.Duration(p.mean.Load()), time.Second))
}

// stalls returns the age from which a call counts as stalled.
func (e *Engine) stalls() time.Duration { return e.progress.stall(e.stall()) }

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
	err = e.live().reads.Do(ctx, func(ctx context.Context) error {
		v, err = try(ctx, e, op, ask)
		return err
	})
	return v, e.readError(ctx, err)
}

// readOnce is read without a repetition.
func readOnce[T any](ctx context.Context, e *Engine, op string, ask func(context.Context) (T, error)) (v T, err error) {
	v, err = try(ctx, e, op, ask)
	return v, e.readError(ctx, err)
}

func try[T any](ctx context.Context, e *Engine, op string, ask func(context.Context) (T, error)) (v T, err error) {
	began := time.Now()
	within := flow.LateBy(ctx, began.Add(e.live().Retry.RPCTimeout.D()))
	defer within.Release()
	v, err = ask(within)
	e.m.call(op, err, ctx.Err() != nil, time.Since(began))
	return v, err
}

func (e *Engine) readError(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
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
		return &NotReadyError{CauseDeadline}
	}
	return &NotReadyError{CauseCanceled}
}
