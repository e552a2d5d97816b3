package wallet_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// A worker that panics restarts after 100 to 400 ms. The delay doubles with each further panic
// within a minute, up to 5 s, and resets after a minute without a panic. Requests queued meanwhile
// wait and are then done.
func TestRestartDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		var called time.Time
		r := newRig(t, with(func(c *wallet.Config) { c.Workers, c.ReqTimeout = 1, seconds(30) }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if called = time.Now(); panics.Load() {
					panic("made to")
				}
				return next.Commit(ctx, ops)
			})).start()
		r.fund("alice", 100)
		// fail makes a burst panic and checks that the caller is answered immediately. It returns
		// the time that the request waited for a worker.
		fail := func(key string) time.Duration {
			began := time.Now()
			var out *wallet.OutcomeError
			if _, err := r.post(key, transfer("alice", "bo", 1, 1)); !errors.As(err, &out) || !out.Unknown ||
				!called.Equal(time.Now()) {
				t.Errorf("%s: %v, %s after the call", key, err, time.Since(called))
			}
			return called.Sub(began)
		}
		const restarts = 8
		panics.Store(true)
		if d := fail("first"); d != 0 {
			t.Errorf("the first one waits %s", d)
		}
		for n := range restarts {
			least, most := min(5*time.Second, 100*time.Millisecond<<n), min(5*time.Second, 400*time.Millisecond<<n)
			if d := fail("again" + name(n)); d < least || d > most {
				t.Errorf("restart %d comes after %s, want %s to %s", n+1, d, least, most)
			}
		}
		synctest.Wait() // the supervisor has handled the last panic
		r.want(restarts, "service_restarts_total", "service", wallet.Service, "task", wallet.TaskWorker)
		r.want(restarts+1, "tasks_panicked_total", "service", wallet.Service, "kind", wallet.TaskWorker)
		panics.Store(false)
		r.must("good", transfer("alice", "bo", 1, 1))
		time.Sleep(time.Minute)
		panics.Store(true)
		if d := fail("later"); d != 0 {
			t.Errorf("after a minute of peace one waits %s", d)
		}
		panics.Store(false)
		began := time.Now()
		r.must("last", transfer("alice", "bo", 1, 2))
		if d := time.Since(began); d < 100*time.Millisecond || d > 400*time.Millisecond {
			t.Errorf("after a minute of peace the worker comes back after %s", d)
		}
		r.stop()
	})
}

// While one worker waits to restart, the other workers continue without delay.
func TestOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := newRig(
			t,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if calls.Add(1) == 1 {
					panic("made to")
				}
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 100)
		began := time.Now()
		if _, err := r.post("a", transfer("alice", "bo", 1, 1)); reasonOf(err) != "upstream" {
			t.Errorf("%v", err)
		}
		for i := range 10 {
			r.must("b"+name(i), transfer("alice", "bo", 1, uint64(i+1)))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the requests wait %s", took)
		}
		r.stop()
	})
}
