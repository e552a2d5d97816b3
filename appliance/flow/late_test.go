package flow

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A late context ends when the context would that package context makes of the same parent and moment, for the same reason, whether anybody
// waits for it or only looks.
func TestLateIsAContext(t *testing.T) {
	gone := errors.New("gone")
	for _, tt := range []struct {
		name         string
		parent, own  time.Duration // until they end; 0: never, or at once
		cancel, look time.Duration // after which the parent is cancelled; 0: not
	}{
		{name: "own end", own: time.Second, look: 2 * time.Second},
		{name: "not yet", own: time.Second, look: 500 * time.Millisecond},
		{name: "at the end", own: time.Second, look: time.Second},
		{name: "the parent's", parent: time.Second, own: 2 * time.Second, look: 1500 * time.Millisecond},
		{name: "cancelled", own: 2 * time.Second, cancel: time.Second, look: 1500 * time.Millisecond},
		{name: "over before it begins", own: 0, look: time.Nanosecond},
	} {
		for _, waits := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				parent, cancel := context.WithCancelCause(context.Background())
				defer cancel(nil)
				if tt.parent > 0 {
					var stop context.CancelFunc
					parent, stop = context.WithTimeout(parent, tt.parent)
					defer stop()
				}
				want, stop := context.WithTimeout(parent, tt.own)
				defer stop()
				got := LateBy(parent, time.Now().Add(tt.own))
				defer got.Release()
				if waits {
					_ = got.Done()
				}
				if tt.cancel > 0 {
					time.AfterFunc(tt.cancel, func() { cancel(gone) })
				}
				time.Sleep(tt.look)
				synctest.Wait()
				if got.Err() != want.Err() || waits && context.Cause(got) != context.Cause(want) || (context.Cause(got) == nil) != (want.Err() == nil) {
					t.Errorf("%s, waits %v: %v, %v; want %v, %v", tt.name, waits, got.Err(), context.Cause(got), want.Err(), context.Cause(want))
				}
				select {
				case <-got.Done():
					if want.Err() == nil {
						t.Errorf("%s: done", tt.name)
					}
				default:
					if want.Err() != nil {
						t.Errorf("%s: not done", tt.name)
					}
				}
				a, _ := got.Deadline()
				if b, _ := want.Deadline(); !a.Equal(b) {
					t.Errorf("%s: ends %v, want %v", tt.name, a, b)
				}
			})
		}
	}
}

// One inside another has the sooner of both ends and one timer; children of either end with it, and many may begin to wait at once.
func TestLateWithinLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		outer := LateBy(context.WithValue(context.Background(), key{}, "v"), time.Now().Add(time.Second))
		inner := LateBy(outer, time.Now().Add(time.Minute))
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				child, cancel := context.WithCancel(inner)
				defer cancel()
				<-child.Done()
				if child.Err() != context.DeadlineExceeded || child.Value(key{}) != "v" {
					t.Errorf("child: %v, %v", child.Err(), child.Value(key{}))
				}
			})
		}
		began := time.Now()
		wg.Wait()
		if took := time.Since(began); took != time.Second || outer.made.Load() != nil {
			t.Errorf("over after %s; the outer one has a timer: %v", took, outer.made.Load() != nil)
		}
		freed := LateBy(context.Background(), time.Now().Add(time.Hour))
		done := freed.Done()
		freed.Release()
		<-done
	})
}
