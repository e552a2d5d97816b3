package record

import (
	"time"

	"ronbox/appliance/b3"
)

// Hint is what a draft says of its place in the log.
type Hint struct {
	Version  uint64
	PrevHash b3.Digest // zero when left out
}

// PeekDraft reads version and prev_hash of a draft and looks at nothing else.
func PeekDraft(draft []byte) (Hint, error) {
	canon, err := canonicalDraft(draft)
	if err != nil {
		return Hint{}, err
	}
	f := newFields("", canon)
	h := Hint{Version: f.uint("version")}
	if f.has("prev_hash") {
		h.PrevHash = f.digest("prev_hash")
	}
	if f.failed != nil {
		return Hint{}, f.failed
	}
	return h, nil
}

func canonicalDraft(draft []byte) ([]byte, error) {
	if len(draft) > 4*MaxPayload {
		return nil, payloadTooLarge(len(draft))
	}
	return Canonical(draft)
}

// Complete fills in what a draft may leave out (type, origin, prev_hash, created_at, kind, mode, items_count, items_root, signer_set_b3, and
// an empty put or remove) and answers the payload and the items after it. What the draft does say must be right: a wrong value is a
// *FieldError, a version that does not follow ErrVersionSkew, a foreign prev_hash ErrChainMismatch, too much of anything ErrHardLimit.
func Complete(draft []byte, b Base, now time.Time) (*Payload, Items, error) {
	canon, err := canonicalDraft(draft)
	if err != nil {
		return nil, Items{}, err
	}
	f := newFields("", canon)
	open := fillForm(&f, b, now)
	p, err := payloadOf(canon, f)
	if err != nil {
		return nil, Items{}, err
	}
	if open.set {
		p.SignerSetB3 = setAfter(p, b)
	}
	if err := p.checkLinks(b); err != nil {
		return nil, Items{}, err
	}
	items, err := p.apply(b.Items)
	if err != nil {
		return nil, Items{}, err
	}
	if open.count {
		p.ItemsCount = items.Len()
	}
	if open.root {
		p.ItemsRoot = items.Root()
	}
	if err := p.checkItems(items); err != nil {
		return nil, Items{}, err
	}
	p.canon = p.encode()
	p.b3 = b3.Sum(p.canon)
	if len(p.canon) > MaxPayload {
		return nil, Items{}, payloadTooLarge(len(p.canon))
	}
	return p, items, nil
}

// left says which computed members the draft left out.
type left struct{ count, root, set bool }

// fillForm adds to f the members that the base decides, and stand-ins for those that are computed later.
func fillForm(f *fields, b Base, now time.Time) left {
	if f.failed != nil {
		return left{}
	}
	kind, mode := KindUpdate, ModeDelta
	if b.Version == 0 {
		kind = KindGenesis
	}
	if f.has("items") {
		mode = ModeFull
	}
	f.fill("type", TypeSet)
	f.fill("origin", b.Origin)
	f.fill("prev_hash", b.PayloadB3.String())
	f.fill("created_at", FormatTime(now))
	f.fill("kind", kind)
	f.fill("mode", mode)
	if f.text("mode") == ModeDelta && (f.has("put") || f.has("remove")) {
		f.fillRaw("put", "[]")
		f.fillRaw("remove", "[]")
	}
	open := left{count: !f.has("items_count"), root: !f.has("items_root"), set: !f.has("signer_set_b3")}
	f.fillRaw("items_count", "0")
	f.fill("items_root", Items{}.Root())
	f.fill("signer_set_b3", b3.Digest{}.String())
	return open
}

// setAfter names the signer set in force after p.
func setAfter(p *Payload, b Base) b3.Digest {
	switch {
	case p.SignerSet != nil:
		return p.SignerSet.B3()
	case b.Signers != nil:
		return b.Signers.B3()
	}
	return b3.Digest{}
}

// Draft is a change as a client knows it before it is completed.
type Draft struct {
	Version   uint64
	Full      bool // Put is the whole set
	Put       []Item
	Remove    []string
	Expiry    string     // "" for none
	SignerSet *SignerSet // nil for no change
}

// Bytes is the canonical draft, for Complete.
func (d Draft) Bytes() []byte {
	var w writer
	item := func(i int) { w.out = append(w.out, d.Put[i].Bytes...) }
	w.begin()
	w.textOpt("expiry", d.Expiry)
	if d.Full {
		w.array("items", len(d.Put), item)
	} else {
		w.array("put", len(d.Put), item)
		w.texts("remove", d.Remove)
	}
	w.text("schema_version", SchemaVersion)
	if d.SignerSet != nil {
		w.raw("signer_set", d.SignerSet.Bytes())
	}
	w.uint("version", d.Version)
	w.end()
	return w.out
}
