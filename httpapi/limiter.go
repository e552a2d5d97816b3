package httpapi

import (
	"errors"
	"sync/atomic"
)

var errInflight = errors.New("too many requests in flight; nothing was begun: send it again after Retry-After")

// limiter bounds how many calls are inside at once. It never waits: who finds it full is refused.
type limiter struct {
	max atomic.Int64
	n   atomic.Int64
}

func newLimiter(limit int) *limiter {
	l := &limiter{}
	l.max.Store(int64(limit))
	return l
}

// enter takes a place. Who is refused takes none, not even for a moment: it could be the one that another has just left.
func (l *limiter) enter() bool {
	for {
		n := l.n.Load()
		if n >= l.max.Load() {
			return false
		}
		if l.n.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (l *limiter) leave() { l.n.Add(-1) }

func (l *limiter) around(next handler) handler {
	return func(c *call) error {
		if !l.enter() {
			return errInflight
		}
		defer l.leave()
		return next(c)
	}
}
