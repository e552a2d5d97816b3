package flow

import (
	"fmt"
	"sync"
	"time"
)

// Ticker is a declared time.Ticker for one task. Ticks that the task misses merge into one.
type Ticker struct {
	mu    sync.Mutex
	every time.Duration // guarded by mu
	t     *time.Ticker  // nil until C is called, and after Stop; guarded by mu
}

// Every declares s in c and returns a ticker of period d, which begins with the first call of C.
func Every(c *Catalog, s Spec, d time.Duration) *Ticker {
	if d <= 0 {
		panic(fmt.Sprintf("flow: ticker %s.%s needs a positive period, not %v", s.Service, s.Name, d))
	}
	c.enter(s.as(KindTicker), nil, holdsNone)
	return &Ticker{every: d}
}

// C returns the channel of ticks, starting the ticker if it is not running.
func (t *Ticker) C() <-chan time.Time {
	assertFree("Ticker.C")
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.t == nil {
		t.t = time.NewTicker(t.every)
	}
	return t.t.C
}

// Set changes the period, from now on if the ticker runs.
func (t *Ticker) Set(d time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if d == t.every {
		return
	}
	t.every = d
	if t.t != nil {
		t.t.Reset(d)
	}
}

// Stop ends the ticks until C is called again, so that a restarted task begins a fresh period. The task defers it.
func (t *Ticker) Stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.t != nil {
		t.t.Stop()
		t.t = nil
	}
}
