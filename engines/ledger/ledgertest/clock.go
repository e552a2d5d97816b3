package ledgertest

import (
	"sync/atomic"
	"time"
)

// Clock is a wall clock that a test sets. Safe for concurrent use.
type Clock struct{ ns atomic.Int64 }

// NewClock stands at 2026-03-01 12:00 UTC.
func NewClock() *Clock {
	c := new(Clock)
	c.Set(time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC))
	return c
}

// Now is the time the clock shows.
func (c *Clock) Now() time.Time { return time.Unix(0, c.ns.Load()).UTC() }

// Set turns the clock to t, back too.
func (c *Clock) Set(t time.Time) { c.ns.Store(t.UnixNano()) }

// Advance turns the clock on by d.
func (c *Clock) Advance(d time.Duration) { c.ns.Add(int64(d)) }
