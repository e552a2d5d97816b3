package registry

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
func (p *pipeline) plan(ctx context.Context, jobs []*job) *plan {
	made := p.e.newPlan(ctx, p.cur, p.clock())
	if p.e.seal.Tripped() == nil {
		made.expire(p.cur.Expired(made.now, maxSweep)...)
		made.forget(p.over)
	}
	for _, j := range slices.Clone(jobs) {
		if made.size > maxBatchBytes-maxJobBytes {
			break
		}
		if j.ctx.Err() != nil {
			p.release(j)
			j.reply.Fail(context.Cause(j.ctx))
			p.e.skipped(j)
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
func (p *pipeline) submit(ctx context.Context, made *plan) error {
	p.sent = true
	begun := time.Now()
	_, err := store.Commit(ctx, p.e.store, made.lane(), made.batch(), func(res tables.BatchResult) {
		p.e.publish(made, res, time.Since(begun))
	})
	if errors.Is(err, store.ErrUnknown) {
		return err // stopped, or the store is poisoned: decide nothing more
	}
	p.sent = false
	var guard *tables.GuardError
	if errors.As(err, &guard) {
		p.stale = true
		p.e.m.casFail(1)
		p.offend(made, guard)
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
func (e *Engine) publish(made *plan, res tables.BatchResult, took time.Duration) {
	e.pub.Tree.Store(&res.Tree)
	made.next = made.next.Bounded(e.Head().MinVersion, e.pub.Covered())
	e.pub.State.Store(made.next)
	for _, ev := range made.events {
		e.committed.Publish(ev)
		e.m.commitSeconds(took.Seconds())
	}
	e.m.count(made)
}

// offend answers the job whose op a guard refused. The other jobs are planned again.
func (p *pipeline) offend(made *plan, guard *tables.GuardError) {
	if guard.Op < 0 || made.of[guard.Op] == nil {
		return // the compare-and-set of the batch, or a sweep
	}
	j := made.of[guard.Op]
	p.release(j)
	j.reply.Fail(guard)
}

// told reports whether an event of the audit chain is logged at info. Other events are logged at
// debug.
func told(event string) bool {
	return event == record.EventCommit || event == record.EventGenesis || event == record.EventSupersede
}

// logged logs each audit record of a batch that is in the file, under the name of its event.
func (p *pipeline) logged(made *plan) {
	for i := range made.recs {
		rec := &made.recs[i]
		level := hclog.Debug
		if told(rec.Event) {
			level = hclog.Info
		}
		if !p.e.log.IsInfo() || level == hclog.Debug && !p.e.log.IsDebug() {
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
		p.e.log.Log(level, rec.Event, args...)
	}
}

// succeed answers every job of a batch that is in the file.
func (p *pipeline) succeed(made *plan) {
	p.cur = made.next
	p.logged(made)
	if made.from.View.Head.Version == 0 {
		p.e.board.Set(service, keyHasGenesis, p.e.hasGenesis())
	}
	for j, v := range made.verdict {
		p.answer(j, v)
	}
}

// fail answers every job of a failed batch: final verdicts unchanged, the others with why.
func (p *pipeline) fail(made *plan, why error) {
	p.sent = false
	for j, v := range made.verdict {
		if !v.final {
			v = verdict{err: why}
		}
		p.answer(j, v)
	}
}

// answer answers one job.
func (p *pipeline) answer(j *job, v verdict) {
	p.release(j)
	if v.err != nil {
		j.reply.Fail(v.err)
	} else {
		j.reply.Answer(v.answer)
	}
}

// skipped counts a job whose caller has left. A passed deadline is counted by the caller.
func (e *Engine) skipped(j *job) {
	if errors.Is(context.Cause(j.ctx), context.Canceled) {
		e.m.canceled(1)
	}
}

// release removes j from the jobs that await an answer. The caller answers it at once.
func (p *pipeline) release(j *job) {
	p.held = slices.DeleteFunc(p.held, func(h *job) bool { return h == j })
}

// answerHeld answers the remaining jobs when this run of the pipeline ends early: flow.ErrUnknown
// if the store has had the batch, else flow.ErrCanceled.
func (p *pipeline) answerHeld() {
	why := flow.ErrCanceled
	if p.sent {
		why = flow.ErrUnknown
	}
	for _, j := range p.held {
		j.reply.Fail(why)
	}
	if n := len(p.held); n > 0 {
		p.e.m.canceled(n)
	}
	p.held = nil
}

// turnAway answers the queued jobs of a pipeline that was stopped: no task will read the queues
// again.
func (e *Engine) turnAway() {
	for _, q := range []*flow.Queue[*job]{e.proposals, e.approvals} {
		left := q.Discard("aborted")
		for _, j := range left {
			j.reply.Fail(flow.ErrCanceled)
		}
		e.m.canceled(len(left))
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
func (e *Engine) submit(ctx context.Context, q *flow.Queue[*job], req request, actor engines.Actor,
	corrID string) (answer, error) {
	j := &job{ctx: ctx, req: req, actor: actor, corrID: corrID, queued: e.now(), reply: flow.NewReply[answer]()}
	if err := q.TrySend(j); err != nil {
		return answer{}, fmt.Errorf("%s: %w", req.name(), err)
	}
	a, err := j.reply.Wait(ctx)
	if err != nil {
		return answer{}, fmt.Errorf("%s: %w", req.name(), e.waitError(req.name(), err))
	}
	return a, nil
}

// waitError converts a deadline that passed in the queue, where nothing was written, to a
// *TimeoutError.
func (e *Engine) waitError(op string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["commit"](1)
		return &document.TimeoutError{Op: op}
	}
	if errors.Is(err, flow.ErrUnknown) {
		e.m.timeouts["commit"](1)
	}
	return err
}
