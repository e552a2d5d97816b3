package rewarder

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// answerWithin bounds the time in which a call of Compute is answered. The answer is not the result
// of the run.
const answerWithin = 2 * time.Second

// request is a call of Compute in the queue of the scheduler.
type request struct {
	by    Call
	job   job
	want  ComputeRequest
	reply *flow.Reply[Run]
}

// errNoRoom is returned when work is full and a run cannot be accepted.
var errNoRoom = fmt.Errorf("work: %w", flow.ErrBusy)

func isNoRoom(err error) bool { return err == errNoRoom }

// roomDelay is the pause between the two attempts to find room in work.
func roomDelay(int) time.Duration { return 50*time.Millisecond + rand.N(100*time.Millisecond) }

// errLeft is returned when the caller of a request has left before its turn.
var errLeft = errors.New("rewarder: the caller has left")

// Compute requests the run of an epoch and returns the run that has the slot. If this call has
// accepted the run, it is in the file. Errors: flow.ErrBusy if a queue is full, ErrLate if a
// deadline of the caller has passed, store.ErrSlow if the call was not begun in 2 s, ErrDraining,
// *FieldError, ErrNotFound, *ConflictError, *QuarantineError, and flow.ErrUnknown if the run may
// have been accepted.
func (e *Engine) Compute(ctx context.Context, by Call, epoch string, want ComputeRequest) (run Run, err error) {
	run, err = e.request(ctx, by, epoch, want)
	if errors.Is(err, ErrLate) || errors.Is(err, flow.ErrUnknown) {
		e.m.late(1)
	}
	return run, err
}

// request queues a call of Compute and waits for its answer.
func (e *Engine) request(caller context.Context, by Call, epoch string, want ComputeRequest) (run Run, err error) {
	if err := record.CheckEpoch(epoch); err != nil {
		return run, err
	}
	if !want.Deadline.IsZero() && !want.Deadline.After(e.now()) {
		return run, ErrLate
	}
	j := job{scoped(by.Tenant, epoch), record.RunKey(epoch, want.PolicyHash, want.InputsCID)}
	ctx, cancel := context.WithTimeout(caller, e.answers)
	defer cancel()
	if err := e.checkGuarantee(ctx, j, &want); err != nil {
		return run, err
	}
	err = e.room.Do(ctx, func(ctx context.Context) error {
		q := &request{by, j, want, flow.NewReply[Run]()}
		if err := e.requests.TrySend(q); err != nil {
			return err
		}
		run, err = q.reply.Wait(ctx)
		return err
	})
	switch {
	case isNoRoom(err):
		e.m.dropped(1)
	case errors.Is(err, flow.ErrClosed):
		err = ErrDraining
	case errors.Is(err, errLeft), errors.Is(err, context.DeadlineExceeded), errors.Is(err, store.ErrTimeout):
		err = e.notBegun(caller)
	}
	return run, err
}

// notBegun returns the error of a call that waited for its turn until it gave up.
func (e *Engine) notBegun(caller context.Context) error {
	switch err := caller.Err(); {
	case err == nil:
		return fmt.Errorf("the call was not begun in %s: %w", e.answers, store.ErrSlow)
	case errors.Is(err, context.DeadlineExceeded):
		return ErrLate
	}
	return context.Cause(caller)
}

// runScheduler accepts one run per epoch and offers pending work to the other tasks. After its
// queue is closed, pending work is left to the next start.
func (e *Engine) runScheduler(ctx context.Context) error {
	defer e.look.Stop()
	for e.handOut(ctx); ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-e.look.C():
			e.handOut(ctx)
		case q, ok := <-e.requests.C():
			if !ok {
				e.draining.Store(true)
				return nil
			}
			if !q.reply.Canceled() {
				e.decide(ctx, q)
			}
		}
	}
}

// handOut offers pending work as far as the queues have room.
func (e *Engine) handOut(ctx context.Context) {
	var all []piece
	var jobs []job
	held := int64(0)
	err := e.view(ctx, func(r store.Reader) error {
		for t, slot := range readable(e, r, todos, pieceKeys().Decode, nil, nil) {
			if t.n == paused {
				held++
			} else {
				all, jobs = append(all, t), append(jobs, job{string(slot), t.id})
			}
		}
		return nil
	})
	if e.waits(ctx, job{}, err); err == nil {
		e.held.Store(held)
	}
	for i, t := range all {
		if t.n != toPay || !e.calls.IsOpen() {
			_ = e.offer(ctx, t.n, jobs[i], false) // on failure it is offered again
		}
	}
}

// decide answers a request that is invalid or that asks for a taken slot, and hands other requests
// to the committer. It does not wait for their sync.
func (e *Engine) decide(ctx context.Context, q *request) {
	ctx, cancel := context.WithTimeout(ctx, e.answers)
	defer cancel()
	handed := false
	defer func() {
		if !handed {
			q.reply.Fail(store.ErrInternal) // after a panic; a no-op if q was answered
		}
	}()
	var run Run
	free := false
	err := e.view(ctx, func(r store.Reader) (err error) {
		has, taken := get(r, slots, q.job.slot)
		if !taken || has.State == Failed {
			free = true
			run, err = e.admissible(r, q)
			return err
		}
		run = has
		return stands(r, &run, q)
	})
	if err == nil && free && e.todo[toCompute].Len()+int(e.admitting.Load()) >= queueCap {
		err = errNoRoom
	}
	if err == nil && free {
		err = e.accept(ctx, q, run)
		handed = err == nil
	}
	if !handed {
		e.answer(q, run, err)
	}
}

// answer answers a request.
func (e *Engine) answer(q *request, run Run, err error) {
	run.Held = e.calls.IsOpen()
	q.reply.Settle(run, err)
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// event returns an audit row of a call. The zero Call stands for the node itself.
func (c Call) event(what, reason string, detail map[string]string) store.Event {
	return store.Event{
		Event:     service + "." + what,
		Decision:  "allow",
		Reason:    reason,
		CorrID:    c.CorrID,
		CapID:     c.By.CapID,
		Principal: c.By.Principal,
		Detail:    detail,
	}
}

// detail returns the members of audit rows that name a run. The run key is shortened.
func (j job) detail() map[string]string {
	tenant, epoch := j.names()
	return map[string]string{"epoch_id": epoch, "run_key": j.key.String()[:19], "tenant": tenant}
}

// change is a step of a run. It returns errGone if the slot has another run or the run is in none
// of the states from. If what is set, an audit row records what and why.
type change struct {
	kind      string
	by        Call // zero for a task, which retries while the store refuses writes
	from      []State
	what, why string
	more      map[string]string // further members of the audit row
	size      int
}

// change applies a step of a run. do edits the slot, which is written afterwards.
func (e *Engine) change(
	ctx context.Context, l store.Lane, j job, c change,
	do func(r store.Reader, run *Run, w *store.Writes) error,
) (run Run, err error) {
	commit := func(ctx context.Context) (err error) {
		run, err = commit(ctx, e, l, command[Run]{c.kind, c.size, func(r store.Reader, w *store.Writes) (Run, error) {
			run, ok := get(r, slots, j.slot)
			if !ok || run.RunKey != j.key || !slices.Contains(c.from, run.State) {
				return run, errGone
			}
			if err := do(r, &run, w); err != nil {
				return run, err
			}
			if slots.Put(w, j.slot, run); c.what != "" {
				detail := j.detail()
				maps.Copy(detail, c.more)
				w.Audit(c.by.event(c.what, c.why, detail))
			}
			return run, nil
		}})
		return err
	}
	if c.by.Tenant != "" {
		err = commit(ctx)
		return run, err
	}
	err = e.patience.Do(ctx, func(ctx context.Context) error {
		err := commit(ctx)
		e.waits(ctx, j, err)
		return err
	})
	return run, err
}

// refuses reports whether the store takes no writes for now, because it is full or restored.
func refuses(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrRestored)
}

// waits records that a run waits because of err, or that it does not wait if err is nil. The
// scheduler offers the run again.
func (e *Engine) waits(ctx context.Context, j job, err error) {
	if errors.Is(err, errGone) || ctx.Err() != nil {
		err = nil
	}
	if was := e.runs.wait(j.key, err); was == nil && err != nil {
		e.log.Warn("run_waits", "run", j.key.String()[:19], "reason", err.Error(), "next",
			"it is tried again in "+lookEvery.String())
	}
}
