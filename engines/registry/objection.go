package registry

import (
	"context"
	"fmt"
	"slices"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// RollbackWitness is the reason of a Rollback by witnesses: they have seen another log under this
// name, and the signed witness policy cannot be met without them.
const RollbackWitness = "witness"

// checkPolicy returns an error if a payload installs a witness policy without a valid quorum: the
// registry could not decide when too many witnesses object. Committed versions are not checked.
func checkPolicy(p *record.Payload) error {
	if p.SignerSet == nil || p.SignerSet.WitnessPolicy == "" {
		return nil
	}
	if _, err := checkpoint.ReadPolicy(p.SignerSet.WitnessPolicy); err != nil {
		return &record.FieldError{Field: "signer_set.witness_policy", Reason: err.Error() +
			"; end it with a line quorum and the name of a witness or a group, or quorum none"}
	}
	return nil
}

// loadObjections reads the stored objections. It returns the rollback that they cause, or nil.
func (e *Engine) loadObjections(ctx context.Context) (*Rollback, error) {
	var kept tables.Objections
	err := e.View(ctx, func(r store.Reader) error {
		kept, _ = tables.MetaObjections.Get(r, tables.KeyObjections)
		return nil
	})
	if err != nil {
		return nil, err
	}
	e.setObjections(&kept)
	if !kept.Tripped {
		return nil, nil
	}
	return &Rollback{Reason: RollbackWitness, Detail: kept.TripText()}, nil
}

// setObjections publishes the objections to callers, readiness and metrics.
func (e *Engine) setObjections(o *tables.Objections) {
	e.objections.Store(o)
	e.m.objections(float64(len(o.Open())))
	e.board.Set(service, keyWitnesses, o.Err())
}

// object stores the objection of a witness. It trips the fork guard if the signed policy cannot be
// met without the witnesses that object. The row is stored before the guard trips; if that fails,
// the guard trips all the same.
func (e *Engine) object(ctx context.Context, policy string, row tables.Objection) {
	if e.noteObjection(ctx, tables.NoteObjection{Add: &row, Policy: policy}) {
		e.log.Error("witness.objected", "witness", row.Witness, "witness_size", row.Size, "version", row.Tree, "reason",
			row.Error())
	}
}

// agree ends the objection of a witness that has cosigned the log, or that the policy no longer
// names.
func (e *Engine) agree(ctx context.Context, witness string) {
	if e.noteObjection(ctx, tables.NoteObjection{End: witness}) {
		e.log.Info("witness.objection_ended", "witness", witness)
	}
}

// dropStrangers ends the objections of witnesses that the signed policy no longer names.
func (e *Engine) dropStrangers(ctx context.Context, all []checkpoint.PolicyWitness) {
	for _, row := range e.objections.Load().Rows {
		if !slices.ContainsFunc(all, func(w checkpoint.PolicyWitness) bool { return w.ID() == row.Witness }) {
			e.agree(ctx, row.Witness)
		}
	}
}

// noteObjection commits c, and reports whether it changed anything.
func (e *Engine) noteObjection(ctx context.Context, c tables.NoteObjection) (changed bool) {
	next, changed := c.Change(e.objections.Load())
	if !changed {
		return false
	}
	kept, err := store.Commit(ctx, e.store, store.Work, c, func(kept *tables.Objections) {
		if kept != nil {
			e.publishObjections(kept)
		}
	})
	if err != nil {
		e.log.Error("witness.objected", "reason", fmt.Errorf("keep the objections: %w", err).Error())
		e.publishObjections(next)
		return true
	}
	return kept != nil
}

// publishObjections publishes the objections, and trips the fork guard if they require it.
func (e *Engine) publishObjections(o *tables.Objections) {
	e.setObjections(o)
	if o.Tripped && e.guard.Load() == nil {
		e.trip(&Rollback{Reason: RollbackWitness, Detail: o.TripText()})
	}
}
