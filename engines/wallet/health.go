package wallet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Readiness keys, all hard and of the write plane: reads go on.
const (
	keyConfig  = "cfg_loaded"
	keyLedger  = "ledger_ready"
	keyAuth    = "auth_ready"
	keyPolicy  = "policy_ready"
	keyQueue   = "queue_ok"
	keyClock   = "clock_ok"
	keyBreaker = "breaker:" + ledgerName
)

// Shares of work_tx at which it is too full, and fit again.
const (
	queueBad  = 0.9
	queueGood = 0.5
)

// maxClockLag is how far the wall clock may be behind the ledger's time.
const maxClockLag = 10 * time.Second

// Periods of the tasks that look after the ledger.
const (
	tickEvery    = time.Second
	watchEvery   = 25 * time.Millisecond
	probeEvery   = 100 * time.Millisecond // while the ledger is not ready
	probesNeeded = 3                      // in a row, to be ready again
)

// gates are the keys without which writes are refused. queue_ok is not one of them: while it fails,
// balancers send elsewhere, and the queue itself refuses the requests that do not fit.
type gates struct {
	ledger, auth, policy, clock gate
	// the ledger takes no writes until it was verified and the node started again
	safeMode atomic.Bool
}

// gate reports whether a key holds, and whether it was ever judged.
type gate struct {
	ok, seen atomic.Bool
	cause    atomic.Pointer[error] // why it does not hold; nil until the key was judged
}

// refusal returns the error of a request that comes while the key does not hold.
func (g *gate) refusal(cause string) error {
	e := &NotReadyError{Cause: cause}
	if why := g.cause.Load(); why != nil && *why != nil {
		e.Detail = (*why).Error()
	}
	return e
}

func (e *Engine) probes() []obs.Probe {
	var rows []obs.Probe
	for _, key := range []string{keyConfig, keyLedger, keyAuth, keyPolicy, keyQueue, keyClock, keyBreaker} {
		rows = append(rows, obs.Probe{Service: service, Key: key, Hard: true, Plane: obs.WritePlane})
	}
	return rows
}

// WriteReady returns why nothing can be posted now: a *NotReadyError, or ledger.ErrSafeMode if
// sending the same again will not help. It returns nil if writes are taken. It neither waits nor
// locks.
func (e *Engine) WriteReady() error {
	switch {
	case e.gates.safeMode.Load():
		return ledger.ErrSafeMode
	case !e.gates.ledger.ok.Load():
		return e.gates.ledger.refusal(CauseLedger)
	case !e.gates.clock.ok.Load():
		return e.gates.clock.refusal(CauseClock)
	case !e.gates.auth.ok.Load():
		return e.gates.auth.refusal(CauseAuth)
	case !e.gates.policy.ok.Load():
		return e.gates.policy.refusal(CausePolicy)
	}
	return nil
}

// flip shows a key on the board, and logs and publishes a change. A key that holds from the start
// is no change.
func (e *Engine) flip(key string, g *gate, cause error) {
	e.board.Set(service, key, cause)
	g.cause.Store(&cause)
	changed := g.ok.Swap(cause == nil) != (cause == nil)
	if first := !g.seen.Swap(true); first {
		changed = cause != nil
	}
	if !changed {
		return
	}
	reason := "ok"
	if cause != nil {
		reason = cause.Error()
		e.log.Warn("not ready", "probe", key, "cause", reason)
	} else {
		e.log.Info("ready again", "probe", key)
	}
	e.audit(AuditEvent{Event: eventHealth, Reason: key + ": " + reason})
}

// watchdog is one life of the watchdog task.
type watchdog struct {
	e    *Engine
	good int       // good probes in a row
	need int       // that make the ledger ready
	next time.Time // of the next probe
}

// runWatchdog follows the ledger's health. While the ledger is not ready no request reaches it, so
// the watchdog itself spends the breaker's half-open permits.
func (e *Engine) runWatchdog(ctx context.Context) error {
	w := &watchdog{e: e, need: 1} // at boot there was nothing to recover from
	defer e.watchTick.Stop()
	tick := e.watchTick.C()
	for {
		if err := w.look(ctx); err != nil {
			return err
		}
		if more, err := e.next(ctx, tick); !more {
			return err
		}
	}
}

// look judges the calls under way and the breaker, and probes the ledger while it is not ready.
func (w *watchdog) look(ctx context.Context) error {
	now := time.Now()
	cause := w.unwell(now)
	if cause != nil {
		w.lose(cause)
	}
	if w.e.gates.ledger.ok.Load() || now.Before(w.next) {
		return nil
	}
	w.next = now.Add(probeEvery)
	return w.probe(ctx)
}

// unwell returns why the ledger is not ready now, or nil.
func (w *watchdog) unwell(now time.Time) error {
	e := w.e
	state := e.calls.State()
	w.showBreaker(state)
	stall := e.stalls()
	switch {
	case e.progress.age(now) >= stall:
		e.turn.revoke()
		return stalled(stall)
	case state != flow.BreakerClosed:
		return fmt.Errorf("the circuit breaker is %s", state)
	}
	if cause := e.ledgerSaid.Swap(nil); cause != nil {
		return *cause
	}
	if e.safeMode != nil && e.safeMode() != "" {
		return ledger.ErrSafeMode
	}
	return nil
}

// stalled returns the cause while a call takes longer than limit.
func stalled(limit time.Duration) error {
	return fmt.Errorf("a commit of the ledger takes longer than %s (ledger.stall_after): the disk is slow",
		limit.Round(time.Millisecond))
}

// lose makes the ledger unready.
func (w *watchdog) lose(cause error) {
	w.good, w.need = 0, probesNeeded
	w.e.flip(keyLedger, &w.e.gates.ledger, cause)
	if errors.Is(cause, ledger.ErrSafeMode) && !w.e.gates.safeMode.Swap(true) {
		w.e.audit(AuditEvent{Event: eventSafeMode, Reason: cause.Error()})
	}
}

// probe asks the ledger whether it reaches its disk, in good time.
func (w *watchdog) probe(ctx context.Context) error {
	took, err := w.e.probe(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case errors.Is(err, upstream.ErrOpen):
		return nil // not asked
	case err != nil && !ofFile(err): // a full or restored file is an answer, which each write gets too
		w.lose(fmt.Errorf("probe: %w", err))
	case took >= w.e.stalls():
		w.good = 0
	default:
		w.good++
	}
	if w.good >= w.need && w.unwell(time.Now()) == nil {
		w.e.gates.safeMode.Store(false)
		w.e.flip(keyLedger, &w.e.gates.ledger, nil)
	}
	return nil
}

// showBreaker puts the breaker's state on the board.
func (w *watchdog) showBreaker(s flow.BreakerState) {
	var cause error
	if s != flow.BreakerClosed {
		cause = fmt.Errorf("%s, for another %s", s, w.e.calls.RetryAfter().Round(time.Second))
	}
	if (cause == nil) != w.e.breakerOK.ok.Load() || cause != nil {
		w.e.flip(keyBreaker, &w.e.breakerOK, cause)
	}
}

// runTicker samples the values that change slowly: the fill of the queue, the workers at work, the
// clock, and the services of this process that judge requests.
func (e *Engine) runTicker(ctx context.Context) error {
	defer e.tick.Stop()
	tick := e.tick.C()
	for {
		if err := e.sample(ctx); err != nil {
			return err
		}
		if more, err := e.next(ctx, tick); !more {
			return err
		}
	}
}

// next waits for a tick. It reports false when ctx ends, or when the workers are gone and there is
// nothing more to look at.
func (e *Engine) next(ctx context.Context, tick <-chan time.Time) (more bool, err error) {
	select {
	case <-ctx.Done():
		return false, context.Cause(ctx)
	case <-e.gone:
		return false, nil
	case <-tick:
		return true, nil
	}
}

func (e *Engine) sample(ctx context.Context) error {
	e.sampleQueue()
	e.m.busySeen.Store(e.m.busy.Load())
	e.sampleJudge(svcAuth, keyAuth, &e.gates.auth, e.authReady)
	e.sampleJudge(svcPolicy, keyPolicy, &e.gates.policy, e.policyReady)
	var unread error
	if e.ledgerTime.Load() == 0 {
		if unread = e.readLedgerTime(ctx); ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	e.sampleClock(unread)
	return nil
}

// full notes a job that did not fit into work_tx.
func (e *Engine) full(err error) {
	if errors.Is(err, flow.ErrBusy) && e.queueOK.ok.Load() {
		e.flip(keyQueue, &e.queueOK, errQueueFull)
	}
}

var errQueueFull = errors.New("work queue is nearly full")

// sampleQueue judges how full work_tx is: bad at 90 %, good again at 50 %.
func (e *Engine) sampleQueue() {
	share := float64(e.work.Len()) / float64(e.work.Cap())
	switch {
	case share >= queueBad:
		e.flip(keyQueue, &e.queueOK, errQueueFull)
	case share <= queueGood:
		e.flip(keyQueue, &e.queueOK, nil)
	}
}

// sampleJudge asks a service without which no request can be judged; without ready it is always
// there.
func (e *Engine) sampleJudge(svc, key string, g *gate, ready func() error) {
	var cause error
	if ready != nil {
		cause = ready()
	}
	if cause != nil {
		e.m.judgeFail[svc](1)
	}
	e.flip(key, g, cause)
}

// sampleClock compares the wall clock with the ledger's time; unread is why that is not known.
func (e *Engine) sampleClock(unread error) {
	var cause error
	if unread != nil {
		cause = fmt.Errorf("the time of the ledger is not known: %w", unread)
	} else if lag := e.clockBehind(); lag > maxClockLag {
		cause = fmt.Errorf("the clock is %s behind the ledger", lag.Round(time.Second))
	}
	e.flip(keyClock, &e.gates.clock, cause)
}

// clockBehind returns how far the wall clock is behind the ledger's time.
func (e *Engine) clockBehind() time.Duration {
	return time.Duration(e.ledgerTime.Load() - e.now().UnixNano())
}

// sawLedgerTime notes a time of the ledger, Unix ns.
func (e *Engine) sawLedgerTime(at int64) {
	for {
		old := e.ledgerTime.Load()
		if old >= at || e.ledgerTime.CompareAndSwap(old, at) {
			return
		}
	}
}

// readLedgerTime learns the time of the ledger from its last batch, before anything is committed; a
// ledger without a batch has none. After an error it is read again at the next tick.
func (e *Engine) readLedgerTime(ctx context.Context) error {
	head, err := readOnce(ctx, e, opHead, e.ledger.Head)
	if err != nil || head.Batches == 0 {
		return err
	}
	last, err := readOnce(ctx, e, opRoots,
		func(ctx context.Context) ([]record.Batch, error) { return e.ledger.Roots(ctx, head.Batches-1, 1) })
	if err != nil {
		return err
	}
	if len(last) == 0 {
		return errNoBatch
	}
	e.sawLedgerTime(last[0].At)
	return nil
}

// errNoBatch is returned when the ledger has batches and does not show the last one, which only a
// bug can do.
var errNoBatch = errors.New("the ledger does not show its last batch")
