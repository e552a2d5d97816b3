package flow

import (
	"sync/atomic"
	"time"
)

// era is the state of a Breaker in one word: the number of the era, so that passes of another are told apart, the state, and, half-open, the
// permits that are out or settled and the results.
//
//	26 bits number | 2 bits state | 12 bits taken | 12 bits succeeded | 12 bits failed
type era uint64

const (
	oneFailed    = 1
	oneSucceeded = 1 << 12
	oneTaken     = 1 << 24
	stateShift   = 36
	numberShift  = 38
	numberMask   = 1<<(64-numberShift) - 1
)

func (e era) no() uint64          { return uint64(e >> numberShift) }
func (e era) state() BreakerState { return BreakerState(e >> stateShift & 3) }
func (e era) taken() uint64       { return uint64(e/oneTaken) & mostProbes }
func (e era) succeeded() uint64   { return uint64(e/oneSucceeded) & mostProbes }
func (e era) failed() uint64      { return uint64(e) & mostProbes }

// results tells the results of two moments of one era apart.
func (e era) results() uint64 { return uint64(e) % oneTaken }

// idle reports whether every permit taken has been settled.
func (e era) idle() bool { return e.taken() == e.succeeded()+e.failed() }

// settled returns e after a probe ended with r. A result without a permit changes nothing.
func (e era) settled(r CallResult) era {
	switch {
	case e.idle():
		return e
	case r == Succeeded:
		return e + oneSucceeded
	case r == Failed:
		return e + oneFailed
	}
	return e - oneTaken
}

// next returns the era after e, in state s, with all counts at zero. No era has the number 0, the zero Pass's.
func (e era) next(s BreakerState) era {
	no := (e.no() + 1) & numberMask
	return era(max(no, 1)<<numberShift | uint64(s)<<stateShift)
}

// eraResults are what was recorded in one closed era since the last Step. Who is late with a result finds those of its own era, which nobody
// reads any more, or none.
type eraResults struct {
	no                uint64 // of the era
	succeeded, failed atomic.Int64
}

// take returns the results and begins anew.
func (r *eraResults) take() (succeeded, failed int64) {
	point("eraResults.take")
	succeeded = r.succeeded.Swap(0)
	point("eraResults.take, half")
	return succeeded, r.failed.Swap(0)
}

// windowSlots is how many parts of a window are counted apart: a result stops counting between nine tenths of the window and all of it.
const windowSlots = 10

// window counts results over a rolling span of time.
type window struct {
	slot  time.Duration // how long a slot lasts
	start time.Time     // when the slot at the head began; zero until the first add
	head  int
	slots [windowSlots]struct{ succeeded, failed int64 }
}

// add counts at now, after it has dropped what is too old.
func (w *window) add(now time.Time, succeeded, failed int64) {
	switch passed := now.Sub(w.start); {
	case w.start.IsZero() || passed >= windowSlots*w.slot:
		w.clear()
		w.start = now
	case passed >= w.slot:
		n := passed / w.slot
		w.start = w.start.Add(n * w.slot)
		for range n {
			w.head = (w.head + 1) % windowSlots
			w.slots[w.head] = struct{ succeeded, failed int64 }{}
		}
	}
	w.slots[w.head].succeeded += succeeded
	w.slots[w.head].failed += failed
}

// clear forgets everything counted.
func (w *window) clear() {
	*w = window{slot: w.slot}
}

func (w *window) sums() (succeeded, failed int64) {
	for _, s := range w.slots {
		succeeded += s.succeeded
		failed += s.failed
	}
	return succeeded, failed
}
