package wallet

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// Bounds of the watchdog.
const (
	watchEvery   = 25 * time.Millisecond
	probeEvery   = 100 * time.Millisecond // while the ledger is not ready
	probesNeeded = 3                      // in a row, to be ready again
)

// watchdog is one life of the watchdog task.
type watchdog struct {
	e    *Engine
	good int       // probes in a row that were well
	need int       // that make the ledger ready
	next time.Time // of the next probe
}

// runWatchdog follows the ledger's health. While the ledger is not ready no request reaches it, so the watchdog itself spends the breaker's
// half-open permits.
func (e *Engine) runWatchdog(ctx context.Context) error {
	w := &watchdog{e: e, need: 1} // at boot there was nothing to recover from
	defer e.watchTick.Stop()
	tick := e.watchTick.C()
	for {
		e.wake(e.nonces.overdue(e.live(), time.Now()))
		if err := w.look(ctx); err != nil {
			return err
		}
		if more, err := e.next(ctx, tick); !more {
			return err
		}
	}
}

// look judges the calls under way and the breaker, and probes if need be.
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

// unwell says what is wrong with the ledger now.
func (w *watchdog) unwell(now time.Time) error {
	state := w.e.link.breaker.Step(now)
	w.showBreaker(state, now)
	stall := w.e.link.stalls()
	if age := w.e.link.calls.oldest(now); age >= stall {
		w.e.turn.revoke()
		return fmt.Errorf("a call has been under way for more than %s", stall.Round(time.Millisecond))
	}
	if state != flow.BreakerClosed {
		return fmt.Errorf("the circuit breaker is %s", state)
	}
	if cause := w.e.ledgerSaid.Swap(nil); cause != nil {
		return *cause
	}
	if w.e.safeMode != nil && w.e.safeMode() != "" {
		return ledger.ErrSafeMode
	}
	return nil
}

// lose makes the ledger unready.
func (w *watchdog) lose(cause error) {
	w.good, w.need = 0, probesNeeded
	w.e.flip(keyLedger, &w.e.gates.ledger, cause)
	if errors.Is(cause, ledger.ErrSafeMode) && !w.e.gates.safeMode.Swap(true) {
		w.e.audit(AuditEvent{Event: eventSafeMode, Reason: cause.Error()})
	}
}

// probe asks the ledger whether it gets through to its disk, in good time.
func (w *watchdog) probe(ctx context.Context) error {
	took, err := w.e.link.probe(ctx)
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	switch {
	case errors.Is(err, errOpen):
		return nil // not asked
	case err != nil && !ofFile(err): // what the file refuses is an answer, and told by each write
		w.lose(fmt.Errorf("probe: %w", err))
	case took >= w.e.link.stalls():
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
func (w *watchdog) showBreaker(s flow.BreakerState, now time.Time) {
	var cause error
	if s != flow.BreakerClosed {
		cause = fmt.Errorf("%s, for another %s", s, w.e.link.breaker.RetryAfter(now).Round(time.Second))
	}
	if (cause == nil) != w.e.breakerOK.ok.Load() || cause != nil {
		w.e.flip(keyBreaker, &w.e.breakerOK, cause)
	}
}

// stallAfter is the least age of a call that counts as stalled.
func (e *Engine) stallAfter() time.Duration {
	if e.stall != nil {
		return e.stall()
	}
	return ledger.DefaultConfig().StallAfter.D()
}
