//go:build flowsched

package flow

import (
	"reflect"
	"sync"
	"sync/atomic"
)

// exploring is the schedule that runs now, if one does. There is one for the process because the points in the code know of no other, and
// it exists in this build only.
var exploring atomic.Pointer[schedule]

// point is a place between two accesses to what is shared: any other thread may go on here.
func point(at string) {
	if s := exploring.Load(); s != nil {
		s.stop(at, nil)
	}
}

// woken stands behind a channel operation that may wait. Whoever did wait stops again at once, so that one thread runs at a time.
func woken(at string) {
	if s := exploring.Load(); s != nil {
		s.stopWoken(at)
	}
}

// begin is the first that a goroutine of this package does.
func begin(at string) {
	if s := exploring.Load(); s != nil {
		s.enter(at)
	}
}

// either2 stands before a select over a and b and is a point. A select picks at random among ready cases: if both are, the schedule picks,
// and the other comes back nil. A channel to send on is passed as such. Timers are not passed: they run out only while everyone waits.
func either2[A, B any](at string, a A, b B) (A, B) {
	point(at)
	var (
		noA A
		noB B
	)
	switch pick(a, b) {
	case 0:
		return a, noB
	case 1:
		return noA, b
	}
	return a, b
}

// either3 is either2 of three.
func either3[A, B, C any](at string, a A, b B, c C) (A, B, C) {
	point(at)
	var (
		noA A
		noB B
		noC C
	)
	switch pick(a, b, c) {
	case 0:
		return a, noB, noC
	case 1:
		return noA, b, noC
	case 2:
		return noA, noB, c
	}
	return a, b, c
}

// pick returns the case that the schedule takes, -1 if it has no choice.
func pick(cases ...any) int {
	s := exploring.Load()
	if s == nil {
		return -1
	}
	var open []int
	for i, c := range cases {
		if isReady(reflect.ValueOf(c)) {
			open = append(open, i)
		}
	}
	if len(open) < 2 {
		return -1
	}
	return open[s.choose(len(open))]
}

// isReady reports whether an operation on c would not wait.
func isReady(c reflect.Value) bool {
	switch {
	case c.IsNil():
		return false
	case c.Type().ChanDir() == reflect.SendDir:
		return c.Len() < c.Cap()
	case c.Len() > 0:
		return true
	}
	v, took := c.TryRecv() // of an empty channel: nothing, unless it is closed
	if took {
		panic("flow: a schedule knows no channel without a buffer that carries values")
	}
	return v.IsValid()
}

// lock is a sync.Mutex whose Lock is a point, and for which a thread waits where the schedule sees it.
type lock struct {
	mu   sync.Mutex
	held bool // guarded by mu; a schedule reads it while no thread runs
}

func (l *lock) Lock() {
	if s := exploring.Load(); s != nil {
		s.stop("lock", func() bool { return !l.held })
	}
	l.mu.Lock()
	l.held = true
}

func (l *lock) Unlock() {
	l.held = false
	l.mu.Unlock()
}
