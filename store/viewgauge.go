package store

import "sync/atomic"

// viewSlots is how many views at one time have their age watched; those beyond are counted only.
const viewSlots = 64

// viewGauge counts the read transactions that are open and knows how old they are.
type viewGauge struct {
	open  atomic.Int64
	next  atomic.Uint32
	began [viewSlots]atomic.Int64 // ns on the store's clock; 0: free
}

// begin gives the slot that end frees, or -1.
func (g *viewGauge) begin(now int64) (slot int) {
	g.open.Add(1)
	slot = int(g.next.Add(1) % viewSlots)
	if !g.began[slot].CompareAndSwap(0, max(now, 1)) {
		return -1
	}
	return slot
}

func (g *viewGauge) end(slot int) {
	if slot >= 0 {
		g.began[slot].Store(0)
	}
	g.open.Add(-1)
}

// oldest is the age of the oldest view watched, in ns; 0 without one.
func (g *viewGauge) oldest(now int64) int64 {
	var age int64
	for i := range g.began {
		if began := g.began[i].Load(); began != 0 {
			age = max(age, now-began)
		}
	}
	return age
}
