package upstream

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
)

var errDown = errors.New("down")

func newCalls(inflight int) *Calls {
	m := obs.NewMetrics()
	return NewCalls(flow.NewCatalog(m, nil), m, CallSpec{
		Service:  "test",
		Svc:      "callee",
		Ops:      []string{"op"},
		Inflight: inflight,
		Tries:    3,
		Timeout:  func() time.Duration { return time.Second },
		Delay:    func(int) time.Duration { return time.Millisecond },
		Passing:  func(err error) bool { return errors.Is(err, errDown) || errors.Is(err, context.DeadlineExceeded) },
		Breaker:  flow.BreakerRule{Ratio: 0.5, Min: 6, Window: time.Minute, Cooldown: time.Second, Probes: 1},
	})
}

// A call is made again while it fails in passing, three times at most; another failure is final,
// and each try has its own time.
func TestCallsAreRepeated(t *testing.T) {
	final, n := errors.New("no"), 0
	answers := func(all ...error) func(context.Context) error {
		n = 0
		return func(context.Context) error { n++; return all[n-1] }
	}
	for _, tt := range []struct {
		name  string
		call  func(context.Context) error
		want  error
		tries int
	}{
		{"well", answers(nil), nil, 1}, {"well at last", answers(errDown, errDown, nil), nil, 3}, {"three times down", answers(errDown, errDown, errDown), errDown, 3},
		{"refused", answers(final), final, 1},
		{"hangs", func(ctx context.Context) error { n++; <-ctx.Done(); return context.Cause(ctx) }, context.DeadlineExceeded, 3},
	} {
		synctest.Test(t, func(t *testing.T) {
			n = 0
			if err := newCalls(1).Do(t.Context(), "op", tt.call); !errors.Is(err, tt.want) || n != tt.tries {
				t.Errorf("%s: %v after %d tries, want %v after %d", tt.name, err, n, tt.want, tt.tries)
			}
		})
	}
}

// A failing callee is not called, then probed once. A caller that has left does not count.
func TestCallsOpenTheBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCalls(1)
		left, leave := context.WithCancel(t.Context())
		for range 20 {
			ctx, cancel := context.WithCancel(left)
			_ = k.Do(ctx, "op", func(context.Context) error { cancel(); return errDown })
		}
		leave()
		if k.IsOpen() {
			t.Fatal("callers that left have opened the breaker")
		}
		for range 2 {
			_ = k.Do(t.Context(), "op", func(context.Context) error { return errDown })
		}
		asked := false
		ask := func(context.Context) error { asked = true; return nil }
		if err := k.Do(t.Context(), "op", ask); !errors.Is(err, ErrOpen) || asked || !k.IsOpen() {
			t.Fatalf("six failures later: %v, asked %v", err, asked)
		}
		time.Sleep(time.Second)
		if err := k.Do(t.Context(), "op", ask); err != nil || k.IsOpen() {
			t.Errorf("after the cooldown: %v", err)
		}
	})
}

// No more calls are made at a time than there is room for; a panic gives its place back.
func TestCallsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newCalls(1)
		func() {
			defer func() { _ = recover() }()
			_ = k.Do(t.Context(), "op", func(context.Context) error { panic("bug") })
		}()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		err := k.Do(t.Context(), "op", func(context.Context) error {
			return k.Do(ctx, "op", func(context.Context) error { t.Error("two calls at a time"); return nil })
		})
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a second call: %v", err)
		}
	})
}
