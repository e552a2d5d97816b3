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

// plan is one batch in the making: ops decided one after the other on a speculative state. Nothing outside it changes
// until the batch is in the file, so a plan that fails is dropped and made again.
type plan struct {
	ctx    context.Context
	e      *Engine
	limits ProposalsConfig // one for the whole batch, whatever is reloaded meanwhile
	now    time.Time       // UTC, whole milliseconds
	from   *state          // what the batch builds on
	next   *state          // from, and the ops so far
	ops    []Op
	of     []*job // whose op it is, nil for expiry and stale
	recs   []record.Audit
	size   int

	done    map[ulid.ULID]doneRow // what ended in this batch
	events  []Update
	verdict map[*job]verdict
	counts  counts
}

// verdict is what a job will be told if the batch gets into the file.
type verdict struct {
	answer answer
	err    error // refused
	final  bool  // decided on the durable state alone: true whatever becomes of the batch
}

// counts are the metrics that move when the batch is in the file.
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

// refuse books a refusal under what was asked for.
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
		ctx: ctx, e: e, limits: e.live().Proposals, now: now, from: from, next: from.clone(),
		done: map[ulid.ULID]doneRow{}, verdict: map[*job]verdict{}, counts: counts{proposals: map[string]int{}, approvals: map[string]int{}},
	}
}

// batch is the plan as a command.
func (p *plan) batch() Batch {
	return Batch{Head: p.from.view.ref(), Audit: p.from.audit, Ops: p.ops}
}

// decide judges one job and adds its ops.
func (p *plan) decide(j *job) {
	alone := len(p.ops) == 0
	a, err := p.judge(j)
	if err == nil {
		p.verdict[j] = verdict{answer: a, final: len(p.ops) == 0}
		return
	}
	p.verdict[j] = verdict{err: err, final: alone}
	if reason := reasonOf(err); reason != "" {
		p.reject(j, reason)
	}
}

// judge refuses what was queued before the node found that it takes no writes.
func (p *plan) judge(j *job) (answer, error) {
	if err := p.e.ready(); err != nil && !(p.e.guard.Load() != nil && passesGuard(j.req)) {
		return answer{}, err
	}
	return j.req.decide(p, j)
}

// add chains an op's audit record and appends it.
func (p *plan) add(j *job, op Op, rec record.Audit) {
	rec.Seq, rec.Prev, rec.At = p.next.audit.Seq+1, p.next.audit.B3, record.FormatTime(p.now)
	if rec.Decision == "" {
		rec.Decision = record.DecisionAccept
	}
	op.Audit = rec.Bytes()
	p.next.audit = AuditRef{Seq: rec.Seq, B3: b3.Sum(op.Audit)}
	p.ops = append(p.ops, op)
	p.of = append(p.of, j)
	p.recs = append(p.recs, rec)
	p.size += op.size()
}

// audit is the part of a record that its caller decides.
func (j *job) audit(event string) record.Audit {
	return record.Audit{Event: event, CorrID: clip(j.corrID), Actor: auditActor(j.actor)}
}

func auditActor(a engines.Actor) record.AuditActor {
	return record.AuditActor{CapID: clip(a.CapID), UID: a.UID}
}

// maxAuditText bounds each text of an audit record, so that the record stays within its own bound.
const maxAuditText = 256

func clip(s string) string { return strings.ToValidUTF8(s[:min(len(s), maxAuditText)], "?") }

// reject chains a refusal.
func (p *plan) reject(j *job, reason string) {
	rec := j.audit(j.req.name() + ".rejected")
	rec.Decision, rec.Reason = record.DecisionReject, reason
	j.req.describe(&rec)
	p.counts.refuse(j.req, reason)
	p.add(j, Op{Do: OpReject}, rec)
}

// end ends a live proposal without a version; what stood on it goes stale with it.
func (p *plan) end(j *job, do OpKind, prop *proposal, state string, rec record.Audit) {
	at := p.now.UnixMilli()
	p.next.remove(prop)
	p.done[prop.id] = doneRow{State: state, Version: prop.row.Version, PayloadB3: prop.row.PayloadB3, AtMS: at}
	p.counts.proposals[state]++
	rec.ProposalID, rec.PayloadB3, rec.Version = idText(prop.id), prop.row.PayloadB3, prop.row.Version
	p.add(j, Op{Do: do, ID: prop.id, End: &EndOp{AtMS: at}}, rec)
}

// expire ends proposals whose time is over, and then what stood on them.
func (p *plan) expire(props ...*proposal) {
	if len(props) == 0 {
		return
	}
	for _, prop := range props {
		p.end(nil, OpExpire, prop, StateExpired, record.Audit{Event: "proposal.expired"})
	}
	p.sweepOrphans()
}

// sweepOrphans marks what stands on nothing any more.
func (p *plan) sweepOrphans() {
	for _, prop := range p.next.orphans() {
		p.end(nil, OpStale, prop, StateStale, record.Audit{Event: "proposal.stale"})
	}
}

// find gives a live, unexpired proposal. One that has expired unswept is expired on the spot.
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

// outcome says how a proposal ended, this batch included.
func (p *plan) outcome(id ulid.ULID) (doneRow, bool, error) {
	if how, ok := p.done[id]; ok {
		return how, true, nil
	}
	return rowOf(p.ctx, p.e, doneOutcome, id)
}
