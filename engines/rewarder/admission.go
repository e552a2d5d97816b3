package rewarder

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/store"
)

// stands returns nil if the run in the slot is the requested one. Inputs that differ only in the
// ledger ref are the same usage.
func stands(r store.Reader, run *Run, q *request) error {
	given, _ := get(r, inputs, q.want.InputsCID)
	switch {
	case run.PolicyHash != q.want.PolicyHash,
		run.InputsCID != q.want.InputsCID && run.AccountingCID != given.AccountingCID:
		return &ConflictError{"epoch", run.RunKey.String(), q.job.key.String()}
	case run.State == Quarantined:
		return &QuarantineError{*run}
	}
	run.Joined, run.Replayed = run.State == Accepted, run.State != Accepted
	return nil
}

// admissible returns the slot of the requested run if its policy and input fit each other.
func (e *Engine) admissible(r store.Reader, q *request) (run Run, err error) {
	tenant, epoch := q.job.names()
	doc, err := find(r, policies, scoped(tenant, q.want.PolicyID), "policy")
	if err != nil {
		return run, err
	}
	if doc.Hash != q.want.PolicyHash {
		return run, &FieldError{
			Field:  "policy_hash",
			Reason: "differs from that of the policy, " + doc.Hash.String(),
		}
	}
	m, err := readMaterial(r, tenant, q.want.InputsCID, q.want.PolicyID)
	if err != nil {
		return run, err
	}
	_, missing := m.policy.Weights(m.head.Metrics)
	for _, f := range []struct {
		field, has, want string
	}{
		{"inputs_cid", m.head.EpochID, epoch},
		{"asset", m.head.Asset, m.policy.Asset},
		{"account", m.ref.Account, m.policy.Account},
	} {
		if f.has != f.want {
			return run, &FieldError{Field: f.field, Reason: fmt.Sprintf("of the inputs is %s, not %s", f.has, f.want)}
		}
	}
	if missing != "" {
		return run, &FieldError{Field: "metrics", Reason: missing + " of the inputs has no weight in the policy"}
	}
	if err := checkEmpty(&m, q.want.EmptyOK); err != nil {
		return run, err
	}
	now := e.now()
	end := now.Add(e.live().EpochDuration.D() / 2)
	if d := q.want.Deadline; !d.IsZero() && d.Before(end) {
		end = d
	}
	return Run{
		Epoch:         epoch,
		Tenant:        tenant,
		State:         Accepted,
		RunKey:        q.job.key,
		AccountingCID: m.in.AccountingCID,
		InputsCID:     m.in.InputsCID,
		PolicyID:      q.want.PolicyID,
		PolicyHash:    q.want.PolicyHash,
		SkipRefused:   q.want.SkipRefused,
		AcceptedAt:    instant(now),
		DeadlineAt:    instant(end),
	}, nil
}

// checkEmpty refuses a run that cannot pay any actor, since it would use up its epoch.
func checkEmpty(m *material, emptyOK bool) error {
	switch {
	case m.head.Rows == 0 && !emptyOK:
		return &FieldError{Field: "inputs_cid", Reason: "has no rows: no actor would be paid; empty_ok accepts it"}
	case m.head.Pool.IsZero() && !emptyOK:
		return &FieldError{Field: "pool_minor", Reason: "is 0: no actor would be paid; empty_ok accepts it"}
	case m.head.Rows > 0 && !m.pool().IsZero() && m.pool().Less(m.policy.Guarantee):
		return &FieldError{
			Field: "guarantee",
			Reason: fmt.Sprintf("of the policy is %s for each actor, and the pool is %s: no actor would be paid",
				m.policy.Guarantee, m.pool()),
		}
	}
	return nil
}

// errEnough ends a count of actors.
var errEnough = errors.New("rewarder: enough actors")

// checkGuarantee returns a *FieldError if the guarantee of all actors with a score exceeds the
// pool: the run would be quarantined and use up its epoch. It counts actors only if the pool does
// not cover a guarantee for each row of usage. Inputs that cannot be counted in half the time of a
// call are left to the worker, which quarantines the run. So is every other fault, a damaged row
// included.
func (e *Engine) checkGuarantee(ctx context.Context, j job, want *ComputeRequest) error {
	ctx, cancel := context.WithTimeout(ctx, e.answers/2)
	defer cancel()
	tenant, _ := j.names()
	var m material
	check := false
	err := e.view(ctx, func(r store.Reader) (err error) {
		run, taken := get(r, slots, j.slot)
		doc, known := get(r, policies, scoped(tenant, want.PolicyID))
		if taken && run.State != Failed || !known || doc.Hash != want.PolicyHash {
			return nil
		}
		m, err = readMaterial(r, tenant, want.InputsCID, want.PolicyID)
		check = err == nil
		return err
	})
	if err != nil || !check || m.policy.Guarantee.IsZero() || m.pool().IsZero() {
		return nil
	}
	covered, _, fits := engines.Product(m.pool(), engines.AmountOf(0, 1)).Div(m.policy.Guarantee)
	if !fits || !covered.Less(engines.AmountOf(0, m.head.Rows)) {
		return nil
	}
	actors := engines.Amount{}
	err = e.eachScore(ctx, &m, func(string, engines.Amount) error {
		if !actors.Less(covered) {
			return errEnough
		}
		actors, _ = actors.Add(engines.AmountOf(0, 1))
		return nil
	})
	if !errors.Is(err, errEnough) {
		return nil
	}
	return &FieldError{
		Field: "guarantee",
		Reason: fmt.Sprintf("of the policy is %s for each actor: the pool, %s, covers %s actors, the inputs have more",
			m.policy.Guarantee, m.pool(), covered),
	}
}

// accept hands the committer the command that assigns the slot of an epoch to a run and records
// that it is to be computed. The committer answers the request after the sync. If the caller has
// left before the turn of the command, the command is a no-op. If accept returns an error, it has
// handed over no command.
func (e *Engine) accept(ctx context.Context, q *request, run Run) error {
	var used b3.Digest // owned by the committer, as is fresh
	fresh := false
	c := command[Run]{"accept_run", 1 << 10, func(r store.Reader, w *store.Writes) (Run, error) {
		if !q.reply.Claim() {
			return run, errLeft
		}
		has, taken := get(r, slots, q.job.slot)
		if taken && has.State != Failed { // by another request in flight
			err := stands(r, &has, q)
			return has, err
		}
		in, ok := get(r, inputs, run.InputsCID)
		if up, known := get(r, uploads, in.Upload); !ok || !known || up.Dropped {
			return has, fmt.Errorf("input: %w", ErrNotFound)
		}
		next := run
		next.Attempt = has.Attempt + 1
		if err := e.checkPins(r, &next); err != nil {
			return has, err
		}
		if err := countRun(r, w, &q.by); err != nil {
			return has, err
		}
		slots.Put(w, q.job.slot, next)
		todos.Put(w, q.job.todo(toCompute), []byte(q.job.slot))
		w.Audit(q.by.event("run.started", "", startedOf(&next, q.job)))
		used, fresh = in.Upload, true
		return next, nil
	}}
	e.step("accept_before")
	e.admitting.Add(1)
	err := store.Hand(ctx, e.store, store.Work, c, func(run Run, err error) {
		defer e.admitting.Add(-1)
		if err == nil && fresh {
			e.quota.set(used, charge{})
			e.step("accepted")
			e.publish(run)
			_ = e.offer(ctx, toCompute, q.job, false) // room is reserved; on failure it is offered again
		}
		e.answer(q, run, e.note(err))
	})
	if err != nil {
		e.admitting.Add(-1)
	}
	return err
}

// startedOf returns the members of the audit row of an accepted run.
func startedOf(run *Run, j job) map[string]string {
	detail := j.detail()
	if run.PinVersion > 0 {
		detail["registry"], detail["pin"] = strconv.FormatUint(run.PinVersion, 10), cmp.Or(run.Pin, "none")
	}
	return detail
}

// countRun counts a run against max_runs of the caller's token. A token and the tokens narrowed
// from it share one count. Tokens without the caveat are not counted. Failed runs count too.
func countRun(r store.Reader, w *store.Writes, by *Call) error {
	g := by.By.Grant
	if g.Run(math.MaxUint64) == nil {
		return nil
	}
	done, _ := get(r, started, by.By.CapID)
	if err := g.Run(done); err != nil {
		return err
	}
	started.Put(w, by.By.CapID, done+1)
	return nil
}
