package wallet

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// hangs is a ledger whose probes take all the time there is.
type hangs struct{ ledger.Client }

func (hangs) Probe(ctx context.Context) error {
	<-ctx.Done()
	return &ledger.UnavailableError{Cause: context.Cause(ctx)}
}

// A probe that takes the whole time of a call is a failure, however long the clock goes on between its looks at it.
func TestProbeThatTimesOutIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quick)
		l := r.e.link
		l.client = hangs{l.client}
		set := l.set
		l.set = func() *settings { time.Sleep(time.Microsecond); return set() }
		rule := DefaultConfig().CircuitBreaker
		rule.FailureThreshold = 1
		l.breaker.Reload(rule.rule())
		if _, err := l.probe(t.Context()); err == nil {
			t.Fatal("answered")
		}
		if s := l.breaker.Step(time.Now()); s != flow.BreakerOpen {
			t.Errorf("the breaker is %s", s)
		}
		r.want(1, "upstream_calls_total", "op", opProbe, "outcome", "timeout")
		r.want(1, "io_timeouts_total", "op", "ledger_rpc")
	})
}
