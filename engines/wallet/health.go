package wallet

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
)

// Readiness keys, all hard and of the write plane: reads go on.
const (
	keyConfig  = "cfg_loaded"
	keyLedger  = "ledger_ready"
	keyAuth    = "auth_ready"
	keyQueue   = "queue_ok"
	keyBreaker = "breaker:" + ledgerName
)

// Shares of work_tx at which it is too full, and fit again.
const (
	queueBad  = 0.9
	queueGood = 0.5
)

// Periods of the tasks that look after the ledger.
const (
	tickEvery    = time.Second
	watchEvery   = 25 * time.Millisecond  // a second while no call is under way and the ledger is ready
	probeEvery   = 100 * time.Millisecond // while the ledger is not ready
	probesNeeded = 3                      // in a row, to be ready again
)

// gates are the keys without which writes are refused. queue_ok is not one of them: while it fails,
// balancers send elsewhere, and the queue itself refuses the requests that do not fit.
type gates struct {
	ledger, auth gate
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
	for _, key := range []string{keyConfig, keyLedger, keyAuth, keyQueue, keyBreaker} {
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
	case !e.gates.auth.ok.Load():
		return e.gates.auth.refusal(CauseAuth)
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
		w.rest()
		if more, err := e.next(ctx, tick); !more {
			return err
		}
	}
}

// quietFor is the time without a commit after which the watchdog rests. Commits that follow each
// other need not wake it each time.
const quietFor = time.Second

// rest makes the watchdog look once a second while no commit is under way and the ledger is ready.
// The next commit wakes it.
func (w *watchdog) rest() {
	e := w.e
	quiet := func() bool {
		return e.gates.ledger.ok.Load() && e.progress.quiet(time.Now()) >= quietFor
	}
	if !quiet() {
		e.watchTick.Wake()
		return
	}
	if e.watchTick.Rest(); !quiet() {
		e.watchTick.Wake() // a commit has begun meanwhile
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
		cause = fmt.Errorf("%s, for another %s", s, unit.Short(w.e.calls.RetryAfter().Round(time.Second)))
	}
	if (cause == nil) != w.e.breakerOK.ok.Load() || cause != nil {
		w.e.flip(keyBreaker, &w.e.breakerOK, cause)
	}
}

// runTicker samples the values that change slowly: the fill of the queue, the workers at work, and
// the tokens that authorize requests.
func (e *Engine) runTicker(ctx context.Context) error {
	defer e.tick.Stop()
	tick := e.tick.C()
	for {
		e.sample()
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

func (e *Engine) sample() {
	e.sampleQueue()
	e.m.busySeen.Store(e.m.busy.Load())
	e.sampleAuth()
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

// sampleAuth asks whether requests can be authorized. Without AuthReady they always can.
func (e *Engine) sampleAuth() {
	var cause error
	if e.authReady != nil {
		cause = e.authReady()
	}
	if cause != nil {
		e.m.authFail(1)
	}
	e.flip(keyAuth, &e.gates.auth, cause)
}
