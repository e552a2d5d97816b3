package wallet_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// A half-open breaker admits exactly ten calls of any kind. It closes after all ten have succeeded,
// and not earlier.
func TestHalfOpenPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		k, began := r.e.Calls(), time.Now()
		for range 20 {
			_ = k.Once(context.Background(), wallet.OpCommit, func(context.Context) error { return unavailable(false) })
		}
		passes := func() bool {
			err := k.Once(context.Background(), wallet.OpProbe, func(context.Context) error { return nil })
			return !errors.Is(err, upstream.ErrOpen)
		}
		time.Sleep(5*time.Second - 1)
		if passes() {
			t.Errorf("open for %s only", time.Since(began))
		}
		time.Sleep(time.Nanosecond)
		const tries, permits = 13, 10
		var called, shut atomic.Int32
		end := make(chan struct{})
		for i := range tries {
			go func() {
				op := []string{wallet.OpCommit, wallet.OpProbe}[i%2]
				err := k.Once(context.Background(), op, func(context.Context) error { called.Add(1); <-end; return nil })
				if errors.Is(err, upstream.ErrOpen) {
					shut.Add(1)
				}
			}()
		}
		synctest.Wait()
		if called.Load() != permits || shut.Load() != tries-permits {
			close(end)
			t.Fatalf("%d let through, %d not", called.Load(), shut.Load())
		}
		for n := range permits {
			if state := k.State(); state != flow.BreakerHalfOpen || passes() {
				t.Errorf("%s after %d successes", state, n)
			}
			end <- struct{}{}
			synctest.Wait()
		}
		if state := k.State(); state != flow.BreakerClosed || !passes() {
			t.Errorf("%s after %d successes", state, permits)
		}
		r.want(1, "circuit_open_total", "svc", "ledger")
		r.stop()
	})
}

// Ten successful probes of the watchdog close the breaker. If any of the ten fails, the breaker
// opens for another five seconds without calls, and then needs ten successful probes again.
func TestProbeFails(t *testing.T) {
	for _, failed := range []int{1, 2, 10} {
		synctest.Test(t, func(t *testing.T) {
			var broken atomic.Bool
			var mu sync.Mutex
			var probed []time.Time // since the ledger failed; guarded by mu
			probes := func() []time.Time {
				mu.Lock()
				defer mu.Unlock()
				return slices.Clone(probed)
			}
			r := newRig(t, with(func(c *wallet.Config) { c.Retry.Tries = 1 }), over(func(c ledger.Client) ledger.Client {
				return &hooked{
					Client: c,
					commit: func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
						return nil, unavailable(false)
					},
					probe: func(context.Context, ledger.Client) error {
						mu.Lock()
						defer mu.Unlock()
						if probed = append(probed, time.Now()); broken.Load() && len(probed) == failed {
							return unavailable(false)
						}
						return nil
					},
				}
			})).start()
			mu.Lock()
			probed = nil
			mu.Unlock()
			broken.Store(true)
			for i := range 20 {
				_, _ = r.post("b"+name(i), transfer("alice", "bo", 1, 1))
			}
			opened := time.Now()
			for len(probes()) == 0 || r.e.WriteReady() != nil {
				time.Sleep(time.Millisecond)
				synctest.Wait() // a probe of this moment is counted by now
				if time.Since(opened) > 20*time.Second {
					t.Fatalf("not ready after %d probes", len(probes()))
				}
				if state := r.e.Calls().State(); (state == flow.BreakerClosed) != (len(probes()) >= failed+10) {
					t.Fatalf("%s after %d probes", state, len(probes()))
				}
			}
			// The tenth probe is also the first of the probesNeeded probes that restore readiness.
			if want := failed + 10 + wallet.ProbesNeeded - 1; len(probes()) != want {
				t.Errorf("ready after %d probes, want %d", len(probes()), want)
			}
			r.want(2, "circuit_open_total", "svc", "ledger")
			all := probes()
			open := []time.Duration{all[0].Sub(opened), all[failed].Sub(all[failed-1])}
			for _, d := range open {
				if d < 5*time.Second || d > 5*time.Second+wallet.ProbeEvery+wallet.WatchEvery {
					t.Errorf("probed after %s", open)
				}
			}
			r.stop()
		})
	}
}
