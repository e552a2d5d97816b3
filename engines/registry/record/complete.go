package record

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// Hint is what a draft says of its place in the log.
type Hint struct {
	Version  uint64     `json:"version"`
	PrevHash *b3.Digest `json:"prev_hash,omitzero"` // nil when left out
}

var hintForm = formOf[Hint]()

// PeekDraft reads version and prev_hash of a draft and looks at nothing else.
func PeekDraft(draft []byte) (h Hint, err error) {
	canon, err := bounded(draft, "payload", MaxPayload)
	if err != nil {
		return h, err
	}
	f := hintForm.read("", canon, &h)
	f.complete()
	if f.failed != nil {
		return h, f.failed
	}
	return h, nil
}

// Complete fills in what a draft may leave out (type, origin, prev_hash, created_at, kind, mode, items_count, items_root, signer_set_b3, and
// an empty put or remove, of a change of signers both) and answers the payload and the items after it. What the draft does say must be right: a wrong value is a
// *FieldError, a version that does not follow ErrVersionSkew, a foreign prev_hash ErrChainMismatch, too much of anything ErrHardLimit.
func Complete(draft []byte, b Base, now time.Time) (*Payload, Items, error) {
	canon, err := bounded(draft, "payload", MaxPayload)
	if err != nil {
		return nil, Items{}, err
	}
	doc := payloadDoc{Payload: &Payload{}}
	f := payloadForm.read("", canon, &doc)
	open := doc.fill(f, b, now)
	p, err := doc.payload(f)
	if err != nil {
		return nil, Items{}, err
	}
	if set := p.SignersAfter(b.Signers); open.set && set != nil {
		p.SignerSetB3 = set.B3()
	}
	if err := p.CheckLinks(b); err != nil {
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
	if err := p.CheckItems(items); err != nil {
		return nil, Items{}, err
	}
	p.canon = p.encode()
	p.b3 = b3.Sum(p.canon)
	if len(p.canon) > MaxPayload {
		return nil, Items{}, tooLarge("payload", len(p.canon), MaxPayload)
	}
	return p, items, nil
}

// left says which computed members the draft left out.
type left struct{ count, root, set bool }

// fill adds the members that the base decides, and stand-ins for those that are computed later.
func (d *payloadDoc) fill(f *fields, b Base, now time.Time) left {
	if f.failed != nil {
		return left{}
	}
	kind, mode := KindUpdate, ModeDelta
	switch {
	case b.Version == 0:
		kind = KindGenesis
	case f.has("signer_set"):
		kind = KindSigners
	case f.has("supersede"):
		kind = KindSupersede
	}
	if f.has("items") {
		mode = ModeFull
	}
	fill(f, "type", &d.Type, TypeSet)
	fill(f, "origin", &d.Origin, b.Origin)
	fill(f, "prev_hash", &d.PrevHash, b.PayloadB3)
	fill(f, "created_at", &d.CreatedAt, FormatTime(now))
	fill(f, "kind", &d.Kind, kind)
	fill(f, "mode", &d.Mode, mode)
	if d.Mode == ModeDelta && (f.has("put") || f.has("remove") || d.Kind == KindSigners) {
		fill(f, "put", &d.contents.Put, &[]jsontext.Value{})
		fill(f, "remove", &d.contents.Remove, &[]string{})
	}
	open := left{count: !f.has("items_count"), root: !f.has("items_root"), set: !f.has("signer_set_b3")}
	fill(f, "items_count", &d.ItemsCount, 0)
	fill(f, "items_root", &d.ItemsRoot, Items{}.Root())
	fill(f, "signer_set_b3", &d.SignerSetB3, b3.Digest{})
	return open
}

// SameDraft reports whether q is what draft, of which p was completed, would have become at another moment: it names no time, and p and q
// differ in nothing but created_at.
func SameDraft(draft []byte, p, q *Payload) bool {
	canon, err := bounded(draft, "payload", MaxPayload)
	if f := payloadForm.read("", canon, &payloadDoc{Payload: &Payload{}}); err != nil || f.failed != nil || f.has("created_at") {
		return false
	}
	return p.ContentB3() == q.ContentB3()
}

// ContentB3 is the hash of all that p says but for created_at: two payloads of one content make the same change of the same base.
func (p *Payload) ContentB3() b3.Digest {
	timeless := *p
	timeless.CreatedAt = ""
	return b3.Sum(timeless.encode())
}

// Draft is a change as a client knows it before it is completed.
type Draft struct {
	Version   uint64
	Full      bool // Put is the whole set
	Put       []Item
	Remove    []string
	Expiry    string     // "" for none
	SignerSet *SignerSet // nil for no change
	Supersede *Supersede // nil unless it takes the place of the version before it
}

// Bytes is the canonical draft, for Complete.
func (d Draft) Bytes() []byte {
	return encode(struct {
		Expiry        string     `json:"expiry,omitzero"`
		SchemaVersion string     `json:"schema_version"`
		Version       uint64     `json:"version"`
		Supersede     *Supersede `json:"supersede,omitempty"`
		contents
	}{d.Expiry, SchemaVersion, d.Version, d.Supersede, contentsOf(d.Full, d.Put, d.Remove, d.SignerSet)})
}
