package store

import (
	"math"
	"math/bits"
	"sync/atomic"
)

// histogramSlots are four for each doubling of a number of 64 bits.
const histogramSlots = 64 * 4

// histogram counts numbers so that quantiles can be told to within a fifth. One goroutine adds, any reads.
type histogram struct{ slots [histogramSlots]atomic.Uint64 }

// slot is four to a doubling: the position of the highest bit and the two bits below it.
func slot(v uint64) int {
	if v < 4 {
		return int(v)
	}
	top := bits.Len64(v) - 1
	return top*4 + int(v>>(top-2)&3)
}

// upper is the largest number of a slot.
func upper(slot int) uint64 {
	if slot < 8 {
		return uint64(min(slot, 3))
	}
	top := slot / 4
	if top == 63 && slot%4 == 3 {
		return math.MaxUint64
	}
	return (uint64(slot%4)+5)<<(top-2) - 1
}

func (h *histogram) add(v int64) { h.slots[slot(uint64(max(v, 0)))].Add(1) }

// quantiles are the largest numbers that the named share of all may have.
func (h *histogram) quantiles() Quantiles {
	var counts [histogramSlots]uint64
	var all uint64
	for i := range h.slots {
		counts[i] = h.slots[i].Load()
		all += counts[i]
	}
	at := func(share float64) uint64 {
		rank, seen := uint64(math.Ceil(share*float64(all))), uint64(0)
		for i, n := range counts {
			if seen += n; n > 0 && seen >= rank {
				return upper(i)
			}
		}
		return 0
	}
	return Quantiles{Count: all, P50: at(.5), P99: at(.99), Max: at(1)}
}

// Quantiles of a histogram, each up to a fifth too large; all zero if nothing was counted.
type Quantiles struct {
	Count         uint64
	P50, P99, Max uint64
}
