package flow

import (
	"context"
	"sync"
)

// Fan runs leg(ctx, 0) … leg(ctx, n-1) at the same time and joins them all before it returns. The first error cancels the context of the
// others, being its cause, and is what Fan returns. A panic in a leg is raised again in the caller as a *PanicError, after the join.
func Fan(ctx context.Context, n int, leg func(ctx context.Context, i int) error) error {
	assertFree("Fan")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg    sync.WaitGroup
		once  sync.Once
		first error
	)
	for i := range n {
		wg.Go(func() {
			if err := guard(func() error { return leg(ctx, i) }); err != nil {
				once.Do(func() { first = err })
				cancel(err)
			}
		})
	}
	wg.Wait()
	if p, ok := first.(*PanicError); ok {
		panic(p)
	}
	return first
}
