package rverify

import (
	"context"
	"encoding/binary"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
)

// Horizon is the place where a pruned log begins. The log is complete from version Min and audit
// record Audit on. Before them it has genesis and the versions that changed the signers, so that
// trust still rests on genesis.
type Horizon struct {
	Min   uint64
	Audit uint64                       // the record of the commit of version Min-1; a followed log has none
	Note  []byte                       // the signed statement of retention; nil: see CheckStatement
	Items func() (record.Items, error) // of version Min
}

// statement checks and returns the signed statement of a horizon: of this place, by one of keys,
// which are the log keys in force at it or after it.
func (h *Horizon) statement(keys checkpoint.Keys) (said checkpoint.Retention, err error) {
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

// CheckStatement checks the statement of the horizon where Begin began, once the signer sets up to
// its checkpoint are known, from genesis on. at is the place that Begin reached, and entry returns
// the hash of the entry of a version from Min on.
//
// Until then a follower has no checkpoint, and the horizon of its file has no statement: only the
// signers vouch for what it has.
func (h *Horizon) CheckStatement(sets []*record.SignerSet, at State, tree logtree.Reader,
	entry func(version uint64) (b3.Digest, error)) error {
	keys, _, err := KeysOf(sets[len(at.Epochs)-1:])
	if err != nil {
		return problemf(KindChain, 0, "%v", err)
	}
	said, err := h.statement(keys)
	if err == nil {
		err = h.fits(said, at)
	}
	if err != nil {
		return err
	}
	if sum, err := entry(said.Size); err != nil || sum != said.Head {
		return otherEntry(said, err)
	}
	return checkStated(tree, said)
}

func otherEntry(said checkpoint.Retention, cause error) error {
	return problemf(KindChain, said.Size, "the statement of retention names another entry (%v)", cause)
}

// fits compares a statement with the state at version Min.
func (h *Horizon) fits(said checkpoint.Retention, at State) error {
	if said.Origin != at.Origin || said.ItemsRoot != at.Items.Root() || said.Snapshot != b3.Sum(at.Items.Snapshot()) {
		return problemf(KindTree, h.Min, "the statement of retention is of other items, or of another log")
	}
	return nil
}

// begin moves the place to version Min, and checks the statement. The tree, which VerifyWhole
// checks, covers the pruned versions.
func (v *Verifier) begin(ctx context.Context, r LogReader, h *Horizon) error {
	var said checkpoint.Retention
	partial := r.Followed() && h.Note == nil
	keys, _, err := keysFrom(r, h.Min)
	if err == nil && !partial {
		said, err = h.statement(keys)
	}
	if err != nil {
		return err
	}
	var kept []uint64
	for _, raw := range r.Epochs() {
		if version := binary.BigEndian.Uint64(raw); version < h.Min {
			kept = append(kept, version)
		}
	}
	at, docs, err := v.apart(ctx, r, h, kept)
	if err != nil {
		return err
	}
	if !partial {
		if err := h.fits(said, at); err != nil {
			return err
		}
		if raw, err := r.Entry(said.Size); err != nil || b3.Sum(raw) != said.Head {
			return otherEntry(said, err)
		}
	}
	if !r.Followed() {
		if err := h.takeAudit(&at, r); err != nil {
			return err
		}
	}
	v.said = said
	v.take(h, docs, at)
	return nil
}

// Begin moves the place to version Min of the public part of a pruned log. kept lists genesis and
// the versions before Min that changed the signers. The error is as that of Extend. The caller
// checks the tree, and the statement with CheckStatement.
func (v *Verifier) Begin(ctx context.Context, r VersionReader, h *Horizon, kept []uint64) error {
	at, docs, err := v.apart(ctx, r, h, kept)
	if err != nil {
		return v.note(err)
	}
	v.take(h, docs, at)
	v.due = nil
	return nil
}

// take accepts the versions that apart has checked.
func (v *Verifier) take(h *Horizon, docs []document, at State) {
	v.report = Report{First: h.Min}
	v.accept(docs, at)
	v.due = v.due[len(v.due)-1:] // the audit records of the others are pruned
}

// apart checks genesis and the versions that changed the signers, each under the set before it, and
// takes the items of version Min that its signers have signed.
func (v *Verifier) apart(ctx context.Context, r VersionReader, h *Horizon,
	kept []uint64) (at State, docs []document, err error) {
	for _, version := range append(kept[:len(kept):len(kept)], h.Min) {
		d := document{version: version}
		if err := d.read(r); err != nil {
			return at, nil, err
		}
		if err := d.parse(); err != nil {
			return at, nil, err
		}
		if err := v.linkApart(&at, &d); err != nil {
			return at, nil, err
		}
		docs = append(docs, d)
	}
	if err := h.takeItems(&at, &docs[len(docs)-1]); err != nil {
		return at, nil, err
	}
	_, err = v.o.each(ctx, len(docs), func(i int) error { return docs[i].checkApprovals(v.o.From) })
	return at, docs, err
}

// linkApart checks d under the set in force before it. It trusts the link of d to the version
// before it if that one is pruned.
func (v *Verifier) linkApart(at *State, d *document) error {
	if d.version == 1 {
		return v.link(at, d)
	}
	if at.Signers == nil {
		return problemf(KindIncomplete, 1, "genesis is missing")
	}
	prev := record.Head{Version: d.version - 1, Hash: d.entry.PrevHash, PayloadB3: d.payload.PrevHash}
	if at.Head.Version == prev.Version {
		prev = at.Head
	}
	if err := d.comesAfter(prev); err != nil {
		return err
	}
	err := d.payload.CheckLinks(record.Base{
		Origin: at.Origin, Version: prev.Version, PayloadB3: prev.PayloadB3, Hash: prev.Hash, Signers: at.Signers,
	})
	if err != nil {
		return problemf(kindOf(err), d.version, "payload: %v", err)
	}
	return d.follow(at, record.Items{})
}

// takeItems checks and takes the stored items of version Min.
func (h *Horizon) takeItems(at *State, d *document) error {
	items, err := h.Items()
	if err == nil {
		err = d.payload.CheckItems(items)
	}
	if err != nil {
		return problemf(KindTree, h.Min, "kept items: %v", err)
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
