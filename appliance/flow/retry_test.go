package flow

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetry(t *testing.T) {
	passing := errors.New("passing")
	linear := func(n int) time.Duration { return time.Duration(n+1) * time.Second }
	for _, tt := range []struct {
		doc      string
		failures int
		err      error
		deadline time.Duration
		calls    int
		took     time.Duration
		want     error
	}{
		{"succeeds at once", 0, passing, time.Hour, 1, 0, nil},
		{"succeeds at the third try", 2, passing, time.Hour, 3, 3 * time.Second, nil},
		{"gives up after all tries", 9, passing, time.Hour, 3, 3 * time.Second, passing},
		{"does not repeat what is final", 9, ErrClosed, time.Hour, 1, 0, ErrClosed},
		{"does not begin a wait that ends after the deadline", 9, passing, 2 * time.Second, 2, time.Second, context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newFakeMeter()
			again := func(err error) bool { return err == passing }
			r := Retry(linear, 3, again).Counting(NewCatalog(m, nil), "wallet", "read", "svc", "ledger")
			ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
			defer cancel()
			start, calls := time.Now(), 0
			err := r.Do(ctx, func(context.Context) error {
				if calls++; calls <= tt.failures {
					return tt.err
				}
				return nil
			})
			if !errors.Is(err, tt.want) || calls != tt.calls || time.Since(start) != tt.took {
				t.Errorf("%s: %v after %d calls and %v", tt.doc, err, calls, time.Since(start))
			}
			if n := m.count("backoff_retries_total{wallet,op,read,svc,ledger}"); n != tt.calls-1 {
				t.Errorf("%s: counted %d retries of %d calls", tt.doc, n, tt.calls)
			}
		})
	}
}

func TestRetryStopsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(ErrAborted) })
		start := time.Now()
		err := Retry(func(int) time.Duration { return time.Hour }, 2, nil).Do(ctx, func(context.Context) error { return errWork })
		if !errors.Is(err, ErrAborted) || !errors.Is(err, errWork) || time.Since(start) != time.Second {
			t.Errorf("Do = %v after %v", err, time.Since(start))
		}
		err = Retry(func(int) time.Duration { return 1 }, 2, nil).Do(ctx, func(context.Context) error { t.Error("called with an ended context"); return nil })
		if err != ErrAborted {
			t.Errorf("Do with an ended context = %v", err)
		}
	})
}

// A context that ends at the very end of a wait ends the retries too, and hides the last error no more than one that ends earlier.
func TestRetryStopsWithItsContextAtTheEndOfAWait(t *testing.T) {
	for range 20 { // the timer or the context: either may be seen first
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(ErrAborted) })
			calls := 0
			err := Retry(func(int) time.Duration { return time.Second }, 2, nil).Do(ctx, func(context.Context) error { calls++; return errWork })
			if ctx.Err() != nil && calls == 1 && (!errors.Is(err, ErrAborted) || !errors.Is(err, errWork)) {
				t.Errorf("Do = %v", err)
			}
		})
	}
}
