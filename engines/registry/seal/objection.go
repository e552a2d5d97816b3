package seal

import (
	"context"
	"fmt"
	"slices"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// RollbackWitness is the reason of a Rollback by witnesses: they have seen another log under this
// name, and the signed witness policy cannot be met without them.
const RollbackWitness = "witness"

// loadObjections reads the stored objections. It returns the rollback that they cause, or nil.
func (sl *Sealer) loadObjections(ctx context.Context) (*Rollback, error) {
	var kept tables.Objections
	err := sl.deps.Reader.View(ctx, func(r store.Reader) error {
		kept, _ = tables.MetaObjections.Get(r, tables.KeyObjections)
		return nil
	})
	if err != nil {
		return nil, err
	}
	sl.setObjections(&kept)
	if !kept.Tripped {
		return nil, nil
	}
	return &Rollback{Reason: RollbackWitness, Detail: kept.TripText()}, nil
}

// setObjections publishes the objections to callers, readiness and metrics.
func (sl *Sealer) setObjections(o *tables.Objections) {
	sl.objections.Store(o)
	sl.m.objections(float64(len(o.Open())))
	sl.deps.Board.Set(tables.Service, KeyWitnesses, o.Err())
}

// object stores the objection of a witness. It trips the fork guard if the signed policy cannot be
// met without the witnesses that object. The row is stored before the guard trips; if that fails,
// the guard trips all the same.
func (sl *Sealer) object(ctx context.Context, policy string, row tables.Objection) {
	if sl.noteObjection(ctx, tables.NoteObjection{Add: &row, Policy: policy}) {
		sl.deps.Log.Error("witness.objected", "witness", row.Witness, "witness_size", row.Size, "version", row.Tree,
			"reason",
			row.Error())
	}
}

// agree ends the objection of a witness that has cosigned the log, or that the policy no longer
// names.
func (sl *Sealer) agree(ctx context.Context, witness string) {
	if sl.noteObjection(ctx, tables.NoteObjection{End: witness}) {
		sl.deps.Log.Info("witness.objection_ended", "witness", witness)
	}
}

// dropStrangers ends the objections of witnesses that the signed policy no longer names.
func (sl *Sealer) dropStrangers(ctx context.Context, all []checkpoint.PolicyWitness) {
	for _, row := range sl.objections.Load().Rows {
		if !slices.ContainsFunc(all, func(w checkpoint.PolicyWitness) bool { return w.ID() == row.Witness }) {
			sl.agree(ctx, row.Witness)
		}
	}
}

// noteObjection commits c, and reports whether it changed anything.
func (sl *Sealer) noteObjection(ctx context.Context, c tables.NoteObjection) (changed bool) {
	if sl.signing.Acquire(ctx) == nil { // an adoption reads and publishes them; late: the commit fails, too
		defer sl.signing.Release()
	}
	next, changed := c.Change(sl.objections.Load())
	if !changed {
		return false
	}
	kept, err := store.Commit(ctx, sl.deps.Store, store.Work, c, func(kept *tables.Objections) {
		if kept != nil {
			sl.publishObjections(kept)
		}
	})
	if err != nil {
		sl.deps.Log.Error("witness.objected", "reason", fmt.Errorf("keep the objections: %w", err).Error())
		sl.publishObjections(next)
		return true
	}
	return kept != nil
}

// publishObjections publishes the objections, and trips the fork guard if they require it.
func (sl *Sealer) publishObjections(o *tables.Objections) {
	sl.setObjections(o)
	if o.Tripped && sl.guard.Load() == nil {
		sl.Trip(&Rollback{Reason: RollbackWitness, Detail: o.TripText()})
	}
}
