package store

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

func TestClosedLanes(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	var wg sync.WaitGroup
	wg.Go(func() { mustCommit(r, put{Key: "accepted", Value: "1"}) })
	r.awaitQueued(Work, 1)
	r.CloseLanes()
	if _, err := Commit(t.Context(), r.Store, Work, put{Key: "late"}); !errors.Is(err, ErrClosed) {
		t.Errorf("after the gate: %v", err)
	}
	r.start()
	wg.Wait() // accepted commands are drained
	r.stop()
	if err := r.View(t.Context(), nil); !errors.Is(err, ErrClosed) {
		t.Errorf("view of a closed store: %v", err)
	}
	if err := r.Health(); !errors.Is(err, ErrClosed) {
		t.Errorf("health of a closed store: %v", err)
	}
}

// A cancelled committer answers all queued commands, so no caller waits forever.
func TestCancelledCommitter(t *testing.T) {
	r := open(t, newFile(t))
	entered, leave := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		mustCommit(r, put{Key: "in hand"}, func(uint64) {
			close(entered)
			<-leave
		})
	})
	<-entered
	for i := range 5 {
		wg.Go(func() {
			if _, err := Commit(t.Context(), r.Store, Lane(i%lanes), put{Key: "queued", Value: "1"}); !errors.Is(
				err,
				ErrClosed,
			) {
				t.Errorf("queued command: %v", err)
			}
		})
	}
	r.awaitQueued(Control, 2)
	r.awaitQueued(Work, 2)
	r.awaitQueued(Bulk, 1)
	r.cancel()
	close(leave)
	wg.Wait()
	<-r.done
	if !errors.Is(r.end, context.Canceled) || r.get("queued") != "" {
		t.Errorf("committer ended with %v, queued = %q", r.end, r.get("queued"))
	}
	r.end = nil
	r.stop()
}

// Close answers what no committer took.
func TestCloseAnswersWhatIsLeft(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	var wg sync.WaitGroup
	for l := range Lane(lanes) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		wg.Go(func() {
			if _, err := Commit(ctx, r.Store, l, put{Key: "k"}); !errors.Is(err, ErrClosed) {
				t.Errorf("%s: %v", l, err)
			}
		})
		r.awaitQueued(l, 1)
	}
	r.stop()
	wg.Wait()
}

// A file that cannot be read any more makes Close an error, not a crash; and a poisoned store says
// so each time.
func TestCloseOfAnUnreadableFile(t *testing.T) {
	path := newFile(t)
	r := idle(t, path, testConfig())
	truncate(t, path, 0)
	for range 2 {
		if err := r.Close(); !errors.Is(err, ErrPoisoned) {
			t.Errorf("close: %v", err)
		}
	}
}

// hostile is a context that panics once it is asked.
type hostile struct{ context.Context }

func (hostile) Err() error { panic("a bug") }

// A panic of the committer itself, before it has begun, still answers everyone.
func TestPanicInTheCommitter(t *testing.T) {
	r := idle(t, newFile(t), testConfig())
	bad := newRequest[uint64](hostile{t.Context()}, 0, Work, put{Key: "bad"}, nil)
	if err := r.lanes[Work].TrySend(bad); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i, l := range []Lane{Work, Work, Bulk} {
		wg.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			if _, err := Commit(ctx, r.Store, l, put{Key: "k"}); !errors.Is(err, ErrDied) ||
				errors.Is(err, ErrUnknown) {
				t.Errorf("command %d: %v", i, err)
			}
		})
	}
	r.awaitQueued(Work, 3)
	r.awaitQueued(Bulk, 1)
	func() {
		defer func() { _ = recover() }()
		r.end = r.runCommitter(t.Context())
	}()
	wg.Wait()
	if !errors.Is(r.end, ErrDied) || r.running.Load() {
		t.Errorf("committer ended with %v", r.end)
	}
}
