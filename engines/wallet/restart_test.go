package wallet

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
)

// A worker that panics stays away for 100 to 400 ms, for twice as long each time it does so again within a minute, and for 5 s at the most; after
// a minute of peace it begins anew. What is queued meanwhile waits, and is done.
func TestRestartDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Bool
		var called time.Time
		r := newRig(t, with(func(c *Config) { c.Workers, c.ReqTimeout = 1, seconds(30) }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if called = time.Now(); panics.Load() {
					panic("made to")
				}
				return next.Commit(ctx, ops)
			})).start()
		r.fund("alice", 100)
		// fail has a burst panic, which its caller learns at once, and says how long it had waited for a worker.
		fail := func(key string) time.Duration {
			began := time.Now()
			var out *OutcomeError
			if _, err := r.post(key, transfer("alice", "bo", 1, 1)); !errors.As(err, &out) || !out.Unknown || !called.Equal(time.Now()) {
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
		synctest.Wait() // the supervisor has heard of the last one
		r.want(restarts, "service_restarts_total", "service", service, "task", taskWorker)
		r.want(restarts+1, "tasks_panicked_total", "service", service, "kind", taskWorker)
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

// While one worker stays away, the others go on at once.
func TestOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := newRig(t, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			if calls.Add(1) == 1 {
				panic("made to")
			}
			return next.Commit(ctx, ops)
		})).start()
		r.fund("alice", 100)
		began := time.Now()
		if _, err := r.post("a", transfer("alice", "bo", 1, 1)); code(err) != "UPSTREAM_UNAVAILABLE" {
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
