package flow

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"
)

// taskRun is the state that the instances of one started task share.
type taskRun struct {
	Task
	super *Supervisor
	log   hclog.Logger

	spawned, abortedCount, canceled, panicked, restarted func(n int)

	instances []*instance // set before they start
	ending    Ending      // of these; guarded by Supervisor.mu

	mu      lock
	left    int  // instances that have not ended for good; guarded by mu
	bad     int  // escalated instances; guarded by mu
	told    bool // argument of the last call of Escalated; guarded by mu
	telling bool // Escalated is being called; guarded by mu
}

func newTaskRun(s *Supervisor, t Task) *taskRun {
	c := s.catalog
	counter := func(family, label string) func(int) { return c.meter.Counter(family, t.Service, label, t.Name) }
	onUse := func(family string) func(int) { // few tasks end before the process does
		series := sync.OnceValue(func() func(int) { return counter(family, "kind") })
		return func(n int) { series()(n) }
	}
	return &taskRun{
		Task:         t,
		super:        s,
		log:          c.log.Named(t.Service),
		spawned:      counter("tasks_spawned_total", "kind"),
		abortedCount: onUse("tasks_aborted_total"),
		canceled:     onUse("tasks_canceled_total"),
		panicked:     counter("tasks_panicked_total", "kind"),
		restarted:    counter("service_restarts_total", "task"),
		ending:       Ending{Service: t.Service, Kind: t.Name},
		left:         t.Count,
	}
}

// Ending counts the work of one kind by the way in which it ended since the process began to drain.
// The kind of a task is its name.
type Ending struct {
	Service   string
	Kind      string
	Finished  int // returned nil
	Cancelled int // stopped by the end of their context
	Aborted   int // cut off after the drain deadline
}

// count adds an end to a counter of the ending, unless the process does not drain yet.
func (t *taskRun) count(as *int) {
	s := t.super
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.draining {
		*as++
	}
}

// escalate adds by to the escalated instances. It calls Hooks.Escalated when the state of the task
// as a whole changes, in order and without a lock held: a goroutine that finds another one calling
// it leaves the call to that one.
func (t *taskRun) escalate(by int) {
	t.mu.Lock()
	t.bad += by
	if t.telling {
		t.mu.Unlock()
		return
	}
	t.telling = true
	for t.told != (t.bad > 0) {
		t.told = !t.told
		bad := t.told
		t.mu.Unlock()
		t.super.hooks.Escalated(t.Service, t.Name, bad)
		t.mu.Lock()
	}
	t.telling = false
	t.mu.Unlock()
}

// ended counts an instance out and reports whether it was the last.
func (t *taskRun) ended() (last bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.left--
	return t.left == 0
}

// instance is one of the Count copies of a task.
type instance struct {
	task   *taskRun
	branch *branch
	index  int
	name   string // "worker/3", "pipeline" if there is only one
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{} // closed when the instance has ended for good or was abandoned

	counted atomic.Bool              // its end is counted as aborted, cancelled or neither
	view    atomic.Pointer[lifeView] // written by run

	restarts  restartLog  // owned by run
	escalated *time.Timer // fires a minute after the last restart; nil if not escalated; owned by run
}

func newInstance(t *taskRun, b *branch, i int) *instance {
	in := &instance{task: t, branch: b, index: i, name: t.Name, done: make(chan struct{})}
	if t.Count > 1 {
		in.name = fmt.Sprintf("%s/%d", t.Name, i)
	}
	in.ctx, in.cancel = context.WithCancelCause(b.ctx)
	in.show(LifeRunning, nil)
	return in
}

// run calls Run again and again until the verdict is that the instance ends.
func (in *instance) run() {
	begin("instance")
	defer in.end()
	point("run")
	for in.ctx.Err() == nil {
		err := in.life()
		switch judge(in.task.Restart, err, in.task.super.isDraining(in.task.Service), in.ctx.Err() != nil) {
		case finished:
			return
		case cancelled:
			if in.isFirstEnd() {
				in.task.canceled(1)
				in.task.count(&in.task.ending.Cancelled)
			}
			return
		case died:
			in.isFirstEnd()
			err = asFailure(err)
			in.show(LifeDone, err)
			in.task.log.Error("task died", "task", in.name, "error", err)
			in.task.super.hooks.Died(in.task.Service, in.task.Name, err)
			return
		case restarts:
			in.restart(asFailure(err))
		}
	}
	if in.isFirstEnd() { // cancelled before its next run
		in.task.count(&in.task.ending.Cancelled)
	}
}

// asFailure returns ErrEnded for a nil return before draining.
func asFailure(err error) error {
	if err == nil {
		return ErrEnded
	}
	return err
}

// life calls Run once and returns its result. Meanwhile it ends an escalation after a minute.
func (in *instance) life() error {
	in.task.spawned(1)
	in.show(LifeRunning, nil)
	over := make(chan error, 1)
	go func() {
		begin("life")
		pprof.Do(in.ctx, pprof.Labels("service", in.task.Service, "task", in.name), func(ctx context.Context) {
			guard(func() error { return in.task.Run(ctx) }, func(err error) { over <- err })
		})
	}()
	for {
		select {
		case err := <-over:
			woken("life is over")
			in.logPanic(err)
			return err
		case <-in.calm():
			woken("life is calm")
			in.settle()
		}
	}
}

func (in *instance) logPanic(err error) {
	var p *PanicError
	if errors.As(err, &p) {
		in.task.panicked(1)
		in.task.log.Error("task panicked", "task", in.name, "panic", fmt.Sprint(p.Value), "stack", string(p.Stack))
	}
}

// restart waits for the backoff, records the restart, and escalates after too many. It returns
// early if the context ends.
func (in *instance) restart(err error) {
	n := in.restarts.recent(time.Now())
	delay := restartDelay(n)
	in.task.log.Warn("task restarts", "task", in.name, "error", err, "restarts", n+1, "delay_ms", delay.Milliseconds())
	in.show(LifeBackoff, err)
	if !in.sleep(delay) {
		return
	}
	in.task.restarted(1)
	tooMany := in.restarts.add(time.Now())
	switch {
	case in.escalated != nil:
		in.escalated.Reset(restartWindow)
	case tooMany:
		in.task.log.Error("task keeps failing", "task", in.name, "restarts", restartLimit+1, "error", err)
		in.escalated = time.NewTimer(restartWindow)
		in.task.escalate(1)
	}
}

// sleep waits for d and reports whether it did so. An escalation does not end here, because its
// minute starts again at the restart.
func (in *instance) sleep(d time.Duration) bool {
	point("sleep")
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		woken("sleep, slept")
		return true
	case <-in.ctx.Done():
		woken("sleep, stopped")
		return false
	}
}

// calm returns a channel that yields a minute after the last restart of an escalated instance.
func (in *instance) calm() <-chan time.Time {
	if in.escalated == nil {
		return nil
	}
	return in.escalated.C
}

// settle ends the escalation, if there is one.
func (in *instance) settle() {
	if in.escalated == nil {
		return
	}
	in.escalated.Stop()
	in.escalated = nil
	in.task.escalate(-1)
}

// end ends the instance. The last instance of a task closes the queues that only this task still
// feeds.
func (in *instance) end() {
	if in.isFirstEnd() {
		in.task.count(&in.task.ending.Finished)
	}
	in.settle()
	in.show(LifeDone, nil)
	in.cancel(nil)
	if in.task.ended() {
		in.task.super.catalog.feederGone(in.task.Service + "." + in.task.Name)
	}
	in.release()
}

// isFirstEnd returns true once. A Drain that passes its deadline and the run of the instance use it
// to agree on how the instance has ended.
func (in *instance) isFirstEnd() bool {
	point("isFirstEnd")
	return in.counted.CompareAndSwap(false, true)
}

// release ends all waits for the instance and reports whether this was the first call.
func (in *instance) release() bool {
	s := in.task.super
	s.mu.Lock()
	defer s.mu.Unlock()
	if !in.branch.live[in] {
		return false
	}
	delete(in.branch.live, in)
	close(in.done)
	return true
}

// TaskState is the state of an instance at one moment.
type TaskState struct {
	Service   string
	Task      string
	Index     int // of the instance, from 0
	State     LifeState
	Since     time.Time // when State began
	Restarts  int       // within the last minute
	LastError error     // result of the last failed run; nil if none failed
}

// LifeState is the state of an instance.
type LifeState string

// The states of an instance.
const (
	LifeRunning LifeState = "running"
	LifeBackoff LifeState = "backoff" // waits before a restart
	LifeDone    LifeState = "done"    // will not run again
)

// lifeView is the published state of an instance. It is replaced, never modified.
type lifeView struct {
	state    LifeState
	since    time.Time
	restarts []time.Time
	last     error
}

// show publishes a new state of the instance. Only run calls it.
func (in *instance) show(s LifeState, err error) {
	next := &lifeView{state: s, since: time.Now(), restarts: slices.Clone(in.restarts.times), last: err}
	if old := in.view.Load(); err == nil && old != nil {
		next.last = old.last
	}
	in.view.Store(next)
}

// look returns the published state.
func (in *instance) look(now time.Time) TaskState {
	v := in.view.Load()
	log := restartLog{times: v.restarts}
	return TaskState{
		Service: in.task.Service, Task: in.task.Name, Index: in.index, State: v.state, Since: v.since,
		Restarts: log.recent(now), LastError: v.last,
	}
}

// Endings returns how the instances of every task ended since the process began to drain, sorted by
// service and task. Tasks of which none has ended are left out.
func (s *Supervisor) Endings() []Ending {
	var out []Ending
	s.mu.Lock()
	for _, b := range s.branches {
		for _, t := range b.tasks {
			if e := t.ending; e.Finished+e.Cancelled+e.Aborted > 0 {
				out = append(out, e)
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b Ending) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Kind, b.Kind))
	})
	return out
}

// Tasks returns every started instance, sorted by service, task and index.
func (s *Supervisor) Tasks() []TaskState {
	now := time.Now()
	var out []TaskState
	s.mu.Lock()
	for _, b := range s.branches {
		for _, t := range b.tasks {
			for _, in := range t.instances {
				out = append(out, in.look(now))
			}
		}
	}
	s.mu.Unlock()
	slices.SortFunc(out, func(a, b TaskState) int {
		return cmp.Or(strings.Compare(a.Service, b.Service), strings.Compare(a.Task, b.Task), a.Index-b.Index)
	})
	return out
}
