package flow

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Watch is a cell with a current value. It is for values that many tasks follow and of which only
// the last matters.
type Watch[T any] struct {
	cell atomic.Pointer[watched[T]]
}

// watched is one value of a Watch. It is immutable. next is closed when the value is replaced.
type watched[T any] struct {
	value T
	next  chan struct{}
}

// NewWatch declares s in c and returns a cell that holds first.
func NewWatch[T any](c *Catalog, s Spec, first T) *Watch[T] {
	c.enter(s.as(KindWatch), nil, holdsOne)
	w := &Watch[T]{}
	w.cell.Store(&watched[T]{value: first, next: make(chan struct{})})
	return w
}

// Load returns the current value and a channel that is closed by the next Store. It never blocks.
// After the channel is closed, another Load returns the value of that Store or of a later one;
// values in between may be skipped.
func (w *Watch[T]) Load() (T, <-chan struct{}) {
	point("Load")
	cell := w.cell.Load()
	return cell.value, cell.next
}

// Store replaces the value and closes the channels that Load returned with the previous one. It
// never blocks. Of concurrent Stores the last one wins.
func (w *Watch[T]) Store(v T) {
	point("Store")
	old := w.cell.Swap(&watched[T]{value: v, next: make(chan struct{})})
	point("Store, swapped")
	close(old.next)
}

// Ticker is a declared time.Ticker for one task. Missed ticks merge into one. The slow tickers of a
// catalogue tick at the same moments, so that a process that is idle wakes once for all of them: a
// whole number of seconds after the catalogue was made, or of periods if these are shorter. The
// first tick comes after one period, and less than a second, or a second period, later.
type Ticker struct {
	resting atomic.Bool // written with mu held
	began   time.Time   // when the catalogue was made

	mu    sync.Mutex
	every time.Duration // guarded by mu
	t     *time.Ticker  // nil until C is called, and after Stop; guarded by mu
}

// alignFrom is the shortest period of a ticker that ticks at the common moments.
const alignFrom = 250 * time.Millisecond

// restEvery is the period of a ticker at rest, unless its own is longer.
const restEvery = time.Second

// Every declares s in c and returns a ticker with period d. It starts with the first call of C.
func Every(c *Catalog, s Spec, d time.Duration) *Ticker {
	if d <= 0 {
		panic(fmt.Sprintf("flow: ticker %s.%s needs a positive period, not %v", s.Service, s.Name, d))
	}
	c.enter(s.as(KindTicker), nil, holdsNone)
	return &Ticker{every: d, began: c.began}
}

// C returns the channel of ticks. It starts the ticker if it is not running.
func (t *Ticker) C() <-chan time.Time {
	assertFree("Ticker.C")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.t == nil {
		t.t = time.NewTicker(t.period())
		t.align()
	}
	return t.t.C
}

// Set changes the period. A running ticker is reset to it.
func (t *Ticker) Set(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d == t.every {
		return
	}
	t.every = d
	t.reset()
}

// Rest makes the ticker tick once a second, or each period if that is longer, until Wake is called.
// Its task calls Rest when nothing is under way, and then looks once more whether that is so.
func (t *Ticker) Rest() { t.setResting(true) }

// Wake ends a rest: the ticker ticks after one period again. It costs next to nothing if the ticker
// does not rest.
func (t *Ticker) Wake() { t.setResting(false) }

func (t *Ticker) setResting(v bool) {
	if t.resting.Load() == v {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.resting.Swap(v) != v {
		t.reset()
	}
}

// period returns the period of now. Called with t.mu held.
func (t *Ticker) period() time.Duration {
	if t.resting.Load() {
		return max(t.every, restEvery)
	}
	return t.every
}

// reset begins a new period if the ticker runs. Called with t.mu held.
func (t *Ticker) reset() {
	if t.t != nil {
		t.t.Reset(t.period())
		t.align()
	}
}

// align lets the period that has just begun begin again at the next common moment. Called with t.mu
// held.
func (t *Ticker) align() {
	ticker, period := t.t, t.period()
	unit := min(period, time.Second)
	past := time.Since(t.began) % unit
	if period < alignFrom || past == 0 {
		return
	}
	time.AfterFunc(unit-past, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.t == ticker && t.period() == period {
			ticker.Reset(period)
		}
	})
}

// Stop stops the ticker until C is called again, so that a restarted task begins a new period. The
// task defers Stop.
func (t *Ticker) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.t != nil {
		t.t.Stop()
		t.t = nil
	}
}

// Phase is the phase of the process between boot and exit. It is the value of the lifecycle cell.
type Phase int

// The phases, in order. Degraded alternates with Running. Poisoned can follow any phase and ends
// the process.
const (
	Booting Phase = iota
	Standby       // a member of a cluster that another member leads, or none
	Recovering
	Running
	Degraded
	Draining
	Aborting
	Stopping
	Stopped
	Poisoned
)

// String returns the phase in lower case, as metrics and answers print it.
func (p Phase) String() string {
	switch p {
	case Booting:
		return "booting"
	case Standby:
		return "standby"
	case Recovering:
		return "recovering"
	case Running:
		return "running"
	case Degraded:
		return "degraded"
	case Draining:
		return "draining"
	case Aborting:
		return "aborting"
	case Stopping:
		return "stopping"
	case Stopped:
		return "stopped"
	case Poisoned:
		return "poisoned"
	}
	return fmt.Sprintf("phase(%d)", int(p))
}
