package flow

import (
	"context"
	"runtime"
	"sync/atomic"
)

// Slots bounds how many callers do a kind of work at the same time. It holds no work: a caller
// takes a slot, works on its own goroutine and releases the slot.
type Slots struct {
	taken   chan struct{} // one token for each slot in use
	refused atomic.Uint64 // by TryAcquire
}

// NewSlots declares s in c and returns s.Cap free slots, or one for each processor if s.Cap is 0.
// s.Producers are the tasks whose goroutines take slots.
func NewSlots(c *Catalog, s Spec) *Slots {
	s = s.as(KindSlots)
	n := s.Cap
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	k := &Slots{taken: make(chan struct{}, max(n, 1))}
	c.enter(s, nil, func() (int, uint64) { return k.Used(), k.refused.Load() })
	return k
}

// Acquire takes a slot. It waits for one until ctx ends. The caller has a slot if and only if
// Acquire returns nil, and must then call Release once. Otherwise it returns the cause of ctx.
func (k *Slots) Acquire(ctx context.Context) error {
	assertFree("Slots.Acquire")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	taken, over := either2("Acquire", (chan<- struct{})(k.taken), ctx.Done())
	select {
	case taken <- struct{}{}:
		woken("Acquire, got it")
		return nil
	case <-over:
		woken("Acquire, over")
		return context.Cause(ctx)
	}
}

// TryAcquire takes a slot if one is free. It never blocks.
func (k *Slots) TryAcquire() bool {
	point("TryAcquire")
	select {
	case k.taken <- struct{}{}:
		return true
	default:
		k.refused.Add(1)
		return false
	}
}

// Release frees a slot that the caller has taken. It never blocks, and panics if no slot is taken.
func (k *Slots) Release() {
	point("Release")
	select {
	case <-k.taken:
	default:
		panic("flow: a slot is released that nobody has taken")
	}
}

// Used returns how many slots are taken. Cap returns how many there are.
func (k *Slots) Used() int { return len(k.taken) }
func (k *Slots) Cap() int  { return cap(k.taken) }
