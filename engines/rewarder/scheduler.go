package rewarder

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/rewarder/record"
	"ronbox/store"
)

// answerWithin is how long a call of Compute waits for its answer, which is not the result.
const answerWithin = 2 * time.Second

// request is a call of Compute on its way to the scheduler.
type request struct {
	by    Call
	job   job
	want  ComputeRequest
	reply *flow.Reply[Run]
}

// errNoRoom says that work was full as a run would have been accepted.
var errNoRoom = fmt.Errorf("work: %w", flow.ErrBusy)

func isNoRoom(err error) bool { return err == errNoRoom }

// roomDelay stands between the two tries to find room in work.
func roomDelay(int) time.Duration { return 50*time.Millisecond + rand.N(100*time.Millisecond) }

// Compute asks for the run of an epoch and gives the one that stands: one that was accepted by this call is in the file. Errors: flow.ErrBusy,
// ErrDraining, ErrLate, *FieldError, ErrNotFound, *ConflictError, *QuarantineError; context.DeadlineExceeded if there was no answer in 2 s and
// nothing was done, flow.ErrUnknown if it may have been.
func (e *Engine) Compute(ctx context.Context, by Call, epoch string, want ComputeRequest) (run Run, err error) {
	if err := record.CheckEpoch(epoch); err != nil {
		return run, err
	}
	if !want.Deadline.IsZero() && !want.Deadline.After(e.now()) {
		return run, ErrLate
	}
	ctx, cancel := context.WithTimeout(ctx, e.answers)
	defer cancel()
	j := job{scoped(by.Tenant, epoch), record.RunKey(epoch, want.PolicyHash, want.InputsCID)}
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
	}
	return run, err
}

// runScheduler accepts one run an epoch, and offers what is left to do to those who do it. Once its intake has ended it leaves the rest to the
// next start.
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
			if q.reply.Claim() {
				e.answer(ctx, q)
			}
		}
	}
}

// handOut offers what is left to do, as far as there is room.
func (e *Engine) handOut(ctx context.Context) {
	var all []piece
	var jobs []job
	err := e.view(ctx, func(r store.Reader) error {
		for t, slot := range readable(e, r, todos, pieceKeys().Decode, nil, nil) {
			all, jobs = append(all, t), append(jobs, job{string(slot), t.id})
		}
		return nil
	})
	e.waits(ctx, job{}, err)
	for i, t := range all {
		if t.n != toPay || !e.calls.IsOpen() {
			_ = e.offer(ctx, t.n, jobs[i], false) // else it is offered again
		}
	}
}

// answer decides a request.
func (e *Engine) answer(ctx context.Context, q *request) {
	defer q.reply.Fail(store.ErrInternal) // after a panic
	run, err := e.decide(ctx, q)
	if err != nil {
		q.reply.Fail(err)
		return
	}
	run.Held = e.calls.IsOpen()
	q.reply.Answer(run)
}

// decide looks the slot up first, then at policy and input, and accepts a run for an epoch that is free.
func (e *Engine) decide(ctx context.Context, q *request) (run Run, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.answers)
	defer cancel()
	free := false
	err = e.view(ctx, func(r store.Reader) error {
		if run, free = get(r, slots, q.job.slot); !free || run.State == Failed {
			free = true
			run, err = e.admissible(r, q)
			return err
		}
		free = false
		return stands(r, &run, q)
	})
	if err != nil || !free {
		return run, err
	}
	if e.todo[toCompute].Len() >= queueCap { // the scheduler alone fills it, so there is room once it has looked
		return run, errNoRoom
	}
	e.step("accept_before")
	if run, err = e.accept(ctx, q, run); err != nil {
		return run, err
	}
	e.step("accepted")
	e.publish(run)
	_ = e.offer(ctx, toCompute, q.job, false) // has room, and else is offered again
	return run, nil
}

// stands answers with the run that has the slot, if it is the one that is asked for. Inputs that differ in the ledger ref alone are the same usage.
func stands(r store.Reader, run *Run, q *request) error {
	given, _ := get(r, inputs, q.want.InputsCID)
	switch {
	case run.PolicyHash != q.want.PolicyHash || run.InputsCID != q.want.InputsCID && run.AccountingCID != given.AccountingCID:
		return &ConflictError{"epoch", run.RunKey.String(), q.job.key.String()}
	case run.State == Quarantined:
		return &QuarantineError{*run}
	}
	run.Joined, run.Replayed = run.State == Accepted, run.State != Accepted
	return nil
}

// admissible is the slot of a run whose policy and input fit each other.
func (e *Engine) admissible(r store.Reader, q *request) (run Run, err error) {
	tenant, epoch := q.job.names()
	doc, err := find(r, policies, scoped(tenant, q.want.PolicyID), "policy")
	if err != nil {
		return run, err
	}
	if doc.Hash != q.want.PolicyHash {
		return run, &FieldError{Field: "policy_hash", Reason: "is not that of the policy, which is " + doc.Hash.String()}
	}
	m, err := readMaterial(r, tenant, q.want.InputsCID, q.want.PolicyID)
	if err != nil {
		return run, err
	}
	_, missing := m.policy.Weights(m.head.Metrics)
	for _, f := range []struct {
		field, has, want string
	}{{"inputs_cid", m.head.EpochID, epoch}, {"asset", m.head.Asset, m.policy.Asset}, {"account", m.ref.Account, m.policy.Account}} {
		if f.has != f.want {
			return run, &FieldError{Field: f.field, Reason: fmt.Sprintf("of the inputs is %s, not %s", f.has, f.want)}
		}
	}
	if missing != "" {
		return run, &FieldError{Field: "metrics", Reason: missing + " of the inputs has no weight in the policy"}
	}
	now := e.now()
	end := now.Add(e.live().EpochDuration.D() / 2)
	if d := q.want.Deadline; !d.IsZero() && d.Before(end) {
		end = d
	}
	return Run{
		Epoch: epoch, Tenant: tenant, State: Accepted, RunKey: q.job.key, AccountingCID: m.in.AccountingCID, InputsCID: m.in.InputsCID,
		PolicyID: q.want.PolicyID, PolicyHash: q.want.PolicyHash, AcceptedAt: instant(now), DeadlineAt: instant(end),
	}, nil
}

func instant(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) }

// event is an audit row of a call; one of nobody is of the node itself.
func (c Call) event(what, reason string, detail map[string]string) store.Event {
	return store.Event{Event: service + "." + what, Decision: "allow", Reason: reason, CorrID: c.CorrID, CapID: c.By.CapID, Principal: c.By.Principal, Detail: detail}
}

// detail is what audit rows tell of a run: the first bytes of its key name it.
func (j job) detail() map[string]string {
	tenant, epoch := j.names()
	return map[string]string{"epoch_id": epoch, "run_key": j.key.String()[:19], "tenant": tenant}
}

// accept gives the slot of an epoch to a run and notes that it is to be computed.
func (e *Engine) accept(ctx context.Context, q *request, run Run) (Run, error) {
	var used b3.Digest // owned by the committer
	return commit(ctx, e, store.Work, command[Run]{"accept_run", 1 << 10, func(r store.Reader, w *store.Writes) (Run, error) {
		has, taken := get(r, slots, q.job.slot)
		if taken && has.State != Failed {
			return has, &ConflictError{"epoch", has.RunKey.String(), q.job.key.String()}
		}
		in, ok := get(r, inputs, run.InputsCID)
		if up, known := get(r, uploads, in.Upload); !ok || !known || up.Dropped {
			return has, fmt.Errorf("input: %w", ErrNotFound)
		}
		used = in.Upload
		next := run
		next.Attempt = has.Attempt + 1
		slots.Put(w, q.job.slot, next)
		todos.Put(w, q.job.todo(toCompute), []byte(q.job.slot))
		w.Audit(q.by.event("run.started", "", q.job.detail()))
		return next, nil
	}}, func(Run) { e.quota.set(used, charge{}) })
}

// change is a step of a run. It is refused if the slot has another run, or this one in a state it is not from. what is told to the audit, unless
// it is empty, with why.
type change struct {
	kind      string
	by        Call // of nobody: of a task, which waits for a store that takes nothing for now
	from      []State
	what, why string
	size      int
}

func (e *Engine) change(ctx context.Context, l store.Lane, j job, c change, do func(r store.Reader, run *Run, w *store.Writes) error) (run Run, err error) {
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
				w.Audit(c.by.event(c.what, c.why, j.detail()))
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

// refuses reports whether the store takes nothing for now, be it full or restored.
func refuses(err error) bool {
	return errors.Is(err, store.ErrFull) || errors.Is(err, store.ErrRestored)
}

// waits notes that a run waits, since the store refuses it or a row of it is damaged; or, if err is nothing of that, that it does not. The
// scheduler offers it again.
func (e *Engine) waits(ctx context.Context, j job, err error) {
	if errors.Is(err, errGone) || ctx.Err() != nil {
		err = nil
	}
	if was := e.runs.wait(j.key, err); was == nil && err != nil {
		e.log.Warn("run_waits", "run", j.key.String()[:19], "reason", err.Error(), "next", "it is tried again in "+lookEvery.String())
	}
}
