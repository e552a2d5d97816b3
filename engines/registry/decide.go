package registry

import (
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/record"
)

// request is one kind of job.
type request interface {
	name() string // "propose", as metrics and audit events spell it
	describe(rec *record.Audit)
	decide(p *plan, j *job) (answer, error) // an error must have added no op but expiry
}

// answer is what a job's caller gets; the part that its request fills.
type answer struct {
	proposed  Proposed
	approved  Approved
	committed Committed
}

// Events of the audit chain that the check of a file follows.
const (
	eventProposed  = "proposal.created"
	eventApproved  = "approve.recorded"
	eventForgotten = "proposal.forgotten"
)

type proposeReq struct {
	id      ulid.ULID
	payload *record.Payload
	packed  []byte
}

func (proposeReq) name() string { return "propose" }

func (r proposeReq) describe(rec *record.Audit) {
	rec.PayloadB3, rec.Version = r.payload.B3(), r.payload.Version
}

// decide repeats every check that depends on HEAD. What a delta makes of its base was checked by the caller: prev_hash
// names that base by content, so it cannot have become another.
func (r proposeReq) decide(p *plan, j *job) (answer, error) {
	if twin := p.next.byPayload(r.payload.B3()); twin != nil && !twin.expired(p.now) {
		return answer{proposed: twin.proposed(true)}, nil
	} else if twin != nil {
		p.expire(twin)
	}
	if p.next.view.Head.Version == 0 {
		return answer{}, &NotReadyError{Cause: CauseNoGenesis}
	}
	base, err := p.next.checkBase(r.payload.Version, r.payload.PrevHash, p.limits.MaxStack)
	if err != nil {
		return answer{}, err
	}
	if base != nil && base.expired(p.now) {
		p.expire(base)
		return answer{}, record.ErrChainMismatch
	}
	prop := r.proposal(j.actor, p.now, p.limits.TTL.D())
	if err := p.limits.admits(&p.next.sums, prop.row); err != nil {
		return answer{}, err
	}
	rec := j.audit(eventProposed)
	r.describe(&rec)
	rec.ProposalID = idText(r.id)
	p.next.enter(prop)
	p.counts.proposals[StatePending]++
	p.add(j, Op{Do: OpPropose, ID: r.id, Propose: &ProposeOp{prop.row, prop.packed}}, rec)
	return answer{proposed: prop.proposed(false)}, nil
}

func (r proposeReq) proposal(actor engines.Actor, now time.Time, ttl time.Duration) *proposal {
	return &proposal{id: r.id, payload: r.payload, packed: r.packed, row: propRow{
		Version: r.payload.Version, PayloadB3: r.payload.B3(), PrevHash: r.payload.PrevHash, Owner: owner(actor),
		CreatedMS: now.UnixMilli(), ExpiresMS: now.Add(ttl).UnixMilli(), Bytes: int64(len(r.payload.Bytes())),
	}}
}

func (p *proposal) proposed(replayed bool) Proposed {
	return Proposed{ID: idText(p.id), PayloadB3: p.row.PayloadB3, ExpiresAt: p.expiresAt(), Replayed: replayed}
}

// owner names who may withdraw a proposal: a capability, or a peer of the socket by its uid.
func owner(a engines.Actor) string {
	if a.CapID == "" && a.UID != nil {
		return fmt.Sprintf("uid:%d", *a.UID)
	}
	return a.CapID
}

type approveReq struct {
	id       ulid.ULID
	approval record.Approval // verified, received_at set
	key      b3.Digest       // of the public key it was verified with
}

func (approveReq) name() string { return "approve" }

func (r approveReq) describe(rec *record.Audit) {
	rec.ProposalID, rec.Signers = idText(r.id), []string{r.approval.SignerID}
}

// decide checks the signer's status again: HEAD may have moved since the signature was verified.
func (r approveReq) decide(p *plan, j *job) (answer, error) {
	prop, err := p.find(r.id)
	if err != nil {
		return answer{}, err
	}
	signer, ok := prop.payload.Approver(p.next.view.Signers, r.approval.SignerID)
	switch {
	case !ok || keyOf(signer) != r.key:
		return answer{}, record.ErrInvalidSig
	case signer.Status != record.StatusActive:
		return answer{}, &record.RevokedKeyError{SignerID: signer.ID, Status: signer.Status}
	}
	for i, key := range prop.keys {
		if key == r.key {
			same := prop.approvals[i].Sig == r.approval.Sig
			return answer{}, &DuplicateApprovalError{SignerID: signer.ID, Identical: same}
		}
	}
	next := prop.approved(r.approval, r.key)
	p.next.live[r.id] = next
	p.counts.approvals[approvalAccepted]++
	rec := j.audit(eventApproved)
	r.describe(&rec)
	rec.ApprovalB3 = b3.Sum(r.approval.Bytes())
	rec.PayloadB3, rec.Version = prop.row.PayloadB3, prop.row.Version
	p.add(j, Op{Do: OpApprove, ID: r.id, Approve: &ApproveOp{Key: r.key, Approval: r.approval.Bytes()}}, rec)
	return answer{approved: Approved{Status: "accepted", Approvals: len(next.approvals), Quorum: quorumOf(prop.payload, p.next.view.Signers)}}, nil
}

// quorumOf is what a payload needs of the set in force. A change of signers may need more: see record.Authorize.
func quorumOf(p *record.Payload, set *record.SignerSet) Quorum {
	q := Quorum{M: set.Threshold, N: set.Active()}
	switch p.Kind {
	case record.KindSupersede:
		q.M = set.ThresholdGov
	case record.KindSigners:
		q.M = max(set.ThresholdGov, p.SignerSet.ThresholdGov)
	}
	return q
}

type withdrawReq struct{ id ulid.ULID }

func (withdrawReq) name() string { return "withdraw" }

func (r withdrawReq) describe(rec *record.Audit) { rec.ProposalID = idText(r.id) }

func (r withdrawReq) decide(p *plan, j *job) (answer, error) {
	prop, err := p.find(r.id)
	if err != nil {
		return answer{}, err
	}
	if who := owner(j.actor); !j.actor.Admin && (who == "" || who != prop.row.Owner) {
		return answer{}, &ForbiddenError{Reason: "another capability proposed " + idText(r.id) + "; that one or node.admin may withdraw it"}
	}
	p.end(j, OpWithdraw, prop, StateWithdrawn, j.audit("proposal.withdrawn"))
	p.sweepOrphans()
	return answer{}, nil
}

// endedError says why a proposal that is not live cannot be used.
func endedError(id string, how doneRow, known bool) error {
	switch {
	case !known:
		return fmt.Errorf("proposal %s: %w", id, ErrNotFound)
	case how.State == StateExpired:
		return fmt.Errorf("proposal %s: %w", id, ErrExpired)
	default:
		return &StateError{ID: id, State: how.State}
	}
}

const reasonDuplicate = "duplicate_approval"

// reasonOf is the word under which a refusal is chained; "" for what is no refusal: the node's own state or the caller's
// deadline.
func reasonOf(err error) string {
	var revoked *record.RevokedKeyError
	var quorum *record.QuorumError
	var duplicate *DuplicateApprovalError
	var pending *PendingLimitError
	switch {
	case errors.As(err, &revoked):
		return "revoked_key"
	case errors.As(err, &quorum):
		return "quorum"
	case errors.As(err, &duplicate):
		return reasonDuplicate
	case errors.As(err, &pending):
		return "pending_limit"
	}
	for _, row := range []struct {
		err    error
		reason string
	}{
		{record.ErrInvalidSig, "invalid_sig"}, {record.ErrClockSkew, "clock_skew"}, {record.ErrVersionSkew, "version_skew"},
		{record.ErrChainMismatch, "chain_mismatch"}, {record.ErrHardLimit, "hard_limit"}, {record.ErrMalformed, "malformed"},
		{ErrExpired, "expired"}, {ErrNotFound, "not_found"}, {ErrConflict, "conflict"}, {ErrForbidden, "forbidden"},
	} {
		if errors.Is(err, row.err) {
			return row.reason
		}
	}
	return ""
}
