package tables

import (
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// Bounds of a command that removes rows.
const (
	maxPruneKeys  = 256     // rows
	maxPruneBytes = 1 << 20 // bytes of these rows, unless one version has more
)

// PutRetention stores a statement of retention. From then on versions before Min are pruned and may
// be deleted.
type PutRetention struct {
	Min     uint64 `cbor:"1,keyasint"`
	Audit   uint64 `cbor:"2,keyasint"` // the oldest audit record kept
	Size    uint64 `cbor:"3,keyasint"` // of the archived checkpoint
	Segment uint64 `cbor:"4,keyasint"` // versions of a segment
	Note    []byte `cbor:"5,keyasint"`
}

// Kind returns the stable name of the command.
func (PutRetention) Kind() string { return "registry.put_retention/1" }

// Apply returns a *GuardError if the versions are not covered, not whole segments or too near to
// HEAD, or if the items of version Min are not stored.
func (c PutRetention) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	head, _ := MetaHead.Get(r, KeyHead)
	first, _ := MetaNumber.Get(r, KeyMin)
	guard := ""
	switch {
	case c.Min <= first || c.Segment == 0 || (c.Min-1)%c.Segment != 0:
		guard = "segment"
	case c.Min-1+c.Segment > head.Version:
		guard = "head"
	case c.Size < c.Min || !Checkpoints.Has(r, c.Size):
		guard = "checkpoint"
	case !SetHeaders.Has(r, SetKey{c.Min, 0}) || !Entries.Has(r, c.Min) || !Audits.Has(r, c.Audit):
		guard = "snapshot"
	}
	if guard != "" {
		return struct{}{}, &GuardError{Op: -1, Guard: guard}
	}
	Retentions.Delete(w, first) // the new statement replaces the one before
	Retentions.Put(w, c.Min, c.Note)
	MetaNumber.Put(w, KeyMin, c.Min)
	MetaNumber.Put(w, KeyAuditMin, c.Audit)
	return struct{}{}, nil
}

// PruneSlice removes some of the rows that a statement of retention lets go: versions with the
// outcomes of their proposals, rows of stored sets, and audit records with the outcomes that only
// they record.
type PruneSlice struct {
	Versions []prunedVersion `cbor:"1,keyasint,omitempty"`
	Bytes    int64           `cbor:"2,keyasint,omitempty"` // of the entries and payloads
	Sets     []SetKey        `cbor:"3,keyasint,omitempty"`
	Audits   []uint64        `cbor:"4,keyasint,omitempty"`
	Outcomes []ulid.ULID     `cbor:"5,keyasint,omitempty"` // of proposals that ended without a version
}

// Keys returns the number of rows that c removes.
func (c PruneSlice) Keys() int {
	return 3*len(c.Versions) + len(c.Sets) + len(c.Audits) + len(c.Outcomes)
}

type prunedVersion struct {
	Version  uint64    `cbor:"1,keyasint"`
	Proposal ulid.ULID `cbor:"2,keyasint"`
}

// Kind returns the stable name of the command.
func (PruneSlice) Kind() string { return "registry.prune_slice/1" }

// Apply returns a *GuardError if no statement covers a row.
func (c PruneSlice) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (TreeRow, error) {
	tree, _ := MetaTree.Get(r, KeyTree)
	first, _ := MetaNumber.Get(r, KeyMin)
	audit, _ := MetaNumber.Get(r, KeyAuditMin)
	kept, refused := KeptVersions(r), !Retentions.Has(r, first)
	for _, v := range c.Versions {
		refused = refused || v.Version >= first || kept[v.Version]
		Entries.Delete(w, v.Version)
		Payloads.Delete(w, v.Version)
		DoneOutcome.Delete(w, v.Proposal)
	}
	for _, k := range c.Sets {
		refused = refused || k.Version >= first
		SetChunks.Delete(w, k)
	}
	for _, seq := range c.Audits {
		refused = refused || seq >= audit
		Audits.Delete(w, seq)
	}
	for _, id := range c.Outcomes {
		how, _ := DoneOutcome.Get(r, id)
		refused = refused || how.State == document.StateCommitted
		DoneOutcome.Delete(w, id)
	}
	if refused {
		return tree, &GuardError{Op: -1, Guard: "statement"}
	}
	tree.Bytes -= min(tree.Bytes, c.Bytes)
	MetaTree.Put(w, KeyTree, tree)
	return tree, nil
}

// NextSlice returns the next slice from a version on.
func NextSlice(r store.Reader, from uint64) (c PruneSlice, err error) {
	keys, bytes := 0, 0
	fits := func(n, size int) bool {
		keys, bytes = keys+n, bytes+size
		return keys == n || keys <= maxPruneKeys && bytes <= maxPruneBytes
	}
	first, _ := MetaNumber.Get(r, KeyMin)
	kept := KeptVersions(r)
	for v, raw := range Entries.Range(r, from, first) {
		if kept[v] {
			continue
		}
		payload, _ := Payloads.Get(r, v)
		if !fits(3, len(raw)+len(payload)) {
			return c, nil
		}
		a, err := record.ParseEntry(raw)
		if err != nil {
			return c, fmt.Errorf("entry of version %d: %w", v, err)
		}
		id, err := ParseID(a.ProposalID)
		if err != nil {
			return c, fmt.Errorf("entry of version %d: %w", v, err)
		}
		c.Versions, c.Bytes = append(c.Versions, prunedVersion{v, id}), c.Bytes+int64(len(raw)+len(payload))
	}
	for k, raw := range SetChunks.Range(r, SetKey{}, SetKey{first, 0}) {
		if !fits(1, len(raw)) {
			return c, nil
		}
		c.Sets = append(c.Sets, k)
	}
	audit, _ := MetaNumber.Get(r, KeyAuditMin)
	for seq, raw := range Audits.Range(r, 0, audit) {
		if !fits(2, len(raw)) {
			return c, nil
		}
		rec, err := record.ParseAudit(raw)
		if err != nil {
			return c, fmt.Errorf("audit record %d: %w", seq, err)
		}
		if id, ended := endedBy(r, rec); ended {
			c.Outcomes = append(c.Outcomes, id)
		}
		c.Audits = append(c.Audits, seq)
	}
	return c, nil
}

// endedBy returns the proposal that an audit record ends without a version. Its outcome goes with
// the record, because nothing else proves it.
func endedBy(r store.Reader, rec *record.Audit) (id ulid.ULID, ended bool) {
	id, err := ParseID(rec.ProposalID)
	state := EndState(rec.Event)
	if err != nil || rec.Decision != record.DecisionAccept || state == "" {
		return id, false
	}
	how, _ := DoneOutcome.Get(r, id)
	return id, how.State == state && how.AtMS == timeOf(rec).UnixMilli()
}

// KeptVersions returns genesis and the versions that changed the signers. They are kept, because
// trust rests on them.
func KeptVersions(r store.Reader) map[uint64]bool {
	kept := map[uint64]bool{}
	for _, set := range Epochs.All(r) {
		kept[set.Version] = true
	}
	return kept
}

// KeepOutcomes is the time for which the outcome of a proposal without a version is kept, unless
// retention removes its audit record before.
const KeepOutcomes = 30 * 24 * time.Hour
