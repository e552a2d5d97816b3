//go:build flowsched

package flow

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// schedule runs threads one at a time in a synctest bubble. A thread runs from one point to the
// next, or until it waits or ends. When every thread stands at a point, waits or has ended, the
// schedule decides which one continues. Threads are the goroutines that a scenario starts, and
// those that they start by way of begin.
type schedule struct {
	decide func(n int, stay bool) int // picks one of n; stay: 0 continues the same thread

	came chan struct{} // holds a token when a thread has stopped or ended
	mu   sync.Mutex    // held for a few lines between points

	threads []*thread          // in the order they began; guarded by mu, as are all below
	of      map[uint64]*thread // by goroutine
	turn    *thread            // the running thread
	last    *thread            // the thread that was last chosen to continue
	trace   []string           // which threads continued, and from where
	sum     uint64             // identifies a trace
}

// thread is a goroutine of a schedule.
type thread struct {
	name    string
	started bool // started by the scenario, which reports its end
	moved   bool // it has continued from its first point
	turn    chan struct{}

	stopped bool
	at      string        // name of the point
	local   bool          // up to its next point it touches no shared state: no decision is needed
	free    func() bool   // nil, or reports whether it can continue
	pass    time.Duration // fake time that passes before it continues
	waited  bool          // in a channel operation, since it continued
	over    bool
}

func newSchedule(decide func(n int, stay bool) int) *schedule {
	return &schedule{decide: decide, came: make(chan struct{}, 1), of: map[uint64]*thread{}}
}

// join makes the calling goroutine a thread and returns it with mu held.
func (s *schedule) join(name string, started bool) *thread {
	t := &thread{name: name, started: started, turn: make(chan struct{})}
	s.mu.Lock()
	s.threads = append(s.threads, t)
	s.of[goroutine()] = t
	return t
}

func (s *schedule) enter(name string) {
	t := s.join(name, false)
	t.local = true
	s.park(t, "begins", nil)
}

// stop is called by the running thread. No other thread can reach a point: those that it wakes stop
// in stopWoken.
func (s *schedule) stop(at string, free func() bool) {
	s.mu.Lock()
	s.park(s.turn, at, free)
}

// stopWoken is called by the running thread, which continues, or by a thread that it has woken,
// which stops. Identifying the goroutine is slow, so it is done only if a thread has waited.
func (s *schedule) stopWoken(at string) {
	s.mu.Lock()
	if slices.ContainsFunc(s.threads, func(t *thread) bool { return t.waited }) {
		if t := s.of[goroutine()]; t.waited {
			t.local = true
			s.park(t, at, nil)
			return
		}
	}
	s.mu.Unlock()
}

// park stops t at a point until its turn. Called with mu held; park releases it.
func (s *schedule) park(t *thread, at string, free func() bool) {
	if t.stopped {
		panic(fmt.Sprintf("flow: a thread reached %s without a call of woken or begin before", at))
	}
	t.stopped, t.waited, t.at, t.free = true, false, at, free
	s.mu.Unlock()
	s.tell()
	<-t.turn
}

func (s *schedule) tell() {
	select {
	case s.came <- struct{}{}:
	default:
	}
}

// choose decides between n ready cases of a select.
func (s *schedule) choose(n int) int {
	i := s.decide(n, false)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note(fmt.Sprint("takes ready case ", i))
	return i
}

// traceSeed is drawn once per process, so that sums can be compared.
var traceSeed = maphash.MakeSeed()

// note adds a step to the trace. Called with mu held.
func (s *schedule) note(step string) {
	s.trace = append(s.trace, step)
	s.sum = s.sum*31 + maphash.String(traceSeed, step)
}
