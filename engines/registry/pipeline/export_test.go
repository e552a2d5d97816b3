package pipeline

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
)

type (
	Request   = request
	Answer    = answer
	Plan      = plan
	Job       = job
	Forgetter = forgetter
	Call      func(*plan, *job) error // a request that a test decides
)

const ForgetEvery, ForgetSlice, MaxForget = forgetEvery, forgetSlice, maxForget
const Rebuilds, MaxBatchJobs, MaxBatchBytes = rebuilds, maxBatchJobs, maxBatchBytes

func (Call) name() string                             { return "commit" }
func (Call) describe(*record.Audit)                   {}
func (Call) refuse(c *counts, _ string)               { c.rejected++ }
func (f Call) decide(p *plan, j *job) (answer, error) { return answer{}, f(p, j) }
func CommitOf(id ulid.ULID) Request                   { return commitReq{id: id} }
func ApproveOf(id ulid.ULID, a record.Approval, by record.Signer) Request {
	return approveReq{id: id, approval: a, key: tables.KeyOf(by)}
}
func NewJob(ctx context.Context, r Request, at time.Time) *Job {
	return &job{ctx: ctx, req: r, queued: at, reply: flow.NewReply[answer]()}
}
func (w *Writer) Pub() *tables.Published          { return w.deps.Published }
func (w *Writer) Slots() *flow.Slots              { return w.slots }
func (w *Writer) Proposing() *flow.Queue[*Job]    { return w.pipeline.proposals }
func (w *Writer) Approving() *flow.Queue[*Job]    { return w.pipeline.approvals }
func (w *Writer) Pipeline() *Pipeline             { return w.pipeline }
func (p *Pipeline) Running() *atomic.Bool         { return &p.running }
func (p *Pipeline) Busy() *atomic.Int64           { return &p.busySince }
func (j *job) Reply() *flow.Reply[answer]         { return j.reply }
func (a answer) Committed() document.Committed    { return a.committed }
func (p *plan) Add(j *job, o tables.Op, e string) { p.add(j, o, j.audit(e)) }
func (p *plan) Done() <-chan struct{}             { return p.ctx.Done() }
func (p *plan) Grow(n int)                        { p.size += n }
func (p *plan) Bloat(n int)                       { p.steps[len(p.steps)-1].Audit = make([]byte, n) }
func PlanOf(p *Pipeline, ctx context.Context, jobs []*Job) (bytes, decided int) {
	made := (&run{Pipeline: p, cur: p.deps.Published.State.Load()}).plan(ctx, jobs)
	return made.size, len(made.verdict)
}

var (
	Submit, NewPlan           = (*Pipeline).submit, (*Pipeline).newPlan
	Reject, Batch, Look, Idle = (*plan).reject, (*plan).batch, forgetter.look, forgetter.idle
)
