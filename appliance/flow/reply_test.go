package flow

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"
)

var errWork = errors.New("work failed")

// In any sequence of calls a reply is claimed at most once and settled at most once, and the first
// settlement is the one that counts.
func TestReplyIsOneShot(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		r, state := NewReply[int](), "waiting"
		var value int
		var fault error
		t.Repeat(map[string]func(*rapid.T){
			"Claim": func(t *rapid.T) {
				if r.Claim() != (state == "waiting") {
					t.Fatalf("Claim in state %s", state)
				}
				if state == "waiting" {
					state = "claimed"
				}
			},
			"Answer": func(t *rapid.T) {
				open := state == "waiting" || state == "claimed"
				if r.Answer(7) != open {
					t.Fatalf("Answer in state %s", state)
				}
				if open {
					state, value = "answered", 7
				}
			},
			"Fail": func(t *rapid.T) {
				open := state == "waiting" || state == "claimed"
				if r.Fail(errWork) != open {
					t.Fatalf("Fail in state %s", state)
				}
				if open {
					state, fault = "answered", errWork
				}
			},
			"Wait with an ended context": func(t *rapid.T) {
				if state == "claimed" {
					return // would wait out the grace
				}
				v, err := r.Wait(over)
				switch {
				case state == "answered" && (v != value || err != fault):
					t.Fatalf("Wait = %d, %v, want %d, %v", v, err, value, fault)
				case state != "answered" && err != context.Canceled:
					t.Fatalf("Wait = %v, want the cause of ctx", err)
				case state == "waiting":
					state = "left"
				}
			},
			"": func(t *rapid.T) {
				if r.Canceled() != (state == "left") {
					t.Fatalf("Canceled in state %s", state)
				}
			},
		})
	})
}

// A caller that leaves and a task that claims meet at the same moment: the work is done exactly if
// the caller was not told otherwise.
func TestReplyClaimAgainstLeave(t *testing.T) {
	for range 5000 {
		r := NewReply[int]()
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var claimed bool
		wg.Go(cancel)
		wg.Go(func() {
			if claimed = r.Claim(); claimed {
				r.Answer(1)
			}
		})
		v, err := r.Wait(ctx)
		wg.Wait()
		if claimed != (v == 1 && err == nil) || !claimed != (err == context.Canceled) {
			t.Fatalf("claimed %v, but the caller got %d, %v", claimed, v, err)
		}
	}
}

func TestReplyGrace(t *testing.T) {
	for _, tt := range []struct {
		doc    string
		time   time.Duration // until the deadline
		answer time.Duration // after it; 0 for never
		want   error
		after  time.Duration
	}{
		{"answered within the grace", time.Second, 99 * time.Millisecond, nil, 99 * time.Millisecond},
		{"answered after it", time.Second, 101 * time.Millisecond, ErrUnknown, 100 * time.Millisecond},
		{"never answered", time.Second, 0, ErrUnknown, 100 * time.Millisecond},
		{"as much as it can be", 2500 * time.Millisecond, 0, ErrUnknown, 250 * time.Millisecond},
		{"and no more", 5 * time.Second, 0, ErrUnknown, 250 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := NewReply[int]()
			ctx, cancel := context.WithTimeout(t.Context(), tt.time)
			defer cancel()
			r.Claim()
			if tt.answer > 0 {
				time.AfterFunc(tt.time+tt.answer, func() { r.Answer(1) })
			}
			start := time.Now()
			_, err := r.Wait(ctx)
			if took := time.Since(start) - tt.time; err != tt.want || took != tt.after {
				t.Errorf("%s: Wait = %v, %v after the deadline, want %v after %v", tt.doc, err, took, tt.want, tt.after)
			}
		})
	}
}

// An unclaimed job is cancelled at the deadline, to the millisecond, and cannot be claimed later.
func TestReplyLeavesUnclaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewReply[int]()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if _, err := r.Wait(ctx); err != context.DeadlineExceeded || time.Since(start) != time.Second {
			t.Errorf("Wait = %v after %v", err, time.Since(start))
		}
		if !r.Canceled() || r.Claim() || r.Answer(1) || r.Fail(errWork) {
			t.Error("a job whose caller has left was taken or settled")
		}
	})
}

// A late context ends when the context would that package context makes of the same parent and
// moment, for the same reason, whether anybody waits for it or only looks.
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
				if got.Err() != want.Err() || waits && context.Cause(got) != context.Cause(want) ||
					(context.Cause(got) == nil) != (want.Err() == nil) {
					t.Errorf("%s, waits %v: %v, %v; want %v, %v", tt.name, waits, got.Err(), context.Cause(got),
						want.Err(), context.Cause(want))
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

// One inside another has the sooner of both ends and one timer; children of either end with it, and
// many may begin to wait at once.
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
