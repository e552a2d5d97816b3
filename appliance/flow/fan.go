package flow

import (
	"cmp"
	"context"
	"sync"
)

// Fan runs leg(ctx, 0) … leg(ctx, n-1) at the same time and joins them all before it returns. The first error cancels the context of the
// others, being its cause, and is what Fan returns. A panic in a leg, even after an error, is raised again in the caller as a *PanicError,
// after the join.
func Fan(ctx context.Context, n int, leg func(ctx context.Context, i int) error) error {
	assertFree("Fan")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg       sync.WaitGroup
		mu       lock
		first    error       // guarded by mu until the join, as is panicked
		panicked *PanicError // the first
	)
	end := func(err error) {
		if err == nil {
			return
		}
		mu.Lock()
		isFirst := first == nil
		first = cmp.Or(first, err)
		if p, ok := err.(*PanicError); ok {
			panicked = cmp.Or(panicked, p)
		}
		mu.Unlock()
		point("Fan, ended")
		if isFirst { // of two that end at once the other must not be faster
			cancel(err)
		}
	}
	for i := range n {
		wg.Go(func() {
			begin("leg")
			guard(func() error { return leg(ctx, i) }, end)
		})
		point("Fan")
	}
	wg.Wait()
	woken("Fan, joined")
	if panicked != nil {
		panic(panicked)
	}
	return first
}
