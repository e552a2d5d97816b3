package wallet

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
)

// hurry is how long the clients of these tests wait, in all of them much less than the ledger may take for a call.
const hurry = 50 * time.Millisecond

// hurried has a client in a hurry ask every 10 ms until it is told to end, each time for something new; joined waits for its last answer.
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
			ops := make([]Request, weight)
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

// On a ledger that is slow and well, clients who do not wait for it make nothing look ill: neither its breaker nor its readiness nor what counts
// its failures moves, and nobody else is kept from paying.
func TestHurriedClientsMakeNothingLookIll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quick, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			select {
			case <-time.After(100 * time.Millisecond): // less than a stall
				return next.Commit(ctx, ops)
			case <-ctx.Done():
				return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
			}
		})).start()
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
		if state := r.e.link.breaker.State(); state != flow.BreakerClosed {
			t.Errorf("the breaker is %s", state)
		}
		r.want(0, "circuit_open_total", "svc", "ledger")
		r.want(0, "upstream_fail_total", "svc", "ledger")
		r.want(0, "io_timeouts_total", "op", "ledger_rpc")
		r.want(0, "upstream_calls_total", "outcome", "failed")
		r.stop()
	})
}

// A ledger that hangs is seen to as soon as ever, although nobody waits for it as long as that takes; and it is ready again when it moves.
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
		if took := time.Since(began); took >= 210*time.Millisecond { // the first of them comes after 10 ms
			t.Errorf("unready after %s", took)
		}
		if keys := r.failing(); !slices.Equal(keys, []string{keyLedger}) {
			t.Errorf("failing: %v", keys)
		}
		for range 50 { // it stays so, with nobody let in
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

// A ledger that fails after longer than any of its callers waits opens the breaker, as if they did.
func TestHurriedClientsDoNotHideFailures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, quick, commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
			time.Sleep(2 * hurry)
			return nil, unavailable(true)
		})).start()
		end := r.hurried("alice", 1)
		began := time.Now()
		for r.e.link.breaker.State() == flow.BreakerClosed && time.Since(began) < time.Minute {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("the breaker opens after %s", took)
		}
		end()
		synctest.Wait() // the failure that opened the breaker is counted after it
		if n := r.sum("upstream_fail_total", "svc", "ledger"); n < 20 {
			t.Errorf("%v failures", n)
		}
		r.stop()
	})
}

// What a call that was given up says: nothing of the ledger, where its callers had no time for it, and of those who had that it failed.
func TestGivenUp(t *testing.T) {
	for doc, tt := range map[string]struct {
		within  time.Duration
		stall   time.Duration
		took    time.Duration
		outcome string
		failed  float64 // tries that count against the ledger
	}{
		"in a hurry":                  {hurry, 150 * time.Millisecond, 200 * time.Millisecond, "left", 0},
		"in a hurry, on a slow disk":  {hurry, 2 * time.Second, time.Second, "timeout", 1},
		"with less time than a call":  {500 * time.Millisecond, 150 * time.Millisecond, 550 * time.Millisecond, "left", 0},
		"with as much time as a call": {time.Second, 150 * time.Millisecond, time.Second, "timeout", 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var took atomic.Int64 // ns
			r := newRig(t, with(func(c *Config) { c.Retry.Tries = 1 }), commits(func(ctx context.Context, _ ledger.Client, _ []ledger.Op) ([]ledger.Outcome, error) {
				began := time.Now()
				<-ctx.Done()
				took.Store(int64(time.Since(began)))
				return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
			}))
			r.stall = tt.stall
			r.start()
			ctx, cancel := context.WithTimeout(context.Background(), tt.within)
			defer cancel()
			var out *OutcomeError
			if _, err := r.e.Post(ctx, alice, "k", "", issue("bo", 1, 1)); !errors.As(err, &out) || !out.Unknown {
				t.Errorf("%s: %v", doc, err)
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if took := time.Duration(took.Load()); took != tt.took {
				t.Errorf("%s: given up after %s, want %s", doc, took, tt.took)
			}
			r.want(1, "upstream_calls_total", "op", opCommit, "outcome", tt.outcome)
			r.want(tt.failed, "upstream_fail_total", "svc", "ledger")
			r.want(tt.failed, "upstream_calls_total", "op", opCommit, "outcome", "timeout")
			r.stop()
		})
	}
}
