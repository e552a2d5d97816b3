//go:build flowsched

package flow

import (
	"context"
	"errors"
	"testing"
)

// slots is the part of Slots that the scenarios use.
type slots interface {
	Acquire(ctx context.Context) error
	TryAcquire() bool
	Release()
	Used() int
}

// crowded: callers share fewer slots. Some wait, some do not, and one leaves when its context ends.
func crowded(make func(int) slots, most, waiting, trying int) scenario {
	return func(w *world) func() error {
		k, working, done := make(most), 0, 0
		work := func() {
			working++
			w.check(working <= most, "%d work at once, there are %d slots", working, most)
			point("work")
			working--
			done++
			k.Release()
		}
		for range waiting {
			w.thread("waiting", func() {
				err := k.Acquire(w.ctx)
				w.check(err == nil || w.ctx.Err() != nil, "Acquire = %v", err)
				if err == nil {
					work()
				}
			})
		}
		for range trying {
			w.thread("trying", func() {
				if k.TryAcquire() {
					work()
				}
			})
		}
		return func() error {
			w.check(k.Used() == 0, "%d slots are taken at the end", k.Used())
			w.check(done >= waiting, "%d were done, %d waited", done, waiting)
			return w.err
		}
	}
}

// abandoned: a caller waits while another has the slot, and its context ends. It has the slot or the
// cause, and no slot is lost.
func abandoned(make func(int) slots) scenario {
	return func(w *world) func() error {
		k, gone := make(1), errors.New("gone")
		ctx, cancel := context.WithCancelCause(w.ctx)
		w.check(k.TryAcquire(), "no slot is free")
		w.thread("holder", k.Release)
		w.thread("waiting", func() {
			if err := k.Acquire(ctx); err == nil {
				k.Release()
			} else {
				w.check(errors.Is(err, gone) || w.ctx.Err() != nil, "Acquire = %v", err)
			}
		})
		w.thread("canceller", func() { point("cancel"); cancel(gone) })
		return func() error {
			w.check(k.Used() == 0, "%d slots are taken at the end", k.Used())
			return w.err
		}
	}
}

func schedSlots(n int) slots { return newSlots(n) }

// countedSlots looks before it takes.
type countedSlots struct {
	*Slots
	used, most int
}

func (c *countedSlots) TryAcquire() bool {
	if c.used >= c.most {
		return false
	}
	point("counted, looked")
	c.used++
	return true
}

func (c *countedSlots) Release()  { c.used-- }
func (c *countedSlots) Used() int { return c.used }

func TestScheduleSlots(t *testing.T) {
	t.Run("crowded", func(t *testing.T) { holds(t, crowded(schedSlots, 1, 2, 1), 20, 5_000) })
	t.Run("two", func(t *testing.T) { holds(t, crowded(schedSlots, 2, 3, 1), 100, 5_000) })
	t.Run("abandoned", func(t *testing.T) { holds(t, abandoned(schedSlots), 5, 5_000) })
	t.Run("twin", func(t *testing.T) {
		breaks(t, crowded(func(n int) slots { return &countedSlots{most: n} }, 1, 0, 2),
			"2 work at once")
	})
}
