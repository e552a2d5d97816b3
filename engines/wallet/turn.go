package wallet

import (
	"context"
	"sync/atomic"
)

// turn is had by one worker at a time, the one that gathers jobs. It keeps it until the ledger has answered its burst, or failed to: what comes
// meanwhile makes one larger burst, and not several small ones that each cost a sync. A heavy burst gains nothing by that, and passes it on sooner.
type turn struct {
	free chan struct{} // holds a token while nobody has the turn
	who  atomic.Pointer[worker]
}

func newTurn() *turn {
	t := &turn{free: make(chan struct{}, 1)}
	t.free <- struct{}{}
	return t
}

// take waits for the turn, until ctx ends.
func (t *turn) take(ctx context.Context, w *worker) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.free:
		t.who.Store(w)
		return nil
	}
}

// pass gives the turn on, if w has it.
func (t *turn) pass(w *worker) {
	if w != nil && t.who.CompareAndSwap(w, nil) {
		t.free <- struct{}{}
	}
}

// revoke takes the turn from whoever has it: his call stands still, and others need not.
func (t *turn) revoke() { t.pass(t.who.Load()) }
