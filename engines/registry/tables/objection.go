package tables

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// maxObjections bounds the stored objections. It exceeds the witnesses that a policy of 16 KiB can
// name.
const maxObjections = 256

// Objection is the error of a witness that refuses a tree because it has seen another log.
type Objection struct {
	Witness string `cbor:"1,keyasint"` // checkpoint.Witness.ID
	Size    uint64 `cbor:"2,keyasint"` // of the log that the witness has seen; 0 if unknown
	Tree    uint64 `cbor:"3,keyasint"` // size of the checkpoint that it refused
	AtMS    int64  `cbor:"4,keyasint"`
	Settled bool   `cbor:"5,keyasint,omitempty"` // an operator has adopted the log in spite of it
}

func (o *Objection) Error() string {
	if o.Size > o.Tree {
		return fmt.Sprintf("witness %s has seen a log of %d versions, this one has %d", o.Witness, o.Size, o.Tree)
	}
	return fmt.Sprintf("witness %s refuses the tree of %d versions: it has seen another log", o.Witness, o.Tree)
}

// Objections is a row of reg/meta with the objections of witnesses. Tripped is true while they have
// tripped the fork guard.
type Objections struct {
	Rows    []Objection `cbor:"1,keyasint"`
	Tripped bool        `cbor:"2,keyasint,omitempty"`
}

// Open returns the objections that are not settled.
func (o *Objections) Open() []Objection {
	if o == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(o.Rows), func(row Objection) bool { return row.Settled })
}

// Err returns the open objections as an error, or nil.
func (o *Objections) Err() error {
	var texts []string
	for _, row := range o.Open() {
		texts = append(texts, row.Error())
	}
	if len(texts) == 0 {
		return nil
	}
	return errors.New(strings.Join(texts, "; "))
}

// with returns o with an objection added. A settled objection of the same witness, of a log that is
// not longer, makes it a no-op.
func (o *Objections) with(row Objection) (next *Objections, changed bool) {
	next = &Objections{Rows: slices.Clone(o.Rows), Tripped: o.Tripped}
	at := slices.IndexFunc(next.Rows, func(was Objection) bool { return was.Witness == row.Witness })
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
func (o *Objections) without(witness string) (next *Objections, changed bool) {
	next = &Objections{Tripped: o.Tripped}
	for _, row := range o.Rows {
		if row.Witness != witness {
			next.Rows = append(next.Rows, row)
		}
	}
	return next, len(next.Rows) < len(o.Rows)
}

// Settled returns o with all objections settled in favour of a log of version versions. A witness
// that did not name the size of its log may do so later; it is settled up to this size.
func (o *Objections) Settled(version uint64) *Objections {
	next := &Objections{Rows: slices.Clone(o.Rows)}
	for i := range next.Rows {
		row := &next.Rows[i]
		row.Settled, row.Size = true, max(row.Size, version)
	}
	return next
}

// NoteObjection adds or ends the objection of a witness.
type NoteObjection struct {
	Add    *Objection `cbor:"1,keyasint,omitempty"`
	End    string     `cbor:"2,keyasint,omitempty"` // the witness whose objection ends
	Policy string     `cbor:"3,keyasint,omitempty"` // the signed policy in force
}

// Kind returns the stable name of the command.
func (NoteObjection) Kind() string { return "registry.note_objection/1" }

// Apply changes the stored row, which an adoption may have settled since the witness was asked. It
// returns nil if nothing changes.
func (c NoteObjection) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (*Objections, error) {
	kept, _ := MetaObjections.Get(r, KeyObjections)
	next, changed := c.Change(&kept)
	switch {
	case !changed:
		return nil, nil
	case len(next.Rows) == 0 && !next.Tripped:
		MetaObjections.Delete(w, KeyObjections)
	default:
		MetaObjections.Put(w, KeyObjections, *next)
	}
	return next, nil
}

// Change returns o after c, and whether c changes it.
func (c NoteObjection) Change(o *Objections) (next *Objections, changed bool) {
	if c.Add == nil {
		return o.without(c.End)
	}
	next, changed = o.with(*c.Add)
	if changed {
		next.Tripped = next.Tripped || !Reachable(c.Policy, next)
	}
	return next, changed
}

// Shown returns the objections as an operator sees them.
func (o *Objections) Shown() []document.Objection {
	var out []document.Objection
	if o != nil {
		for _, row := range o.Rows {
			out = append(out, document.Objection{
				Witness: row.Witness, Size: row.Size, Tree: row.Tree,
				At: record.FormatTime(time.UnixMilli(row.AtMS)), Settled: row.Settled,
			})
		}
	}
	return out
}

// TripText returns the reason for which the objections have tripped the fork guard.
func (o *Objections) TripText() string {
	return "the signed witness policy cannot be met: " + fmt.Sprint(o.Err())
}

// Reachable reports whether the quorum of a policy can be met without the witnesses that object. An
// older log may have a policy without a valid quorum; then every witness is needed.
func Reachable(text string, o *Objections) bool {
	open := o.Open()
	p, err := checkpoint.ReadPolicy(text)
	if err != nil {
		return len(open) == 0
	}
	return p.Met(func(w checkpoint.Witness) bool {
		return !slices.ContainsFunc(open, func(row Objection) bool { return row.Witness == w.ID() })
	})
}
