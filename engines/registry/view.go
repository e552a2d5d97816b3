package registry

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"ronbox/store"
)

// readTries is how often a read of the store is made before its failure is told.
const readTries = 3

// readDelay is the wait between two tries: 50 to 100 ms, doubling, at most 2 s.
func readDelay(n int) time.Duration {
	return min(2*time.Second, (50*time.Millisecond+rand.N(50*time.Millisecond))<<n)
}

// isTransient: only a store that is busy or slow may have recovered by the next try.
func isTransient(err error) bool {
	return errors.Is(err, store.ErrBusy) || errors.Is(err, store.ErrSlow)
}

// view reads one consistent state of the file. fn must be short and wait for nothing; it may run again.
func (e *Engine) view(ctx context.Context, fn func(store.Reader) error) error {
	err := e.reread.Do(ctx, func(ctx context.Context) error { return e.store.View(ctx, fn) })
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["read"](1)
	}
	return err
}
