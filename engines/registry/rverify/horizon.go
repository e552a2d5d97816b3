package rverify

import (
	"context"
	"encoding/binary"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/record"
)

// Horizon is the place where a pruned log begins. The log is complete from version Min and audit
// record Audit on. Before them it has genesis and the versions that changed the signers, so that
// trust still rests on genesis.
type Horizon struct {
	Min   uint64
	Audit uint64                       // the record of the commit of version Min-1
	Note  []byte                       // the signed statement of retention
	Items func() (record.Items, error) // of version Min
}

// statement checks and returns the signed statement of a horizon: by a log key, of this log and
// this place.
func (h *Horizon) statement(r LogReader) (said checkpoint.Retention, err error) {
	keys, _, err := trustedKeys(r)
	if err != nil {
		return said, err
	}
	text, err := keys.OpenText(h.Note)
	if err == nil {
		said, err = checkpoint.ParseRetention(text)
	}
	switch {
	case err != nil:
		err = problemf(KindIncomplete, h.Min, "versions before it are gone, and the statement of retention: %v", err)
	case said.Min != h.Min || said.Size < h.Min:
		err = problemf(KindIncomplete, h.Min,
			"versions before it are gone; the statement of retention is of version %d, under a checkpoint of %d",
			said.Min, said.Size)
	}
	return said, err
}

// begin moves the place to version Min. It checks genesis and the versions that changed the
// signers, each under the set before it, and takes the items of version Min that its signers have
// signed. The tree, which VerifyWhole checks, covers the pruned versions.
func (v *Verifier) begin(ctx context.Context, r LogReader, h *Horizon) error {
	said, err := h.statement(r)
	if err != nil {
		return err
	}
	var docs []document
	for _, raw := range r.Epochs() {
		if version := binary.BigEndian.Uint64(raw); version < h.Min {
			docs = append(docs, document{version: version})
		}
	}
	docs = append(docs, document{version: h.Min})
	var at State
	for i := range docs {
		d := &docs[i]
		if err := d.read(r); err != nil {
			return err
		}
		if err := d.parse(); err != nil {
			return err
		}
		if err := v.linkApart(&at, d); err != nil {
			return err
		}
	}
	if err := h.takeItems(&at, &docs[len(docs)-1], said); err != nil {
		return err
	}
	if err := h.takeAudit(&at, r); err != nil {
		return err
	}
	if raw, err := r.Entry(said.Size); err != nil || b3.Sum(raw) != said.Head {
		return problemf(KindChain, said.Size, "the statement of retention names another entry (%v)", err)
	}
	if _, err := v.o.each(ctx, len(docs), func(i int) error { return docs[i].checkApprovals(v.o.From) }); err != nil {
		return err
	}
	v.report, v.said = Report{First: h.Min}, said
	v.accept(docs, at)
	v.due = v.due[len(v.due)-1:] // the audit records of the others are pruned
	return nil
}

// linkApart checks d under the set in force before it. It trusts the link of d to the version
// before it, which may be pruned.
func (v *Verifier) linkApart(at *State, d *document) error {
	if d.version == 1 {
		return v.link(at, d)
	}
	if at.Signers == nil {
		return problemf(KindIncomplete, 1, "genesis is missing")
	}
	err := d.payload.CheckLinks(record.Base{
		Origin: at.Origin, Version: d.version - 1, PayloadB3: d.payload.PrevHash,
		Hash: d.entry.PrevHash, Signers: at.Signers,
	})
	if err != nil {
		return problemf(kindOf(err), d.version, "payload: %v", err)
	}
	return d.follow(at, record.Items{})
}

// takeItems checks and takes the stored items of version Min.
func (h *Horizon) takeItems(at *State, d *document, said checkpoint.Retention) error {
	items, err := h.Items()
	if err == nil {
		err = d.payload.CheckItems(items)
	}
	switch {
	case err != nil:
		return problemf(KindTree, h.Min, "kept items: %v", err)
	case said.Origin != at.Origin || said.ItemsRoot != items.Root() || said.Snapshot != b3.Sum(items.Snapshot()):
		return problemf(KindTree, h.Min, "the statement of retention is of other items, or of another log")
	}
	at.Items = items
	return nil
}

// takeAudit takes the first stored audit record. The entry of version Min names a record that
// follows from it.
func (h *Horizon) takeAudit(at *State, r LogReader) error {
	for seq, raw := range r.Audit(h.Audit, h.Audit) {
		rec, err := parseAudit(seq, raw)
		if err != nil || rec.Seq != seq || !rec.Commits() || rec.Version != h.Min-1 {
			return problemf(KindChain, h.Min-1,
				"audit record %d, the first that is kept, is not that of its commit (%v)", h.Audit, err)
		}
		at.AuditSeq, at.AuditB3 = seq, rec.B3()
		return nil
	}
	return problemf(KindIncomplete, h.Min-1, "audit record %d: %v", h.Audit, ErrMissing)
}
