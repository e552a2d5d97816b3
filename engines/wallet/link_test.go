package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// A call that fails transiently is tried three times in total, after delays of 50 and 100 ms with
// 20 ms jitter. Each try has a timeout of one second.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		stall := false
		r := newRig(
			t,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				tries = append(tries, time.Now())
				if stall {
					<-ctx.Done()
					return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
				}
				if len(tries) < 3 {
					return nil, unavailable(false)
				}
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 100)
		r.must("k", transfer("alice", "bo", 1, 1))
		if len(tries) != 3 || !near(tries[1].Sub(tries[0]), 50*time.Millisecond, 20*time.Millisecond) ||
			!near(tries[2].Sub(tries[1]), 100*time.Millisecond, 20*time.Millisecond) {
			t.Errorf("tries at %v", tries)
		}
		r.want(2, "backoff_retries_total", "service", wallet.Service, "op", wallet.OpCommit, "svc", "ledger")
		tries, stall = nil, true
		began := time.Now()
		_, err := r.post("s", transfer("alice", "bo", 1, 2))
		var out *wallet.OutcomeError
		if !errors.As(err, &out) || !out.Unknown || len(tries) != 3 ||
			!near(time.Since(began), 3150*time.Millisecond, 40*time.Millisecond) {
			t.Errorf("%v after %s and %d tries", err, time.Since(began), len(tries))
		}
		r.want(3, "io_timeouts_total", "service", wallet.Service, "op", "ledger_rpc")
		r.stop()
	})
}

func near(got, want, by time.Duration) bool { return got >= want-by && got <= want+by }

// A queued request ends at its deadline and was not applied. A request in progress gets a grace
// period after the deadline and then has an unknown outcome. Each case is counted under its own
// reason.
func TestDeadlines(t *testing.T) {
	for within, late := range map[time.Duration]time.Duration{time.Second: 100 * time.Millisecond, 5 * time.Second: 250 * time.Millisecond} {
		deadlines(t, within, late)
	}
}

func deadlines(t *testing.T, within, late time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(
			t,
			with(func(c *wallet.Config) { c.Workers, c.ReqTimeout = 1, unit.Duration(within) }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-hold // ignores its context
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 100)
		type result struct {
			err  error
			took time.Duration
		}
		post := func(key string, nonce uint64) chan result {
			out := make(chan result, 1)
			go func() {
				began := time.Now()
				_, err := r.post(key, transfer("alice", "bo", 1, nonce))
				out <- result{err, time.Since(began)}
			}()
			synctest.Wait()
			return out
		}
		begun, queued := post("begun", 1), post("queued", 2)
		var unknown *wallet.OutcomeError
		if got := <-begun; !errors.As(got.err, &unknown) || !unknown.Unknown || got.took != within+late {
			t.Errorf("begun: %v after %s", got.err, got.took)
		}
		var not *wallet.NotReadyError
		if got := <-queued; !errors.As(got.err, &not) || not.Cause != wallet.CauseDeadline || got.took != within {
			t.Errorf("queued: %v after %s", got.err, got.took)
		}
		close(hold)
		synctest.Wait()
		if got := r.available("bo"); got != "0" && got != "1" {
			t.Errorf("bo has %s: what was queued was done after all", got)
		}
		r.want(1, "wallet_rejects_total", "reason", "timeout")
		r.want(1, "wallet_rejects_total", "reason", "upstream")
		r.want(2, "wallet_rejects_total")
		r.want(0, "io_timeouts_total", "service", wallet.Service, "op", "write") // counted by the HTTP server only
		r.stop()
	})
}

// A full disk returns ErrFull. It neither opens the breaker nor causes a retry.
func TestFullDisk(t *testing.T) {
	n := 0
	r := newRig(t, commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
		n++
		return nil, fmt.Errorf("commit: %w", ledger.ErrFull)
	})).start()
	for i := range 30 {
		if _, err := r.post("f"+name(i), issue("bo", 1, 1)); !errors.Is(err, ledger.ErrFull) {
			t.Fatal(err)
		}
	}
	if n != 30 || r.e.WriteReady() != nil {
		t.Errorf("%d calls for 30 requests; %v", n, r.e.WriteReady())
	}
}

// An UnavailableError with Unknown set results in an unknown outcome for every cause, even for a
// cause that alone would prove that nothing was applied.
func TestUnknownWhateverTheCause(t *testing.T) {
	for _, cause := range []error{ledger.ErrSafeMode, ledger.ErrFull, ledger.ErrLoading, &ledger.OpError{Field: "memo", Reason: "is poison"}, errTest} {
		for _, unknown := range []bool{true, false} {
			err := fmt.Errorf("commit: %w", &ledger.UnavailableError{Unknown: unknown, Cause: cause})
			r := newRig(
				t,
				with(func(c *wallet.Config) { c.Retry.Tries = 1 }),
				commits(
					func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) { return nil, err },
				),
			).start()
			var out *wallet.OutcomeError
			if _, err := r.post("k", issue("bo", 1, 1)); !errors.As(err, &out) || out.Unknown != unknown {
				t.Errorf("%v, unknown %v: %v", cause, unknown, err)
			}
			r.stop()
		}
	}
}

// An op that the ledger finds malformed is refused before it is queued.
func TestMalformedOp(t *testing.T) {
	r := newRig(t, over(func(c ledger.Client) ledger.Client { return poisoned{c} })).start()
	r.fund("alice", 100)
	q := transfer("alice", "bo", 1, 1)
	q.Memo = "poison"
	var field *wallet.FieldError
	if _, err := r.post("bad", q); !errors.As(err, &field) || field.Field != "memo" {
		t.Errorf("%v", err)
	}
	r.must("ok", transfer("alice", "bo", 1, 1))
	r.want(1, "upstream_calls_total", "op", wallet.OpCommit, "outcome", "ok")
}

// poisoned is a ledger that rejects the memo "poison" as malformed.
type poisoned struct{ ledger.Client }

func (p poisoned) Prepare(ctx context.Context, op *ledger.Op) (*ledger.Prepared, error) {
	if op.Memo == "poison" {
		return nil, &ledger.OpError{Field: "memo", Reason: "is poison"}
	}
	return p.Client.Prepare(ctx, op)
}
