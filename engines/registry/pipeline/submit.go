package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// plan decides jobs one after the other until the batch is full. It answers jobs whose deadline has
// passed, for which nothing was written.
func (r *run) plan(ctx context.Context, jobs []*job) *plan {
	made := r.newPlan(ctx, r.cur, r.clock())
	if !r.deps.Keeper.Tripped() {
		made.expire(r.cur.Expired(made.now, maxSweep)...)
		made.forget(r.over)
	}
	for _, j := range slices.Clone(jobs) {
		if made.size > maxBatchBytes-maxJobBytes {
			break
		}
		if j.ctx.Err() != nil {
			r.release(j)
			j.reply.Fail(context.Cause(j.ctx))
			r.skipped(j)
			continue
		}
		made.decide(j)
	}
	return made
}

// submit sends the batch to the store and waits for the outcome, however long it takes: until then
// the file may show rows that a power cut would remove, and nothing may be decided on them. Callers
// leave at their own deadlines. The committer publishes the new state after the sync and before any
// answer.
func (r *run) submit(ctx context.Context, made *plan) error {
	r.sent = true
	begun := time.Now()
	_, err := store.Commit(ctx, r.deps.Store, made.lane(), made.batch(), func(res tables.BatchResult) {
		r.publish(made, res, time.Since(begun))
	})
	if errors.Is(err, store.ErrUnknown) {
		return err // stopped, or the store is poisoned: decide nothing more
	}
	r.sent = false
	var guard *tables.GuardError
	if errors.As(err, &guard) {
		r.stale = true
		r.m.casFail(1)
		r.offend(made, guard)
	}
	return err
}

// lane returns the bulk lane for a batch that only ends proposals or forgets outcomes, because it
// frees bytes of a full file. Other batches use the work lane.
func (p *plan) lane() store.Lane {
	for _, step := range p.steps {
		switch step.Op.(type) {
		case tables.EndOp, tables.ForgetOp:
		default:
			return store.Work
		}
	}
	return store.Bulk
}

// publish makes a synced batch visible: first the state, then the events. It runs in the committer
// and must not wait.
func (p *Pipeline) publish(made *plan, res tables.BatchResult, took time.Duration) {
	pub := p.deps.Published
	pub.Tree.Store(&res.Tree)
	if made.adopts {
		pub.Latest.Store(nil)
	}
	made.next = made.next.Bounded(pub.Head().MinVersion, pub.Covered())
	pub.State.Store(made.next)
	p.deps.Keeper.Publish(made.from.View, made.events, took)
	p.m.count(made.counts)
}

// offend answers the job whose op a guard refused. The other jobs are planned again.
func (r *run) offend(made *plan, guard *tables.GuardError) {
	if guard.Op < 0 || made.of[guard.Op] == nil {
		return // the compare-and-set of the batch, or a sweep
	}
	j := made.of[guard.Op]
	r.release(j)
	j.reply.Fail(guard)
}

// told reports whether an event of the audit chain is logged at info. Other events are logged at
// debug.
func told(event string) bool {
	return event == record.EventCommit || event == record.EventGenesis || event == record.EventSupersede
}

// logged logs each audit record of a batch that is in the file, under the name of its event.
func (r *run) logged(made *plan) {
	for i := range made.recs {
		rec := &made.recs[i]
		level := hclog.Debug
		if told(rec.Event) {
			level = hclog.Info
		}
		if !r.deps.Log.IsInfo() || level == hclog.Debug && !r.deps.Log.IsDebug() {
			continue
		}
		args := []any{"audit_seq", rec.Seq, "corr_id", rec.CorrID}
		if rec.ProposalID != "" {
			args = append(args, "proposal_id", rec.ProposalID)
		}
		if rec.Version > 0 {
			args = append(args, "version", rec.Version, "payload_b3", rec.PayloadB3.String())
		}
		if rec.Reason != "" {
			args = append(args, "reason", rec.Reason)
		}
		r.deps.Log.Log(level, rec.Event, args...)
	}
}

// succeed answers every job of a batch that is in the file.
func (r *run) succeed(made *plan) {
	r.cur = made.next
	r.logged(made)
	if made.from.View.Head.Version == 0 {
		r.deps.Keeper.Begun()
	}
	for j, v := range made.verdict {
		r.answer(j, v)
	}
}

// fail answers every job of a failed batch: final verdicts unchanged, the others with why.
func (r *run) fail(made *plan, why error) {
	r.sent = false
	for j, v := range made.verdict {
		if !v.final {
			v = verdict{err: why}
		}
		r.answer(j, v)
	}
}

// answer answers one job.
func (r *run) answer(j *job, v verdict) {
	r.release(j)
	if v.err != nil {
		j.reply.Fail(v.err)
	} else {
		j.reply.Answer(v.answer)
	}
}

// skipped counts a job whose caller has left. A passed deadline is counted by the caller.
func (p *Pipeline) skipped(j *job) {
	if errors.Is(context.Cause(j.ctx), context.Canceled) {
		p.m.canceled(1)
	}
}

// release removes j from the jobs that await an answer. The caller answers it at once.
func (r *run) release(j *job) {
	r.held = slices.DeleteFunc(r.held, func(h *job) bool { return h == j })
}

// answerHeld answers the remaining jobs when this run of the pipeline ends early: flow.ErrUnknown
// if the store has had the batch, else flow.ErrCanceled.
func (r *run) answerHeld() {
	why := flow.ErrCanceled
	if r.sent {
		why = flow.ErrUnknown
	}
	for _, j := range r.held {
		j.reply.Fail(why)
	}
	if n := len(r.held); n > 0 {
		r.m.canceled(n)
	}
	r.held = nil
}

// turnAway answers the queued jobs of a pipeline that was stopped: no task will read the queues
// again.
func (p *Pipeline) turnAway() {
	for _, q := range []*flow.Queue[*job]{p.proposals, p.approvals} {
		left := q.Discard("aborted")
		for _, j := range left {
			j.reply.Fail(flow.ErrCanceled)
		}
		p.m.canceled(len(left))
	}
}

// job is one request in the pipeline. It is answered exactly once.
type job struct {
	ctx    context.Context
	req    request
	actor  engines.Actor
	corrID string
	queued time.Time
	reply  *flow.Reply[answer]
}

// submit queues a request and waits for its answer. It never waits for room in the queue.
func (p *Pipeline) submit(ctx context.Context, q *flow.Queue[*job], req request, actor engines.Actor,
	corrID string) (answer, error) {
	j := &job{
		ctx: ctx, req: req, actor: actor, corrID: corrID, queued: p.deps.Keeper.Now(),
		reply: flow.NewReply[answer](),
	}
	if err := q.TrySend(j); err != nil {
		return answer{}, fmt.Errorf("%s: %w", req.name(), err)
	}
	a, err := j.reply.Wait(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", req.name(), p.waitError(req.name(), err))
	}
	return a, nil
}

// waitError converts a deadline that passed in the queue, where nothing was written, to a
// *TimeoutError.
func (p *Pipeline) waitError(op string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		p.m.timeouts(1)
		return &document.TimeoutError{Op: op}
	}
	if errors.Is(err, flow.ErrUnknown) {
		p.m.timeouts(1)
	}
	return err
}
