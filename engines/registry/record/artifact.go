package record

import (
	"strconv"

	"ronbox/appliance/b3"
)

const (
	// TypeArtifact is the type member of a log entry.
	TypeArtifact = "ron.registry/artifact/v1"
	// MaxEntry is the most bytes of a log entry.
	MaxEntry = 1<<16 - 1
)

// Artifact is a log entry: the payload, its approvals, the entry before it, and the time. It must
// not be modified once parsed or built.
type Artifact struct {
	SchemaVersion string     `json:"schema_version"`
	Origin        string     `json:"origin"`
	Version       uint64     `json:"version"`
	Kind          string     `json:"kind"`
	PayloadB3     b3.Digest  `json:"payload_b3"`
	PayloadBytes  int64      `json:"payload_bytes"`
	PrevHash      b3.Digest  `json:"prev_hash"`     // hash of the entry before it, zero for genesis
	Approvals     []Approval `json:"approvals"`     // those that counted, sorted by signer, received_at set
	AuthorizedBy  b3.Digest  `json:"authorized_by"` // signer set in force before this version; for genesis its own
	AuditSeq      uint64     `json:"audit_seq"`     // of the last audit record before this commit, 0 for none
	AuditHead     b3.Digest  `json:"audit_head"`    // hash of that record
	ProposalID    string     `json:"proposal_id"`
	CommittedAt   string     `json:"committed_at" format:"time"`

	canon []byte
}

type entryDoc struct {
	Type string `json:"type"`
	*Artifact
}

var entryForm = formOf[entryDoc]()

// NewArtifact completes an entry: it fills in SchemaVersion, checks the form of each member and
// fixes the bytes. It returns a *FieldError for a wrong member and ErrHardLimit for too many bytes.
func NewArtifact(a Artifact) (*Artifact, error) {
	a.SchemaVersion = SchemaVersion
	return ParseEntry(a.encode())
}

// ParseEntry parses a log entry in any spelling.
func ParseEntry(raw []byte) (*Artifact, error) {
	canon, err := bounded(raw, "log entry", MaxEntry)
	if err != nil {
		return nil, err
	}
	a := &Artifact{canon: canon}
	doc := entryDoc{Artifact: a}
	f := entryForm.read("", canon, &doc)
	f.is("type", doc.Type, TypeArtifact)
	f.complete()
	a.checkForm(f)
	return a, f.done()
}

func (a *Artifact) checkForm(f *fields) {
	f.place(a.SchemaVersion, a.Origin, "is not an origin", a.Version, a.Kind)
	if len(a.Approvals) == 0 {
		f.fail("approvals", "must not be empty")
	}
	for i, approval := range a.Approvals {
		at := "approvals." + strconv.Itoa(i) + "."
		approval.checkForm(f, at)
		if approval.ReceivedAt == "" {
			f.fail(at+"received_at", "missing")
		}
		if i > 0 && a.Approvals[i-1].SignerID >= approval.SignerID {
			f.fail(at+"signer_id", "approvals must be sorted by signer, each once")
		}
	}
	f.within("payload_bytes", int(a.PayloadBytes), 1, MaxPayload)
	if (a.AuditSeq == 0) != a.AuditHead.IsZero() {
		f.fail("audit_head", "must be zero iff audit_seq is 0")
	}
	if a.ProposalID == "" {
		f.fail("proposal_id", "must not be empty")
	}
}

// Bytes returns the canonical entry. It must not be modified.
func (a *Artifact) Bytes() []byte {
	if a.canon != nil {
		return a.canon
	}
	return a.encode()
}

// Hash returns the hash of the entry, to which the next entry and HEAD link.
func (a *Artifact) Hash() b3.Digest { return b3.Sum(a.Bytes()) }

func (a *Artifact) encode() []byte {
	return encode(entryDoc{TypeArtifact, a})
}

// Head is the end of the log. The zero Head is the empty log.
type Head struct {
	Version     uint64    `json:"version" cbor:"1,keyasint"`
	Hash        b3.Digest `json:"hash" cbor:"2,keyasint"` // of the entry
	PayloadB3   b3.Digest `json:"payload_b3" cbor:"3,keyasint"`
	CommittedAt string    `json:"committed_at" cbor:"4,keyasint"`
	Epoch       uint64    `json:"epoch" cbor:"5,keyasint"` // of the signer set in force
}
