package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// The outcome of a call that ends within the grace period after the caller's deadline reaches the
// caller. An unknown outcome stays unknown, although the deadline has passed.
func TestUnknownAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(
			t,
			with(func(c *wallet.Config) { c.Retry.Tries = 1 }),
			commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
				time.Sleep(1050 * time.Millisecond)
				return nil, &ledger.UnavailableError{Unknown: true, Cause: context.DeadlineExceeded}
			}),
		).start()
		r.fund("alice", 100)
		var wg sync.WaitGroup
		for i := range 2 { // the first request, and a request that joined it
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := r.e.Post(ctx, alice, "k", "", transfer("alice", "bo", 1, 1))
				var out *wallet.OutcomeError
				if !errors.As(err, &out) || !out.Unknown {
					t.Errorf("waiter %d: %v, want that it is not known", i, err)
				}
			})
			synctest.Wait()
		}
		wg.Wait()
		r.stop()
	})
}

// If one try may have reached the ledger, the outcome stays unknown, even if a later try meets an
// open breaker or a full disk.
func TestUnknownStaysUnknown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		opens  bool // one failure opens the breaker
		second error
	}{
		{"breaker", true, nil},
		{"full", false, fmt.Errorf("commit: %w", ledger.ErrFull)},
		{"not begun", false, unavailable(false)},
		{"safe mode", false, ledger.ErrSafeMode},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			r := newRig(
				t,
				commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					if calls++; calls > 1 {
						return nil, tt.second
					}
					_, _ = next.Commit(ctx, ops)
					return nil, unavailable(true)
				}),
				with(func(c *wallet.Config) {
					if tt.opens {
						c.CircuitBreaker.FailureThreshold = 1
					}
				}),
			).start()
			r.fund("alice", 100)
			_, err := r.post("k", transfer("alice", "bo", 1, 1))
			var out *wallet.OutcomeError
			if !errors.As(err, &out) || !out.Unknown || reasonOf(err) != "upstream" {
				t.Errorf("%s: %v is told as %+v", tt.name, err, wallet.ReasonOf(err))
			}
			if tt.second == nil && calls != 1 {
				t.Errorf("%s: %d calls through an open breaker", tt.name, calls)
			}
			r.stop()
		})
	}
}
