package period

import (
	"cmp"
	"context"
	"errors"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Old pages are freed as new ones are needed, so that the file neither grows nor shrinks: bbolt
// writes the list of free pages with each commit, so there should be few. Free pages are kept
// between half of a target and the target, which is four times what the commits of the last second
// took.
const (
	leastFree = 128  // a list of one page
	mostFree  = 4096 // where a commit was not measurably slower
	nearFull  = 64 << 20

	dropRows     = 256
	dropRowsFast = 4096
)

// pace says when rows are to be dropped.
type pace struct {
	began   time.Time // of the second at hand
	taken   int64     // pages that commits had taken by then
	target  int64
	filling bool
}

// drops reports whether rows are to be dropped now.
func (p *pace) drops(now time.Time, use store.PageUse, left int64) bool {
	if d := now.Sub(p.began); d >= time.Second || d < 0 {
		p.target = min(max(4*(use.Taken-p.taken), leastFree), mostFree)
		p.began, p.taken = now, use.Taken
	}
	target := max(p.target, leastFree)
	if left >= 0 && left < nearFull {
		target = mostFree
	}
	if use.Free < target/2 {
		p.filling = true
	} else if use.Free >= target {
		p.filling = false
	}
	return p.filling
}

// drop drops rows of closed periods, if pages are needed, and reports whether it should be called
// again at once.
func (c *Closer) drop(ctx context.Context, closing *tables.Closing) (again bool, err error) {
	left := c.d.Store.BytesLeft()
	if !closing.Fast && !c.pace.drops(c.d.Now(), c.d.Store.PageUse(), left) {
		return false, nil
	}
	rows := dropRows
	if closing.Fast || left >= 0 && left < nearFull {
		rows = dropRowsFast
	}
	_, err = Drop(ctx, c.d.Store, rows)
	if errors.Is(err, ErrNothing) {
		return false, nil
	}
	if err == nil {
		err = c.d.Store.View(ctx, func(r store.Reader) error {
			now := tables.GetClosing(r)
			c.reclaim.Store(now.Reclaimable()) // beside a closing, nothing else reads it for long
			return nil
		})
	}
	if f := c.failed.Load(); err == nil && f != nil && f.drops {
		c.failed.CompareAndSwap(f, nil)
	}
	return err == nil, err
}

// errDone ends what is done beside a call that has ended well.
var errDone = errors.New("done")

// beside runs fn, which may wait long for others, and drops rows meanwhile as pages are needed. If
// the closing does not go on, it ends the context of fn and returns errCanceled.
func (c *Closer) beside(ctx context.Context, closing *tables.Closing, fn func(context.Context) error) error {
	err := flow.Fan(ctx, 2, func(ctx context.Context, leg int) error {
		if leg == 0 {
			return cmp.Or(fn(ctx), errDone)
		}
		return c.dropUntil(ctx, closing)
	})
	if errors.Is(err, errDone) {
		return nil
	}
	return err
}

// dropUntil drops rows as pages are needed, until ctx ends or the closing does not go on.
func (c *Closer) dropUntil(ctx context.Context, closing *tables.Closing) error {
	for pause(ctx, tickEvery); ctx.Err() == nil; pause(ctx, tickEvery) {
		for again := true; again && ctx.Err() == nil; {
			again, _ = c.drop(ctx, closing) // an error shows in the next step
		}
		err := c.d.Store.View(ctx, func(r store.Reader) error { return goesOn(r, closing) })
		if errors.Is(err, errCanceled) {
			return err
		}
	}
	return nil
}

// rester returns a function that rests nine times as long as the slice before took, so that
// payments beside a closing keep the processor and the disk. While it rests, rows of earlier
// periods are dropped as pages are needed.
func (c *Closer) rester(closing *tables.Closing) func(context.Context) {
	if closing.Fast {
		return nil
	}
	return func(ctx context.Context) {
		for rest := min(9*c.d.Now().Sub(c.slice), time.Second); ; rest -= tickEvery {
			for again := ctx.Err() == nil; again; {
				again, _ = c.drop(ctx, closing) // an error ends the step itself
			}
			if rest <= 0 {
				break
			}
			pause(ctx, min(rest, tickEvery))
		}
		c.slice = c.d.Now()
	}
}

// pause waits for a time, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
