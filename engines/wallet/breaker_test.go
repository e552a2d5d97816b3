package wallet

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
	"ronbox/engines/ledger"
)

// A breaker that is half-open lets ten calls through and no more, whatever they are; when all ten have succeeded, and not before, it closes.
func TestHalfOpenPermits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		l, began := r.e.link, time.Now()
		for range 20 {
			_, _ = l.try(context.Background(), time.Now().Add(time.Minute), opCommit, 1, func(context.Context) error { return unavailable(false) })
		}
		passes := func() bool {
			_, err := l.try(context.Background(), time.Now().Add(time.Minute), opProbe, 1, func(context.Context) error { return nil })
			return !errors.Is(err, errOpen)
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
				op := []string{opCommit, opProbe}[i%2]
				_, err := l.try(context.Background(), time.Now().Add(time.Minute), op, 7, func(context.Context) error { called.Add(1); <-end; return nil })
				if errors.Is(err, errOpen) {
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
			if state := l.breaker.State(); state != flow.BreakerHalfOpen || passes() {
				t.Errorf("%s after %d successes", state, n)
			}
			end <- struct{}{}
			synctest.Wait()
		}
		if state := l.breaker.State(); state != flow.BreakerClosed || !passes() {
			t.Errorf("%s after %d successes", state, permits)
		}
		r.want(1, "circuit_open_total", "svc", "ledger")
		r.stop()
	})
}

// The watchdog closes the breaker with ten probes that are well. One that is not, be it the first or the last, opens it for another five
// seconds, in which nothing is asked, and all ten are needed again.
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
			r := newRig(t, with(func(c *Config) { c.Retry.Tries = 1 }), over(func(c ledger.Client) ledger.Client {
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
				synctest.Wait() // a probe of this moment is booked by now
				if time.Since(opened) > 20*time.Second {
					t.Fatalf("not ready after %d probes", len(probes()))
				}
				if state := r.e.link.breaker.State(); (state == flow.BreakerClosed) != (len(probes()) >= failed+10) {
					t.Fatalf("%s after %d probes", state, len(probes()))
				}
			}
			if want := failed + 10 + probesNeeded - 1; len(probes()) != want { // the last of the ten is the first of those that make it ready
				t.Errorf("ready after %d probes, want %d", len(probes()), want)
			}
			r.want(2, "circuit_open_total", "svc", "ledger")
			all := probes()
			open := []time.Duration{all[0].Sub(opened), all[failed].Sub(all[failed-1])}
			for _, d := range open {
				if d < 5*time.Second || d > 5*time.Second+probeEvery+watchEvery {
					t.Errorf("probed after %s", open)
				}
			}
			r.stop()
		})
	}
}
