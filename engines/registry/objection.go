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

// RollbackWitness is the reason of a Rollback that witnesses have caused: they have seen another log under this name, and the signed
// witness policy cannot be met without them.
const RollbackWitness = "witness"

// maxObjections bounds the kept objections. A signer set has at most so many witnesses in its policy of 16 KiB.
const maxObjections = 256

// objection is what a witness has refused: a tree that its own view of the log contradicts. It is the error of the witness's answer.
type objection struct {
	Witness string `cbor:"1,keyasint"` // checkpoint.Witness.ID
	Size    uint64 `cbor:"2,keyasint"` // of the log that the witness has seen; 0 if it did not say
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

// objections is the row of reg/meta that keeps what witnesses refuse. Tripped is set while the fork guard stands for it.
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

// err describes the open objections, or is nil.
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

// with returns o with an objection more. An objection that is settled already changes nothing: the same witness, of a log that is no
// longer than the one that was settled.
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

// settled returns o with all objections settled.
func (o *objections) settled() *objections {
	next := &objections{Rows: slices.Clone(o.Rows)}
	for i := range next.Rows {
		next.Rows[i].Settled = true
	}
	return next
}

// PutObjections keeps the objections of witnesses.
type PutObjections struct {
	All objections `cbor:"1,keyasint"`
}

// Kind names the command in journals.
func (PutObjections) Kind() string { return "registry.put_objections/1" }

// Apply replaces the row.
func (c PutObjections) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	if len(c.All.Rows) == 0 && !c.All.Tripped {
		metaObjections.Delete(w, keyObjections)
	} else {
		metaObjections.Put(w, keyObjections, c.All)
	}
	return struct{}{}, nil
}

// Objection is a witness's refusal as an operator sees it.
type Objection struct {
	Witness string `json:"witness" doc:"name and key hash"`
	Size    uint64 `json:"size,omitzero" doc:"of the log that it has seen, if it said so"`
	Tree    uint64 `json:"tree" doc:"size of the checkpoint that it refused"`
	At      string `json:"at" format:"time"`
	Settled bool   `json:"settled" doc:"the log was adopted in spite of it"`
}

func (o *objections) shown() []Objection {
	var out []Objection
	if o != nil {
		for _, row := range o.Rows {
			out = append(out, Objection{row.Witness, row.Size, row.Tree, record.FormatTime(time.UnixMilli(row.AtMS)), row.Settled})
		}
	}
	return out
}

// loadObjections reads the kept objections at a start. It returns the rollback that they stand for, or nil.
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

// setObjections publishes the objections to readers, to readiness and to the metrics.
func (e *Engine) setObjections(o *objections) {
	e.objections.Store(o)
	e.m.objections(float64(len(o.open())))
	e.board.Set(service, keyWitnesses, o.err())
}

// object books that a witness refused the log. It trips the fork guard if the signed policy cannot be met without the witnesses that
// object. The row is kept before the guard trips; if it cannot be kept, the guard trips all the same.
func (e *Engine) object(ctx context.Context, policy string, row objection) {
	next, changed := e.objections.Load().with(row)
	if !changed {
		return
	}
	e.log.Error("witness.objected", "witness", row.Witness, "witness_size", row.Size, "version", row.Tree, "reason", row.Error())
	next.Tripped = next.Tripped || !reachable(policy, next)
	e.keepObjections(ctx, next)
	if next.Tripped && e.guard.Load() == nil {
		e.trip(&Rollback{Reason: RollbackWitness, Detail: next.tripText()})
	}
}

// agree ends the objection of a witness that has cosigned the log, or that the policy no longer names.
func (e *Engine) agree(ctx context.Context, witness string) {
	if next, changed := e.objections.Load().without(witness); changed {
		e.log.Info("witness.objection_ended", "witness", witness)
		e.keepObjections(ctx, next)
	}
}

// dropStrangers drops the objections of witnesses that the signed policy no longer names.
func (e *Engine) dropStrangers(ctx context.Context, all []checkpoint.PolicyWitness) {
	for _, row := range e.objections.Load().Rows {
		if !slices.ContainsFunc(all, func(w checkpoint.PolicyWitness) bool { return w.ID() == row.Witness }) {
			e.agree(ctx, row.Witness)
		}
	}
}

func (e *Engine) keepObjections(ctx context.Context, next *objections) {
	_, err := store.Commit(ctx, e.store, store.Work, PutObjections{*next})
	e.setObjections(next)
	if err != nil {
		e.log.Error("witness.objected", "reason", fmt.Errorf("keep the objections: %w", err).Error())
	}
}

// reachable reports whether the quorum of a policy can be met without the witnesses that object. A policy without a readable quorum
// demands nothing.
func reachable(text string, o *objections) bool {
	p, err := checkpoint.ReadPolicy(text)
	if err != nil {
		return true
	}
	open := o.open()
	return p.Met(func(w checkpoint.Witness) bool {
		return !slices.ContainsFunc(open, func(row objection) bool { return row.Witness == w.ID() })
	})
}
