package flow

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"
)

// Fan calls leg(ctx, 0) … leg(ctx, n-1) concurrently and waits for all of them. The first error
// cancels the context of the others, with that error as its cause, and is returned. If a leg
// panics, Fan panics with a *PanicError after all legs have returned.
func Fan(ctx context.Context, n int, leg func(ctx context.Context, i int) error) error {
	assertFree("Fan")
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		wg       sync.WaitGroup
		mu       lock
		first    error       // guarded by mu until all legs have returned, as is panicked
		panicked *PanicError // the first panic
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
		if isFirst { // so that cancel is called with the error that Fan returns
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

// Retrier repeats a call after transient failures. It has no state, so calls may share it.
type Retrier struct {
	delay func(n int) time.Duration
	tries int
	again func(error) bool
	count func(n int)
}

// Retry returns a Retrier that makes at most tries calls. After failure n, counted from 0, it waits
// delay(n). It stops if again(err) is false; a nil again retries after any error.
func Retry(delay func(n int) time.Duration, tries int, again func(error) bool) Retrier {
	if delay == nil || tries < 1 {
		panic("flow: a Retry needs a delay and at least one try")
	}
	if again == nil {
		again = func(error) bool { return true }
	}
	return Retrier{delay: delay, tries: tries, again: again, count: func(int) {}}
}

// Counting returns r with each retry counted in backoff_retries_total, with the label op and the
// further labels in pairs (name, value, …).
func (r Retrier) Counting(c *Catalog, service, op string, pairs ...string) Retrier {
	r.count = c.meter.Counter("backoff_retries_total", service, append([]string{"op", op}, pairs...)...)
	return r
}

// Do repeats call until it returns nil, and returns nil or the last error. It does not wait beyond
// ctx: it returns at once if the next try would begin after the deadline. If ctx ends, the error
// wraps both the cause of ctx and the last error.
func (r Retrier) Do(ctx context.Context, call func(context.Context) error) error {
	assertFree("Retrier.Do")
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for n := 0; ; n++ {
		err := call(ctx)
		if err == nil || n+1 >= r.tries || !r.again(err) {
			return err
		}
		if cause := pause(ctx, r.delay(n)); cause != nil {
			return fmt.Errorf("%w, after try %d: %w", cause, n+1, err)
		}
		r.count(1)
	}
}

// pause waits for d. It returns the cause of ctx if ctx ends first. If the deadline of ctx is not
// later than d from now, it returns context.DeadlineExceeded at once.
func pause(ctx context.Context, d time.Duration) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) <= d {
		return context.DeadlineExceeded
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
	return context.Cause(ctx) // nil if ctx has not ended
}
