package flow

import "fmt"

// Mutex is a lock with a place in the lock order. It is held for a few lines: never over a channel operation, a wait of this package, I/O, a
// log call or a callback. With the build tag flowdebug taking locks out of order, of two services, or waiting while holding one panics.
type Mutex struct {
	mu      lock
	service string
	rank    Rank
}

// NewMutex declares a lock of service in c and returns it. It panics on a rank that is not in the table.
func NewMutex(c *Catalog, service string, rank Rank) *Mutex {
	if service == "" || rank < RankStateMeta || rank > RankCounters {
		panic(fmt.Sprintf("flow: lock of service %q has no place in the order: %v", service, rank))
	}
	c.declareLock(service, rank)
	return &Mutex{service: service, rank: rank}
}

// Lock takes the lock and blocks until it is free.
func (m *Mutex) Lock() {
	assertOrder(m)
	m.mu.Lock()
	noteHeld(m)
}

// Unlock releases the lock, on the goroutine that took it.
func (m *Mutex) Unlock() {
	noteFreed(m)
	m.mu.Unlock()
}

// String returns "service.rank".
func (m *Mutex) String() string {
	return m.service + "." + m.rank.String()
}
