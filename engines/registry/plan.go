package registry

import (
	"context"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/record"
)

// plan is a batch being built: steps decided one after the other on a speculative state. Nothing
// outside it changes until the batch is in the file, so a failed plan is dropped and built again.
type plan struct {
	ctx    context.Context
	e      *Engine
	limits ProposalsConfig // fixed for the batch, even if the configuration is reloaded
	now    time.Time       // UTC, whole milliseconds
	from   *state          // the base of the batch
	next   *state          // from with the steps so far
	steps  []Step
	of     []*job // of each step; nil for expiry and stale
	recs   []record.Audit
	size   int

	done    map[ulid.ULID]doneRow // outcomes of this batch
	events  []Update
	verdict map[*job]verdict
	counts  counts
}

// verdict is the answer to a job if the batch gets into the file.
type verdict struct {
	answer answer
	err    error // refused
	final  bool  // decided on the durable state alone, so valid even if the batch fails
}

// counts are added to the metrics once the batch is in the file.
type counts struct {
	proposals  map[string]int // by the state entered
	approvals  map[string]int // by result
	committed  int
	superseded int // by one of those committed
	rejected   int // requests for a version
}

// Results of an approval.
const (
	approvalAccepted  = "accepted"
	approvalRejected  = "rejected"
	approvalDuplicate = "duplicate"
)

// refuse counts a refusal by the kind of its request.
func (c *counts) refuse(req request, reason string) {
	switch req.(type) {
	case approveReq:
		result := approvalRejected
		if reason == reasonDuplicate {
			result = approvalDuplicate
		}
		c.approvals[result]++
	case withdrawReq, adoptReq:
	default:
		c.rejected++
	}
}

func (e *Engine) newPlan(ctx context.Context, from *state, now time.Time) *plan {
	return &plan{
		ctx:     ctx,
		e:       e,
		limits:  e.live().Proposals,
		now:     now,
		from:    from,
		next:    from.clone(),
		done:    map[ulid.ULID]doneRow{},
		verdict: map[*job]verdict{},
		counts:  counts{proposals: map[string]int{}, approvals: map[string]int{}},
	}
}

// batch returns the plan as a command.
func (p *plan) batch() Batch {
	return Batch{Head: p.from.view.ref(), Audit: p.from.audit, Steps: p.steps}
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
	if reason := reasonOf(err); reason != "" {
		p.reject(j, reason)
	}
}

// judge refuses a job that was queued before the registry stopped accepting writes.
func (p *plan) judge(j *job) (answer, error) {
	if err := p.e.ready(); err != nil && !(p.e.guard.Load() != nil && passesGuard(j.req)) {
		return answer{}, err
	}
	return j.req.decide(p, j)
}

// add appends an op, nil for none, with its audit record, which it chains.
func (p *plan) add(j *job, op Op, rec record.Audit) {
	rec.Seq, rec.Prev, rec.At = p.next.audit.Seq+1, p.next.audit.B3, record.FormatTime(p.now)
	if rec.Decision == "" {
		rec.Decision = record.DecisionAccept
	}
	p.chain(j, Step{Op: op, Audit: rec.Bytes()}, rec)
}

// chain appends a step whose audit record is complete.
func (p *plan) chain(j *job, step Step, rec record.Audit) {
	p.next.audit = AuditRef{Seq: rec.Seq, B3: b3.Sum(step.Audit)}
	p.steps = append(p.steps, step)
	p.of = append(p.of, j)
	p.recs = append(p.recs, rec)
	p.size += step.size()
}

// audit returns the part of an audit record that follows from the job.
func (j *job) audit(event string) record.Audit {
	return record.Audit{Event: event, CorrID: clip(j.corrID), Actor: auditActor(j.actor)}
}

func auditActor(a engines.Actor) record.AuditActor {
	return record.AuditActor{CapID: clip(a.CapID), UID: a.UID}
}

// maxAuditText bounds each text of an audit record, so that the record stays within its own bound.
const maxAuditText = 256

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxAuditText)], "?") }

// reject adds the audit record of a refusal.
func (p *plan) reject(j *job, reason string) {
	rec := j.audit(j.req.name() + ".rejected")
	rec.Decision, rec.Reason = record.DecisionReject, reason
	j.req.describe(&rec)
	p.counts.refuse(j.req, reason)
	p.add(j, nil, rec)
}

// end ends a live proposal without a version. The caller sweeps the proposals stacked on it. j is
// nil if no job asked for it.
func (p *plan) end(j *job, prop *proposal, state string) {
	at, rec := p.now.UnixMilli(), record.Audit{Event: endEvent(state)}
	if j != nil {
		rec = j.audit(rec.Event)
	}
	p.next.remove(prop)
	p.done[prop.id] = doneRow{State: state, Version: prop.row.Version, PayloadB3: prop.row.PayloadB3, AtMS: at}
	p.counts.proposals[state]++
	rec.ProposalID, rec.PayloadB3, rec.Version = idText(prop.id), prop.row.PayloadB3, prop.row.Version
	p.add(j, EndOp{ID: prop.id, State: state, AtMS: at}, rec)
}

// expire ends expired proposals, and then those stacked on them.
func (p *plan) expire(props ...*proposal) {
	if len(props) == 0 {
		return
	}
	for _, prop := range props {
		p.end(nil, prop, StateExpired)
	}
	p.sweepOrphans()
}

// sweepOrphans ends proposals that have lost their base.
func (p *plan) sweepOrphans() {
	for _, prop := range p.next.orphans() {
		p.end(nil, prop, StateStale)
	}
}

// find returns a live proposal. One that has expired but was not swept is expired first.
func (p *plan) find(id ulid.ULID) (*proposal, error) {
	prop := p.next.live[id]
	if prop == nil {
		how, known, err := p.outcome(id)
		if err != nil {
			return nil, err
		}
		return nil, endedError(idText(id), how, known)
	}
	if prop.expired(p.now) {
		p.expire(prop)
		return nil, ErrExpired
	}
	return prop, nil
}

// outcome returns the outcome of a proposal, with those of this batch.
func (p *plan) outcome(id ulid.ULID) (doneRow, bool, error) {
	if how, ok := p.done[id]; ok {
		return how, true, nil
	}
	return rowOf(p.ctx, p.e, doneOutcome, id)
}
