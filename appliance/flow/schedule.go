//go:build flowsched

package flow

import (
	"fmt"
	"hash/maphash"
	"slices"
	"sync"
	"time"
)

// schedule runs threads one at a time, in a synctest bubble: a thread goes on from a point to its next, or until it waits or is over. Who
// goes on is decided whenever nobody can by himself. Threads are the goroutines a scenario starts and those they start by way of begin.
type schedule struct {
	decide func(n int, stay bool) int // picks one of n; stay says that 0 is to go on with the thread whose turn it was

	came chan struct{} // holds a token when a thread has stopped or is over
	mu   sync.Mutex    // held for a few lines between points

	threads []*thread          // in the order they began; guarded by mu, as is all below
	of      map[uint64]*thread // by goroutine
	turn    *thread            // who runs
	last    *thread            // whose going on was decided last
	trace   []string           // who went on, and from where
	sum     uint64             // tells traces apart
}

// thread is a goroutine of a schedule.
type thread struct {
	name    string
	started bool // by the scenario, which tells when it is over
	moved   bool // it has gone on from its first point
	turn    chan struct{}

	stopped bool
	at      string        // the point
	local   bool          // up to its next point it touches nothing that is shared: no need to decide
	free    func() bool   // nil, or whether it can go on
	pass    time.Duration // fake time that passes before it goes on
	waited  bool          // in a channel operation, since it went on
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

// stop is called by the thread whose turn it is, the only one that can come to a point: those that it wakes stop in stopWoken.
func (s *schedule) stop(at string, free func() bool) {
	s.mu.Lock()
	s.park(s.turn, at, free)
}

// stopWoken is called by the thread whose turn it is, and goes on, or by one that it has woken. To ask who calls takes long.
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

// park is called with mu held and releases it.
func (s *schedule) park(t *thread, at string, free func() bool) {
	if t.stopped {
		panic(fmt.Sprintf("flow: somebody has come to %s who did not stop when he was woken, or did not begin", at))
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

// traceSeed is drawn once, so that sums of one process can be compared.
var traceSeed = maphash.MakeSeed()

// note is called with mu held.
func (s *schedule) note(step string) {
	s.trace = append(s.trace, step)
	s.sum = s.sum*31 + maphash.String(traceSeed, step)
}
