package pipeline

import (
	"context"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
)

// plan is a batch being built: steps decided one after the other on a speculative state. Nothing
// outside it changes until the batch is in the file, so a failed plan is dropped and built again.
type plan struct {
	ctx   context.Context
	deps  Deps
	rule  Rule          // fixed for the batch, even if the configuration is reloaded
	now   time.Time     // UTC, whole milliseconds
	from  *tables.State // the base of the batch
	next  *tables.State // from with the steps so far
	steps []tables.Step
	of    []*job // of each step; nil for expiry and stale
	recs  []record.Audit
	size  int

	done    map[ulid.ULID]tables.DoneRow // outcomes of this batch
	events  []document.Update
	verdict map[*job]verdict
	counts  counts
	adopts  bool // it adopts the log, so that no checkpoint is the latest
}

// request is a call to the pipeline.
type request interface {
	name() string // "propose", as metrics and audit events spell it
	describe(rec *record.Audit)
	decide(p *plan, j *job) (answer, error) // if it fails, it has added no op but expiry
	refuse(c *counts, reason string)        // counts a refusal
}

// pastGuard is implemented by a request that runs while the fork guard is tripped.
type pastGuard interface{ pastGuard() }

// answer is the answer to a job. The request sets one member.
type answer struct {
	proposed  document.Proposed
	approved  document.Approved
	committed document.Committed
}

// verdict is the answer to a job if the batch gets into the file.
type verdict struct {
	answer answer
	err    error // refused
	final  bool  // decided on the durable state alone, so valid even if the batch fails
}

func (p *Pipeline) newPlan(ctx context.Context, from *tables.State, now time.Time) *plan {
	return &plan{
		ctx:     ctx,
		deps:    p.deps,
		rule:    p.deps.Keeper.Rule(),
		now:     now,
		from:    from,
		next:    from.Clone(),
		done:    map[ulid.ULID]tables.DoneRow{},
		verdict: map[*job]verdict{},
		counts:  counts{proposals: map[string]int{}, approvals: map[string]int{}},
	}
}

// batch returns the plan as a command.
func (p *plan) batch() tables.Batch {
	return tables.Batch{Head: p.from.View.Ref(), Audit: p.from.Audit, Steps: p.steps}
}

// decide decides one job and adds its steps.
func (p *plan) decide(j *job) {
	alone := len(p.steps) == 0
	a, err := p.judge(j)
	if err == nil {
		p.verdict[j] = verdict{answer: a, final: len(p.steps) == 0}
		return
	}
	p.verdict[j] = verdict{err: err, final: alone}
	if reason := document.Reason(err); reason != "" {
		p.reject(j, reason)
	}
}

// judge refuses a job that was queued before the registry stopped accepting writes.
func (p *plan) judge(j *job) (answer, error) {
	_, past := j.req.(pastGuard)
	if err := p.deps.Keeper.Ready(); err != nil && !(past && p.deps.Keeper.Tripped()) {
		return answer{}, err
	}
	return j.req.decide(p, j)
}

// add appends an op, nil for none, with its audit record, which it chains.
func (p *plan) add(j *job, op tables.Op, rec record.Audit) {
	rec.Seq, rec.Prev, rec.At = p.next.Audit.Seq+1, p.next.Audit.B3, record.FormatTime(p.now)
	if rec.Decision == "" {
		rec.Decision = record.DecisionAccept
	}
	p.chain(j, tables.Step{Op: op, Audit: rec.Bytes()}, rec)
}

// chain appends a step whose audit record is complete.
func (p *plan) chain(j *job, step tables.Step, rec record.Audit) {
	p.next.Audit = tables.AuditRef{Seq: rec.Seq, B3: b3.Sum(step.Audit)}
	p.steps = append(p.steps, step)
	p.of = append(p.of, j)
	p.recs = append(p.recs, rec)
	p.size += step.Size()
}

// audit returns the part of an audit record that follows from the job.
func (j *job) audit(event string) record.Audit {
	return record.Audit{Event: event, CorrID: tables.ClipText(j.corrID), Actor: auditActor(j.actor)}
}

func auditActor(a engines.Actor) record.AuditActor {
	return record.AuditActor{CapID: tables.ClipText(a.CapID), UID: a.UID}
}

// reject adds the audit record of a refusal.
func (p *plan) reject(j *job, reason string) {
	rec := j.audit(j.req.name() + ".rejected")
	rec.Decision, rec.Reason = record.DecisionReject, reason
	j.req.describe(&rec)
	j.req.refuse(&p.counts, reason)
	p.add(j, nil, rec)
}

// end ends a live proposal without a version. The caller sweeps the proposals stacked on it. j is
// nil if no job asked for it.
func (p *plan) end(j *job, prop *tables.Proposal, state string) {
	at, rec := p.now.UnixMilli(), record.Audit{Event: tables.EndEvent(state)}
	if j != nil {
		rec = j.audit(rec.Event)
	}
	p.next.Remove(prop)
	p.done[prop.ID] = tables.DoneRow{State: state, Version: prop.Row.Version, PayloadB3: prop.Row.PayloadB3, AtMS: at}
	p.counts.proposals[state]++
	rec.ProposalID, rec.PayloadB3, rec.Version = tables.IDText(prop.ID), prop.Row.PayloadB3, prop.Row.Version
	p.add(j, tables.EndOp{ID: prop.ID, State: state, AtMS: at}, rec)
}

// expire ends expired proposals, and then those stacked on them.
func (p *plan) expire(props ...*tables.Proposal) {
	if len(props) == 0 {
		return
	}
	for _, prop := range props {
		p.end(nil, prop, document.StateExpired)
	}
	p.sweepOrphans()
}

// sweepOrphans ends proposals that have lost their base.
func (p *plan) sweepOrphans() {
	for _, prop := range p.next.Orphans() {
		p.end(nil, prop, document.StateStale)
	}
}

// find returns a live proposal. One that has expired but was not swept is expired first.
func (p *plan) find(id ulid.ULID) (*tables.Proposal, error) {
	prop := p.next.Live[id]
	if prop == nil {
		how, known, err := p.outcome(id)
		if err != nil {
			return nil, err
		}
		return nil, endedError(tables.IDText(id), how, known)
	}
	if prop.Expired(p.now) {
		p.expire(prop)
		return nil, document.ErrExpired
	}
	return prop, nil
}

// endedError returns the error for a proposal that is not live.
func endedError(id string, how tables.DoneRow, known bool) error {
	switch {
	case !known:
		return fmt.Errorf("proposal %s: %w", id, document.ErrNotFound)
	case how.State == document.StateExpired:
		return fmt.Errorf("proposal %s: %w", id, document.ErrExpired)
	default:
		return &document.StateError{ID: id, State: how.State}
	}
}

// outcome returns the outcome of a proposal, with those of this batch.
func (p *plan) outcome(id ulid.ULID) (tables.DoneRow, bool, error) {
	if how, ok := p.done[id]; ok {
		return how, true, nil
	}
	return views.RowOf(p.ctx, p.deps.Reader, tables.DoneOutcome, id)
}

// admits returns a *PendingLimitError if another payload exceeds a limit.
func (l Rule) admits(p *tables.PendingSums, row tables.PropRow) error {
	switch {
	case p.Count >= l.MaxPending:
		return &document.PendingLimitError{Limit: "proposals.max_pending", Max: int64(l.MaxPending)}
	case p.ByOwner[row.Owner] >= l.MaxPerCap:
		return &document.PendingLimitError{Limit: "proposals.max_per_cap", Max: int64(l.MaxPerCap)}
	case p.Bytes+row.Bytes > l.MaxBytes:
		return &document.PendingLimitError{Limit: "proposals.max_bytes", Max: l.MaxBytes}
	}
	return nil
}
