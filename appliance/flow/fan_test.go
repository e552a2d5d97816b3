package flow

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestFanJoins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int64
		start := time.Now()
		err := Fan(t.Context(), 5, func(_ context.Context, i int) error {
			time.Sleep(time.Duration(i) * time.Second)
			ran.Add(1)
			return nil
		})
		if err != nil || ran.Load() != 5 || time.Since(start) != 4*time.Second {
			t.Errorf("Fan = %v, %d legs in %v", err, ran.Load(), time.Since(start))
		}
		if err := Fan(t.Context(), 0, nil); err != nil {
			t.Errorf("Fan of no legs = %v", err)
		}
	})
}

func TestFanFirstErrorCancelsTheRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := Fan(t.Context(), 4, func(ctx context.Context, i int) error {
			if i == 2 {
				time.Sleep(time.Second)
				return errWork
			}
			<-ctx.Done()
			if context.Cause(ctx) != errWork {
				t.Errorf("cause = %v", context.Cause(ctx))
			}
			return ctx.Err()
		})
		if err != errWork || time.Since(start) != time.Second {
			t.Errorf("Fan = %v after %v", err, time.Since(start))
		}
	})
}

func TestFanRaisesAPanicAfterTheJoin(t *testing.T) {
	joined := false
	defer func() {
		p, ok := recover().(*PanicError)
		if !ok || !errors.Is(p, errWork) || !joined || !strings.Contains(string(p.Stack), "fan_test.go") {
			t.Errorf("recovered %v, joined %v", p, joined)
		}
	}()
	_ = Fan(t.Context(), 2, func(ctx context.Context, i int) error {
		if i == 0 {
			panic(errWork)
		}
		<-ctx.Done()
		joined = true
		return nil
	})
}

// A panic outweighs an error, even one that came first, and a leg that ends its goroutine has
// failed.
func TestFanHidesNoFailure(t *testing.T) {
	text := wantPanic(t, func() {
		_ = Fan(t.Context(), 2, func(ctx context.Context, i int) error {
			if i == 0 {
				return errWork
			}
			<-ctx.Done()
			panic("boom")
		})
	})
	if !strings.Contains(text, "boom") {
		t.Errorf("panic = %q", text)
	}
	if err := Fan(t.Context(), 1, func(context.Context, int) error { runtime.Goexit(); return nil }); err != errGoexit {
		t.Errorf("Fan of a leg that ended its goroutine = %v", err)
	}
}

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
		err := Retry(func(int) time.Duration { return time.Hour }, 2,
			nil).Do(ctx, func(context.Context) error { return errWork })
		if !errors.Is(err, ErrAborted) || !errors.Is(err, errWork) || time.Since(start) != time.Second {
			t.Errorf("Do = %v after %v", err, time.Since(start))
		}
		err = Retry(func(int) time.Duration { return 1 }, 2,
			nil).Do(ctx, func(context.Context) error { t.Error("called with an ended context"); return nil })
		if err != ErrAborted {
			t.Errorf("Do with an ended context = %v", err)
		}
	})
}

// A context that ends at the very end of a wait ends the retries too, and hides the last error no
// more than one that ends earlier.
func TestRetryStopsWithItsContextAtTheEndOfAWait(t *testing.T) {
	for range 20 { // the timer or the context: either may be seen first
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(time.Second, func() { cancel(ErrAborted) })
			calls := 0
			err := Retry(func(int) time.Duration { return time.Second }, 2,
				nil).Do(ctx, func(context.Context) error { calls++; return errWork })
			if ctx.Err() != nil && calls == 1 && (!errors.Is(err, ErrAborted) || !errors.Is(err, errWork)) {
				t.Errorf("Do = %v", err)
			}
		})
	}
}
