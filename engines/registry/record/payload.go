package record

import (
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

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
	CreatedAt     string     `json:"created_at" format:"time"`
	Expiry        string     `json:"expiry,omitzero" format:"time"` // "" when absent: advice to consumers
	Put           []Item     `json:"-"`                             // "put" of a delta, "items" of a full set
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

// Supersede is the reason why a version replaces the one before it.
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

// ParsePayload parses a complete payload in any spelling and checks every rule that does not need
// its base. It returns a *FieldError if it is wrong and ErrHardLimit if it is too large.
func ParsePayload(raw []byte) (*Payload, error) {
	canon, err := bounded(raw, "payload", MaxPayload)
	if err != nil {
		return nil, err
	}
	doc := payloadDoc{Payload: &Payload{canon: canon, b3: b3.Sum(canon)}}
	return doc.payload(payloadForm.read("", canon, &doc))
}

// payloadDoc is a payload with its members as they are written.
type payloadDoc struct {
	Type string `json:"type"`
	*Payload
	contents
}

var payloadForm = formOf[payloadDoc]()

// payload checks the members.
func (d payloadDoc) payload(f *fields) (*Payload, error) {
	f.is("type", d.Type, TypeSet)
	f.complete()
	d.checkForm(f)
	if err := d.readSigners(f); err != nil {
		return nil, err
	}
	if err := d.readChange(f); err != nil {
		return nil, err
	}
	return d.Payload, f.done()
}

// checkForm checks the form of each member.
func (p *Payload) checkForm(f *fields) {
	f.place(p.SchemaVersion, p.Origin, originRule, p.Version, p.Kind)
	f.within("items_count", p.ItemsCount, 0, MaxItems)
	if _, ok := parseRoot(p.ItemsRoot); !ok {
		f.fail("items_root", `must be "sha256:" and 64 lower-case hex digits`)
	}
}

// originRule describes a valid origin.
var originRule = fmt.Sprintf(
	"must be a URL without schema: 1 to %d printable characters, no colon, plus or space",
	maxOrigin,
)

// place checks the members that payloads and entries share: schema version, origin, version and
// kind. wrong is the reason for an invalid origin.
func (f *fields) place(schema, origin, wrong string, version uint64, kind string) {
	if schema != SchemaVersion {
		f.fail("schema_version", "must be %q", SchemaVersion)
	}
	if !ValidOrigin(origin) {
		f.fail("origin", "%s", wrong)
	}
	if version < 1 {
		f.fail("version", "must be at least 1")
	}
	switch kind {
	case KindGenesis, KindUpdate, KindSigners, KindSupersede:
	default:
		f.fail("kind", "must be genesis, update, signers or supersede")
	}
}

func (d payloadDoc) readSigners(f *fields) (err error) {
	if raw := d.contents.SignerSet; raw != nil && f.failed == nil {
		d.Payload.SignerSet, err = signerSetOf("signer_set", raw)
	}
	if d.Supersede != nil {
		d.Supersede.checkForm(f)
	}
	return err
}

func (s *Supersede) checkForm(f *fields) {
	switch s.Reason {
	case ReasonKeyCompromise, ReasonDataError, ReasonGovernanceAction, ReasonOther:
	default:
		f.fail("supersede.reason", "must be %s, %s, %s or %s", ReasonKeyCompromise, ReasonDataError,
			ReasonGovernanceAction, ReasonOther)
	}
	if (s.Reason == ReasonOther) != (s.Other != "") || len(s.Other) > maxSignerText {
		f.fail("supersede.other", "is there iff reason is %s, with 1 to %d bytes", ReasonOther, maxSignerText)
	}
	if s.Note == "" || len(s.Note) > maxSignerText {
		f.fail("supersede.note", "must be 1 to %d bytes", maxSignerText)
	}
}

// readChange reads items, or put and remove, as the mode demands.
func (d payloadDoc) readChange(f *fields) (err error) {
	mine, others, name, items := []string{"put", "remove"}, []string{"items"}, "put", d.contents.Put
	switch d.Mode {
	case ModeFull:
		mine, others, name, items = others, mine, "items", d.Items
	case ModeDelta:
	default:
		f.fail("mode", "must be full or delta")
	}
	for _, m := range mine {
		if !f.has(m) {
			f.fail(m, "missing")
		}
	}
	for _, m := range others {
		if f.has(m) {
			f.fail(m, "only a full set has items; a delta has put and remove")
		}
	}
	if f.failed != nil {
		return f.failed
	}
	if d.contents.Remove != nil {
		d.Payload.Remove = *d.contents.Remove
	}
	for i, id := range d.Payload.Remove {
		if !validID(id) {
			f.fail("remove."+strconv.Itoa(i), "is not a descriptor id")
		}
	}
	d.Payload.Put, err = readItems(name, *items)
	return err
}

// readItems parses descriptors. Apply refuses duplicates.
func readItems(name string, all []jsontext.Value) ([]Item, error) {
	if len(all) > MaxItems {
		return nil, fmt.Errorf("%w: %d descriptors, at most %d", ErrHardLimit, len(all), MaxItems)
	}
	items := make([]Item, len(all))
	for i, raw := range all {
		var err error
		if items[i], err = itemOf(name+"."+strconv.Itoa(i), raw); err != nil {
			return nil, err
		}
	}
	return items, nil
}

// ValidOrigin reports whether s may name a log: a URL without schema, 1 to 200 printable ASCII
// characters, no colon, plus or space.
func ValidOrigin(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == ':' || c == '+' {
			return false
		}
	}
	return s != "" && len(s) <= maxOrigin
}

// Bytes returns the canonical payload, the bytes shown to signers. It must not be modified.
func (p *Payload) Bytes() []byte {
	if p.canon != nil {
		return p.canon
	}
	return p.encode()
}

// B3 returns the hash that approvals sign.
func (p *Payload) B3() b3.Digest {
	if p.canon != nil {
		return p.b3
	}
	return b3.Sum(p.encode())
}

// encode writes the members. A payload must be complete before it is encoded.
func (p *Payload) encode() []byte {
	return encode(payloadDoc{TypeSet, p, contentsOf(p.Mode == ModeFull, p.Put, p.Remove, p.SignerSet)})
}
