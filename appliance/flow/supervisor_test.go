package flow

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
)

// rig is a supervisor with everything it tells recorded.
type rig struct {
	*Supervisor
	c     *Catalog
	meter *fakeMeter

	mu   sync.Mutex
	log  bytes.Buffer
	told []string // hook calls, with the time since the rig was made
	born time.Time
}

func (r *rig) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.log.Write(p)
}

func (r *rig) tell(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.told = append(r.told, fmt.Sprintf(format, args...))
}

func (r *rig) heard() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.told)
}

// supervise runs f with a rig inside a bubble of fake time and closes the rig.
func supervise(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{meter: newFakeMeter(), born: time.Now()}
		r.c = NewCatalog(r.meter, hclog.New(&hclog.LoggerOptions{Output: r}))
		r.Supervisor = NewSupervisor(t.Context(), r.c, Hooks{
			Escalated: func(service, task string, bad bool) { r.tell("%s.%s bad=%v", service, task, bad) },
			Died:      func(service, task string, err error) { r.tell("%s.%s died: %v", service, task, err) },
		})
		defer r.Close()
		f(t, r)
	})
}

// until is a task that runs until its context ends.
func until(ctx context.Context) error {
	<-ctx.Done()
	return context.Cause(ctx)
}

func (r *rig) counts(t *testing.T, want map[string]int) {
	t.Helper()
	for key, n := range want {
		if got := r.meter.count(key); got != n {
			t.Errorf("%s = %d, want %d", key, got, n)
		}
	}
}

// The n-th restart waits U[100,400] ms × 2ⁿ, at most 5 s; the sixth escalates, and a minute of life
// without one lifts it.
func TestRestartDelaysAndEscalation(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		var starts []time.Time
		r.Start(Task{Service: "wallet", Name: "worker", Run: func(ctx context.Context) error {
			starts = append(starts, time.Now())
			switch n := len(starts); {
			case n == 2:
				panic("boom")
			case n <= 9:
				return errWork
			}
			return until(ctx)
		}})
		time.Sleep(50 * time.Second)
		synctest.Wait()
		if len(starts) != 10 {
			t.Fatalf("%d lives, want 10", len(starts))
		}
		for n := range 9 {
			lo, hi := min(restartMost, restartLo<<n), min(restartMost, restartHi<<n)
			if d := starts[n+1].Sub(starts[n]); d < lo || d > hi {
				t.Errorf("restart %d after %v, want %v to %v", n, d, lo, hi)
			}
		}
		if got := r.heard(); !slices.Equal(got, []string{"wallet.worker bad=true"}) {
			t.Errorf("told %q", got)
		}
		time.Sleep(time.Until(starts[9].Add(time.Minute)) - time.Nanosecond)
		synctest.Wait()
		if got := r.heard(); len(got) != 1 {
			t.Errorf("told %q before the minute was over", got)
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if got := r.heard(); !slices.Equal(got, []string{"wallet.worker bad=true", "wallet.worker bad=false"}) {
			t.Errorf("told %q", got)
		}
		r.counts(
			t,
			map[string]int{
				"tasks_spawned_total{wallet,kind,worker}":    10,
				"service_restarts_total{wallet,task,worker}": 9,
				"tasks_panicked_total{wallet,kind,worker}":   1,
			},
		)
		if log := r.log.String(); strings.Count(log, "supervisor_test.go") != 1 ||
			strings.Count(log, "keeps failing") != 1 {
			t.Errorf("want one stack and one error:\n%s", log)
		}
	})
}

// A restart every 15 s never escalates; a sick instance escalates the task, and the task is well
// when all its instances are.
func TestEscalationIsPerInstanceToldPerTask(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		var lives atomic.Int64
		r.Start(
			Task{
				Service: "index",
				Name:    "steady",
				Run:     func(context.Context) error { time.Sleep(15 * time.Second); return errWork },
			},
		)
		r.Start(Task{Service: "index", Name: "resolver", Count: 3, Run: func(ctx context.Context) error {
			if lives.Add(1) <= 24 { // so at least one instance is restarted eight times
				return errWork
			}
			return until(ctx)
		}})
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		if got := r.heard(); !slices.Equal(got, []string{"index.resolver bad=true", "index.resolver bad=false"}) {
			t.Errorf("told %q", got)
		}
	})
}

func TestEndingsOfATask(t *testing.T) {
	boom := func(context.Context) error { panic(errWork) }
	end := func(context.Context) error { return nil }
	goexit := func(context.Context) error { runtime.Goexit(); return nil }
	fail := func(context.Context) error { return errWork }
	for _, tt := range []struct {
		doc   string
		rule  Restart
		run   func(context.Context) error
		lives int // after 50 ms: before any restart
		again bool
		told  string
	}{
		{"always, nil", Always, end, 1, true, ""},
		{"always, goexit", Always, goexit, 1, true, ""},
		{"one-shot, nil", OneShot, end, 1, false, ""},
		{"one-shot, error", OneShot, fail, 1, true, ""},
		{"never, nil", Never, end, 1, false, "x.y died: " + ErrEnded.Error()},
		{"never, error", Never, fail, 1, false, "x.y died: work failed"},
		{"never, panic", Never, boom, 1, false, "x.y died: panic: work failed"},
	} {
		supervise(t, func(t *testing.T, r *rig) {
			r.Start(Task{Service: "x", Name: "y", Restart: tt.rule, Run: tt.run})
			time.Sleep(50 * time.Millisecond)
			r.counts(t, map[string]int{"tasks_spawned_total{x,kind,y}": tt.lives})
			time.Sleep(time.Second)
			synctest.Wait()
			if again := r.meter.count("tasks_spawned_total{x,kind,y}") > tt.lives; again != tt.again {
				t.Errorf("%s: started again %v, want %v", tt.doc, again, tt.again)
			}
			if got := strings.Join(r.heard(), "; "); got != tt.told {
				t.Errorf("%s: told %q, want %q", tt.doc, got, tt.told)
			}
		})
	}
}

// An item that a task had claimed when it panicked is answered by the deferred Fail, once, and the
// restarted task goes on with the next.
func TestPanicAnswersTheClaimedItem(t *testing.T) {
	supervise(t, func(t *testing.T, r *rig) {
		type item struct {
			bad   bool
			reply *Reply[string]
		}
		q := NewQueue[item](
			r.c,
			Spec{Service: "x", Name: "jobs_tx", Cap: 4, Policy: RejectNew, Producers: []string{HTTP}},
		)
		work := func(i item) {
			defer i.reply.Fail(ErrCanceled)
			if i.bad {
				panic("boom")
			}
			i.reply.Answer("done")
		}
		r.Start(Task{Service: "x", Name: "worker", Run: func(context.Context) error {
			for i := range q.C() {
				if i.reply.Claim() {
					work(i)
				}
			}
			return nil
		}})
		first, second := item{true, NewReply[string]()}, item{false, NewReply[string]()}
		_, _ = q.TrySend(first), q.TrySend(second)
		if _, err := first.reply.Wait(t.Context()); err != ErrCanceled {
			t.Errorf("the panicked item: %v", err)
		}
		if v, err := second.reply.Wait(t.Context()); v != "done" || err != nil {
			t.Errorf("the next item: %q, %v", v, err)
		}
		r.c.CloseFedBy("x", HTTP)
		if n := r.Drain("x", time.Second, time.Second); n != 0 {
			t.Errorf("%d aborted", n)
		}
	})
}

// The hook calls of one task never overlap, and the last word is true, whichever instances fall ill
// and recover during a slow call.
func TestEscalationKeepsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []bool
		s := NewSupervisor(t.Context(), NewCatalog(nil, nil), Hooks{Escalated: func(_, _ string, bad bool) {
			time.Sleep(time.Second)
			told = append(told, bad) // the race detector sees an overlap
		}})
		defer s.Close()
		run := newTaskRun(s, Task{Service: "x", Name: "y", Count: 2})
		start := time.Now()
		go run.escalate(1)
		synctest.Wait()
		run.escalate(1)
		run.escalate(-1)
		run.escalate(-1) // told by the first call's goroutine, after it
		if d := time.Since(start); d != 0 {
			t.Errorf("waited %v for another's call", d)
		}
		time.Sleep(1500 * time.Millisecond)
		run.escalate(1)
		time.Sleep(time.Minute)
		synctest.Wait()
		if !slices.Equal(told, []bool{true, false, true}) {
			t.Errorf("told %v", told)
		}
	})
}

func TestStartRefusesBugs(t *testing.T) {
	s := NewSupervisor(t.Context(), NewCatalog(nil, nil), Hooks{})
	defer s.Close()
	s.Start(Task{Service: "x", Name: "y", Run: until})
	for want, task := range map[string]Task{
		"started twice": {Service: "x", Name: "y", Run: until},
		"needs a serv":  {Service: "x", Name: "z"},
	} {
		if text := wantPanic(t, func() { s.Start(task) }); !strings.Contains(text, want) {
			t.Errorf("panic = %q, want %q", text, want)
		}
	}
}
