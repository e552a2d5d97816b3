package rverify

import (
	"bytes"
	"cmp"
	"context"
	"errors"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
)

// document is one version as read.
type document struct {
	version    uint64
	rawEntry   []byte
	rawPayload []byte
	entry      *record.Artifact
	payload    *record.Payload
	hash       b3.Digest
	set        *record.SignerSet // in force for it
}

// maxSliceBytes ends a slice early, so that large payloads do not add up in memory.
const maxSliceBytes = 8 << 20

// versions checks the versions after the current one, up to to. It reads them, parses them
// concurrently, links them in order, and verifies their signatures concurrently. It accepts the
// versions before the first fault.
func (v *Verifier) versions(ctx context.Context, r VersionReader, to uint64) error {
	var docs []document
	var fault error // of the version after docs
	hold := func(sound int, err error) {
		if err != nil {
			docs, fault = docs[:sound], err
		}
	}
	for n, size := v.at.Head.Version+1, 0; fault == nil && n <= to && size < maxSliceBytes; n++ {
		docs = append(docs, document{version: n})
		d := &docs[len(docs)-1]
		hold(len(docs)-1, d.read(r))
		size += len(d.rawEntry) + len(d.rawPayload)
	}
	hold(v.o.each(ctx, len(docs), func(i int) error { return docs[i].parse() }))
	places := make([]State, len(docs)) // after each
	for i, at := 0, v.at; i < len(docs); i++ {
		hold(i, v.link(&at, &docs[i]))
		places[i] = at
	}
	hold(v.o.each(ctx, len(docs), func(i int) error { return docs[i].checkApprovals(v.o.From) }))
	if len(docs) > 0 {
		v.accept(docs, places[len(docs)-1])
	}
	return fault
}

// accept moves the place to the last of docs, all of which hold.
func (v *Verifier) accept(docs []document, at State) {
	v.at, v.due = at, v.due[:0]
	v.report.Head = at.Head
	v.report.Versions += uint64(len(docs))
	for i := range docs {
		v.due = append(v.due, docs[i].entry)
		if docs[i].version >= v.o.From {
			v.report.Approvals += uint64(len(docs[i].entry.Approvals))
		}
	}
}

func (d *document) read(r VersionReader) error {
	var err error
	if d.rawEntry, err = r.Entry(d.version); err != nil || len(d.rawEntry) == 0 {
		return problemf(KindIncomplete, d.version, "entry: %v", cmp.Or(err, ErrMissing))
	}
	if d.rawPayload, err = r.Payload(d.version); err != nil || len(d.rawPayload) == 0 {
		return problemf(KindIncomplete, d.version, "payload: %v", cmp.Or(err, ErrMissing))
	}
	return nil
}

// parse parses both documents and checks all that needs no other version: form, canonical bytes,
// and that they belong together.
func (d *document) parse() (err error) {
	if d.entry, err = record.ParseEntry(d.rawEntry); err != nil {
		return problemf(KindChain, d.version, "entry: %v", err)
	}
	if d.payload, err = record.ParsePayload(d.rawPayload); err != nil {
		return problemf(KindChain, d.version, "payload: %v", err)
	}
	d.hash = d.entry.Hash()
	return d.belong()
}

// belong compares the entry and the payload of a version.
func (d *document) belong() error {
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
		wrong = "the entry has another length of the payload"
	case e.Kind != p.Kind || e.Origin != p.Origin:
		wrong = "entry and payload differ in kind or origin"
	}
	if wrong == "" {
		return nil
	}
	return problemf(KindChain, d.version, "%s", wrong)
}

// link compares d with the version before it, at, and moves at to d.
func (v *Verifier) link(at *State, d *document) error {
	p := d.payload
	if d.version == 1 && !v.o.Genesis.IsZero() && p.B3() != v.o.Genesis {
		return problemf(KindChain, 1, "the log begins with genesis %s, not with %s", p.B3(), v.o.Genesis)
	}
	if err := d.comesAfter(at.Head); err != nil {
		return err
	}
	items, err := p.Check(record.Base{
		Origin: at.Origin, Version: at.Head.Version, PayloadB3: at.Head.PayloadB3, Hash: at.Head.Hash,
		Items: at.Items, Signers: at.Signers,
	})
	if err != nil {
		return problemf(kindOf(err), d.version, "payload: %v", err)
	}
	return d.follow(at, items)
}

// comesAfter checks that the entry of d names the one before it.
func (d *document) comesAfter(prev record.Head) error {
	if d.entry.PrevHash != prev.Hash {
		return problemf(KindChain, d.version, "the entry names %s as the one before it, which is %s",
			d.entry.PrevHash, prev.Hash)
	}
	return nil
}

// follow checks the rules of d that do not need the bytes of the version before it, and moves at to
// d.
func (d *document) follow(at *State, items record.Items) error {
	e, p := d.entry, d.payload
	d.set = at.Signers
	if d.version == 1 {
		d.set = p.SignerSet
	}
	if e.AuthorizedBy != d.set.B3() {
		return problemf(KindQuorum, d.version, "the entry names signer set %s, but %s was in force",
			e.AuthorizedBy, d.set.B3())
	}
	if before(e.CommittedAt, at.Head.CommittedAt) {
		return problemf(KindChain, d.version, "committed at %s, before the version before it", e.CommittedAt)
	}
	at.Signers = p.SignersAfter(at.Signers)
	if p.SignerSet != nil {
		at.Epochs = append(at.Epochs[:len(at.Epochs):len(at.Epochs)],
			Epoch{Version: d.version, Epoch: p.SignerSet.Epoch, SignerSetB3: p.SignerSetB3})
	}
	at.Origin, at.Items = p.Origin, items
	at.Head = record.Head{
		Version: d.version, Hash: d.hash, PayloadB3: p.B3(), CommittedAt: e.CommittedAt,
		Epoch: at.Signers.Epoch,
	}
	return nil
}

// kindOf returns the kind of fault of a payload that does not fit its base.
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

// before reports whether time a is before time b. An empty b has no time before it.
func before(a, b string) bool {
	at, errA := record.ParseTime(a)
	bt, errB := record.ParseTime(b)
	return errA == nil && errB == nil && at.Before(bt)
}

// checkApprovals checks that each listed approval counts, and that they suffice.
func (d *document) checkApprovals(from uint64) error {
	if d.version < from {
		return nil
	}
	counted, err := record.Authorize(d.payload, d.set, d.entry.Approvals)
	if err == nil && len(counted) == len(d.entry.Approvals) {
		return nil
	}
	for _, a := range d.entry.Approvals {
		signer, known := d.payload.Approver(d.set, a.SignerID)
		if !known {
			return problemf(KindQuorum, d.version, "%s is not a signer", a.SignerID)
		}
		if err := record.VerifyApproval(a, signer, d.entry.PayloadB3); err != nil {
			return problemf(KindSignature, d.version, "%v", err)
		}
	}
	if err != nil {
		return problemf(KindQuorum, d.version, "%v", err)
	}
	return problemf(KindQuorum, d.version, "%d of %d approvals listed do not count",
		len(d.entry.Approvals)-len(counted), len(d.entry.Approvals))
}
