package record

import "ronbox/appliance/b3"

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

// Events of the records of commits. An entry names the last audit record before it. The next record
// is that of the commit: accepted, with version, payload_b3 and proposal_id of the entry, and the
// event of its kind. No other record has such an event.
const (
	EventGenesis   = "genesis.done"
	EventCommit    = "commit.done"
	EventSupersede = "supersede.done"
)

// EventOf returns the event of a commit, by the kind of its payload.
func EventOf(kind string) string {
	switch kind {
	case KindGenesis:
		return EventGenesis
	case KindSupersede:
		return EventSupersede
	}
	return EventCommit
}

// Audit is one record of the audit chain: a request, its actor, and the decision.
type Audit struct {
	Seq        uint64     `json:"seq"`  // from 1
	Prev       b3.Digest  `json:"prev"` // hash of the record before it, zero for the first
	At         string     `json:"at" format:"time"`
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

type auditDoc struct {
	Type string `json:"type"`
	Audit
}

var auditForm = formOf[auditDoc]()

// AuditActor identifies the actor. Members that do not apply are absent.
type AuditActor struct {
	CapID  string  `json:"cap_id,omitzero"`  // token id
	KeyFpr string  `json:"key_fpr,omitzero"` // fingerprint of a client's key
	UID    *uint32 `json:"uid,omitzero"`     // of a peer of the admin socket
}

// ParseAudit parses a record in any spelling.
func ParseAudit(raw []byte) (*Audit, error) {
	canon, err := bounded(raw, "audit record", MaxAudit)
	if err != nil {
		return nil, err
	}
	var doc auditDoc
	f := auditForm.read("", canon, &doc)
	f.is("type", doc.Type, TypeAudit)
	f.complete()
	doc.checkForm(f)
	doc.canon = canon
	return &doc.Audit, f.done()
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

// Commits reports whether the record is that of a commit.
func (a *Audit) Commits() bool {
	return a.Decision == DecisionAccept &&
		(a.Event == EventCommit || a.Event == EventGenesis || a.Event == EventSupersede)
}

// Bytes returns the canonical record. The caller bounds each text of a new record to 256 bytes. The
// list of signers is omitted if the record would be too large with it; the log entry has it too.
func (a *Audit) Bytes() []byte {
	if a.canon != nil {
		return a.canon
	}
	return a.encode()
}

// B3 returns the hash to which the next record links.
func (a *Audit) B3() b3.Digest { return b3.Sum(a.Bytes()) }

func (a *Audit) encode() []byte {
	doc := auditDoc{TypeAudit, *a}
	out := encode(doc)
	if len(out) > MaxAudit {
		doc.Signers = nil
		out = encode(doc)
	}
	return out
}
