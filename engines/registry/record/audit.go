package record

import (
	"fmt"
	"math"

	"ronbox/appliance/b3"
)

const (
	// TypeAudit is the type member of an audit record.
	TypeAudit = "ron.registry/audit/v1"
	// MaxAudit is the most bytes of an audit record.
	MaxAudit = 4 << 10
)

// Decisions of an audit record.
const (
	DecisionAccept = "accept"
	DecisionReject = "reject"
)

// Events of the records that stand for a version. Right behind the record that an entry names as the last before it stands the one of its
// commit, accepted, with version, payload_b3 and proposal_id of the entry, and the event of its kind; no other record says so of any version.
const (
	EventGenesis   = "genesis.done"
	EventCommit    = "commit.done"
	EventSupersede = "supersede.done"
)

// EventOf is the event of the record of a commit, by the kind of its payload.
func EventOf(kind string) string {
	switch kind {
	case KindGenesis:
		return EventGenesis
	case KindSupersede:
		return EventSupersede
	}
	return EventCommit
}

// Audit is one record of the audit chain: what was asked, by whom, and how it was decided.
type Audit struct {
	Seq        uint64     `json:"seq"`  // from 1
	Prev       b3.Digest  `json:"prev"` // hash of the record before it, zero for the first
	At         string     `json:"at"`
	Event      string     `json:"event"`
	Decision   string     `json:"decision"`
	Reason     string     `json:"reason"`  // "" when accepted
	CorrID     string     `json:"corr_id"` // "" when nobody asked
	Actor      AuditActor `json:"actor"`
	ProposalID string     `json:"proposal_id,omitzero"` // "" when absent
	PayloadB3  b3.Digest  `json:"payload_b3,omitzero"`  // zero when absent
	Version    uint64     `json:"version,omitzero"`     // 0 when absent
	Signers    []string   `json:"signers,omitempty"`    // nil when absent
	ApprovalB3 b3.Digest  `json:"approval_b3,omitzero"` // of an approval's bytes; zero when absent

	canon []byte
}

// AuditActor is who asked: members that do not apply are absent.
type AuditActor struct {
	CapID  string  `json:"cap_id,omitzero"`  // token id
	KeyFpr string  `json:"key_fpr,omitzero"` // fingerprint of a client's key
	UID    *uint32 `json:"uid,omitzero"`     // of a peer of the admin socket
}

// NewAudit seals a record: it checks the form of every member and fixes the bytes. A fault is a *FieldError, too many bytes ErrHardLimit.
func NewAudit(a Audit) (*Audit, error) { return ParseAudit(a.encode()) }

// ParseAudit reads a record in any spelling.
func ParseAudit(raw []byte) (*Audit, error) {
	if len(raw) > 4*MaxAudit {
		return nil, auditTooLarge(len(raw))
	}
	canon, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	if len(canon) > MaxAudit {
		return nil, auditTooLarge(len(canon))
	}
	f := newFields("", canon)
	f.is("type", TypeAudit)
	a := &Audit{
		Seq: f.uint("seq"), Prev: f.digest("prev"), At: f.time("at"), Event: f.text("event"), Decision: f.text("decision"),
		Reason: f.text("reason"), CorrID: f.text("corr_id"), ProposalID: f.textOpt("proposal_id"), PayloadB3: f.digestOpt("payload_b3"),
		ApprovalB3: f.digestOpt("approval_b3"), Version: f.uintOpt("version"), canon: canon,
	}
	if f.has("signers") {
		if a.Signers = f.texts("signers"); len(a.Signers) == 0 {
			f.fail("signers", "must not be empty")
		}
	}
	if raw := f.raw("actor"); raw != nil {
		if a.Actor, err = actorOf(raw); err != nil {
			return nil, err
		}
	}
	a.checkForm(&f)
	return a, f.done()
}

func auditTooLarge(n int) error {
	return fmt.Errorf("%w: audit record of %d bytes, at most %d", ErrHardLimit, n, MaxAudit)
}

func (a *Audit) checkForm(f *fields) {
	if a.Seq < 1 {
		f.fail("seq", "must be at least 1")
	}
	if (a.Seq == 1) != a.Prev.IsZero() {
		f.fail("prev", "must be zero iff seq is 1")
	}
	if a.Event == "" {
		f.fail("event", "must not be empty")
	}
	if a.Decision != DecisionAccept && a.Decision != DecisionReject {
		f.fail("decision", "must be accept or reject")
	}
}

func actorOf(canon []byte) (AuditActor, error) {
	f := newFields("actor", canon)
	a := AuditActor{CapID: f.textOpt("cap_id"), KeyFpr: f.textOpt("key_fpr")}
	if f.has("uid") {
		uid := f.uint("uid")
		if uid > math.MaxUint32 {
			f.fail("uid", "must be at most %d", math.MaxUint32)
		}
		small := uint32(uid)
		a.UID = &small
	}
	return a, f.done()
}

// Commits says whether the record stands for a version.
func (a *Audit) Commits() bool {
	return a.Decision == DecisionAccept && (a.Event == EventCommit || a.Event == EventGenesis || a.Event == EventSupersede)
}

// Bytes is the canonical record. Of one that was not sealed, texts of at most 256 bytes each are the filler's duty; the list of signers is
// left out when the record would be too large with it: the log entry has it too.
func (a *Audit) Bytes() []byte {
	if a.canon != nil {
		return a.canon
	}
	return a.encode()
}

// B3 is the hash that the next record links to.
func (a *Audit) B3() b3.Digest { return b3.Sum(a.Bytes()) }

func (a *Audit) encode() []byte {
	doc := struct {
		Type string `json:"type"`
		Audit
	}{TypeAudit, *a}
	out := encode(doc)
	if len(out) > MaxAudit {
		doc.Signers = nil
		out = encode(doc)
	}
	return out
}
