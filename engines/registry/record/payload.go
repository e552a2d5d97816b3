package record

import (
	"fmt"
	"strconv"

	"ronbox/appliance/b3"
)

const (
	// TypeSet is the type member of a payload.
	TypeSet = "ron.registry/set/v1"
	// SchemaVersion is the one schema version of payloads and log entries.
	SchemaVersion = "1.0.0"
	// MaxPayload is the most bytes of a canonical payload.
	MaxPayload = 1 << 20
	// maxOrigin is the most bytes of an origin.
	maxOrigin = 200
)

// Kinds of payloads.
const (
	KindGenesis   = "genesis"
	KindUpdate    = "update"
	KindSigners   = "signers"
	KindSupersede = "supersede"
)

// Modes of payloads.
const (
	ModeFull  = "full"  // Put holds all descriptors
	ModeDelta = "delta" // Put and Remove change those of the base
)

// Payload is a descriptor set as signers sign it. It must not be modified once parsed or built.
type Payload struct {
	SchemaVersion string     `json:"schema_version"`
	Origin        string     `json:"origin"`
	Version       uint64     `json:"version"`
	PrevHash      b3.Digest  `json:"prev_hash"` // hash of the payload before it, zero for genesis
	Kind          string     `json:"kind"`
	Mode          string     `json:"mode"`
	CreatedAt     string     `json:"created_at"`
	Expiry        string     `json:"expiry,omitzero"` // "" when absent: advice to consumers
	Put           []Item     `json:"-"`               // "put" of a delta, "items" of a full set
	Remove        []string   `json:"-"`
	ItemsCount    int        `json:"items_count"`
	ItemsRoot     string     `json:"items_root"`    // of the set after this version
	SignerSetB3   b3.Digest  `json:"signer_set_b3"` // in force after this version
	SignerSet     *SignerSet `json:"-"`
	Supersede     *Supersede `json:"supersede,omitempty"`
	RationaleB3   b3.Digest  `json:"rationale_b3,omitzero"` // zero when absent

	canon []byte
	b3    b3.Digest
}

// Supersede says why a version takes the place of the one before it.
type Supersede struct {
	Of     b3.Digest `json:"of"` // hash of the entry before it
	Reason string    `json:"reason"`
	Other  string    `json:"other,omitzero"` // the reason in words, iff Reason is ReasonOther
	Note   string    `json:"note"`
}

// Reasons of a Supersede.
const (
	ReasonKeyCompromise    = "KeyCompromise"
	ReasonDataError        = "DataError"
	ReasonGovernanceAction = "GovernanceAction"
	ReasonOther            = "Other"
)

// ParsePayload reads a complete payload in any spelling and checks every rule that does not need its base. A wrong one is a *FieldError, a
// large one ErrHardLimit.
func ParsePayload(raw []byte) (*Payload, error) {
	if len(raw) > 4*MaxPayload {
		return nil, payloadTooLarge(len(raw))
	}
	canon, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	return payloadOf(canon, newFields("", canon))
}

func payloadTooLarge(n int) error {
	return fmt.Errorf("%w: payload of %d bytes, at most %d", ErrHardLimit, n, MaxPayload)
}

// payloadOf reads a complete payload from its canonical bytes.
func payloadOf(canon []byte, f fields) (*Payload, error) {
	if len(canon) > MaxPayload {
		return nil, payloadTooLarge(len(canon))
	}
	f.is("type", TypeSet)
	p := &Payload{
		SchemaVersion: f.text("schema_version"), Origin: f.text("origin"), Version: f.uint("version"), PrevHash: f.digest("prev_hash"),
		Kind: f.text("kind"), Mode: f.text("mode"), CreatedAt: f.time("created_at"), Expiry: f.timeOpt("expiry"),
		ItemsCount: f.count("items_count", 0, MaxItems), ItemsRoot: f.text("items_root"),
		SignerSetB3: f.digest("signer_set_b3"), RationaleB3: f.digestOpt("rationale_b3"),
		canon: canon, b3: b3.Sum(canon),
	}
	p.checkForm(&f)
	if err := p.readSigners(&f); err != nil {
		return nil, err
	}
	if err := p.readChange(&f); err != nil {
		return nil, err
	}
	return p, f.done()
}

// checkForm holds each member against its form.
func (p *Payload) checkForm(f *fields) {
	if p.SchemaVersion != SchemaVersion {
		f.fail("schema_version", "must be %q", SchemaVersion)
	}
	if !ValidOrigin(p.Origin) {
		f.fail("origin", "must be a URL without schema: 1 to %d printable characters, no colon, plus or space", maxOrigin)
	}
	if p.Version < 1 {
		f.fail("version", "must be at least 1")
	}
	switch p.Kind {
	case KindGenesis, KindUpdate, KindSigners, KindSupersede:
	default:
		f.fail("kind", "must be genesis, update, signers or supersede")
	}
	if _, ok := parseRoot(p.ItemsRoot); !ok {
		f.fail("items_root", `must be "sha256:" and 64 lower-case hex digits`)
	}
}

func (p *Payload) readSigners(f *fields) (err error) {
	if raw := f.find("signer_set"); raw != nil {
		p.SignerSet, err = signerSetOf("signer_set", raw)
	}
	if raw := f.find("supersede"); raw != nil && err == nil {
		p.Supersede, err = supersedeOf("supersede", raw)
	}
	return err
}

func supersedeOf(path string, canon []byte) (*Supersede, error) {
	f := newFields(path, canon)
	s := &Supersede{Of: f.digest("of"), Reason: f.text("reason"), Other: f.textOpt("other"), Note: f.text("note")}
	switch s.Reason {
	case ReasonKeyCompromise, ReasonDataError, ReasonGovernanceAction, ReasonOther:
	default:
		f.fail("reason", "must be %s, %s, %s or %s", ReasonKeyCompromise, ReasonDataError, ReasonGovernanceAction, ReasonOther)
	}
	if (s.Reason == ReasonOther) != (s.Other != "") || len(s.Other) > maxSignerText {
		f.fail("other", "is there iff reason is %s, with 1 to %d bytes", ReasonOther, maxSignerText)
	}
	if s.Note == "" || len(s.Note) > maxSignerText {
		f.fail("note", "must be 1 to %d bytes", maxSignerText)
	}
	return s, f.done()
}

// readChange reads items, or put and remove, as the mode asks.
func (p *Payload) readChange(f *fields) (err error) {
	switch p.Mode {
	case ModeFull:
		p.Put, err = readItems(f, "items")
	case ModeDelta:
		p.Put, err = readItems(f, "put")
		p.Remove = f.texts("remove")
		for i, id := range p.Remove {
			if !validID(id) {
				f.fail("remove."+strconv.Itoa(i), "is not a descriptor id")
			}
		}
		if f.has("items") { // completing a draft has looked at it already
			f.fail("items", "only a full set has items; a delta has put and remove")
		}
	default:
		f.fail("mode", "must be full or delta")
	}
	return err
}

// readItems reads an array of descriptors. Each must be there once; Apply sees to that.
func readItems(f *fields, name string) ([]Item, error) {
	all := f.array(name)
	if len(all) > MaxItems {
		return nil, fmt.Errorf("%w: %d descriptors, at most %d", ErrHardLimit, len(all), MaxItems)
	}
	items := make([]Item, len(all))
	for i, raw := range all {
		var err error
		if items[i], err = itemOf(f.path+name+"."+strconv.Itoa(i), raw); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// ValidOrigin says whether s may name a log: a URL without schema, 1 to 200 printable ASCII characters, no colon, plus or space.
func ValidOrigin(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == ':' || c == '+' {
			return false
		}
	}
	return s != "" && len(s) <= maxOrigin
}

// Bytes is the canonical payload, what signers see. It must not be modified.
func (p *Payload) Bytes() []byte {
	if p.canon != nil {
		return p.canon
	}
	return p.encode()
}

// B3 is the hash that approvals sign.
func (p *Payload) B3() b3.Digest {
	if p.canon != nil {
		return p.b3
	}
	return b3.Sum(p.encode())
}

// encode writes the members; those a draft leaves out are written as they are, so a payload is completed before.
func (p *Payload) encode() []byte {
	return encode(struct {
		Type string `json:"type"`
		*Payload
		contents
	}{TypeSet, p, contentsOf(p.Mode == ModeFull, p.Put, p.Remove, p.SignerSet)})
}
