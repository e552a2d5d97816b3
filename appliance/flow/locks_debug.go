//go:build flowdebug

package flow

import (
	"fmt"
	"slices"
	"sync"
)

// holders maps each goroutine to the locks that it holds. It is global because goroutines are, and
// it exists in debug builds only.
var holders sync.Map // goroutine id → []*Mutex, in the order taken; each value is used by its own goroutine only

// assertOrder panics if the goroutine must not take m now.
func assertOrder(m *Mutex) {
	for _, h := range held(goroutine()) {
		if h.service != m.service {
			panic(fmt.Sprintf("flow: lock %v taken while holding %v of another service", m, h))
		}
		if h.rank >= m.rank {
			panic(fmt.Sprintf("flow: lock %v taken while holding %v: rank inversion", m, h))
		}
	}
}

func noteHeld(m *Mutex) {
	g := goroutine()
	holders.Store(g, append(slices.Clone(held(g)), m))
}

func noteFreed(m *Mutex) {
	g := goroutine()
	rest := slices.DeleteFunc(slices.Clone(held(g)), func(h *Mutex) bool { return h == m })
	if len(rest) == len(held(g)) {
		panic(fmt.Sprintf("flow: lock %v released by a goroutine that does not hold it", m))
	}
	if len(rest) == 0 {
		holders.Delete(g)
		return
	}
	holders.Store(g, rest)
}

// assertFree panics if the goroutine holds a lock: the next operation may wait.
func assertFree(wait string) {
	if h := held(goroutine()); len(h) > 0 {
		panic(fmt.Sprintf("flow: %s while holding %v", wait, h[len(h)-1]))
	}
}

func held(g uint64) []*Mutex {
	v, ok := holders.Load(g)
	if !ok {
		return nil
	}
	return v.([]*Mutex)
}
