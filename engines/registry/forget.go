package registry

import (
	"context"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// keepOutcomes is how long the outcome of a proposal that ended without a version can be asked for, if
// retention has not removed its audit record before.
const keepOutcomes = 30 * 24 * time.Hour

// Bounds of the sweep of outcomes.
const (
	maxForget   = 256  // removed in one tick
	forgetSlice = 2048 // looked at in one tick
	forgetEvery = time.Hour
)

// forgetter walks reg/done in passes for outcomes that are old enough to go. Ids begin with the time of their proposal, so
// a pass ends at the ids of keepOutcomes ago. What a batch has failed to remove, the next pass finds.
type forgetter struct {
	at   ulid.ULID // where the pass goes on; zero: at its beginning
	rest time.Time // none begins before
}

// idle says that there is nothing to look at yet.
func (f forgetter) idle(now time.Time) bool { return now.Before(f.rest) }

// look goes on with the pass and gives what may go, and where it is then.
func (f forgetter) look(r store.Reader, now time.Time) (due []ulid.ULID, then forgetter) {
	over := now.Add(-keepOutcomes).UnixMilli()
	var bound ulid.ULID
	if err := bound.SetTime(uint64(max(over, 0))); err != nil {
		panic("registry: the clock is past the year 10000: " + err.Error())
	}
	seen := 0
	for id, how := range doneOutcome.Range(r, f.at, bound) {
		if seen++; seen > forgetSlice || len(due) == maxForget {
			return due, forgetter{at: id}
		}
		if how.State != StateCommitted && how.AtMS <= over {
			due = append(due, id)
		}
	}
	return due, forgetter{rest: now.Add(forgetEvery)}
}

// outcomesOver gives the outcomes that this tick removes.
func (p *pipeline) outcomesOver(ctx context.Context) (due []ulid.ULID, err error) {
	now := p.clock()
	if p.forgetter.idle(now) {
		return nil, nil
	}
	var then forgetter
	err = p.e.view(ctx, func(r store.Reader) error {
		due, then = p.forgetter.look(r, now)
		return nil
	})
	if err == nil {
		p.forgetter = then
	}
	return due, err
}

// forget removes outcomes, all under one record.
func (p *plan) forget(ids []ulid.ULID) {
	if len(ids) > 0 {
		op := Op{Do: OpForget, Forget: &ForgetOp{IDs: ids, OverMS: p.now.Add(-keepOutcomes).UnixMilli()}}
		p.add(nil, op, record.Audit{Event: eventForgotten})
	}
}

// forget refuses to remove what is a version's or not over.
func (s *scratch) forget(op *ForgetOp) (guard string) {
	for _, id := range op.IDs {
		if how, known := doneOutcome.Get(s.r, id); !known || how.State == StateCommitted || how.AtMS > op.OverMS {
			return "outcome_over"
		}
		doneOutcome.Delete(s.w, id)
	}
	return ""
}
