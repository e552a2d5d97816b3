//go:build flowsched

package flow

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

// crew is a supervisor with observed tasks.
type crew struct {
	*world
	*Supervisor
	c       *Catalog
	meter   *fakeMeter
	running int
	lives   int
}

func newCrew(w *world) *crew {
	c := &crew{world: w, meter: newFakeMeter()}
	c.c = NewCatalog(c.meter, nil)
	c.Supervisor = NewSupervisor(w.ctx, c.c, Hooks{})
	return c
}

// task returns a task of service x that calls run with the number of its run.
func (c *crew) task(name string, run func(ctx context.Context, life int) error) Task {
	return Task{Service: "x", Name: name, Run: func(ctx context.Context) error {
		c.lives++
		c.running++
		defer func() { c.running-- }()
		return run(ctx, c.lives)
	}}
}

func (c *crew) count(family, task string) int {
	label := "kind"
	if family == "service_restarts_total" {
		label = "task"
	}
	return c.meter.count(series(family, "x", []string{label, task}))
}

// untilTold waits for the end of ctx.
func untilTold(ctx context.Context) error {
	point("task")
	<-ctx.Done()
	woken("task, told")
	return context.Cause(ctx)
}

var errLife = errors.New("this life fails")

// restarted: a task fails once and is restarted while the supervisor is closed. Close joins it,
// wherever it is.
func restarted(w *world) func() error {
	c := newCrew(w)
	started := make(chan struct{})
	w.thread("starter", func() {
		c.Start(c.task("worker", func(ctx context.Context, life int) error {
			if point("life"); life == 1 {
				return errLife
			}
			return untilTold(ctx)
		}))
		close(started)
	})
	w.thread("closer", func() {
		<-started
		woken("started")
		c.Close()
		w.check(c.running == 0, "closed, with the task running")
		c.lives = 100
	})
	return func() error {
		w.check(c.lives == 100, "a life began after Close")
		spawned, again, cancelled := c.count("tasks_spawned_total", "worker"), c.count(
			"service_restarts_total",
			"worker",
		), c.count("tasks_canceled_total", "worker")
		w.check(again == max(spawned-1, 0) || again == spawned, "%d lives, %d restarts", spawned, again)
		w.check(cancelled <= 1, "cancelled %d times", cancelled)
		return w.err
	}
}

// downstream: HTTP → jobs → two workers → results → writer. The service is drained: every accepted
// item is written, and no task is aborted or restarted. With rash the first worker to return closes
// the results.
func downstream(rash bool) scenario {
	return func(w *world) func() error {
		c := newCrew(w)
		jobs := NewQueue[int](
			c.c,
			Spec{Service: "x", Name: "jobs", Cap: 2, Policy: RejectNew, Producers: []string{HTTP}},
		)
		feeders := []string{"worker"}
		if rash {
			feeders = nil
		}
		results := NewQueue[int](c.c, Spec{Service: "x", Name: "results", Cap: 1, Policy: Wait, Producers: feeders})
		for i := range 2 {
			_ = jobs.TrySend(i + 1)
		}
		var written []int
		worker := c.task("worker", func(ctx context.Context, _ int) error {
			for {
				v, err := jobs.Recv(ctx)
				if err == nil {
					err = results.Send(ctx, v)
				}
				if rash && err != nil {
					results.Close()
				}
				if err != nil {
					return ignore(err)
				}
			}
		})
		worker.Count = 2
		writer := c.task("writer", func(ctx context.Context, _ int) error {
			for {
				v, err := results.Recv(ctx)
				if err != nil {
					return ignore(err)
				}
				written = append(written, v)
			}
		})
		aborted := 0
		w.thread("owner", func() {
			c.Start(worker, writer)
			c.c.CloseFedBy("x", HTTP)
			aborted = c.Drain("x", time.Second, time.Second)
			c.Close()
		})
		return func() error {
			slices.Sort(written)
			w.check(slices.Equal(written, []int{1, 2}), "%v is written", written)
			w.check(aborted == 0 && c.running == 0, "%d aborted, %d still run", aborted, c.running)
			for _, name := range []string{"worker", "writer"} {
				n := c.count("service_restarts_total", name) + c.count("tasks_aborted_total", name) + c.count(
					"tasks_canceled_total",
					name,
				)
				w.check(n == 0, "%s is restarted, aborted or cancelled %d times", name, n)
			}
			return w.err
		}
	}
}

// ignore returns nil for the end of a queue.
func ignore(err error) error {
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return err
}

// abortedOnce: a task that waits for its context is drained by two, against a Close: it is aborted
// once or cancelled, and both come back.
func abortedOnce(w *world) func() error {
	c := newCrew(w)
	aborted := 0
	started := make(chan struct{})
	after := func(name string, f func()) {
		w.thread(name, func() {
			<-started
			woken("started")
			f()
		})
	}
	w.thread("starter", func() {
		c.Start(c.task("worker", func(ctx context.Context, _ int) error { return untilTold(ctx) }))
		close(started)
	})
	after("drainer", func() { aborted += c.Drain("x", time.Second, time.Second) })
	after("second drainer", func() { aborted += c.Drain("x", 0, time.Second) })
	after("closer", c.Close)
	return func() error {
		counted, cancelled := c.count("tasks_aborted_total", "worker"), c.count("tasks_canceled_total", "worker")
		w.check(counted == aborted && aborted <= 1, "%d aborted, %d counted", aborted, counted)
		w.check(cancelled+counted <= 1, "aborted %d times and cancelled %d times", counted, cancelled)
		w.check(c.running == 0, "it still runs")
		return w.err
	}
}

// teller is what escalates.
type teller interface{ escalate(by int) }

// escalated: two instances get into trouble and out again, a third perhaps stays in it. Who is told
// hears of every turn once, in order, and last how it stands.
func escalated(make func(*taskRun) teller, stays bool) scenario {
	return func(w *world) func() error {
		var told []bool
		s := NewSupervisor(w.ctx, NewCatalog(nil, nil), Hooks{Escalated: func(_, _ string, bad bool) {
			point("told")
			told = append(told, bad)
		}})
		run := newTaskRun(s, Task{Service: "x", Name: "worker", Count: 3})
		to := make(run)
		for range 2 {
			w.thread("instance", func() { to.escalate(1); to.escalate(-1) })
		}
		w.thread("third", func() {
			if to.escalate(1); !stays {
				to.escalate(-1)
			}
		})
		return func() error {
			for i, bad := range told {
				w.check(bad == (i%2 == 0), "told %v", told)
			}
			w.check(len(told) > 0 && told[len(told)-1] == stays, "told %v, and it is %v", told, stays)
			s.Close()
			return w.err
		}
	}
}

func TestScheduleSupervisor(t *testing.T) {
	for _, tt := range []struct {
		name  string
		sc    scenario
		least int
		limit int
	}{
		{"restart against close", restarted, 90, 5_000},
		{"drained downstream", downstream(false), 1000, 3_000},
		{"aborted once", abortedOnce, 1000, 5_000},
		{"escalated", escalated(func(t *taskRun) teller { return t }, false), 80, 5_000},
		{"escalated for good", escalated(func(t *taskRun) teller { return t }, true), 80, 5_000},
	} {
		t.Run(tt.name, func(t *testing.T) { holds(t, tt.sc, tt.least, tt.limit) })
	}
}

// rashTeller calls the hook without a check for concurrent calls.
type rashTeller struct{ *taskRun }

func (t rashTeller) escalate(by int) {
	t.mu.Lock()
	was := t.bad > 0
	t.bad += by
	is := t.bad > 0
	t.mu.Unlock()
	if was != is {
		t.super.hooks.Escalated(t.Service, t.Name, is)
	}
}

func TestScheduleSupervisorTwins(t *testing.T) {
	t.Run("closed by the first", func(t *testing.T) { breaks(t, downstream(true), "is written") })
	t.Run("told in disorder", func(t *testing.T) {
		breaks(t, escalated(func(t *taskRun) teller { return rashTeller{t} }, false), "told")
	})
}
