package rverify

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// document is one version as read, and what is to be checked of its approvals.
type document struct {
	version             uint64
	rawEntry            []byte
	rawPayload          []byte
	entry               *record.Artifact
	payload             *record.Payload
	hash                b3.Digest
	set                 *record.SignerSet // in force for it
	parsing, signatures *Problem
}

// maxSliceBytes ends a slice early, so that large payloads do not add up in memory.
const maxSliceBytes = 8 << 20

// versions checks the versions after the current one, at most up to to: it reads them, parses them side by side, links them one after the
// other, and verifies their signatures side by side. Nothing is accepted unless all of it holds.
func (v *Verifier) versions(ctx context.Context, r LogReader, to uint64) error {
	docs := make([]document, 0, to-v.at.Head.Version)
	for n, size := v.at.Head.Version+1, 0; n <= to && size < maxSliceBytes; n++ {
		d := document{version: n}
		if p := d.read(r); p != nil {
			return p
		}
		size += len(d.rawEntry) + len(d.rawPayload)
		docs = append(docs, d)
	}
	if err := v.o.each(ctx, len(docs), func(i int) { docs[i].parse() }); err != nil {
		return err
	}
	next, due := v.at, []commitment(nil)
	for i := range docs {
		d := &docs[i]
		if p := v.link(&next, d); p != nil {
			return p
		}
		due = append(due, commitment{
			version: d.version, seq: d.entry.AuditSeq, sum: d.entry.AuditHead, payloadB3: d.payload.B3(), proposalID: d.entry.ProposalID,
		})
	}
	if err := v.o.each(ctx, len(docs), func(i int) { docs[i].checkApprovals(v.o.From) }); err != nil {
		return err
	}
	checked := 0
	for i := range docs {
		if docs[i].signatures != nil {
			return docs[i].signatures
		}
		if docs[i].version >= v.o.From {
			checked += len(docs[i].entry.Approvals)
		}
	}
	v.at, v.due = next, due
	v.report.Head = next.Head
	v.report.Versions += uint64(len(docs))
	v.report.Approvals += uint64(checked)
	return nil
}

func (d *document) read(r LogReader) *Problem {
	var err error
	if d.rawEntry, err = r.Entry(d.version); err != nil || len(d.rawEntry) == 0 {
		return problemf(KindIncomplete, d.version, "entry: %v", cmp.Or(err, ErrMissing))
	}
	if d.rawPayload, err = r.Payload(d.version); err != nil || len(d.rawPayload) == 0 {
		return problemf(KindIncomplete, d.version, "payload: %v", cmp.Or(err, ErrMissing))
	}
	return nil
}

// parse reads both documents and holds what needs no other version: form, canonical bytes, and that they belong together.
func (d *document) parse() {
	var err error
	if d.entry, err = record.ParseEntry(d.rawEntry); err != nil {
		d.parsing = problemf(KindChain, d.version, "entry: %v", err)
		return
	}
	if d.payload, err = record.ParsePayload(d.rawPayload); err != nil {
		d.parsing = problemf(KindChain, d.version, "payload: %v", err)
		return
	}
	d.hash = d.entry.Hash()
	d.parsing = d.belong()
}

// belong holds entry and payload of one version against each other.
func (d *document) belong() *Problem {
	e, p := d.entry, d.payload
	wrong := ""
	switch {
	case !bytes.Equal(e.Bytes(), d.rawEntry):
		wrong = "the entry is not in canonical form"
	case !bytes.Equal(p.Bytes(), d.rawPayload):
		wrong = "the payload is not in canonical form"
	case e.Version != d.version || p.Version != d.version:
		wrong = "entry or payload is of another version"
	case e.PayloadB3 != p.B3():
		wrong = "the payload is not the one the entry names"
	case e.PayloadBytes != int64(len(d.rawPayload)):
		wrong = "the entry gives the payload another length"
	case e.Kind != p.Kind || e.Origin != p.Origin:
		wrong = "entry and payload differ in kind or origin"
	}
	if wrong == "" {
		return nil
	}
	return problemf(KindChain, d.version, "%s", wrong)
}

// link holds d against the version before it, at, and moves at to it.
func (v *Verifier) link(at *State, d *document) *Problem {
	if d.parsing != nil {
		return d.parsing
	}
	e, p := d.entry, d.payload
	if d.version == 1 && !v.o.Genesis.IsZero() && p.B3() != v.o.Genesis {
		return problemf(KindChain, 1, "the log begins with genesis %s, not with %s", p.B3(), v.o.Genesis)
	}
	if e.PrevHash != at.Head.Hash {
		return problemf(KindChain, d.version, "the entry names %s as the one before it, which is %s", e.PrevHash, at.Head.Hash)
	}
	items, err := p.Check(record.Base{
		Origin: at.Origin, Version: at.Head.Version, PayloadB3: at.Head.PayloadB3, Items: at.Items, Signers: at.Signers,
	})
	if err != nil {
		return problemf(kindOf(err), d.version, "payload: %v", err)
	}
	if d.set = at.Signers; d.version == 1 {
		d.set = p.SignerSet
	}
	if e.AuthorizedBy != d.set.B3() {
		return problemf(KindQuorum, d.version, "the entry says signer set %s authorized it; in force was %s", e.AuthorizedBy, d.set.B3())
	}
	if before(e.CommittedAt, at.Head.CommittedAt) {
		return problemf(KindChain, d.version, "committed at %s, before the version before it", e.CommittedAt)
	}
	if p.SignerSet != nil {
		at.Signers = p.SignerSet
		at.Epochs = append(at.Epochs[:len(at.Epochs):len(at.Epochs)],
			Epoch{Version: d.version, Epoch: p.SignerSet.Epoch, SignerSetB3: p.SignerSetB3})
	}
	at.Origin, at.Items = p.Origin, items
	at.Head = record.Head{Version: d.version, Hash: d.hash, PayloadB3: p.B3(), CommittedAt: e.CommittedAt, Epoch: at.Signers.Epoch}
	return nil
}

// kindOf says which part is bad when a payload does not fit its base.
func kindOf(err error) Kind {
	var fe *record.FieldError
	if !errors.As(err, &fe) {
		return KindChain
	}
	switch fe.Field {
	case "items_root", "items_count", "put", "remove":
		return KindTree
	}
	return KindChain
}

// before says whether time a lies before time b; no time lies before none.
func before(a, b string) bool {
	at, errA := record.ParseTime(a)
	bt, errB := record.ParseTime(b)
	return errA == nil && errB == nil && at.Before(bt)
}

// checkApprovals checks that each approval listed counts, and that they suffice.
func (d *document) checkApprovals(from uint64) {
	if d.version < from {
		return
	}
	need := d.set.Threshold
	switch d.payload.Kind {
	case record.KindGenesis:
		need = d.set.Active() // each proves that its owner has the key
	case record.KindSigners, record.KindSupersede:
		need = d.set.ThresholdGov
	}
	counted, err := record.Quorum(d.set, d.version, d.entry.Approvals, d.entry.PayloadB3, need)
	if err == nil && len(counted) == len(d.entry.Approvals) {
		return
	}
	for _, a := range d.entry.Approvals {
		signer, known := d.set.Find(a.SignerID)
		if !known {
			d.signatures = problemf(KindQuorum, d.version, "%s is no signer", a.SignerID)
			return
		}
		if err := record.VerifyApproval(a, signer, d.entry.PayloadB3); err != nil {
			d.signatures = problemf(KindSignature, d.version, "%v", err)
			return
		}
	}
	if err == nil {
		d.signatures = problemf(KindQuorum, d.version, "%d of %d approvals listed do not count", len(d.entry.Approvals)-len(counted), len(d.entry.Approvals))
		return
	}
	d.signatures = problemf(KindQuorum, d.version, "%v", err)
}
