package wallet

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// burstRoom is the greatest weight of a burst to which a job is added. The job is at most a batch.
const burstRoom = ledger.MaxOps - MaxBatchOps - 1

// turn is held by one worker at a time, the one that gathers a burst. The worker keeps it until the
// ledger has answered, so that the jobs that come meanwhile make one larger burst instead of
// several small ones that each cost a sync, and so that bursts reach the ledger in the order of the
// queue.
type turn struct {
	free   chan struct{} // holds a token while no worker has the turn
	holder atomic.Pointer[worker]
}

func newTurn() *turn {
	t := &turn{free: make(chan struct{}, 1)}
	t.free <- struct{}{}
	return t
}

// take waits for the turn until ctx ends.
func (t *turn) take(ctx context.Context, w *worker) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.free:
		t.holder.Store(w)
		return nil
	}
}

// pass releases the turn if w holds it.
func (t *turn) pass(w *worker) {
	if w != nil && t.holder.CompareAndSwap(w, nil) {
		t.free <- struct{}{}
	}
}

// revoke releases the turn of the worker that holds it, because its call stalls.
func (t *turn) revoke() { t.pass(t.holder.Load()) }

// worker is one life of a worker task.
type worker struct {
	e       *Engine
	b       *burst // nil between bursts
	drained bool   // the queue is closed and empty
}

// runWorker sends queued jobs to the ledger, one burst a call, until the queue is closed and empty.
func (e *Engine) runWorker(ctx context.Context) error {
	w := &worker{e: e}
	defer w.end(ctx)
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := e.turn.take(ctx, w); err != nil {
			return err
		}
		w.b = &burst{e: e, pass: func() { e.turn.pass(w) }}
		if err := w.gather(ctx); err != nil {
			return err
		}
		if w.drained {
			return nil
		}
		w.b.commit(ctx)
		w.b = nil
	}
}

// gather waits for a job, adds it to the burst, and adds the jobs that are queued already.
func (w *worker) gather(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case j, ok := <-w.e.work.C():
		if !ok {
			w.drained = true
			return nil
		}
		w.b.admit(j)
	}
	runtime.Gosched() // handlers that can run queue their jobs first
	for len(w.b.jobs) < w.e.boot.WorkerBurst && w.b.weight <= burstRoom {
		select {
		case j, ok := <-w.e.work.C():
			if !ok {
				return nil
			}
			w.b.admit(j)
		default:
			return nil
		}
	}
	return nil
}

// end answers the jobs of the burst. A worker that is told to stop also refuses the queued jobs;
// after a panic the other workers process them.
func (w *worker) end(ctx context.Context) {
	w.e.turn.pass(w)
	stopped := ctx.Err() != nil
	why := error(&NotReadyError{Cause: CauseDraining})
	if !stopped {
		why = &OutcomeError{Cause: flow.ErrCanceled}
	}
	if w.b != nil {
		if w.b.sent {
			w.b.failAll(&OutcomeError{Unknown: true, Cause: flow.ErrUnknown})
		} else {
			w.b.failAll(why)
		}
	}
	if stopped {
		for _, j := range w.e.work.Discard("aborted") {
			w.e.m.canceled(1)
			w.e.refuse(j, why)
		}
	}
	if stopped || w.drained {
		w.e.workerGone()
	}
}

// workerGone counts a worker that is not started again. The last one ends the other tasks.
func (e *Engine) workerGone() {
	if int(e.left.Add(1)) == e.workers {
		close(e.gone)
	}
}

// burst holds the jobs of one call of the ledger, in the order of the queue. It belongs to one
// worker.
type burst struct {
	e      *Engine
	jobs   []*job // claimed and not yet answered
	ops    []*ledger.Prepared
	weight int
	sent   bool   // the ledger may have seen it
	pass   func() // releases the turn
}

// admit adds j to the burst, or drops j if its callers have left.
func (b *burst) admit(j *job) {
	if !j.call.Claim() {
		j.done()
		b.e.m.canceled(1)
		return
	}
	if b.jobs == nil {
		n := min(1+b.e.work.Len(), b.e.boot.WorkerBurst)
		b.jobs, b.ops = make([]*job, 0, n), make([]*ledger.Prepared, 0, n)
	}
	b.jobs = append(b.jobs, j)
	b.ops = append(b.ops, j.prepared)
	b.weight += j.weight
	if len(j.op.Ops) > 0 {
		b.weight++ // the ledger counts the batch too
	}
}

// commit sends the burst to the ledger, until the last of its jobs has no time left, and answers
// the jobs. A client that leaves does not end the call. The turn passes on after each try; of a
// heavy burst once it is queued, because its ops cost as much as its sync.
func (b *burst) commit(ctx context.Context) {
	b.e.m.busy.Add(1)
	defer b.e.m.busy.Add(-1)
	defer b.pass() // should there be nothing to do, or no time even for one try
	if len(b.jobs) == 0 {
		return
	}
	var until time.Time
	for _, j := range b.jobs {
		if end := j.deadline.Add(j.grace); end.After(until) {
			until = end
		}
	}
	sent := func() {}
	if b.weight >= b.e.boot.WorkerBurst {
		sent = b.pass
	}
	b.sent = true
	outs, err := b.e.commit(ctx, until, b.ops, sent, b.pass)
	if err != nil {
		b.failAll(b.stopped(ctx, err))
		return
	}
	for i := range outs {
		j := b.jobs[0]
		if outs[i].Batch {
			b.e.m.rejected(&outs[i])
		}
		b.e.publish(j, &outs[i])
		j.done()
		j.call.Answer(&outs[i])
		b.jobs = b.jobs[1:] // only now: a panic before leaves the job to end
	}
}

// stopped returns err as the callers of a worker that may have been told to stop see it: an outcome
// stays unknown if the ledger may have seen the burst.
func (b *burst) stopped(ctx context.Context, err error) error {
	var out *OutcomeError
	if ctx.Err() != nil && !(errors.As(err, &out) && out.Unknown) {
		b.e.m.canceled(len(b.jobs))
		return &NotReadyError{Cause: CauseDraining}
	}
	return err
}

// failAll answers every job with err.
func (b *burst) failAll(err error) {
	for len(b.jobs) > 0 {
		b.e.refuse(b.jobs[0], err)
		b.jobs = b.jobs[1:]
	}
}

// refuse answers j with err and publishes that.
func (e *Engine) refuse(j *job, err error) {
	e.audit(AuditEvent{
		Event:   eventRejected,
		CorrID:  j.corrID,
		Op:      j.op.Code,
		Reason:  ReasonOf(err),
		account: j.payer,
		Asset:   j.op.Asset,
	})
	j.fail(err)
}
