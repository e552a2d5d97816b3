package pipeline

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Bounds of the sweep of outcomes.
const (
	maxForget   = 256  // removed in one tick
	forgetSlice = 2048 // read in one tick
	forgetEvery = time.Hour
)

// forgetter reads reg/done in passes for outcomes that are old enough to remove. Ids begin with
// the time of their proposal, so a pass ends at the ids of KeepOutcomes ago. An outcome that a
// batch fails to remove is found in the next pass.
type forgetter struct {
	at   ulid.ULID // next id of the pass; zero: the first
	rest time.Time // the next pass does not begin before
}

// idle reports whether the next pass is not due yet.
func (f forgetter) idle(now time.Time) bool { return now.Before(f.rest) }

// look continues the pass. It returns the outcomes to remove and the state after it.
func (f forgetter) look(r store.Reader, now time.Time) (due []ulid.ULID, then forgetter) {
	over := now.Add(-tables.KeepOutcomes).UnixMilli()
	var bound ulid.ULID
	if err := bound.SetTime(uint64(max(over, 0))); err != nil {
		panic("registry: the clock is past the year 10000: " + err.Error())
	}
	seen := 0
	for id, how := range tables.DoneOutcome.Range(r, f.at, bound) {
		if seen++; seen > forgetSlice || len(due) == maxForget {
			return due, forgetter{at: id}
		}
		if how.State != document.StateCommitted && how.AtMS <= over {
			due = append(due, id)
		}
	}
	return due, forgetter{rest: now.Add(forgetEvery)}
}

// outcomesOver returns the outcomes that this tick removes.
func (r *run) outcomesOver(ctx context.Context) (due []ulid.ULID, err error) {
	now := r.clock()
	if r.forgetter.idle(now) {
		return nil, nil
	}
	var then forgetter
	err = r.deps.Reader.View(ctx, func(rd store.Reader) error {
		due, then = r.forgetter.look(rd, now)
		return nil
	})
	if err == nil {
		r.forgetter = then
	}
	return due, err
}

// forget adds the removal of outcomes, under one audit record.
func (p *plan) forget(ids []ulid.ULID) {
	if len(ids) > 0 {
		op := tables.ForgetOp{IDs: ids, OverMS: p.now.Add(-tables.KeepOutcomes).UnixMilli()}
		p.add(nil, op, record.Audit{Event: tables.EventForgotten})
	}
}
