package wallet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
)

// A call that fails in passing is made three times in all, 50 and 100 ms apart, give or take 20; each try has one second.
func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var tries []time.Time
		stall := false
		r := newRig(t, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			tries = append(tries, time.Now())
			if stall {
				<-ctx.Done()
				return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
			}
			if len(tries) < 3 {
				return nil, unavailable(false)
			}
			return next.Commit(ctx, ops)
		})).start()
		r.fund("alice", 100)
		r.must("k", transfer("alice", "bo", 1, 1))
		if len(tries) != 3 || !near(tries[1].Sub(tries[0]), 50*time.Millisecond, 20*time.Millisecond) || !near(tries[2].Sub(tries[1]), 100*time.Millisecond, 20*time.Millisecond) {
			t.Errorf("tries at %v", tries)
		}
		r.want(2, "backoff_retries_total", "service", service, "op", opCommit, "svc", "ledger")
		tries, stall = nil, true
		began := time.Now()
		_, err := r.post("s", transfer("alice", "bo", 1, 2))
		var out *OutcomeError
		if !errors.As(err, &out) || !out.Unknown || len(tries) != 3 || !near(time.Since(began), 3150*time.Millisecond, 40*time.Millisecond) {
			t.Errorf("%v after %s and %d tries", err, time.Since(began), len(tries))
		}
		r.want(3, "io_timeouts_total", "service", service, "op", "ledger_rpc")
		r.stop()
	})
}

func near(got, want, by time.Duration) bool { return got >= want-by && got <= want+by }

// A request ends at its deadline, or a tenth later if it was begun: what was not has not happened, what was is not known. Each is counted as such.
func TestDeadlines(t *testing.T) {
	for within, late := range map[time.Duration]time.Duration{time.Second: 100 * time.Millisecond, 5 * time.Second: 250 * time.Millisecond} {
		deadlines(t, within, late)
	}
}

func deadlines(t *testing.T, within, late time.Duration) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(t, with(func(c *Config) { c.Workers, c.ReqTimeout = 1, unit.Duration(within) }), commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			<-hold // deaf to its context
			return next.Commit(ctx, ops)
		})).start()
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
		var unknown *OutcomeError
		if got := <-begun; !errors.As(got.err, &unknown) || !unknown.Unknown || got.took != within+late {
			t.Errorf("begun: %v after %s", got.err, got.took)
		}
		var not *NotReadyError
		if got := <-queued; !errors.As(got.err, &not) || not.Cause != CauseDeadline || got.took != within {
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
		r.want(0, "io_timeouts_total", "service", service, "op", "write") // the front's
		r.stop()
	})
}

// A call of the ledger goes on for a tenth of its caller's time after his deadline, and for 250 ms at the most: nobody waits any longer, and a stall
// was seen by then.
func TestGrace(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{
		time.Second: 1100 * time.Millisecond, 2500 * time.Millisecond: 2750 * time.Millisecond, 5 * time.Second: 5250 * time.Millisecond,
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var took time.Duration
			r := newRig(t, quick, with(func(c *Config) { c.ReqTimeout, c.Retry.RPCTimeout = seconds(60), seconds(10) }),
				commits(func(ctx context.Context, _ ledger.Client, _ []ledger.Op) ([]ledger.Outcome, error) {
					<-ctx.Done()
					took = time.Since(began)
					return nil, &ledger.UnavailableError{Unknown: true, Cause: context.Cause(ctx)}
				})).start()
			began = time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			var out *OutcomeError
			if _, err := r.e.Post(ctx, alice, "k", "", issue("bo", 1, 1)); !errors.As(err, &out) || !out.Unknown {
				t.Errorf("%s: %v", within, err)
			}
			if synctest.Wait(); took != want {
				t.Errorf("%s: the call is given up after %s, want %s", within, took, want)
			}
			r.stop()
		})
	}
}

// A full disk is its own answer, and neither opens the breaker nor is tried again.
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

// A ledger that does not know says so, whatever is behind it: its cause, read by itself, may be one that says that nothing was applied.
func TestUnknownWhateverTheCause(t *testing.T) {
	for _, cause := range []error{ledger.ErrSafeMode, ledger.ErrFull, ledger.ErrLoading, &ledger.OpError{Field: "memo", Reason: "is poison"}, errTest} {
		for _, unknown := range []bool{true, false} {
			err := fmt.Errorf("commit: %w", &ledger.UnavailableError{Unknown: unknown, Cause: cause})
			r := newRig(t, with(func(c *Config) { c.Retry.Tries = 1 }), commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) { return nil, err })).start()
			var out *OutcomeError
			if _, err := r.post("k", issue("bo", 1, 1)); !errors.As(err, &out) || out.Unknown != unknown {
				t.Errorf("%v, unknown %v: %v", cause, unknown, err)
			}
			r.stop()
		}
	}
}

// An op that the ledger cannot read is that op's fault alone: those beside it are done.
func TestMalformedOpAmongOthers(t *testing.T) {
	gate := make(chan struct{})
	r := newRig(t, with(func(c *Config) { c.Workers = 1 }), commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
		<-gate
		for i := range ops {
			if ops[i].Memo == "poison" {
				return nil, &ledger.OpError{Index: i, Field: "memo", Reason: "is poison"}
			}
		}
		return next.Commit(ctx, ops)
	})).start()
	r.fund("alice", 100)
	out := make(chan string, 6)
	for i := range 6 {
		q := transfer("alice", "bo", 1, uint64(i+1))
		if i == 5 {
			q.Memo = "poison"
		}
		go func() {
			_, err := r.post("m"+name(i), q)
			out <- code(err)
		}()
	}
	close(gate)
	codes := map[string]int{}
	for range 6 {
		codes[<-out]++
	}
	if codes["BAD_REQUEST"] != 1 {
		t.Errorf("%v", codes)
	}
	r.must("ok", issue("carol", 1, r.issued+1))
}
