package edge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/cas"
)

// sums remembers which objects over 1 MiB this process has hashed: they are too large to be hashed at each read, so they are hashed once before
// their first use. There are at most edge.cas.max_bytes / 1 MiB of them.
type sums struct {
	flights *flow.Flight[b3.Digest, struct{}, struct{}]
	slots   chan struct{}

	mu   sync.Mutex
	good map[b3.Digest]struct{} // guarded by mu
}

// Bounds of first reads.
const (
	hashAtOnce = 2                // objects hashed at one time: each keeps a core busy
	hashWithin = 10 * time.Minute // a turn and the hashing of one object
)

func newSums(c *flow.Catalog, calls int) *sums {
	return &sums{
		flights: flow.NewFlight[b3.Digest, struct{}, struct{}](c, flow.FlightSpec{
			Service: service, Name: "hash", Shards: 4, Waiters: maxWaiters, Calls: calls,
		}),
		//rawchan: slots is a semaphore, it queues nothing
		slots: make(chan struct{}, hashAtOnce), good: map[b3.Digest]struct{}{},
	}
}

func (s *sums) has(name b3.Digest) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.good[name]
	return ok
}

// add records that an object holds what its name says.
func (s *sums) add(name b3.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.good[name] = struct{}{}
}

// forget has an object hashed again before its next use.
func (s *sums) forget(name b3.Digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.good, name)
}

// check hashes an object unless that was done. Callers that come at the same time share one reading. It waits until ctx ends; the reading goes on
// then. Errors are those of cas.Dir.Verify, flow.ErrBusy and the cause of ctx.
func (s *sums) check(ctx context.Context, d *cas.Dir, name b3.Digest, size int64) error {
	if s.has(name) {
		return nil
	}
	_, err := s.flights.Do(ctx, name, struct{}{}, hashWithin, func(ctx context.Context) (none struct{}, err error) {
		if s.has(name) {
			return none, nil
		}
		select {
		case s.slots <- struct{}{}:
		case <-ctx.Done():
			return none, fmt.Errorf("hash %s: %w", name, context.Cause(ctx))
		}
		defer func() { <-s.slots }()
		if err = d.Verify(name, size, func(int) error { return context.Cause(ctx) }); err == nil {
			s.add(name)
		}
		return none, err
	})
	if errors.Is(err, flow.ErrFlightFull) {
		return flow.ErrBusy
	}
	return err
}
