package period

import (
	"context"
	"errors"
	"fmt"
	"time"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Plan is a period that may be closed.
type Plan struct {
	Period  uint64
	FromSeq uint64
	ToSeq   uint64 // the last record of a batch
	ToBatch uint64
	ToAt    int64 // Unix ns
}

// Records returns the number of records of the period.
func (p Plan) Records() uint64 { return p.ToSeq - p.FromSeq + 1 }

// Errors of a closing that cannot begin.
var (
	// ErrNothing is returned when no open record is old enough.
	ErrNothing = errors.New("no open record is that old")
	// ErrRunning is returned when a closing is under way.
	ErrRunning = errors.New("a closing is under way")
)

// RecentError is returned when idempotency keys still lead to all records that are old enough.
type RecentError struct{ Before int64 } // records before this time, Unix ns, can be closed

func (e *RecentError) Error() string {
	return fmt.Sprintf("idempotency keys still count for records from %s on",
		time.Unix(0, e.Before).UTC().Format(time.RFC3339))
}

// Next returns the period that can be closed of the records before a time, Unix ns. closable and
// keys are what the ledger's Closable returns.
func Next(r store.Reader, before int64, closable uint64, keys bool) (Plan, error) {
	if tables.GetClosing(r).Step != 0 {
		return Plan{}, ErrRunning
	}
	h := tables.GetHorizon(r)
	p := Plan{Period: h.Period + 1, FromSeq: h.Seq + 1}
	last, known := tables.BatchBefore(r, h, before, closable)
	if !known {
		first, open := tables.Batch(r, h.Batch+1)
		if keys && open && first.At < before {
			return p, &RecentError{first.At}
		}
		return p, ErrNothing
	}
	p.ToSeq, p.ToBatch, p.ToAt = last.Last(), last.No, last.At
	return p, nil
}

// Request says how a period is to be closed.
type Request struct {
	File string // path of the period's file
	Fast bool   // its rows are dropped at once
	By   string // who asked
}

// Begin begins the closing of a period.
func Begin(ctx context.Context, s *store.Store, p Plan, q Request) error {
	return commit(ctx, s, change{
		kind: "ledger.close_begin/1", size: 1 << 10,
		fill: func(r store.Reader, w *store.Writes) error {
			if tables.GetClosing(r).Step != 0 || tables.GetHorizon(r).Period+1 != p.Period {
				return ErrRunning
			}
			tables.PutClosing(w, tables.Closing{
				Step: tables.Building, Period: p.Period, Seq: p.ToSeq, Batch: p.ToBatch,
				File: tables.Period{File: q.File}, Fast: q.Fast, By: q.By,
			})
			return nil
		},
	})
}

// Turn moves the closing of a period from one step to the next, and lets set change its row.
func Turn(ctx context.Context, s *store.Store, period uint64, from, to tables.CloseStep,
	set func(*tables.Closing),
) error {
	return commit(ctx, s, change{
		kind: "ledger.close_step/1", size: 8 << 10,
		fill: func(r store.Reader, w *store.Writes) error {
			c := tables.GetClosing(r)
			if c.Step != from || c.Period != period {
				return errCanceled
			}
			if c.Step = to; set != nil {
				set(&c)
			}
			tables.PutClosing(w, c)
			return nil
		},
	})
}

// ErrClosed is returned when a period is closed already, so that its closing cannot be canceled.
var ErrClosed = errors.New("the period is closed, and its rows are being dropped")

// Cancel ends the closing under way, if its period is not closed yet, and deletes what it has
// built. It returns its file.
func Cancel(ctx context.Context, s *store.Store) (file string, err error) {
	var c tables.Closing
	var names uint64
	err = commit(ctx, s, change{
		kind: "ledger.close_cancel/1", size: 1 << 10,
		fill: func(r store.Reader, w *store.Writes) error {
			c, names = tables.GetClosing(r), tables.GetHorizon(r).Names()
			switch c.Step {
			case 0:
				return ErrNothing
			case tables.Dropping:
				return ErrClosed
			}
			tables.PutClosing(w, tables.Closing{})
			return nil
		},
	})
	if err != nil {
		return "", err
	}
	return c.File.File, clearGeneration(ctx, s, c.Period, names)
}
