package period

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
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
	File    string
}

// Records returns the number of records of the period.
func (p Plan) Records() uint64 { return p.ToSeq - p.FromSeq + 1 }

// Errors of a closing that cannot begin.
var (
	// ErrNothing is returned when no open record is old enough.
	ErrNothing = errors.New("no open record is that old")
	// ErrClock is returned while the clock may be wrong: what is old by it may be new.
	ErrClock = errors.New("the clock of the node may be wrong: see `ronbox clock status`")
	// ErrRunning is returned when a closing is under way.
	ErrRunning = errors.New("a closing is under way")
)

// AgeError is returned when all records that can be closed are too young. It is an ErrNothing.
type AgeError struct{ Before int64 } // all of them are before this time, Unix ns

func (e *AgeError) Error() string {
	return fmt.Sprintf("%v: those that can be closed are from before %s", ErrNothing,
		time.Unix(0, e.Before).UTC().Format(time.RFC3339Nano))
}

// Unwrap returns ErrNothing.
func (e *AgeError) Unwrap() error { return ErrNothing }

// RecentError is returned when idempotency keys still lead to all records that are old enough.
type RecentError struct{ Before int64 } // records before this time, Unix ns, can be closed

func (e *RecentError) Error() string {
	return fmt.Sprintf("idempotency keys still count for records from %s on",
		time.Unix(0, e.Before).UTC().Format(time.RFC3339))
}

// runs reports whether a closing is under way whose period is not closed yet. Rows of a closed one
// may still be dropped: the next closing goes on with that.
func runs(r store.Reader) bool {
	c := tables.GetClosing(r)
	return c.Step != 0 && c.Step != tables.Dropping
}

// Next returns the period that can be closed of the records before a time, Unix ns. closable and
// keys are what the ledger's Closable returns.
func Next(r store.Reader, before int64, closable uint64, keys bool) (Plan, error) {
	if runs(r) {
		return Plan{}, ErrRunning
	}
	h := tables.GetHorizon(r)
	p := Plan{Period: h.Period + 1, FromSeq: h.Seq + 1}
	last, known := tables.BatchBefore(r, h, before, closable)
	if !known {
		return p, tooRecent(r, h, before, closable, keys)
	}
	p.ToSeq, p.ToBatch, p.ToAt = last.Last(), last.No, last.At
	return p, nil
}

// tooRecent returns why no open record of before a time can be closed.
func tooRecent(r store.Reader, h tables.Horizon, before int64, closable uint64, keys bool) error {
	first, open := tables.Batch(r, h.Batch+1)
	if keys && open && first.At < before {
		return &RecentError{first.At}
	}
	if last, some := tables.BatchBefore(r, h, math.MaxInt64, closable); some && first.At >= before {
		return &AgeError{last.At + 1}
	}
	return ErrNothing
}

// Request says how a period is to be closed.
type Request struct {
	File string // path of the period's file, or its name in the folder that each node has for them
	Fast bool   // its rows are dropped at once
	By   string // who asked

	attempt uint64 // set by Begin
}

// Begin begins the closing of a period.
func Begin(ctx context.Context, s *store.Store, p Plan, q Request) error {
	q.attempt = newAttempt()
	return commit(ctx, s, change{
		kind: "ledger.close_begin/1", size: 1 << 10,
		fill: func(r store.Reader, w *store.Writes) error {
			if runs(r) || tables.GetHorizon(r).Period+1 != p.Period {
				return ErrRunning
			}
			before := tables.GetClosing(r) // its rows are dropped on beside this closing
			if before.Step == 0 {
				before.Dropped = allDropped()
			}
			tables.PutClosing(w, tables.Closing{
				Step: tables.Building, Period: p.Period, Seq: p.ToSeq, Batch: p.ToBatch,
				File: tables.Period{File: q.File}, Fast: q.Fast, By: q.By, Attempt: q.attempt,
				Bytes: before.Bytes, Rows: before.Rows, Dropped: before.Dropped,
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

// goesOn returns errCanceled unless a closing is under way in the same step.
func goesOn(r store.Reader, c *tables.Closing) error {
	if now := tables.GetClosing(r); now.Step != c.Step || now.Attempt != c.Attempt {
		return errCanceled
	}
	return nil
}

// canceled reports whether c was canceled and its file is to be removed. No other closing is at
// Building with a file that was placed.
func canceled(c *tables.Closing) bool { return c.Step == tables.Building && c.Placed != "" }

// unused reports whether neither a closed period nor a closing that goes on can have the file of a
// period.
func unused(ctx context.Context, s *store.Store, period uint64) (is bool, err error) {
	err = s.View(ctx, func(r store.Reader) error {
		c := tables.GetClosing(r)
		is = (!runs(r) || canceled(&c)) && tables.GetHorizon(r).Period < period
		return nil
	})
	return is, err
}

// newAttempt returns a random number that is not 0.
func newAttempt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.BigEndian.Uint64(b[:]) | 1
}

// Cancel ends the closing under way, or only the given attempt unless that is 0, if its period is
// not closed yet. It deletes what the closing has built, in the store and on the disk. Rows of
// earlier periods are dropped on. It returns ErrNothing if there is no closing to cancel. dir is
// the folder of files of which the closing has only the name. A closing that has placed its file
// stays under way until the file is removed: the task goes on if ctx or the process ends before.
func Cancel(ctx context.Context, s *store.Store, attempt uint64, dir string) error {
	var c tables.Closing
	var h tables.Horizon
	next := newAttempt() // the task does not go on with the attempt before
	err := commit(ctx, s, change{
		kind: "ledger.close_cancel/1", size: 8 << 10,
		fill: func(r store.Reader, w *store.Writes) error {
			c, h = tables.GetClosing(r), tables.GetHorizon(r)
			if !runs(r) || attempt != 0 && c.Attempt != attempt {
				return ErrNothing
			}
			if c.Placed == "" {
				tables.PutClosing(w, dropsOn(&c, h))
				return nil
			}
			if !canceled(&c) { // else another caller finishes it, too: the first one to do so ends it
				c.Step, c.Attempt = tables.Building, next
			}
			tables.PutClosing(w, c)
			return nil
		},
	})
	if err != nil {
		return err
	}
	c.File.File = inDir(dir, c.File.File)
	return clearCanceled(ctx, s, &c, h)
}

// dropsOn returns the row that a canceled closing leaves: rows of the period before may still have
// to be dropped.
func dropsOn(c *tables.Closing, h tables.Horizon) tables.Closing {
	if c.Dropped.Table == allDropped().Table {
		return tables.Closing{}
	}
	return tables.Closing{
		Step: tables.Dropping, Period: h.Period, Bytes: c.Bytes, Rows: c.Rows, Dropped: c.Dropped,
	}
}

// clearCanceled deletes what a canceled closing has built, after the horizon h. The row of one that
// has placed its file goes after the file.
func clearCanceled(ctx context.Context, s *store.Store, c *tables.Closing, h tables.Horizon) error {
	is, err := unused(ctx, s, c.Period)
	if err != nil {
		return err
	}
	if is { // else the file may be that of the next closing already
		discard(s, c)
	}
	if canceled(c) {
		err = commit(ctx, s, change{
			kind: "ledger.close_cleared/1", size: 1 << 10,
			fill: func(r store.Reader, w *store.Writes) error {
				now := tables.GetClosing(r) // rows may have been dropped since
				if err := goesOn(r, c); err != nil {
					return err
				}
				tables.PutClosing(w, dropsOn(&now, h))
				return nil
			},
		})
	}
	if err == nil {
		err = clearGeneration(ctx, s, c.Period, h.Names(), 0)
	}
	if errors.Is(err, errCanceled) {
		err = nil // another caller has ended it, or the next closing clears it
	}
	return err
}
