// Package excused says why.
package excused

import "sync"

type thing struct {
	mu sync.Mutex
	ch chan int
	n  int
}

func (t *thing) ok() { // want ok:`waits: a channel send`
	t.mu.Lock()
	defer t.mu.Unlock()
	//lockwait: the only reader holds no lock
	t.ch <- 1
	t.ch <- 1 //lockwait: the only reader holds no lock
	// The comment may go on
	//lockwait: for a line
	// or two.
	t.ch <- 1
	t.ch <- 1 // want `held over a channel send`
}

// An excuse under a lock speaks of that lock alone.
func (t *thing) callers(o *thing) { // want callers:`waits: .*`
	o.mu.Lock()
	defer o.mu.Unlock()
	t.ok() // want `o.mu .* is held over a call of thing.ok, which reaches a channel send`
}

func (t *thing) never() {
	t.ch <- 1 //lockwait: there is always room
}

func (t *thing) callsNever() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.never()
}

func (t *thing) bad() { // want bad:`waits: .*`
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ch <- 1 /* want `gives no reason` */   //lockwait:
	t.n++     /* want `nothing to excuse` */ //lockwait: no longer true
}
