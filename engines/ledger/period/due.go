package period

import (
	"context"
	"errors"
	"time"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// begins begins a closing if one is due by the retention, and reports whether it did.
func (c *Closer) begins(ctx context.Context) (bool, error) {
	cfg, now := c.cfg.Load(), c.d.Now()
	if cfg.Retention == 0 {
		c.due.Store(nil)
		if f := c.failed.Load(); f != nil && f.due {
			c.failed.CompareAndSwap(f, nil)
		}
		return false, nil
	}
	if !c.looked.IsZero() && now.Sub(c.looked) < lookEvery && now.After(c.looked) {
		return false, nil
	}
	if c.looked = now; c.began.IsZero() {
		c.began = now
	}
	oldest, closed, err := c.oldest(ctx)
	if err != nil || oldest.IsZero() {
		return false, err
	}
	due := oldest.Add(cfg.Retention.D() + cfg.Period.D())
	c.tellDue(due, closed, now)
	if due.After(now) || c.d.May != nil && c.d.May() != nil || c.d.Settled != nil && !c.d.Settled() {
		return false, nil
	}
	p, err := c.begin(ctx, Ask{Before: oldest.Add(cfg.Period.D())})
	if errors.Is(err, ErrNothing) || errors.As(err, new(*RecentError)) || ctx.Err() != nil {
		return false, ctx.Err() // keys still count for its records
	}
	if err != nil {
		c.refused(p, err)
	}
	return err == nil, nil
}

// refused keeps why a closing that is due did not begin. It is tried again after lookEvery; rows of
// earlier periods are dropped on.
func (c *Closer) refused(p Plan, cause error) {
	c.d.Log.Warn("ledger_close_failed", "period", p.Period, "step", "plan", "reason", cause.Error())
	c.failed.Store(&Failure{Period: p.Period, File: p.File, Err: cause, At: c.d.Now(), due: true})
	c.m.closed("failed")
}

// tellDue keeps when the next period is due. A node that has many to close is not late with one
// before it has closed the one before, or before it has begun to look.
func (c *Closer) tellDue(due, closed, now time.Time) {
	if closed.IsZero() {
		closed = c.began
	}
	if due.Before(now) && due.Before(closed) {
		due = closed
	}
	c.due.Store(&due)
}

// Due returns when the next period is due to be closed by itself. It is zero if that is not known,
// if there is no retention, and on a member that does not lead.
func (c *Closer) Due() time.Time {
	due := c.due.Load()
	if due == nil || c.d.StandsBy != nil && c.d.StandsBy() {
		return time.Time{}
	}
	return *due
}

// oldest returns the time of the oldest open record, and when the last period was closed. Either is
// zero if there is none.
func (c *Closer) oldest(ctx context.Context) (at, closed time.Time, err error) {
	err = c.d.Store.View(ctx, func(r store.Reader) error {
		h := tables.GetHorizon(r)
		if first, open := tables.Batch(r, h.Batch+1); open {
			at = time.Unix(0, first.At)
		}
		if row, known := tables.GetPeriod(r, h.Period); known {
			closed = time.Unix(0, row.ClosedAt)
		}
		return nil
	})
	return at, closed, err
}

// references returns the number of references that closed periods have bound, up to one.
func references(r store.Reader, period uint64) (sum uint64) {
	for n := range period {
		s := tables.StatementOf(r, n+1)
		sum += s.References
	}
	return sum
}
