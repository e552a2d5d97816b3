//go:build flowsched

package flow

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing/synctest"
	"time"
)

// mostSteps ends a schedule in which threads go round in circles.
const mostSteps = 5000

// errDeadlock is returned if no thread can continue although some have not ended.
var errDeadlock = errors.New("deadlock")

// start runs f as a thread, which stops before its first step.
func (s *schedule) start(name string, f func()) {
	go func() {
		t := s.join(name, true)
		t.local = true
		s.park(t, "begins", nil)
		defer s.exit(t)
		f()
	}()
	synctest.Wait()
}

// sleep lets the fake time move by d while everyone stays where he is.
func (s *schedule) sleep(d time.Duration) {
	s.mu.Lock()
	t := s.turn
	t.pass = d
	s.park(t, "sleeps", nil)
}

func (s *schedule) exit(t *thread) {
	s.mu.Lock()
	t.over = true
	s.mu.Unlock()
	s.tell()
}

// run lets the threads go on until all are over. It returns errDeadlock when none can, and may be
// called again.
func (s *schedule) run() error {
	for range mostSteps {
		synctest.Wait()
		open, local := s.open()
		switch {
		case local != nil:
			s.goOn(local)
		case len(open) > 0:
			i := 0
			if len(open) > 1 {
				i = s.decide(len(open), open[0] == s.last)
			}
			s.last = open[i]
			s.goOn(open[i])
		case s.isOver():
			return nil
		case !s.timePasses():
			return fmt.Errorf("%w: %s", errDeadlock, s.where())
		}
	}
	return fmt.Errorf("no end after %d steps: %s", mostSteps, s.where())
}

// open returns the threads that can continue, first the one that ran last. A thread that will touch
// no shared state continues at once.
func (s *schedule) open() (open []*thread, local *thread) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.threads {
		switch {
		case t.over:
		case !t.stopped:
			t.waited = true
		case t.local:
			return nil, t
		case t.free != nil && !t.free() || s.hasTwin(t):
		case t == s.last:
			open = slices.Insert(open, 0, t)
		default:
			open = append(open, t)
		}
	}
	return open, nil
}

// hasTwin reports whether t has not moved and neither has one before it of the same name, which
// does the same: that one moves first. Called with mu held.
func (s *schedule) hasTwin(t *thread) bool {
	if t.moved || !t.started {
		return false
	}
	first := slices.IndexFunc(s.threads, func(o *thread) bool { return o.started && !o.moved && o.name == t.name })
	return s.threads[first] != t
}

func (s *schedule) goOn(t *thread) {
	if t.pass > 0 {
		time.Sleep(t.pass)
		synctest.Wait()
	}
	s.mu.Lock()
	s.note(t.name + " " + t.at)
	t.moved = t.moved || !t.local
	t.stopped, t.local, t.pass = false, false, 0
	s.turn = t
	s.mu.Unlock()
	t.turn <- struct{}{}
}

// isOver reports whether all that the scenario has started are over. Others may wait for ever: the
// bubble finds them.
func (s *schedule) isOver() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !slices.ContainsFunc(s.threads, func(t *thread) bool { return t.started && !t.over })
}

// timePasses lets the fake time move until a timer has brought a thread to a point, and reports
// whether there was one.
func (s *schedule) timePasses() bool {
	select {
	case <-s.came:
	default:
	}
	limit := time.NewTimer(time.Hour)
	defer limit.Stop()
	select {
	case <-s.came:
		return true
	case <-limit.C:
		return false
	}
}

// where describes the threads that have not ended.
func (s *schedule) where() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []string
	for _, t := range s.threads {
		switch {
		case t.over:
		case t.stopped:
			all = append(all, t.name+" is at "+t.at)
		case t.started:
			all = append(all, t.name+" waits after "+t.at)
		}
	}
	return strings.Join(all, ", ")
}
