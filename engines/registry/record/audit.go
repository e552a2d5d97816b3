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
// commit, accepted, with version, payload_b3 and proposal_id of the entry, EventGenesis for version 1 and EventCommit for any other; no
// other record says so of any version.
const (
	EventGenesis = "genesis.done"
	EventCommit  = "commit.done"
)

// Audit is one record of the audit chain: what was asked, by whom, and how it was decided.
type Audit struct {
	Seq        uint64    // from 1
	Prev       b3.Digest // hash of the record before it, zero for the first
	At         string
	Event      string
	Decision   string
	Reason     string // "" when accepted
	CorrID     string // "" when nobody asked
	Actor      AuditActor
	ProposalID string    // "" when absent
	PayloadB3  b3.Digest // zero when absent
	Version    uint64    // 0 when absent
	Signers    []string  // nil when absent

	canon []byte
}

// AuditActor is who asked: members that do not apply are absent.
type AuditActor struct {
	CapID  string  // token id
	KeyFpr string  // fingerprint of a client's key
	UID    *uint32 // of a peer of the admin socket
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
		Version: f.uintOpt("version"), canon: canon,
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
	return a.Decision == DecisionAccept && (a.Event == EventCommit || a.Event == EventGenesis)
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
	if out := a.write(a.Signers); len(out) <= MaxAudit {
		return out
	}
	return a.write(nil)
}

func (a *Audit) write(signers []string) []byte {
	var w writer
	w.begin()
	w.name("actor")
	a.Actor.write(&w)
	w.text("at", a.At)
	w.text("corr_id", a.CorrID)
	w.text("decision", a.Decision)
	w.text("event", a.Event)
	w.digestOpt("payload_b3", a.PayloadB3)
	w.digest("prev", a.Prev)
	w.textOpt("proposal_id", a.ProposalID)
	w.text("reason", a.Reason)
	w.uint("seq", a.Seq)
	if len(signers) > 0 {
		w.texts("signers", signers)
	}
	w.text("type", TypeAudit)
	w.uintOpt("version", a.Version)
	w.end()
	return w.out
}

func (a AuditActor) write(w *writer) {
	w.begin()
	w.textOpt("cap_id", a.CapID)
	w.textOpt("key_fpr", a.KeyFpr)
	if a.UID != nil {
		w.uint("uid", uint64(*a.UID))
	}
	w.end()
}
