package wallet_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// hangs is a ledger on which Probe blocks until its context ends.
type hangs struct{ ledger.Client }

func (hangs) Probe(ctx context.Context) error {
	<-ctx.Done()
	return &ledger.UnavailableError{Cause: context.Cause(ctx)}
}

// A probe that times out counts as a failure.
func TestProbeThatTimesOutIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quick, with(func(c *wallet.Config) { c.CircuitBreaker.FailureThreshold = 1 }),
			over(func(c ledger.Client) ledger.Client { return hangs{c} }))
		if took, err := r.e.Probe(t.Context()); err == nil || took != time.Second {
			t.Fatalf("%v after %s", err, took)
		}
		if s := r.e.Calls().State(); s != flow.BreakerOpen {
			t.Errorf("the breaker is %s", s)
		}
		r.want(1, "upstream_calls_total", "op", wallet.OpProbe, "outcome", "timeout")
		r.want(1, "io_timeouts_total", "op", "ledger_rpc")
		r.stop()
	})
}
