package flow

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Hooks are callbacks of a Supervisor to its owner. They are called on the supervisor's goroutines,
// one at a time per task, and must not wait for the Supervisor.
type Hooks struct {
	// Escalated is called with bad = true when an instance of the task is restarted more than 5
	// times within a minute, and with false when every instance has run for a minute since.
	Escalated func(service, task string, bad bool)
	// Died is called when a Never task has ended other than by draining, cancellation or ErrOver.
	Died func(service, task string, err error)
}

// Supervisor runs tasks, restarts them, and waits for them. Their contexts form a tree: process,
// service, instance.
type Supervisor struct {
	catalog *Catalog
	hooks   Hooks
	root    context.Context
	cancel  context.CancelCauseFunc

	mu       lock
	draining bool               // guarded by mu
	branches map[string]*branch // by service; guarded by mu
}

// branch is the part of the Supervisor that belongs to one service.
type branch struct {
	service string
	ctx     context.Context
	cancel  context.CancelCauseFunc

	draining bool                // guarded by Supervisor.mu
	tasks    map[string]*taskRun // by name; guarded by Supervisor.mu
	live     map[*instance]bool  // guarded by Supervisor.mu
}

// NewSupervisor returns a supervisor. The contexts of its tasks descend from parent. The caller
// must call Close.
func NewSupervisor(parent context.Context, c *Catalog, hooks Hooks) *Supervisor {
	if hooks.Escalated == nil {
		hooks.Escalated = func(string, string, bool) {}
	}
	if hooks.Died == nil {
		hooks.Died = func(string, string, error) {}
	}
	root, cancel := context.WithCancelCause(parent)
	return &Supervisor{catalog: c, hooks: hooks, root: root, cancel: cancel, branches: map[string]*branch{}}
}

// Start declares the tasks, unless the catalogue has them, and starts their instances. It panics on
// a task without names or Run, or one that was already started.
func (s *Supervisor) Start(ts ...Task) {
	for _, t := range ts {
		t = t.normal()
		if t.Service == "" || t.Name == "" || t.Run == nil {
			panic(fmt.Sprintf("flow: task %s.%s needs a service, a name and a Run", t.Service, t.Name))
		}
		s.catalog.declareStarted(t)
		for _, in := range s.admit(t) {
			go in.run()
			point("Start")
		}
	}
}

// admit registers t and its instances as live.
func (s *Supervisor) admit(t Task) []*instance {
	run := newTaskRun(s, t)
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.branch(t.Service)
	if b.tasks[t.Name] != nil {
		panic(fmt.Sprintf("flow: task %s.%s is started twice", t.Service, t.Name))
	}
	b.tasks[t.Name] = run
	for i := range t.Count {
		in := newInstance(run, b, i)
		run.instances = append(run.instances, in)
		b.live[in] = true
		if s.draining && t.Background {
			in.cancel(ErrCanceled)
		}
	}
	return run.instances
}

// branch returns the branch of service, and creates it if necessary. Called with mu held.
func (s *Supervisor) branch(service string) *branch {
	b := s.branches[service]
	if b == nil {
		b = &branch{service: service, tasks: map[string]*taskRun{}, live: map[*instance]bool{}}
		b.ctx, b.cancel = context.WithCancelCause(s.root)
		s.branches[service] = b
	}
	return b
}

// isDraining reports whether a task of service that returns nil has ended regularly.
func (s *Supervisor) isDraining(service string) bool {
	if s.catalog.isDraining(service) {
		return true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.draining || s.branch(service).draining
}

// CancelBackground starts the drain of the process: from now on tasks end by returning nil, and
// Background tasks are cancelled. It does not wait for them.
func (s *Supervisor) CancelBackground() {
	s.mu.Lock()
	s.draining = true
	var background []*instance
	for _, b := range s.branches {
		for in := range b.live {
			if in.task.Background {
				background = append(background, in)
			}
		}
	}
	s.mu.Unlock()
	point("CancelBackground")
	for _, in := range background {
		in.cancel(ErrCanceled)
	}
}

// Drain waits up to within for the tasks of service to return. The remaining ones are aborted:
// their contexts end with ErrAborted, and they get grace to return. A task that still does not
// return is abandoned. Drain returns the number of aborted or of abandoned instances, whichever is
// larger: an instance that ends at the deadline may still hang after its last run. Another Drain of
// the same service with within = 0 cuts a running one short.
func (s *Supervisor) Drain(service string, within, grace time.Duration) (aborted int) {
	assertFree("Supervisor.Drain")
	s.mu.Lock()
	b := s.branch(service)
	b.draining = true
	live := b.instances()
	s.mu.Unlock()
	point("Drain")
	late := await(live, within)
	point("Drain, late")
	for _, in := range late {
		if in.isFirstEnd() {
			in.task.abortedCount(1)
			in.task.count(&in.task.ending.Aborted)
			aborted++
		}
	}
	if len(late) == 0 {
		return 0
	}
	point("Drain, aborts")
	b.cancel(ErrAborted)
	left := 0
	for _, in := range await(late, grace) {
		if in.release() {
			left++
			in.task.log.Error("task does not stop", "task", in.name)
		}
	}
	return max(aborted, left)
}

// Cancel ends the contexts of the tasks of service with ErrCanceled, and then drains it within
// grace. It is for tasks that run until they are cancelled. It returns what Drain returns.
func (s *Supervisor) Cancel(service string, grace time.Duration) (aborted int) {
	s.mu.Lock()
	b := s.branch(service)
	b.draining = true
	s.mu.Unlock()
	b.cancel(ErrCanceled)
	return s.Drain(service, grace, 0)
}

// Close cancels all remaining tasks with ErrCanceled and waits for them, except those that a Drain
// has abandoned. It may be called again.
func (s *Supervisor) Close() {
	assertFree("Supervisor.Close")
	s.mu.Lock()
	s.draining = true
	var live []*instance
	for _, b := range s.branches {
		live = append(live, b.instances()...)
	}
	s.mu.Unlock()
	point("Supervisor.Close")
	s.cancel(ErrCanceled)
	for _, in := range live {
		point("Supervisor.Close, joins")
		<-in.done
		woken("Supervisor.Close, joined")
	}
}

// instances returns the live instances of b, by name. Called with Supervisor.mu held.
func (b *branch) instances() []*instance {
	live := make([]*instance, 0, len(b.live))
	for in := range b.live {
		live = append(live, in)
	}
	slices.SortFunc(live, func(a, b *instance) int { return strings.Compare(a.name, b.name) })
	return live
}

// await waits up to d for the instances to end and returns those that have not.
func await(live []*instance, d time.Duration) (late []*instance) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	over := false
	for _, in := range live {
		if !over {
			select {
			case <-in.done:
				woken("await, done")
			case <-timer.C:
				woken("await, over")
				over = true
			}
			point("await")
		}
		select {
		case <-in.done:
		default:
			late = append(late, in)
		}
	}
	return late
}
