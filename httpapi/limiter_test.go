package httpapi

import (
	"runtime"
	"sync/atomic"
	"testing"
)

// Of two who want the one free place, one gets it: who is refused takes no place for a moment that another would have had.
func TestAFreePlaceIsGiven(t *testing.T) {
	const rounds = 100_000
	l := newLimiter(1)
	l.enter()
	var begun, ended atomic.Int64
	var other bool
	joined := make(chan struct{})
	defer func() { begun.Store(-1); <-joined }()
	go func() {
		defer close(joined)
		for i := int64(1); i <= rounds; i++ {
			for begun.Load() != i {
				if begun.Load() < 0 {
					return
				}
				runtime.Gosched()
			}
			other = l.enter()
			ended.Store(i)
		}
	}()
	for i := int64(1); i <= rounds; i++ {
		begun.Store(i)
		l.leave()
		mine := l.enter()
		for ended.Load() != i {
			runtime.Gosched()
		}
		if mine == other {
			t.Fatalf("round %d: I got in: %v, the other: %v, and there is one place", i, mine, other)
		}
	}
}
