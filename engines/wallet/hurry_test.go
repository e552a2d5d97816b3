package wallet_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/wallet"
)

// hurry is the timeout of the clients in these tests. It is much shorter than the timeout of a
// ledger call.
const hurry = 50 * time.Millisecond

// hurried sends a new batch every 10 ms with a timeout of hurry. end stops it, waits for the last
// answer, and returns the number of batches sent.
func (r *rig) hurried(account string, weight int) (end func() (asked int)) {
	stop, joined := make(chan struct{}), make(chan int)
	go func() {
		n := 0
		for ; ; n++ {
			select {
			case <-stop:
				joined <- n
				return
			case <-time.After(10 * time.Millisecond):
			}
			ops := make([]ledger.Op, weight)
			for i := range ops {
				ops[i] = transfer(account, "bo", 1, uint64(n*weight+i+1))
			}
			ctx, cancel := context.WithTimeout(context.Background(), hurry)
			_, _ = r.e.Batch(ctx, alice, "hurried"+name(n), "", false, ops)
			cancel()
		}
	}()
	return func() int { close(stop); return <-joined }
}

// If a ledger is slow but healthy, clients that time out early change neither the breaker, nor
// readiness, nor the failure counters, and do not delay other clients.
func TestHurriedClientsMakeNothingLookIll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(
			t,
			quick,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				select {
				case <-time.After(100 * time.Millisecond): // less than a stall
					return next.Commit(ctx, ops)
				case <-ctx.Done():
					return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
				}
			}),
		).start()
		r.fund("alice", 100_000)
		r.fund("carol", 100)
		end := r.hurried("alice", 40)
		for n := range uint64(20) {
			r.must("patient"+name(int(n)), transfer("carol", "dora", 1, n+1))
			if err := r.e.WriteReady(); err != nil || len(r.failing()) != 0 {
				t.Fatalf("after %d payments: %v, failing %v", n, err, r.failing())
			}
			time.Sleep(100 * time.Millisecond)
		}
		if asked := end(); asked < 20 {
			t.Errorf("asked %d times only", asked)
		}
		time.Sleep(time.Second)
		if state := r.e.Calls().State(); state != flow.BreakerClosed {
			t.Errorf("the breaker is %s", state)
		}
		r.want(0, "circuit_open_total", "svc", "ledger")
		r.want(0, "upstream_fail_total", "svc", "ledger")
		r.want(0, "io_timeouts_total", "op", "ledger_rpc")
		r.want(0, "upstream_calls_total", "outcome", "failed")
		r.stop()
	})
}

// A ledger that hangs becomes unready as quickly as with patient clients, although every client
// times out before the stall is detected. It is ready again soon after it resumes.
func TestHurriedClientsDoNotHideAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var wire *ledgertest.Faulty
		r := newRig(t, quick, faulty(&wire)).start()
		r.fund("alice", 100_000)
		wire.Pause()
		began, end := time.Now(), r.hurried("alice", 1)
		for r.e.WriteReady() == nil && time.Since(began) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took >= 1110*time.Millisecond { // the first of them comes after 10 ms
			t.Errorf("unready after %s", took)
		}
		if keys := r.failing(); !slices.Equal(keys, []string{wallet.KeyLedger}) {
			t.Errorf("failing: %v", keys)
		}
		for range 50 { // it stays unready while no request is admitted
			time.Sleep(100 * time.Millisecond)
			if r.e.WriteReady() == nil {
				t.Fatalf("ready after %s of a stall", time.Since(began))
			}
		}
		wire.Resume()
		resumed := time.Now()
		for r.e.WriteReady() != nil {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(resumed); took > 1500*time.Millisecond {
			t.Errorf("ready again after %s", took)
		}
		end()
		r.stop()
	})
}

// A ledger that fails only after all callers have timed out opens the breaker, as it does with
// patient callers.
func TestHurriedClientsDoNotHideFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quick, commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
			time.Sleep(2 * hurry)
			return nil, unavailable(true)
		})).start()
		end := r.hurried("alice", 1)
		began := time.Now()
		for r.e.Calls().State() == flow.BreakerClosed && time.Since(began) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the breaker opens after %s", took)
		}
		end()
		synctest.Wait()                                                // the failure that opened the breaker is counted after it
		if n := r.sum("upstream_fail_total", "svc", "ledger"); n < 6 { // of three tries each
			t.Errorf("%v failures", n)
		}
		r.stop()
	})
}

// A call gets its full timeout even if its callers leave early, and the timeout then counts as a
// failure of the ledger.
func TestGivenUp(t *testing.T) {
	for _, within := range []time.Duration{hurry, 500 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var took atomic.Int64 // ns
			r := newRig(
				t,
				with(func(c *wallet.Config) { c.Retry.Tries = 1 }),
				commits(func(ctx context.Context, _ ledger.Client, _ []ledger.Op) ([]ledger.Outcome, error) {
					began := time.Now()
					<-ctx.Done()
					took.Store(int64(time.Since(began)))
					return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
				}),
			).start()
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			var out *wallet.OutcomeError
			if _, err := r.e.Post(ctx, alice, "k", "", issue("bo", 1, 1)); !errors.As(err, &out) || !out.Unknown {
				t.Errorf("%s: %v", within, err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if took := time.Duration(took.Load()); took != time.Second {
				t.Errorf("%s: given up after %s", within, took)
			}
			r.want(1, "upstream_calls_total", "op", wallet.OpCommit, "outcome", "timeout")
			r.want(1, "upstream_fail_total", "svc", "ledger")
			r.stop()
		})
	}
}
