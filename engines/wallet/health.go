package wallet

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/engines/ledger"
)

// Readiness keys, all hard and of the write plane: reads go on.
const (
	keyConfig  = "cfg_loaded"
	keyLedger  = "ledger_ready"
	keyAuth    = "auth_ready"
	keyPolicy  = "policy_ready"
	keyQueue   = "queue_ok"
	keyClock   = "clock_ok"
	keyBreaker = "breaker:" + upstream
)

// Shares of work_tx at which it is too full, and fit again.
const (
	queueBad  = 0.9
	queueGood = 0.5
)

// maxClockLag is how far the wall clock may be behind the ledger's time.
const maxClockLag = 10 * time.Second

// gates are the keys that writes are refused for. queue_ok is not among them: while it fails, balancers send elsewhere, and the queue itself
// refuses what still comes and does not fit.
type gates struct {
	ledger, auth, policy, clock gate
	safeMode                    atomic.Bool // the ledger takes no writes until it was verified and the node started again
}

// gate is whether a key holds, and whether anybody has looked.
type gate struct{ ok, seen atomic.Bool }

func (e *Engine) probes() []obs.Probe {
	var rows []obs.Probe
	for _, key := range []string{keyConfig, keyLedger, keyAuth, keyPolicy, keyQueue, keyClock, keyBreaker} {
		rows = append(rows, obs.Probe{Service: service, Key: key, Hard: true, Plane: obs.WritePlane})
	}
	return rows
}

// WriteReady says why nothing can be posted now, as a *NotReadyError, or as ledger.ErrSafeMode if sending the same again will not help, or nil.
// It neither waits nor locks.
func (e *Engine) WriteReady() error {
	switch {
	case e.gates.safeMode.Load():
		return ledger.ErrSafeMode
	case !e.gates.ledger.ok.Load():
		return &NotReadyError{CauseLedger}
	case !e.gates.clock.ok.Load():
		return &NotReadyError{CauseClock}
	case !e.gates.auth.ok.Load():
		return &NotReadyError{CauseAuth}
	case !e.gates.policy.ok.Load():
		return &NotReadyError{CausePolicy}
	}
	return nil
}

// flip shows a key on the board, and tells of it if it has changed; that all is well at first is no news.
func (e *Engine) flip(key string, g *gate, cause error) {
	e.board.Set(service, key, cause)
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

// sampleClock judges the wall clock by the ledger's; unread says why that is not known.
func (e *Engine) sampleClock(unread error) {
	var cause error
	if unread != nil {
		cause = fmt.Errorf("the time of the ledger is not known: %w", unread)
	} else if lag := e.clockBehind(); lag > maxClockLag {
		cause = fmt.Errorf("the clock is %s behind the ledger", lag.Round(time.Second))
	}
	e.flip(keyClock, &e.gates.clock, cause)
}

// sampleJudge asks a service without which no request can be judged; without ready it is always there.
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
