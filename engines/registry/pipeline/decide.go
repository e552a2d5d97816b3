package pipeline

import (
	"cmp"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
)

type proposeReq struct {
	id      ulid.ULID
	payload *record.Payload
	packed  []byte
}

func (proposeReq) name() string { return "propose" }

func (proposeReq) refuse(c *counts, _ string) { c.rejected++ }

func (r proposeReq) describe(rec *record.Audit) {
	rec.PayloadB3, rec.Version = r.payload.B3(), r.payload.Version
}

// decide repeats every check that depends on HEAD. The caller has checked a delta against its base;
// prev_hash names that base by content, so the base is still the same.
func (r proposeReq) decide(p *plan, j *job) (answer, error) {
	if twin := p.next.ByPayload(r.payload.B3()); twin != nil && !twin.Expired(p.now) {
		return answer{proposed: proposedOf(twin, true)}, nil
	} else if twin != nil {
		p.expire(twin)
	}
	if p.next.View.Head.Version == 0 {
		return answer{}, &document.NotReadyError{Cause: document.CauseNoGenesis}
	}
	base, err := p.next.CheckBase(r.payload.Version, r.payload.PrevHash, p.rule.MaxStack)
	if err != nil {
		return answer{}, err
	}
	if base != nil && base.Expired(p.now) {
		p.expire(base)
		return answer{}, record.ErrChainMismatch
	}
	prop := r.proposal(j.actor, p.now, p.rule.TTL)
	if err := p.rule.admits(&p.next.Sums, prop.Row); err != nil {
		return answer{}, err
	}
	rec := j.audit(tables.EventProposed)
	r.describe(&rec)
	rec.ProposalID = tables.IDText(r.id)
	p.next.Enter(prop)
	p.counts.proposals[document.StatePending]++
	p.add(j, tables.ProposeOp{ID: r.id, Row: prop.Row, Packed: prop.Packed}, rec)
	return answer{proposed: proposedOf(prop, false)}, nil
}

func (r proposeReq) proposal(actor engines.Actor, now time.Time, ttl time.Duration) *tables.Proposal {
	return &tables.Proposal{ID: r.id, Payload: r.payload, Packed: r.packed, Row: tables.PropRow{
		Version: r.payload.Version, PayloadB3: r.payload.B3(), PrevHash: r.payload.PrevHash,
		Owner:     tables.OwnerOf(actor),
		CreatedMS: now.UnixMilli(), ExpiresMS: now.Add(ttl).UnixMilli(), Bytes: int64(len(r.payload.Bytes())),
	}}
}

func proposedOf(p *tables.Proposal, replayed bool) document.Proposed {
	return document.Proposed{
		ID: tables.IDText(p.ID), PayloadB3: p.Row.PayloadB3, ExpiresAt: p.ExpiresAt(), Replayed: replayed,
	}
}

type approveReq struct {
	id       ulid.ULID
	approval record.Approval // verified, received_at set
	key      b3.Digest       // of the public key that verified it
}

func (approveReq) name() string { return "approve" }

func (approveReq) refuse(c *counts, reason string) {
	result := approvalRejected
	if reason == document.ReasonDuplicate {
		result = approvalDuplicate
	}
	c.approvals[result]++
}

func (r approveReq) describe(rec *record.Audit) {
	rec.ProposalID, rec.Signers = tables.IDText(r.id), []string{r.approval.SignerID}
}

// decide checks the status of the signer again, because HEAD may have moved since the signature was
// verified.
func (r approveReq) decide(p *plan, j *job) (answer, error) {
	prop, err := p.find(r.id)
	if err != nil {
		return answer{}, err
	}
	signer, ok := prop.Payload.Approver(p.next.View.Signers, r.approval.SignerID)
	switch {
	case !ok || tables.KeyOf(signer) != r.key:
		return answer{}, record.ErrInvalidSig
	case signer.Status != record.StatusActive:
		return answer{}, &record.RevokedKeyError{SignerID: signer.ID, Status: signer.Status}
	}
	for i, key := range prop.Keys {
		if key == r.key {
			same := prop.Approvals[i].Sig == r.approval.Sig
			return answer{}, &document.DuplicateApprovalError{SignerID: signer.ID, Identical: same}
		}
	}
	next := prop.Approved(r.approval, r.key)
	p.next.Live[r.id] = next
	p.counts.approvals[approvalAccepted]++
	rec := j.audit(tables.EventApproved)
	r.describe(&rec)
	rec.ApprovalB3 = b3.Sum(r.approval.Bytes())
	rec.PayloadB3, rec.Version = prop.Row.PayloadB3, prop.Row.Version
	p.add(j, tables.ApproveOp{ID: r.id, Key: r.key, Approval: r.approval.Bytes()}, rec)
	return answer{
		approved: document.Approved{
			Status: "accepted", Approvals: len(next.Approvals),
			Quorum: quorumOf(prop.Payload, p.next.View.Signers),
		},
	}, nil
}

// quorumOf returns the approvals that a payload needs from the set in force. A change of signers
// may need more: see record.Authorize.
func quorumOf(p *record.Payload, set *record.SignerSet) document.Quorum {
	q := document.Quorum{M: set.Threshold, N: set.Active()}
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

func (withdrawReq) refuse(*counts, string) {}

func (r withdrawReq) describe(rec *record.Audit) { rec.ProposalID = tables.IDText(r.id) }

func (r withdrawReq) decide(p *plan, j *job) (answer, error) {
	prop, err := p.find(r.id)
	if err != nil {
		return answer{}, err
	}
	if who := tables.OwnerOf(j.actor); !j.actor.Admin && (who == "" || who != prop.Row.Owner) {
		return answer{}, &document.ForbiddenError{
			Reason: "another capability proposed " + tables.IDText(r.id) + "; that one or node.admin may withdraw it",
		}
	}
	p.end(j, prop, document.StateWithdrawn)
	p.sweepOrphans()
	return answer{}, nil
}

type commitReq struct{ id ulid.ULID }

func (commitReq) name() string { return "commit" }

func (commitReq) refuse(c *counts, _ string) { c.rejected++ }

func (r commitReq) describe(rec *record.Audit) { rec.ProposalID = tables.IDText(r.id) }

// decide answers a repeated call from the outcome. Otherwise it checks the chain and the quorum
// again and appends the version to the plan.
func (r commitReq) decide(p *plan, j *job) (answer, error) {
	if p.next.Live[r.id] == nil {
		how, known, err := p.outcome(r.id)
		if err == nil && known && how.State == document.StateCommitted {
			return answer{committed: how.Replay()}, nil
		}
	}
	prop, err := p.find(r.id)
	if err != nil {
		return answer{}, err
	}
	head := p.next.View
	switch {
	case prop.Row.Version != head.Head.Version+1:
		if parent := p.next.ByPayload(prop.Row.PrevHash); parent != nil {
			return answer{}, &document.ParentPendingError{ID: tables.IDText(r.id), Parent: tables.IDText(parent.ID)}
		}
		return answer{}, record.ErrVersionSkew
	case prop.Row.PrevHash != head.Head.PayloadB3:
		return answer{}, record.ErrChainMismatch
	case prop.Payload.Supersede != nil && prop.Payload.Supersede.Of != head.Head.Hash:
		return answer{}, record.ErrChainMismatch
	}
	counted, err := record.Authorize(prop.Payload, head.Signers, prop.Approvals)
	if err != nil {
		return answer{}, err
	}
	items, err := p.deps.Reader.ItemsAfter(prop.Payload, head.Base())
	if err != nil {
		return answer{}, err
	}
	return p.append(j, version{
		id: r.id, payload: prop.Payload, packed: prop.Packed, approvals: counted,
		items: items, signers: prop.Payload.SignersAfter(head.Signers), prop: prop,
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

func (genesisReq) refuse(c *counts, _ string) { c.rejected++ }

func (r genesisReq) describe(rec *record.Audit) { rec.PayloadB3, rec.Version = r.payload.B3(), 1 }

// decide appends version 1 to an empty log.
func (r genesisReq) decide(p *plan, j *job) (answer, error) {
	if head := p.next.View.Head; head.Version > 0 {
		if p.next.View.GenesisB3 == r.payload.B3() {
			return p.genesisAgain()
		}
		return answer{}, fmt.Errorf("genesis: %w: the log begins with another genesis", document.ErrConflict)
	}
	return p.append(j, version{
		id: r.id, payload: r.payload, packed: r.packed, approvals: r.approvals,
		items: r.items, signers: r.payload.SignerSet,
	})
}

// genesisAgain answers a genesis that another call has committed since this one was queued.
func (p *plan) genesisAgain() (answer, error) {
	for _, how := range p.done {
		if how.State == document.StateCommitted && how.Version == 1 { // in this very batch
			return answer{committed: how.Replay()}, nil
		}
	}
	done, err := genesisCommitted(p.ctx, p.deps.Reader, p.next.View.GenesisB3)
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
	prop      *tables.Proposal  // nil for genesis
}

// append appends a version to the speculative HEAD. Proposals that lose their base go stale.
func (p *plan) append(j *job, v version) (answer, error) {
	entry, err := p.artifact(v)
	if err != nil {
		return answer{}, err
	}
	made := v.appended(entry, p.next.View)
	var op tables.Op = tables.CommitOp{Version: made}
	if v.prop == nil {
		op = tables.GenesisOp{Version: made, Packed: v.packed, Origin: v.payload.Origin}
	} else {
		p.next.Remove(v.prop)
	}
	rec := j.audit(record.EventOf(v.payload.Kind))
	rec.ProposalID, rec.PayloadB3, rec.Version = tables.IDText(v.id), made.PayloadB3, made.Number
	for _, a := range v.approvals {
		rec.Signers = append(rec.Signers, a.SignerID)
	}
	p.add(j, op, rec)
	p.advance(j, v, made)
	p.sweepOrphans()
	return answer{committed: document.Committed{
		Version: made.Number, PayloadB3: made.PayloadB3, CommittedAt: made.CommittedAt, Hash: made.Hash,
	}}, nil
}

// appended returns v with its entry, to be appended to a HEAD.
func (v version) appended(entry *record.Artifact, head *tables.HeadView) tables.NewVersion {
	out := tables.NewVersion{
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
	head := p.next.View
	authorizedBy := cmp.Or(head.SignersB3, v.payload.SignerSetB3) // genesis is authorized by the set it installs
	return record.NewArtifact(record.Artifact{
		Origin: v.payload.Origin, Version: v.payload.Version, Kind: v.payload.Kind,
		PayloadB3: v.payload.B3(), PayloadBytes: int64(len(v.payload.Bytes())), PrevHash: head.Head.Hash,
		Approvals: v.approvals, AuthorizedBy: authorizedBy,
		AuditSeq: p.next.Audit.Seq, AuditHead: p.next.Audit.B3,
		ProposalID: tables.IDText(v.id), CommittedAt: max(record.FormatTime(p.now), head.Head.CommittedAt),
	})
}

// advance moves the speculative HEAD to a version.
func (p *plan) advance(j *job, v version, made tables.NewVersion) {
	head := *p.next.View
	head.Head = made.Head()
	head.Origin, head.Expiry = v.payload.Origin, v.payload.Expiry
	head.Items, head.Signers = v.items, v.signers
	head.SignersB3 = v.payload.SignerSetB3
	if made.Number == 1 {
		head.GenesisB3, head.MinVersion = made.PayloadB3, 1
	}
	p.next.View = tables.NewHeadView(head)
	p.done[v.id] = made.Outcome()
	if v.payload.Kind == record.KindSupersede {
		p.counts.superseded++
	}
	p.counts.proposals[document.StateCommitted]++
	p.events = append(p.events, document.Update{
		Version: made.Number, PayloadB3: made.PayloadB3, CommittedAt: made.CommittedAt, CorrID: j.corrID,
		Hash: made.Hash, Kind: v.payload.Kind,
	})
}
