//go:build flowsched

package flow

import (
	"reflect"
	"sync"
	"sync/atomic"
)

// exploring is the running schedule, or nil. It is global because the points in the code cannot get
// it otherwise. It exists in this build only.
var exploring atomic.Pointer[schedule]

// point marks a place between two accesses to shared state, where any other thread may continue.
func point(at string) {
	if s := exploring.Load(); s != nil {
		s.stop(at, nil)
	}
}

// woken follows a channel operation that may wait. A thread that did wait stops again at once, so
// that only one thread runs at a time.
func woken(at string) {
	if s := exploring.Load(); s != nil {
		s.stopWoken(at)
	}
}

// begin is the first call of every goroutine of this package.
func begin(at string) {
	if s := exploring.Load(); s != nil {
		s.enter(at)
	}
}

// either2 precedes a select over a and b and is a point. A select picks at random among ready
// cases. If both are ready, the schedule picks one, and either2 returns nil for the other. A
// channel to send on is converted to its send-only type first. Timers are not passed: they fire
// only while every thread waits.
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

// either3 is either2 for three channels.
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

// pick returns the case that the schedule picks, or -1 if there is no choice.
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

// isReady reports whether an operation on c would not block.
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

// lock is a sync.Mutex whose Lock is a point. A thread waits for it where the schedule sees it.
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
