package wallet

import (
	"context"
	"runtime"
	"slices"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
)

// burstRoom is the weight up to which a burst takes one more job, which is a batch at the most.
const burstRoom = ledger.MaxOps - MaxBatchOps

// worker is one life of a worker task.
type worker struct {
	e    *Engine
	jobs []*job // taken from the queue or woken, not yet in a burst
	now  *job   // that is being admitted
	b    *burst // in hand; nil between two
	done bool   // drained: no life comes after this one
}

// runWorker puts queued jobs to the ledger, a burst a call, until the queue is closed and empty and nobody waits for a nonce any more.
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
		open, err := w.gather(ctx)
		if err != nil {
			return err
		}
		if w.done = !open; w.done {
			return nil // drained
		}
		w.work(ctx)
	}
}

// gather waits for a job and takes what else is there, without waiting. Who gathers has the turn, so while one light burst syncs, the next one
// forms in the queue. It reports false when there will be no more.
func (w *worker) gather(ctx context.Context) (open bool, err error) {
	if w.takeReady(); len(w.jobs) == 0 {
		select {
		case <-ctx.Done():
			return false, context.Cause(ctx)
		case <-w.e.ready.some:
			w.takeReady()
		case j, ok := <-w.e.work.C():
			if !ok {
				w.e.wake(w.e.nonces.close())
				w.takeReady() // of those that were answered last
				return len(w.jobs) > 0, nil
			}
			w.jobs = append(w.jobs, j)
		}
	}
	runtime.Gosched() // handlers that can run have their jobs queued first
	weight := 0
	for _, j := range w.jobs {
		weight += j.weight
	}
	for len(w.jobs) < w.e.boot.WorkerBurst && weight <= burstRoom {
		select {
		case j, ok := <-w.e.work.C():
			if !ok {
				return true, nil
			}
			w.jobs = append(w.jobs, j)
			weight += j.weight
		default:
			return true, nil
		}
	}
	return true, nil
}

// takeReady takes jobs that need not wait for a nonce any more.
func (w *worker) takeReady() {
	w.jobs = append(w.jobs, w.e.ready.take(max(w.e.boot.WorkerBurst-len(w.jobs), 0))...)
}

// work makes one burst of the jobs at hand, or of as many as fit, and has the ledger do it.
func (w *worker) work(ctx context.Context) {
	w.e.m.busy.Add(1)
	defer w.e.m.busy.Add(-1)
	slices.SortStableFunc(w.jobs, (*job).order)
	n := min(len(w.jobs), w.e.boot.WorkerBurst)
	w.b = &burst{e: w.e, jobs: make([]*job, 0, n), ops: make([]ledger.Op, 0, n), pass: func() { w.e.turn.pass(w) }}
	for len(w.b.jobs) < w.e.boot.WorkerBurst && w.b.weight <= burstRoom && w.next() {
		w.b.admit(w.now)
		w.now = nil
	}
	if len(w.jobs) > 0 { // nobody waits for his turn with jobs in hand
		w.e.ready.put(w.jobs)
		w.jobs = nil
	}
	if w.b.weight == 0 || w.b.weight >= w.e.boot.WorkerBurst { // heavy: its ops cost as much as its sync
		w.e.turn.pass(w)
	}
	w.b.commit(ctx)
	w.b.leave()
	w.b = nil
}

// next takes the job to admit: an early one that follows what the burst has, or the first at hand.
func (w *worker) next() bool {
	if w.now = w.b.early(); w.now == nil && len(w.jobs) > 0 {
		w.now, w.jobs = w.jobs[0], w.jobs[1:]
	}
	return w.now != nil
}

// end pays what this life still owes. Told to stop it turns away what is queued; after a panic it leaves that to the others.
func (w *worker) end(ctx context.Context) {
	w.e.turn.pass(w)
	why := error(&NotReadyError{CauseDraining})
	if ctx.Err() == nil {
		why = &OutcomeError{Cause: flow.ErrCanceled}
	}
	if w.now != nil {
		w.jobs = append(w.jobs, w.now)
	}
	if w.b != nil {
		w.abandon(why)
	}
	over := ctx.Err() != nil
	if over {
		w.jobs = append(append(w.jobs, w.e.work.Discard("aborted")...), w.e.nonces.close()...)
	}
	for _, j := range w.jobs {
		w.e.turnAway(j, why)
	}
	if over {
		w.e.sweep() // what waited for those
	}
	if over || w.done {
		w.e.workerGone()
	}
}

// abandon answers the burst in hand, unknown if the ledger has had it.
func (w *worker) abandon(why error) {
	if w.b.sent {
		why = &OutcomeError{Unknown: true, Cause: flow.ErrUnknown}
	}
	w.b.failAll(why)
}

// workerGone counts a worker that will not be started again. The last one lets the tasks go that serve the workers, and looks once more: what
// was woken since its last look has nobody else.
func (e *Engine) workerGone() {
	if int(e.left.Add(1)) == e.workers {
		close(e.gone)
		e.sweep()
	}
}

// sweep turns away jobs that were woken and that no worker will look at.
func (e *Engine) sweep() {
	for jobs := e.ready.take(flightCalls); len(jobs) > 0; jobs = e.ready.take(flightCalls) {
		for _, j := range jobs {
			e.turnAway(j, &NotReadyError{CauseDraining})
		}
	}
}

// turnAway answers a job that was not begun and will not be.
func (e *Engine) turnAway(j *job, why error) {
	e.m.canceled(1)
	e.refuse(j, why)
}
