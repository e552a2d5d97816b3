package httpapi

import (
	"errors"
	"sync/atomic"
)

var errInflight = errors.New("too many requests in flight")

// limiter bounds how many calls are inside at once. It never waits: who finds it full is refused.
type limiter struct {
	max int64
	n   atomic.Int64
}

func newLimiter(limit int) *limiter { return &limiter{max: int64(limit)} }

func (l *limiter) enter() bool {
	if l.n.Add(1) <= l.max {
		return true
	}
	l.n.Add(-1)
	return false
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
