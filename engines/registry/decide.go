package registry

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/record"
)

// request is a call to the pipeline.
type request interface {
	name() string // "propose", as metrics and audit events spell it
	describe(rec *record.Audit)
	decide(p *plan, j *job) (answer, error) // if it fails, it has added no op but expiry
}

// answer is the answer to a job. The request sets one member.
type answer struct {
	proposed  Proposed
	approved  Approved
	committed Committed
}

// Events of the audit chain that the check of a file reads.
const (
	eventProposed  = "proposal.created"
	eventApproved  = "approve.recorded"
	eventForgotten = "proposal.forgotten"
	eventAdopted   = "forkguard.adopted"
)

// endEvent returns the event that ends a proposal without a version.
func endEvent(state string) string { return "proposal." + state }

// endState returns the state that an event puts a proposal into, or "" if the event does not end a
// proposal without a version.
func endState(event string) string {
	switch state := strings.TrimPrefix(event, "proposal."); state {
	case StateWithdrawn, StateExpired, StateStale:
		return state
	}
	return ""
}

type proposeReq struct {
	id      ulid.ULID
	payload *record.Payload
	packed  []byte
}

func (proposeReq) name() string { return "propose" }

func (r proposeReq) describe(rec *record.Audit) {
	rec.PayloadB3, rec.Version = r.payload.B3(), r.payload.Version
}

// decide repeats every check that depends on HEAD. The caller has checked a delta against its base;
// prev_hash names that base by content, so the base is still the same.
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
	p.add(j, ProposeOp{ID: r.id, Row: prop.row, Packed: prop.packed}, rec)
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

// owner returns the name of the actor that may withdraw a proposal: its capability, or the uid of a
// peer of the socket.
func owner(a engines.Actor) string {
	if a.CapID == "" && a.UID != nil {
		return fmt.Sprintf("uid:%d", *a.UID)
	}
	return a.CapID
}

type approveReq struct {
	id       ulid.ULID
	approval record.Approval // verified, received_at set
	key      b3.Digest       // of the public key that verified it
}

func (approveReq) name() string { return "approve" }

func (r approveReq) describe(rec *record.Audit) {
	rec.ProposalID, rec.Signers = idText(r.id), []string{r.approval.SignerID}
}

// decide checks the status of the signer again, because HEAD may have moved since the signature was
// verified.
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
	p.add(j, ApproveOp{ID: r.id, Key: r.key, Approval: r.approval.Bytes()}, rec)
	return answer{
		approved: Approved{
			Status: "accepted", Approvals: len(next.approvals),
			Quorum: quorumOf(prop.payload, p.next.view.Signers),
		},
	}, nil
}

// quorumOf returns the approvals that a payload needs from the set in force. A change of signers
// may need more: see record.Authorize.
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
		return answer{}, &ForbiddenError{
			Reason: "another capability proposed " + idText(r.id) + "; that one or node.admin may withdraw it",
		}
	}
	p.end(j, prop, StateWithdrawn)
	p.sweepOrphans()
	return answer{}, nil
}

// endedError returns the error for a proposal that is not live.
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

type commitReq struct{ id ulid.ULID }

func (commitReq) name() string { return "commit" }

func (r commitReq) describe(rec *record.Audit) { rec.ProposalID = idText(r.id) }

// decide answers a repeated call from the outcome. Otherwise it checks the chain and the quorum
// again and appends the version to the plan.
func (r commitReq) decide(p *plan, j *job) (answer, error) {
	if p.next.live[r.id] == nil {
		how, known, err := p.outcome(r.id)
		if err == nil && known && how.State == StateCommitted {
			return answer{committed: how.replay()}, nil
		}
	}
	prop, err := p.find(r.id)
	if err != nil {
		return answer{}, err
	}
	head := p.next.view
	switch {
	case prop.row.Version != head.Head.Version+1:
		if parent := p.next.byPayload(prop.row.PrevHash); parent != nil {
			return answer{}, &ParentPendingError{ID: idText(r.id), Parent: idText(parent.id)}
		}
		return answer{}, record.ErrVersionSkew
	case prop.row.PrevHash != head.Head.PayloadB3:
		return answer{}, record.ErrChainMismatch
	case prop.payload.Supersede != nil && prop.payload.Supersede.Of != head.Head.Hash:
		return answer{}, record.ErrChainMismatch
	}
	counted, err := record.Authorize(prop.payload, head.Signers, prop.approvals)
	if err != nil {
		return answer{}, err
	}
	items, err := p.e.itemsAfter(prop.payload, head.base())
	if err != nil {
		return answer{}, err
	}
	return p.append(j, version{
		id: r.id, payload: prop.payload, packed: prop.packed, approvals: counted,
		items: items, signers: prop.payload.SignersAfter(head.Signers), prop: prop,
	})
}

type genesisReq struct {
	id        ulid.ULID
	payload   *record.Payload
	packed    []byte
	approvals []record.Approval // verified
	items     record.Items
}

func (genesisReq) name() string { return "genesis" }

func (r genesisReq) describe(rec *record.Audit) { rec.PayloadB3, rec.Version = r.payload.B3(), 1 }

// decide appends version 1 to an empty log.
func (r genesisReq) decide(p *plan, j *job) (answer, error) {
	if head := p.next.view.Head; head.Version > 0 {
		if p.next.view.genesis == r.payload.B3() {
			return p.genesisAgain()
		}
		return answer{}, fmt.Errorf("genesis: %w: the log begins with another genesis", ErrConflict)
	}
	return p.append(j, version{
		id: r.id, payload: r.payload, packed: r.packed, approvals: r.approvals,
		items: r.items, signers: r.payload.SignerSet,
	})
}

// genesisAgain answers a genesis that another call has committed since this one was queued.
func (p *plan) genesisAgain() (answer, error) {
	for _, how := range p.done {
		if how.State == StateCommitted && how.Version == 1 { // in this very batch
			return answer{committed: how.replay()}, nil
		}
	}
	done, err := p.e.genesisCommitted(p.ctx, p.next.view.genesis)
	return answer{committed: done}, err
}

// version is a decided version. Its quorum, chain and items are checked.
type version struct {
	id        ulid.ULID
	payload   *record.Payload
	packed    []byte
	approvals []record.Approval // counted
	items     record.Items      // after the version
	signers   *record.SignerSet // in force after the version
	prop      *proposal         // nil for genesis
}

// append appends a version to the speculative HEAD. Proposals that lose their base go stale.
func (p *plan) append(j *job, v version) (answer, error) {
	entry, err := p.artifact(v)
	if err != nil {
		return answer{}, err
	}
	made := v.appended(entry, p.next.view)
	var op Op = CommitOp{made}
	if v.prop == nil {
		op = GenesisOp{Version: made, Packed: v.packed, Origin: v.payload.Origin}
	} else {
		p.next.remove(v.prop)
	}
	rec := j.audit(record.EventOf(v.payload.Kind))
	rec.ProposalID, rec.PayloadB3, rec.Version = idText(v.id), made.PayloadB3, made.Number
	for _, a := range v.approvals {
		rec.Signers = append(rec.Signers, a.SignerID)
	}
	p.add(j, op, rec)
	p.advance(j, v, made)
	p.sweepOrphans()
	return answer{committed: Committed{
		Version: made.Number, PayloadB3: made.PayloadB3, CommittedAt: made.CommittedAt, Hash: made.Hash,
	}}, nil
}

// appended returns v with its entry, to be appended to a HEAD.
func (v version) appended(entry *record.Artifact, head *HeadView) NewVersion {
	out := NewVersion{
		ID: v.id, Number: entry.Version, Hash: entry.Hash(), PayloadB3: v.payload.B3(),
		PrevHash: head.Head.PayloadB3, CommittedAt: entry.CommittedAt, Epoch: v.signers.Epoch, Entry: entry.Bytes(),
	}
	if v.payload.SignerSet != nil {
		out.Set = v.signers.Bytes()
	}
	return out
}

// artifact returns the log entry of v. It names the entry before it, the signer set that authorized
// it and the audit record before it.
func (p *plan) artifact(v version) (*record.Artifact, error) {
	head := p.next.view
	authorizedBy := cmp.Or(head.signersB3, v.payload.SignerSetB3) // genesis is authorized by the set it installs
	return record.NewArtifact(record.Artifact{
		Origin: v.payload.Origin, Version: v.payload.Version, Kind: v.payload.Kind,
		PayloadB3: v.payload.B3(), PayloadBytes: int64(len(v.payload.Bytes())), PrevHash: head.Head.Hash,
		Approvals: v.approvals, AuthorizedBy: authorizedBy,
		AuditSeq: p.next.audit.Seq, AuditHead: p.next.audit.B3,
		ProposalID: idText(v.id), CommittedAt: max(record.FormatTime(p.now), head.Head.CommittedAt),
	})
}

// advance moves the speculative HEAD to a version.
func (p *plan) advance(j *job, v version, made NewVersion) {
	head := *p.next.view
	head.Head = made.head()
	head.Origin, head.Expiry = v.payload.Origin, v.payload.Expiry
	head.Items, head.Signers = v.items, v.signers
	head.signersB3 = v.payload.SignerSetB3
	if made.Number == 1 {
		head.genesis, head.MinVersion = made.PayloadB3, 1
	}
	p.next.view = newHeadView(head)
	p.done[v.id] = made.outcome()
	p.counts.committed++
	if v.payload.Kind == record.KindSupersede {
		p.counts.superseded++
	}
	p.counts.proposals[StateCommitted]++
	p.events = append(p.events, Update{
		Version: made.Number, PayloadB3: made.PayloadB3, CommittedAt: made.CommittedAt, CorrID: j.corrID,
		Hash: made.Hash, Kind: v.payload.Kind,
	})
}
