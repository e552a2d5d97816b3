package flow

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// line is a service of two steps: HTTP → first → 3 workers → second → writer, each item taking a
// second in a worker.
func line(r *rig, written *atomic.Int64) (in *Queue[int], out *Queue[int]) {
	in = NewQueue[int](
		r.c,
		Spec{
			Service:   "x",
			Name:      "first",
			Cap:       100,
			Policy:    RejectNew,
			Producers: []string{HTTP},
			Consumers: []string{"worker"},
		},
	)
	out = NewQueue[int](
		r.c,
		Spec{
			Service:   "x",
			Name:      "second",
			Cap:       1,
			Policy:    Wait,
			Producers: []string{"worker"},
			Consumers: []string{"writer"},
		},
	)
	r.Start(
		Task{Service: "x", Name: "worker", Count: 3, Run: func(ctx context.Context) error {
			for v := range in.C() {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return context.Cause(ctx)
				}
				if err := out.Send(ctx, v); err != nil {
					return err
				}
			}
			return nil
		}},
		Task{Service: "x", Name: "writer", Run: func(context.Context) error {
			for range out.C() {
				written.Add(1)
			}
			return nil
		}},
	)
	return in, out
}

// Queues close downstream in order, every accepted item is processed, no task is restarted, and
// Drain returns with the last task.
func TestDrainClosesDownstream(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		var written atomic.Int64
		in, _ := line(r, &written)
		for i := range 30 {
			_ = in.TrySend(i)
		}
		r.CancelBackground()
		r.c.CloseFedBy("x", HTTP)
		start := time.Now()
		if n := r.Drain("x", time.Minute, time.Second); n != 0 {
			t.Errorf("%d aborted", n)
		}
		if written.Load() != 30 || time.Since(start) != 10*time.Second {
			t.Errorf("%d written in %v, want 30 in 10 s", written.Load(), time.Since(start))
		}
		r.counts(t, map[string]int{"tasks_spawned_total{x,kind,worker}": 3, "tasks_aborted_total{x,kind,worker}": 0,
			"tasks_canceled_total{x,kind,worker}": 0, "service_restarts_total{x,task,writer}": 0})
	})
}

// At the deadline the remaining tasks are aborted with ErrAborted and counted, and downstream tasks
// end too.
func TestDrainAborts(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		var written atomic.Int64
		in, _ := line(r, &written)
		for i := range 30 {
			_ = in.TrySend(i)
		}
		time.Sleep(time.Millisecond)
		r.c.CloseFedBy("x", HTTP)
		start := time.Now()
		if n := r.Drain("x", 3*time.Second, 250*time.Millisecond); n != 4 {
			t.Errorf("%d aborted, want 3 workers and the writer", n)
		}
		if d := time.Since(start); d != 3*time.Second || written.Load() != 9 {
			t.Errorf("%d written in %v, want 9 in 3 s", written.Load(), d)
		}
		if left := in.Discard("aborted"); len(left) != 18 {
			t.Errorf("%d items left, want 18", len(left))
		}
		r.counts(t, map[string]int{"tasks_aborted_total{x,kind,worker}": 3, "tasks_aborted_total{x,kind,writer}": 1,
			"tasks_canceled_total{x,kind,worker}": 0})
	})
}

// A task that ignores its context is abandoned after the grace, and Close does not wait for it.
func TestDrainLeavesAStragglerBehind(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		hung := make(chan struct{})
		var cause error
		r.Start(Task{Service: "x", Name: "hung", Run: func(ctx context.Context) error {
			<-hung
			cause = context.Cause(ctx)
			return cause
		}})
		start := time.Now()
		if n := r.Drain("x", time.Second, 250*time.Millisecond); n != 1 || time.Since(start) != 1250*time.Millisecond {
			t.Errorf("%d aborted after %v", n, time.Since(start))
		}
		if n := r.Drain("x", 0, 0); n != 0 {
			t.Errorf("aborted again: %d", n)
		}
		r.Close()
		if d := time.Since(start); d != 1250*time.Millisecond {
			t.Errorf("Close waited until %v", d)
		}
		close(hung)
		synctest.Wait()
		if cause != ErrAborted {
			t.Errorf("cause = %v", cause)
		}
	})
}

// A second Drain with no time cuts the first one short.
func TestDrainIsCutShort(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		r.Start(Task{Service: "x", Name: "slow", Count: 2, Run: until})
		second := make(chan int, 1)
		time.AfterFunc(time.Second, func() { second <- r.Drain("x", 0, time.Second) })
		start := time.Now()
		first := r.Drain("x", time.Minute, time.Second)
		if n := <-second; first+n != 2 || time.Since(start) != time.Second {
			t.Errorf("%d + %d aborted after %v, want 2 after 1 s", first, n, time.Since(start))
		}
	})
}

// It does so even if a task ignores its context: when the second Drain leaves it behind, the first
// has nothing left to wait for.
func TestDrainIsCutShortByAStraggler(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		hung := make(chan struct{})
		r.Start(Task{Service: "x", Name: "hung", Run: func(context.Context) error { <-hung; return nil }})
		second := make(chan int, 1)
		time.AfterFunc(time.Second, func() { second <- r.Drain("x", 0, 250*time.Millisecond) })
		start := time.Now()
		first := r.Drain("x", time.Minute, time.Second)
		if n := <-second; first+n != 1 || time.Since(start) != 1250*time.Millisecond {
			t.Errorf("%d + %d aborted after %v, want 1 after 1.25 s", first, n, time.Since(start))
		}
		close(hung)
	})
}

// Background tasks are cancelled when the drain begins, those started later too; a task that waits
// for its restart is not waited out.
func TestCancelBackground(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		causes := make(chan error, 2)
		note := func(ctx context.Context) error {
			err := until(ctx)
			causes <- err
			return err
		}
		failing := func(context.Context) error { return errWork }
		r.Start(Task{Service: "x", Name: "pruner", Background: true, Run: note},
			Task{Service: "x", Name: "worker", Run: until},
			Task{Service: "x", Name: "failing", Background: true, Run: failing})
		synctest.Wait()
		start := time.Now()
		r.CancelBackground()
		if err := <-causes; err != ErrCanceled {
			t.Errorf("cause = %v", err)
		}
		r.Start(Task{Service: "x", Name: "late", Background: true, Run: note})
		synctest.Wait()
		if n := r.Drain("x", time.Second, time.Second); n != 1 || time.Since(start) != time.Second {
			t.Errorf("%d aborted after %v, want the worker alone", n, time.Since(start))
		}
		r.counts(t, map[string]int{"tasks_canceled_total{x,kind,pruner}": 1, "tasks_aborted_total{x,kind,worker}": 1,
			"tasks_spawned_total{x,kind,late}": 0})
	})
}

// Endings counts every instance that ended since the process began to drain, by the way in which it
// ended.
func TestEndings(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		nothing := func(context.Context) error { return nil }
		hung := make(chan struct{})
		stubborn := func(context.Context) error {
			<-hung
			return nil
		}
		r.Start(Task{Service: "x", Name: "over", Restart: OneShot, Run: nothing})
		synctest.Wait()
		r.Start(Task{Service: "x", Name: "worker", Count: 3, Run: until},
			Task{Service: "x", Name: "stubborn", Run: stubborn},
			Task{Service: "x", Name: "pruner", Background: true, Run: until},
			Task{Service: "x", Name: "failing", Background: true, Run: func(context.Context) error { return errWork }},
			Task{Service: "c", Name: "member", Count: 2, Run: until},
			Task{Service: "c", Name: "stubborn", Run: stubborn},
			Task{Service: "w", Name: "drained", Restart: Never, Run: func(context.Context) error {
				time.Sleep(time.Millisecond)
				return nil
			}})
		synctest.Wait()
		r.CancelBackground()
		r.Drain("w", time.Second, time.Second)
		r.Drain("x", time.Second, time.Second)
		if n := r.Cancel("c", time.Second); n != 1 {
			t.Errorf("%d aborted, want the stubborn one", n)
		}
		want := []Ending{
			{"c", "member", 0, 2, 0},
			{"c", "stubborn", 0, 0, 1},
			{"w", "drained", 1, 0, 0},
			{"x", "failing", 0, 1, 0},
			{"x", "pruner", 0, 1, 0},
			{"x", "stubborn", 0, 0, 1},
			{"x", "worker", 0, 0, 3},
		}
		if got := r.Endings(); !slices.Equal(got, want) {
			t.Errorf("endings %v, want %v", got, want)
		}
		close(hung)
		synctest.Wait()
	})
}

// Close cancels and joins everything, with ErrCanceled.
func TestCloseJoins(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		var ended atomic.Int64
		r.Start(Task{Service: "x", Name: "worker", Count: 5, Run: func(ctx context.Context) error {
			<-ctx.Done()
			time.Sleep(time.Second)
			ended.Add(1)
			return context.Cause(ctx)
		}})
		synctest.Wait()
		r.Close()
		r.Close()
		if ended.Load() != 5 {
			t.Errorf("%d ended before Close returned", ended.Load())
		}
		r.counts(t, map[string]int{"tasks_canceled_total{x,kind,worker}": 5, "tasks_aborted_total{x,kind,worker}": 0})
	})
}

// A task that fails while it drains is restarted, so that its queue is still drained.
func TestFailureWhileDraining(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		q := NewQueue[int](r.c, Spec{Service: "x", Name: "q", Cap: 9, Policy: RejectNew, Producers: []string{HTTP}})
		var got []int
		r.Start(Task{Service: "x", Name: "worker", Run: func(context.Context) error {
			for v := range q.C() {
				if got = append(got, v); v == 2 {
					panic("two")
				}
			}
			return nil
		}})
		for i := range 5 {
			_ = q.TrySend(i)
		}
		r.c.CloseFedBy("x", HTTP)
		time.Sleep(time.Minute) // the drain gate alone makes a nil return the regular end
		r.counts(t, map[string]int{"service_restarts_total{x,task,worker}": 1})
		if n := r.Drain("x", time.Minute, time.Second); n != 0 || !slices.Equal(got, []int{0, 1, 2, 3, 4}) {
			t.Errorf("%d aborted, got %v", n, got)
		}
	})
}

// Drain counts an abandoned instance, even if it is its hook that hangs.
func TestDrainCountsWhoIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c := NewCatalog(nil, nil)
		fails := errors.New("fails")
		s := NewSupervisor(t.Context(), c, Hooks{Escalated: func(_, _ string, is bool) {
			if !is {
				<-hold
			}
		}})
		n := 0
		s.Start(
			Task{
				Service: "a",
				Name:    "b",
				Count:   1,
				Restart: Always,
				Doc:     "fails, then waits.",
				Run: func(ctx context.Context) error {
					if n++; n < 12 {
						return fails
					}
					<-ctx.Done()
					return context.Cause(ctx)
				},
			},
		)
		time.Sleep(40 * time.Second)
		synctest.Wait()
		s.mu.Lock()
		b := s.branch("a")
		s.mu.Unlock()
		b.cancel(ErrCanceled)
		synctest.Wait()
		if got := s.Drain("a", time.Second, time.Second); got != 1 {
			t.Errorf("%d aborted, and one was left behind", got)
		}
		close(hold)
		s.Close()
	})
}
