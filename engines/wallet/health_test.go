package wallet_test

import (
	"context"
	"errors"
	"fmt"
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

// faulty puts a fault-injecting client between the wallet and the model.
func faulty(f **ledgertest.Faulty) option {
	return over(func(c ledger.Client) ledger.Client {
		*f = ledgertest.NewFaulty(c, ledgertest.Faults{})
		return *f
	})
}

// Twenty failed ops within ten seconds open the breaker. No call reaches the ledger for five
// seconds; then the watchdog's probes close the breaker without any request.
func TestBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		var calls, probes atomic.Int32
		r := newRig(t, with(func(c *wallet.Config) { c.Retry.Tries = 1 }), over(func(c ledger.Client) ledger.Client {
			return &hooked{
				Client: c,
				commit: func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					calls.Add(1)
					if broken.Load() {
						return nil, unavailable(false)
					}
					return next.Commit(ctx, ops)
				},
				probe: func(context.Context, ledger.Client) error {
					probes.Add(1)
					if broken.Load() {
						return unavailable(false)
					}
					return nil
				},
			}
		})).start()
		r.fund("alice", 1000)
		broken.Store(true)
		for i := range 20 {
			if n, state := r.sum("circuit_open_total", "svc", "ledger"), r.e.Calls().State(); n != 0 ||
				state != flow.BreakerClosed {
				t.Fatalf("%s after %d failures", state, i)
			}
			var out *wallet.OutcomeError
			if _, err := r.post("b"+name(i), transfer("alice", "bo", 1, 1)); !errors.As(err, &out) || out.Unknown {
				t.Fatalf("request %d: %v", i, err)
			}
		}
		r.want(1, "circuit_open_total", "svc", "ledger")
		r.want(20, "upstream_fail_total", "service", wallet.Service, "svc", "ledger")
		opened, asked := time.Now(), calls.Load()
		time.Sleep(30 * time.Millisecond)
		if keys := r.failing(); !slices.Equal(keys, []string{wallet.KeyLedger, wallet.KeyBreaker}) {
			t.Errorf("failing: %v", keys)
		}
		r.e.Gates().Ledger().Store(true) // simulates a request accepted just before the failure
		if _, err := r.post("late", transfer("alice", "bo", 1, 1)); reasonOf(err) != "upstream" ||
			calls.Load() != asked {
			t.Errorf("with the breaker open: %v, %d calls", err, calls.Load()-asked)
		}
		r.want(21, "upstream_fail_total", "service", wallet.Service, "svc", "ledger")
		probed := probes.Load()
		time.Sleep(4*time.Second - time.Since(opened))
		if probes.Load() != probed {
			t.Errorf("%d probes while the breaker is open", probes.Load()-probed)
		}
		broken.Store(false)
		for r.e.WriteReady() != nil {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(opened); took < 5900*time.Millisecond || took > 6300*time.Millisecond {
			t.Errorf("ready again after %s, want 5 s and 10 probes, 100 ms apart", took)
		}
		if keys := r.failing(); len(keys) != 0 {
			t.Errorf("failing: %v", keys)
		}
		r.must("after", transfer("alice", "bo", 1, 1))
		r.stop()
	})
}

// A failed call counts once, however many ops it carries. Nineteen failures within ten seconds
// leave the breaker closed, and twenty open it.
func TestBreakerCountsCalls(t *testing.T) {
	for _, tt := range []struct {
		calls int           // failing calls before the pause
		pause time.Duration // before the last call
		opens bool
	}{
		{18, 0, false}, {19, 0, true}, {19, 9 * time.Second, true}, {19, 10 * time.Second, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(
				t,
				with(func(c *wallet.Config) { c.Retry.Tries = 1 }),
				commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
					return nil, unavailable(true)
				}),
			).start()
			fail := func(key string) {
				ops := make([]ledger.Op, 30)
				for k := range ops {
					ops[k] = transfer("alice", "bo", 1, uint64(k+1))
				}
				_, err := r.e.Batch(context.Background(), alice, key, "", false, ops)
				if reasonOf(err) != "upstream" {
					t.Errorf("%v", err)
				}
			}
			for i := range tt.calls {
				fail("b" + name(i))
			}
			time.Sleep(tt.pause)
			fail("last")
			n, state := r.sum("circuit_open_total", "svc", "ledger"), r.e.Calls().State()
			if (n == 1) != tt.opens || (state == flow.BreakerOpen) != tt.opens {
				t.Errorf("%d calls, %s apart: %s, opened %v times", tt.calls, tt.pause, state, n)
			}
			r.stop()
		})
	}
}

// A call abandoned because the caller's deadline is shorter than the call timeout does not count
// against the ledger, so an impatient client cannot open the breaker.
func TestShortDeadlinesOpenNoBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(
			t,
			quick,
			commits(func(ctx context.Context, _ ledger.Client, _ []ledger.Op) ([]ledger.Outcome, error) {
				<-ctx.Done()
				return nil, unavailable(true)
			}),
		).start()
		ops := make([]ledger.Op, 40)
		for k := range ops {
			ops[k] = transfer("alice", "bo", 1, uint64(k+1))
		}
		hurried, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
		defer cancel()
		if _, err := r.e.Batch(hurried, alice, "hurried", "", false, ops); err == nil {
			t.Error("done")
		}
		time.Sleep(time.Second)
		r.want(0, "circuit_open_total", "svc", "ledger")
		if state := r.e.Calls().State(); state != flow.BreakerClosed {
			t.Errorf("%s", state)
		}
		r.stop()
	})
}

// On a disk that takes 1.2 s for a commit, every payment is made, and sent to the ledger once, from
// the first one after the start.
func TestSlowDiskFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := newRig(t, quick, commits(
			func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				calls++
				select {
				case <-time.After(1200 * time.Millisecond):
					return next.Commit(ctx, ops)
				case <-ctx.Done():
					return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
				}
			},
		))
		r.e.Progress().Mean().Store(0) // as at a start
		r.start()
		r.fund("alice", 100)
		const payments = 10
		for i := range payments {
			if _, err := r.post(name(i), transfer("alice", "bo", 1, 0)); err != nil {
				t.Errorf("payment %d: %v", i, err)
			}
		}
		if calls != payments {
			t.Errorf("%d calls for %d payments", calls, payments)
		}
		r.stop()
	})
}

// A ledger in safe mode refuses writes. The first refusal makes the wallet unready, and its outcome
// is not unknown.
func TestSafeMode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var broken atomic.Bool
		r := newRig(t, over(func(c ledger.Client) ledger.Client {
			return &hooked{
				Client: c,
				commit: func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					if broken.Load() {
						return nil, ledger.ErrSafeMode
					}
					return next.Commit(ctx, ops)
				},
				probe: func(context.Context, ledger.Client) error {
					if broken.Load() {
						return ledger.ErrSafeMode
					}
					return nil
				},
			}
		})).start()
		r.fund("alice", 10)
		broken.Store(true)
		// told checks that the caller gets the safe mode error unchanged, and not an error about a
		// ledger that does not answer.
		told := func(doc string, err error) {
			t.Helper()
			if !errors.Is(err, ledger.ErrSafeMode) || isA[*wallet.OutcomeError](err) ||
				err.Error() != ledger.ErrSafeMode.Error() ||
				reasonOf(err) != "upstream" {
				t.Errorf("%s: %v", doc, err)
			}
		}
		_, err := r.post("k", transfer("alice", "bo", 1, 1))
		told("the first", err)
		r.want(1, "upstream_fail_total", "svc", "ledger")
		time.Sleep(50 * time.Millisecond)
		if keys := r.failing(); !slices.Equal(keys, []string{wallet.KeyLedger}) {
			t.Errorf("failing: %v", keys)
		}
		_, err = r.post("l", transfer("alice", "bo", 1, 1))
		told("from then on", err)
		if _, err := r.e.Balance(context.Background(), alice, "alice", "ron", 0); err != nil {
			t.Error(err)
		}
		r.stop()
	})
}

// If a ledger enters safe mode without traffic, the ledger and the wallet are not ready for writes
// at the next tick of the watchdog.
func TestSafeModeWithoutTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		var why atomic.Pointer[string]
		*r.e.SafeMode() = func() string {
			if p := why.Load(); p != nil {
				return *p
			}
			return ""
		}
		r.start()
		if rep := r.board.Report("", ""); !rep.Services[wallet.Service].WriteReady {
			t.Errorf("at first: %+v", rep)
		}
		damage := "record 7 does not decode"
		why.Store(&damage)
		time.Sleep(wallet.WatchEvery)
		synctest.Wait()
		rep := r.board.Report("", "")
		if cause := rep.Causes[wallet.Service+"."+wallet.KeyLedger]; rep.Services[wallet.Service].WriteReady || rep.WriteReady ||
			!rep.ReadReady ||
			cause != ledger.ErrSafeMode.Error() {
			t.Errorf("in safe mode: %+v", rep)
		}
		if _, err := r.post("k", issue("bo", 1, 1)); !errors.Is(err, ledger.ErrSafeMode) || isA[*wallet.OutcomeError](err) {
			t.Errorf("a write: %v", err)
		}
		time.Sleep(time.Second) // the ledger's probes succeed meanwhile
		if err := r.e.WriteReady(); !errors.Is(err, ledger.ErrSafeMode) {
			t.Errorf("a second later: %v", err)
		}
		r.stop()
	})
}

// A ledger with a full disk answers and is ready. Writes return STORE_FULL, even if the disk was
// full at the start.
func TestFullFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		full := fmt.Errorf("probe: %w", ledger.ErrFull)
		r := newRig(t, over(func(c ledger.Client) ledger.Client {
			return &hooked{
				Client: c,
				commit: func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) { return nil, full },
				probe:  func(context.Context, ledger.Client) error { return full },
			}
		})).start()
		time.Sleep(time.Second)
		if keys := r.failing(); len(keys) != 0 {
			t.Errorf("failing: %v", keys)
		}
		if _, err := r.post("k", issue("bo", 1, 1)); reasonOf(err) != "store_full" {
			t.Errorf("a write: %v", err)
		}
		r.stop()
	})
}

// A restored file refuses writes until an operator accepts it. The first write after that succeeds,
// however long the refusals lasted, because they do not count as failures.
func TestWritesFromTheAcceptanceOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var accepted atomic.Bool
		restored := fmt.Errorf("%w: by the store", ledger.ErrRestored)
		r := newRig(t, over(func(c ledger.Client) ledger.Client {
			return &hooked{
				Client: c,
				commit: func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					if !accepted.Load() {
						return nil, restored
					}
					return next.Commit(ctx, ops)
				},
				probe: func(ctx context.Context, next ledger.Client) error {
					if !accepted.Load() {
						return restored
					}
					return next.Probe(ctx)
				},
			}
		})).start()
		for i := range 30 {
			time.Sleep(time.Second)
			if _, err := r.post("r"+name(i), issue("bo", 1, 1)); reasonOf(err) != "restored" ||
				!errors.Is(err, ledger.ErrRestored) {
				t.Fatalf("a write before: %v", err)
			}
		}
		r.want(0, "circuit_open_total", "svc", "ledger")
		accepted.Store(true)
		r.must("first", issue("bo", 1, 1))
		r.stop()
	})
}

// If the disk fills up while the breaker is open, writes return STORE_FULL after the ledger answers
// again. The outage is not reported any longer.
func TestFullAfterAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var state atomic.Int32 // 0 healthy, 1 unavailable, 2 full
		full := fmt.Errorf("probe: %w", ledger.ErrFull)
		said := func() error {
			switch state.Load() {
			case 1:
				return unavailable(false)
			case 2:
				return full
			}
			return nil
		}
		r := newRig(t, with(func(c *wallet.Config) { c.Retry.Tries = 1 }), over(func(c ledger.Client) ledger.Client {
			return &hooked{
				Client: c,
				commit: func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					if err := said(); err != nil {
						return nil, err
					}
					return next.Commit(ctx, ops)
				},
				probe: func(context.Context, ledger.Client) error { return said() },
			}
		})).start()
		r.fund("alice", 1000)
		state.Store(1)
		for i := range 20 {
			_, _ = r.post("b"+name(i), transfer("alice", "bo", 1, 1))
		}
		r.want(1, "circuit_open_total", "svc", "ledger")
		state.Store(2)
		time.Sleep(10 * time.Second)
		if keys := r.failing(); len(keys) != 0 {
			t.Errorf("failing: %v", keys)
		}
		if _, err := r.post("k", transfer("alice", "bo", 1, 1)); reasonOf(err) != "store_full" {
			t.Errorf("a write: %v", err)
		}
		r.stop()
	})
}
