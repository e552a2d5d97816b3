package flow

import (
	"fmt"
	"sync"
)

// Rank is the place of a lock in the lock order, outermost first.
type Rank int

// The ranks. Shards of one table share a rank, so a goroutine holds one shard at a time.
const (
	RankRunRegistry Rank = iota + 1
	RankFlights
	RankCacheMeta
	RankCounters
)

// String returns the name of the lock class.
func (r Rank) String() string {
	switch r {
	case RankRunRegistry:
		return "run_registry"
	case RankFlights:
		return "flights"
	case RankCacheMeta:
		return "cache_meta"
	case RankCounters:
		return "counters"
	}
	return fmt.Sprintf("rank(%d)", int(r))
}

// Mutex is a lock with a rank. It is held for a few lines, and never during a channel operation, a
// wait of this package, I/O, a log call or a callback. With the build tag flowdebug it panics if
// locks are taken out of order or of two services at once, or if the goroutine waits while holding
// one.
type Mutex struct {
	mu      lock
	service string
	rank    Rank
}

// NewMutex declares a lock of service in c and returns it. It panics if rank is not one of the
// ranks above.
func NewMutex(c *Catalog, service string, rank Rank) *Mutex {
	if service == "" || rank < RankRunRegistry || rank > RankCounters {
		panic(fmt.Sprintf("flow: lock of service %q has no place in the order: %v", service, rank))
	}
	c.declareLock(service, rank)
	return &Mutex{service: service, rank: rank}
}

// Lock takes the lock. It blocks until the lock is free.
func (m *Mutex) Lock() {
	assertOrder(m)
	m.mu.Lock()
	noteHeld(m)
}

// Unlock releases the lock. Only the goroutine that took it may call Unlock.
func (m *Mutex) Unlock() {
	noteFreed(m)
	m.mu.Unlock()
}

// String returns "service.rank".
func (m *Mutex) String() string {
	return m.service + "." + m.rank.String()
}

// RWMutex is a Mutex that readers share. A goroutine must not take it twice at once, for reading or
// for writing.
type RWMutex struct {
	mu    sync.RWMutex
	place *Mutex // rank and service only; never locked
}

// NewRWMutex declares a lock of service in c and returns it. It panics if rank is not one of the
// ranks above.
func NewRWMutex(c *Catalog, service string, rank Rank) *RWMutex {
	return &RWMutex{place: NewMutex(c, service, rank)}
}

// Lock takes the lock for writing. It blocks until the lock is free.
func (m *RWMutex) Lock() {
	assertOrder(m.place)
	m.mu.Lock()
	noteHeld(m.place)
}

// Unlock releases the lock after Lock. Only the goroutine that took it may call Unlock.
func (m *RWMutex) Unlock() {
	noteFreed(m.place)
	m.mu.Unlock()
}

// RLock takes the lock for reading. It blocks while a writer holds the lock or waits for it.
func (m *RWMutex) RLock() {
	assertOrder(m.place)
	m.mu.RLock()
	noteHeld(m.place)
}

// RUnlock releases the lock after RLock. Only the goroutine that took it may call RUnlock.
func (m *RWMutex) RUnlock() {
	noteFreed(m.place)
	m.mu.RUnlock()
}

// String returns "service.rank".
func (m *RWMutex) String() string { return m.place.String() }
