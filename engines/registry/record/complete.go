package record

import (
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
)

// Sketch is a draft that has been read once: its place in the log, and its members for Complete.
type Sketch struct {
	Version  uint64
	PrevHash *b3.Digest // nil when left out

	timed  bool // it names its own created_at
	doc    payloadDoc
	fields *fields
}

// ReadDraft reads a draft, a payload that may leave out members. It returns a *FieldError if
// version or prev_hash is malformed and ErrHardLimit if the draft is too large. Complete reports
// every other fault, such as a missing version.
func ReadDraft(draft []byte) (*Sketch, error) {
	canon, err := bounded(draft, "payload", MaxPayload)
	if err != nil {
		return nil, err
	}
	s := &Sketch{doc: payloadDoc{Payload: &Payload{}}}
	f := payloadForm.read("", canon, &s.doc)
	s.fields = f
	if fault := f.failed; fault != nil && slices.Contains([]string{"", "version", "prev_hash"}, fault.Field) {
		return nil, fault
	}
	s.Version, s.timed = s.doc.Version, f.has("created_at")
	if f.has("prev_hash") {
		s.PrevHash = new(s.doc.PrevHash)
	}
	return s, nil
}

// Complete reads a draft and completes it, as Sketch.Complete does.
func Complete(draft []byte, b Base, now time.Time) (*Payload, Items, error) {
	s, err := ReadDraft(draft)
	if err != nil {
		return nil, Items{}, err
	}
	return s.Complete(b, now)
}

// Complete fills in the members that a draft may leave out (type, origin, prev_hash, created_at,
// kind, mode, items_count, items_root, signer_set_b3, an empty put or remove, and both for a
// change of signers). It returns the payload and the items after it, and may be called once. The
// members that the draft has must be right: a wrong value is a *FieldError, a version that does
// not follow the base ErrVersionSkew, another prev_hash ErrChainMismatch, and a size beyond a
// limit ErrHardLimit.
func (s *Sketch) Complete(b Base, now time.Time) (*Payload, Items, error) {
	open := s.doc.fill(s.fields, b, now)
	p, err := s.doc.payload(s.fields)
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

// left marks the computed members that the draft leaves out.
type left struct{ count, root, set bool }

// fill adds the members that follow from the base, and placeholders for those that are computed
// later.
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

// Repeats reports whether q is the payload that the draft, completed to p, would have become at
// another time: the draft names no time, and p and q differ only in created_at.
func (s *Sketch) Repeats(p, q *Payload) bool { return !s.timed && p.ContentB3() == q.ContentB3() }

// ContentB3 returns the hash of p without created_at. Two payloads with the same ContentB3 make
// the same change of the same base.
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
