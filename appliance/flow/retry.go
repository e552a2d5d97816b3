package flow

import (
	"context"
	"fmt"
	"time"
)

// Retrier repeats a call that failed in passing. It is a value without state; any number of calls may share it.
type Retrier struct {
	delay func(n int) time.Duration
	tries int
	again func(error) bool
	count func(n int)
}

// Retry returns a Retrier that makes at most tries calls, waits delay(n) after failure n, the first being 0, and goes on only while
// again(err) holds. Nil again means any error.
func Retry(delay func(n int) time.Duration, tries int, again func(error) bool) Retrier {
	if delay == nil || tries < 1 {
		panic("flow: a Retry needs a delay and at least one try")
	}
	if again == nil {
		again = func(error) bool { return true }
	}
	return Retrier{delay: delay, tries: tries, again: again, count: func(int) {}}
}

// Counting returns r with each repetition counted in backoff_retries_total under op and the further labels, name, value, ….
func (r Retrier) Counting(c *Catalog, service, op string, pairs ...string) Retrier {
	r.count = c.meter.Counter("backoff_retries_total", service, append([]string{"op", op}, pairs...)...)
	return r
}

// Do calls until a call returns nil, and returns nil or the last error. It never waits past ctx: it gives up at once if the next try would
// begin after ctx's deadline, and when ctx ends it returns its cause along with the last error.
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

// pause waits for d. It returns the cause of ctx when that ends first, and context.DeadlineExceeded, at once, when it would.
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
	return context.Cause(ctx) // nil while ctx lives
}
