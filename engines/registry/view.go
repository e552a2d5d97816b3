package registry

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"ronbox/store"
)

// readTries is how often a place for a read is asked for before StorageBusy is told.
const readTries = 3

// readDelay is the wait between two tries: 50 to 100 ms, doubling, at most 2 s.
func readDelay(n int) time.Duration {
	return min(2*time.Second, (50*time.Millisecond+rand.N(50*time.Millisecond))<<n)
}

// errReadsBusy is returned when as many reads of old versions run as there are cores. It is store.ErrSlow, StorageBusy to a
// client.
var errReadsBusy = fmt.Errorf("as many reads of old versions run as the node allows: %w", store.ErrSlow)

// readSlot takes one of the places of reads that replay a part of the log, so that they cannot starve the rest of the node.
// It does not queue: it tries again after a while, and gives up after readTries.
func (e *Engine) readSlot(ctx context.Context) (release func(), err error) {
	err = e.reread.Do(ctx, func(context.Context) error {
		select {
		case e.readSlots <- struct{}{}:
			return nil
		default:
			e.m.readBackoff(1)
			return errReadsBusy
		}
	})
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["read"](1)
	}
	return func() { <-e.readSlots }, err
}

// view reads one consistent state of the file. fn must be short and wait for nothing; it may run again.
func (e *Engine) view(ctx context.Context, fn func(store.Reader) error) error {
	err := e.store.View(ctx, fn)
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["read"](1)
	}
	return err
}
