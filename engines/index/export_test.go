package index

import (
	"context"
	"time"

	"ronbox/engines/index/lookup"
	"ronbox/engines/index/name"
	"ronbox/engines/index/peers"
)

// ErrNoWorker is returned when a lookup waited too long for a worker.
var ErrNoWorker = errNoWorker

// Paced returns what a configuration means for lookups.
func Paced(c Config) (pace lookup.Pace, deadline, least time.Duration) {
	s := settle(c)
	return s.pace, s.deadline, s.least
}

// Live returns the current configuration, and what it means for lookups.
func (e *Engine) Live() (c Config, pace lookup.Pace, deadline time.Duration) {
	s := e.live()
	return s.Config, s.pace, s.deadline
}

// Settle waits until the cache has taken what was given to it.
func (e *Engine) Settle() { e.answers.Settle() }

// Outdate outdates a key of the cache, as a write does.
func (e *Engine) Outdate(key string) { e.answers.Outdate(key) }

// IsPast reports whether the cache has an answer for key that may be served while peers fail.
func (e *Engine) IsPast(key string, now time.Time) bool {
	_, ok := e.answers.Past(key, now)
	return ok
}

// Queued returns the lengths of work_tx, bg_tx and reindex_tx.
func (e *Engine) Queued() (work, bg, reindexes int) {
	return e.work.Len(), e.bg.Len(), e.reindexes.Len()
}

// Line returns the number of jobs that wait for a worker, and of those that have one.
func (e *Engine) Line() (queued, running int) { return e.line.Size() }

// Flights returns the number of lookups with waiters.
func (e *Engine) Flights() int { return e.flight.Len() }

// Publish publishes an event.
func (e *Engine) Publish(ev name.Event) { e.events.Publish(ev) }

// PeersReady is the probe of the readiness of peers.
func (e *Engine) PeersReady() error { return e.peers.Ready() }

// Set returns the current peers and owners.
func (e *Engine) Set() *peers.Set { return e.peers.Load() }

// Ask asks peers, as a worker does, and drops the outcome.
func (e *Engine) Ask(ctx context.Context, p lookup.Pace, c lookup.Call) {
	e.asker.LookUp(ctx, &p, c, func(lookup.Outcome) {})
}
