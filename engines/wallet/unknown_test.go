package wallet

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
)

// What the ledger says in the moment of grace after a caller's deadline is what he is told: an outcome that is not known is never called
// none because his own time is over too.
func TestUnknownAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, with(func(c *Config) { c.Retry.Tries = 1 }), commits(func(context.Context, ledger.Client, []ledger.Op) ([]ledger.Outcome, error) {
			time.Sleep(1050 * time.Millisecond)
			return nil, &ledger.UnavailableError{Unknown: true, Cause: context.DeadlineExceeded}
		})).start()
		r.fund("alice", 100)
		var wg sync.WaitGroup
		for i := range 2 { // the one who began it, and one who joined
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				_, err := r.e.Post(ctx, alice, "k", "", transfer("alice", "bo", 1, 1))
				var out *OutcomeError
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

// Once a try may have got through, nothing that a later try meets makes the outcome known: neither an open breaker nor a full disk.
func TestUnknownStaysUnknown(t *testing.T) {
	for _, tt := range []struct {
		name   string
		weight int // of the request: 20 open the breaker
		second error
	}{
		{"breaker", 20, nil},
		{"full", 1, fmt.Errorf("commit: %w", ledger.ErrFull)},
		{"not begun", 1, unavailable(false)},
		{"safe mode", 1, ledger.ErrSafeMode},
	} {
		synctest.Test(t, func(t *testing.T) {
			calls := 0
			r := newRig(t, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if calls++; calls > 1 {
					return nil, tt.second
				}
				_, _ = next.Commit(ctx, ops)
				return nil, unavailable(true)
			})).start()
			r.fund("alice", 100)
			ops := make([]Request, tt.weight)
			for i := range ops {
				ops[i] = transfer("alice", "bo", 1, uint64(i+1))
			}
			_, err := r.e.Batch(context.Background(), alice, "k", "", false, ops)
			var out *OutcomeError
			if !errors.As(err, &out) || !out.Unknown || code(err) != "UPSTREAM_UNAVAILABLE" {
				t.Errorf("%s: %v is told as %+v", tt.name, err, CodeOf(err))
			}
			if tt.second == nil && calls != 1 {
				t.Errorf("%s: %d calls through an open breaker", tt.name, calls)
			}
			r.stop()
		})
	}
}
