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
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// plan decides jobs one after the other until the batch is full. Jobs whose deadline has passed are answered here: nothing
// was written for them.
func (p *pipeline) plan(ctx context.Context, jobs []*job) *plan {
	made := p.e.newPlan(ctx, p.cur, p.clock())
	if p.e.guard.Load() == nil {
		made.expire(p.cur.expired(made.now, maxSweep)...)
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

// submit hands the batch to the store and waits for its outcome, however long that takes: while it is open the file may show rows that a
// power cut would take back, and nothing may be decided on them. Callers leave at their own deadlines. What the batch publishes is
// published by the committer, after the sync and before any answer, so that an answer that comes too late for its caller loses nothing.
func (p *pipeline) submit(ctx context.Context, made *plan) error {
	p.sent = true
	begun := time.Now()
	_, err := store.Commit(ctx, p.e.store, made.lane(), made.batch(), func(res BatchResult) {
		p.e.publish(made, res, time.Since(begun))
	})
	if errors.Is(err, store.ErrUnknown) {
		return err // told to stop, or the store is poisoned: nothing is decided any more
	}
	p.sent = false
	var guard *GuardError
	if errors.As(err, &guard) {
		p.stale = true
		p.e.m.casFail(1)
		p.offend(made, guard)
	}
	return err
}

// lane is work's, but for a batch that only ends proposals or forgets outcomes: bulk takes what frees bytes of a full file.
func (p *plan) lane() store.Lane {
	for _, op := range p.ops {
		switch op.Do {
		case OpWithdraw, OpExpire, OpStale, OpForget:
		default:
			return store.Work
		}
	}
	return store.Bulk
}

// publish makes a synced batch visible: state first, then the bus. It runs in the committer and must not wait.
func (e *Engine) publish(made *plan, res BatchResult, took time.Duration) {
	e.tree.Store(&res.Tree)
	made.next = made.next.bounded(e.Head().MinVersion, e.checkpointSize())
	e.current.Store(made.next)
	for _, ev := range made.events {
		e.committed.Publish(ev)
		e.m.commitSeconds(took.Seconds())
	}
	e.m.count(made)
}

// offend answers the job whose op a guard refused; the others are built again.
func (p *pipeline) offend(made *plan, guard *GuardError) {
	if guard.Op < 0 || made.of[guard.Op] == nil {
		return // the batch's own compare-and-set, or a sweep: nobody's fault
	}
	j := made.of[guard.Op]
	p.release(j)
	j.reply.Fail(guard)
}

// told are the events of the audit chain that are logged at info; the rest is at debug.
func told(event string) bool {
	return event == record.EventCommit || event == record.EventGenesis || event == record.EventSupersede
}

// logged writes a line for each record of a batch that is in the file, under the record's own event name.
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

// succeed answers everyone in the batch.
func (p *pipeline) succeed(made *plan) {
	p.cur = made.next
	p.logged(made)
	if made.from.view.Head.Version == 0 {
		p.e.board.Set(service, keyHasGenesis, p.e.hasGenesis())
	}
	for j, v := range made.verdict {
		p.answer(j, v)
	}
}

// fail answers everyone in a batch that did not get into the file: final verdicts as they are, the rest with why.
func (p *pipeline) fail(made *plan, why error) {
	p.sent = false
	for j, v := range made.verdict {
		if !v.final {
			v = verdict{err: why}
		}
		p.answer(j, v)
	}
}

// answer pays one job what it is owed.
func (p *pipeline) answer(j *job, v verdict) {
	p.release(j)
	if v.err != nil {
		j.reply.Fail(v.err)
	} else {
		j.reply.Answer(v.answer)
	}
}

// skipped counts a job that nothing is done for, since its caller has left. One whose deadline has passed is counted by its caller.
func (e *Engine) skipped(j *job) {
	if errors.Is(context.Cause(j.ctx), context.Canceled) {
		e.m.canceled(1)
	}
}

// release takes j off the list of jobs that are owed an answer; the caller answers it at once.
func (p *pipeline) release(j *job) {
	p.held = slices.DeleteFunc(p.held, func(h *job) bool { return h == j })
}

// answerHeld answers what this life of the pipeline still owes when it ends early: unknown once the store has had it.
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

// turnAway answers what waits in the queues of a pipeline that was told to stop at once: nothing will read them again.
func (e *Engine) turnAway() {
	for _, q := range []*flow.Queue[*job]{e.proposals, e.approvals} {
		left := q.Discard("aborted")
		for _, j := range left {
			j.reply.Fail(flow.ErrCanceled)
		}
		e.m.canceled(len(left))
	}
}

// job is one request on its way through the pipeline. It is answered exactly once.
type job struct {
	ctx    context.Context
	req    request
	actor  engines.Actor
	corrID string
	queued time.Time
	reply  *flow.Reply[answer]
}

// submit queues a request and waits for its answer. It never waits for room.
func (e *Engine) submit(ctx context.Context, q *flow.Queue[*job], req request, actor engines.Actor, corrID string) (answer, error) {
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

// waitError tells a deadline that passed in the queue, where nothing was written, from the other outcomes.
func (e *Engine) waitError(op string, err error) error {
	if errors.Is(err, context.DeadlineExceeded) {
		e.m.timeouts["commit"](1)
		return &TimeoutError{Op: op}
	}
	if errors.Is(err, flow.ErrUnknown) {
		e.m.timeouts["commit"](1)
	}
	return err
}

var errDetached = errors.New("publisher is not attached")

// runPublisher tells the node of each new version, in order. It never holds up the pipeline: what it misses is counted and
// left out, because HEAD is all that its readers need.
func (e *Engine) runPublisher(ctx context.Context) error {
	sub := e.committed.Subscribe(taskPublisher)
	defer sub.Close()
	e.board.Set(service, keyBusAttached, nil)
	defer e.board.Set(service, keyBusAttached, errDetached)
	for {
		ev, lagged, err := sub.Recv(ctx)
		if errors.Is(err, flow.ErrClosed) {
			return nil // drained
		}
		if err != nil {
			return err
		}
		if lagged > 0 {
			e.m.overflow(int(lagged))
		}
		if e.live().Bus.EmitUpdates {
			_, span := e.span(ctx, "emit_bus", ev.CorrID)
			span.about("", ev.Version, ev.PayloadB3)
			e.updated.Publish(Updated{Version: ev.Version, B3: ev.PayloadB3})
			span.end(nil)
		}
	}
}
