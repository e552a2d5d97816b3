package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
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

// maxObjections bounds the stored objections. It exceeds the witnesses that a policy of 16 KiB can
// name.
const maxObjections = 256

// objection is the error of a witness that refuses a tree because it has seen another log.
type objection struct {
	Witness string `cbor:"1,keyasint"` // checkpoint.Witness.ID
	Size    uint64 `cbor:"2,keyasint"` // of the log that the witness has seen; 0 if unknown
	Tree    uint64 `cbor:"3,keyasint"` // size of the checkpoint that it refused
	AtMS    int64  `cbor:"4,keyasint"`
	Settled bool   `cbor:"5,keyasint,omitempty"` // an operator has adopted the log in spite of it
}

func (o *objection) Error() string {
	if o.Size > o.Tree {
		return fmt.Sprintf("witness %s has seen a log of %d versions, this one has %d", o.Witness, o.Size, o.Tree)
	}
	return fmt.Sprintf("witness %s refuses the tree of %d versions: it has seen another log", o.Witness, o.Tree)
}

// objections is a row of reg/meta with the objections of witnesses. Tripped is true while they have
// tripped the fork guard.
type objections struct {
	Rows    []objection `cbor:"1,keyasint"`
	Tripped bool        `cbor:"2,keyasint,omitempty"`
}

// open returns the objections that are not settled.
func (o *objections) open() []objection {
	if o == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Rows), func(row objection) bool { return row.Settled })
}

// err returns the open objections as an error, or nil.
func (o *objections) err() error {
	var texts []string
	for _, row := range o.open() {
		texts = append(texts, row.Error())
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// with returns o with an objection added. A settled objection of the same witness, of a log that is
// not longer, makes it a no-op.
func (o *objections) with(row objection) (next *objections, changed bool) {
	next = &objections{Rows: slices.Clone(o.Rows), Tripped: o.Tripped}
	at := slices.IndexFunc(next.Rows, func(was objection) bool { return was.Witness == row.Witness })
	switch {
	case at < 0 && len(next.Rows) >= maxObjections:
		return o, false
	case at < 0:
		next.Rows = append(next.Rows, row)
	case row.Size <= next.Rows[at].Size:
		return o, false
	default:
		next.Rows[at] = row
	}
	return next, true
}

// without returns o without the objection of a witness, which has cosigned the log since.
func (o *objections) without(witness string) (next *objections, changed bool) {
	next = &objections{Tripped: o.Tripped}
	for _, row := range o.Rows {
		if row.Witness != witness {
			next.Rows = append(next.Rows, row)
		}
	}
	return next, len(next.Rows) < len(o.Rows)
}

// settled returns o with all objections settled in favour of a log of version versions. A witness
// that did not name the size of its log may do so later; it is settled up to this size.
func (o *objections) settled(version uint64) *objections {
	next := &objections{Rows: slices.Clone(o.Rows)}
	for i := range next.Rows {
		row := &next.Rows[i]
		row.Settled, row.Size = true, max(row.Size, version)
	}
	return next
}

// NoteObjection adds or ends the objection of a witness.
type NoteObjection struct {
	Add    *objection `cbor:"1,keyasint,omitempty"`
	End    string     `cbor:"2,keyasint,omitempty"` // the witness whose objection ends
	Policy string     `cbor:"3,keyasint,omitempty"` // the signed policy in force
}

// Kind returns the stable name of the command.
func (NoteObjection) Kind() string { return "registry.note_objection/1" }

// Apply changes the stored row, which an adoption may have settled since the witness was asked. It
// returns nil if nothing changes.
func (c NoteObjection) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (*objections, error) {
	kept, _ := metaObjections.Get(r, keyObjections)
	next, changed := c.change(&kept)
	switch {
	case !changed:
		return nil, nil
	case len(next.Rows) == 0 && !next.Tripped:
		metaObjections.Delete(w, keyObjections)
	default:
		metaObjections.Put(w, keyObjections, *next)
	}
	return next, nil
}

func (c NoteObjection) change(o *objections) (next *objections, changed bool) {
	if c.Add == nil {
		return o.without(c.End)
	}
	next, changed = o.with(*c.Add)
	if changed {
		next.Tripped = next.Tripped || !reachable(c.Policy, next)
	}
	return next, changed
}

func (o *objections) shown() []Objection {
	var out []Objection
	if o != nil {
		for _, row := range o.Rows {
			out = append(out, Objection{
				Witness: row.Witness, Size: row.Size, Tree: row.Tree,
				At: record.FormatTime(time.UnixMilli(row.AtMS)), Settled: row.Settled,
			})
		}
	}
	return out
}

// loadObjections reads the stored objections. It returns the rollback that they cause, or nil.
func (e *Engine) loadObjections(ctx context.Context) (*Rollback, error) {
	var kept objections
	err := e.view(ctx, func(r store.Reader) error {
		kept, _ = metaObjections.Get(r, keyObjections)
		return nil
	})
	if err != nil {
		return nil, err
	}
	e.setObjections(&kept)
	if !kept.Tripped {
		return nil, nil
	}
	return &Rollback{Reason: RollbackWitness, Detail: kept.tripText()}, nil
}

func (o *objections) tripText() string {
	return "the signed witness policy cannot be met: " + fmt.Sprint(o.err())
}

// setObjections publishes the objections to callers, readiness and metrics.
func (e *Engine) setObjections(o *objections) {
	e.objections.Store(o)
	e.m.objections(float64(len(o.open())))
	e.board.Set(service, keyWitnesses, o.err())
}

// object stores the objection of a witness. It trips the fork guard if the signed policy cannot be
// met without the witnesses that object. The row is stored before the guard trips; if that fails,
// the guard trips all the same.
func (e *Engine) object(ctx context.Context, policy string, row objection) {
	if e.noteObjection(ctx, NoteObjection{Add: &row, Policy: policy}) {
		e.log.Error("witness.objected", "witness", row.Witness, "witness_size", row.Size, "version", row.Tree, "reason",
			row.Error())
	}
}

// agree ends the objection of a witness that has cosigned the log, or that the policy no longer
// names.
func (e *Engine) agree(ctx context.Context, witness string) {
	if e.noteObjection(ctx, NoteObjection{End: witness}) {
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
func (e *Engine) noteObjection(ctx context.Context, c NoteObjection) (changed bool) {
	next, changed := c.change(e.objections.Load())
	if !changed {
		return false
	}
	kept, err := store.Commit(ctx, e.store, store.Work, c, func(kept *objections) {
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
func (e *Engine) publishObjections(o *objections) {
	e.setObjections(o)
	if o.Tripped && e.guard.Load() == nil {
		e.trip(&Rollback{Reason: RollbackWitness, Detail: o.tripText()})
	}
}

// reachable reports whether the quorum of a policy can be met without the witnesses that object. An
// older log may have a policy without a valid quorum; then every witness is needed.
func reachable(text string, o *objections) bool {
	open := o.open()
	p, err := checkpoint.ReadPolicy(text)
	if err != nil {
		return len(open) == 0
	}
	return p.Met(func(w checkpoint.Witness) bool {
		return !slices.ContainsFunc(open, func(row objection) bool { return row.Witness == w.ID() })
	})
}
