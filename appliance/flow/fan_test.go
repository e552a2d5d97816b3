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

// A panic outweighs an error, even one that came first, and a leg that ends its goroutine has failed.
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
