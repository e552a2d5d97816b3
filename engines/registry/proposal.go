package registry

import (
	"context"
	"fmt"
	"time"

	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/views"
)

// Approve records the signature of a signer under a live proposal. It verifies the signature before
// it queues the call.
//
// Errors: ErrNotFound, ErrExpired, *StateError; record.ErrInvalidSig, *record.RevokedKeyError,
// record.ErrClockSkew; *DuplicateApprovalError; ErrForbidden if the token of the actor is bound to
// another signer; the temporary errors of Propose.
func (e *Engine) Approve(ctx context.Context, actor engines.Actor, id string, a record.Approval,
	corrID string) (out document.Approved, err error) {
	ctx, span := e.span(ctx, "approve", corrID)
	defer func() { span.end(err) }()
	if err := e.Follows(); err != nil {
		return document.Approved{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Approve.D())
	defer cancel()
	prop, err := e.livingProposal(ctx, id)
	if err != nil {
		return document.Approved{}, err
	}
	span.about(id, prop.Row.Version, prop.Row.PayloadB3)
	if actor.Signer != "" && actor.Signer != a.SignerID {
		return document.Approved{}, &document.ForbiddenError{
			Reason: fmt.Sprintf("the token may approve for %s, not for %.128s", actor.Signer, a.SignerID),
		}
	}
	req, err := e.checkApproval(ctx, prop, a)
	if err != nil {
		if reasonOf(err) != "" { // the pipeline counts its own refusals
			e.m.approvals[approvalRejected](1)
		}
		return document.Approved{}, err
	}
	done, err := e.submit(ctx, e.approvals, req, actor, corrID)
	span.quorum(done.approved.Quorum)
	return done.approved, err
}

// checkApproval verifies the signature and its time. The pipeline decides whether the key still
// counts.
func (e *Engine) checkApproval(ctx context.Context, prop *tables.Proposal, a record.Approval) (approveReq, error) {
	signer, ok := prop.Payload.Approver(e.Head().Signers, a.SignerID)
	if !ok {
		return approveReq{}, fmt.Errorf("signer %.60q is neither in the set in force nor in the proposal's: %w",
			a.SignerID, record.ErrInvalidSig)
	}
	if err := a.CheckClock(prop.Payload.CreatedAt, e.wall(), e.live().Approvals.MaxSkew.D()); err != nil {
		return approveReq{}, err
	}
	release, err := e.workSlot(ctx)
	if err != nil {
		return approveReq{}, err
	}
	defer release()
	begun := time.Now()
	if err := record.VerifyApproval(a, signer, prop.Row.PayloadB3); err != nil {
		return approveReq{}, err
	}
	e.m.approvalSeconds(time.Since(begun).Seconds())
	a.ReceivedAt = record.FormatTime(e.now())
	return approveReq{id: prop.ID, approval: a, key: tables.KeyOf(signer)}, nil
}

// Commit makes a proposal the next version if its approvals reach the quorum. A repeated call
// returns the same answer.
//
// Errors: ErrNotFound, ErrExpired, *StateError; *record.QuorumError, *record.RevokedKeyError;
// record.ErrVersionSkew while a version below it in its stack is not committed;
// record.ErrChainMismatch if HEAD has moved; the temporary errors of Propose. After flow.ErrUnknown
// or *TimeoutError a repeated call returns the outcome.
func (e *Engine) Commit(ctx context.Context, actor engines.Actor,
	id, corrID string) (out document.Committed, err error) {
	ctx, span := e.span(ctx, "commit", corrID)
	defer func() { span.end(err) }()
	if err := e.Follows(); err != nil {
		return document.Committed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Commit.D())
	defer cancel()
	prop, how, known, err := e.find(ctx, id)
	switch {
	case err != nil:
		return document.Committed{}, err
	case prop == nil && known && how.State == document.StateCommitted:
		return how.Replay(), nil
	case prop == nil:
		return document.Committed{}, endedError(id, how, known)
	}
	span.about(id, prop.Row.Version, prop.Row.PayloadB3)
	span.quorum(quorumOf(prop.Payload, e.Head().Signers))
	if err := e.ready(); err != nil {
		return document.Committed{}, err
	}
	a, err := e.submit(ctx, e.approvals, commitReq{id: prop.ID}, actor, corrID)
	return a.committed, err
}

// Withdraw ends a live proposal and every proposal stacked on it. It returns ErrForbidden unless
// the actor is the capability that proposed it or an admin.
func (e *Engine) Withdraw(ctx context.Context, actor engines.Actor, id, corrID string) error {
	if err := e.Follows(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Approve.D())
	defer cancel()
	prop, err := e.livingProposal(ctx, id)
	if err != nil {
		return err
	}
	_, err = e.submit(ctx, e.approvals, withdrawReq{id: prop.ID}, actor, corrID)
	return err
}

// livingProposal returns the live proposal of an id, or an error if it has ended or the registry
// takes no writes.
func (e *Engine) livingProposal(ctx context.Context, id string) (*tables.Proposal, error) {
	prop, how, known, err := e.find(ctx, id)
	if err == nil {
		err = e.ready()
	}
	if err == nil && prop == nil {
		err = endedError(id, how, known)
	}
	return prop, err
}

// find returns the live proposal of an id. If there is none, it returns the outcome, and known is
// true if the outcome is stored.
func (e *Engine) find(ctx context.Context,
	id string) (prop *tables.Proposal, how tables.DoneRow, known bool, err error) {
	pid, err := tables.ParseID(id)
	if err != nil {
		return nil, how, false, err
	}
	prop = e.pub.State.Load().Live[pid]
	if prop == nil {
		how, known, err = views.RowOf(ctx, e.Reader, tables.DoneOutcome, pid)
	}
	return prop, how, known, err
}

// maxProposalPage bounds a page of proposals.
const maxProposalPage = 100

// Proposals returns a page of the live proposals, oldest first, after cursor ("" for the first
// page). A limit outside 1..100 counts as 100.
func (e *Engine) Proposals(_ context.Context, cursor string, limit int) (document.ProposalList, error) {
	if limit < 1 || limit > maxProposalPage {
		limit = maxProposalPage
	}
	st := e.pub.State.Load()
	var out document.ProposalList
	if _, err := tables.ParseID(cursor); cursor != "" && err != nil {
		return out, &record.FieldError{Field: "cursor", Reason: "is not one that a list gave"}
	}
	for _, p := range st.Sorted() {
		if tables.IDText(p.ID) <= cursor {
			continue
		}
		if len(out.Proposals) == limit {
			out.Next = out.Proposals[limit-1].ID
			break
		}
		out.Proposals = append(out.Proposals, e.describe(st.View, p))
	}
	return out, nil
}

// Proposal returns a live or ended proposal.
func (e *Engine) Proposal(ctx context.Context, id string) (document.Proposal, error) {
	p, how, known, err := e.find(ctx, id)
	switch {
	case err != nil:
		return document.Proposal{}, err
	case p != nil:
		return e.describe(e.Head(), p), nil
	case !known:
		return document.Proposal{}, endedError(id, how, known)
	}
	ended := record.FormatTime(time.UnixMilli(how.AtMS))
	return document.Proposal{ID: id, State: how.State, Version: how.Version, PayloadB3: how.PayloadB3, EndedAt: ended}, nil
}

// describe returns a live proposal as a reader sees it. It is expired once its time is over, even
// if it was not swept yet.
func (e *Engine) describe(head *tables.HeadView, p *tables.Proposal) document.Proposal {
	quorum := quorumOf(p.Payload, head.Signers)
	out := document.Proposal{
		ID:          tables.IDText(p.ID),
		State:       document.StatePending,
		Version:     p.Row.Version,
		PayloadB3:   p.Row.PayloadB3,
		PrevHash:    p.Row.PrevHash,
		Kind:        p.Payload.Kind,
		Mode:        p.Payload.Mode,
		CreatedAt:   p.Payload.CreatedAt,
		ExpiresAt:   p.ExpiresAt(),
		ItemsCount:  &p.Payload.ItemsCount,
		ItemsRoot:   p.Payload.ItemsRoot,
		SignerSetB3: p.Payload.SignerSetB3,
		Approvals:   append([]record.Approval{}, p.Approvals...),
		Quorum:      &quorum,
	}
	if p.Expired(e.now()) {
		out.State = document.StateExpired
	}
	return out
}

// ProposalPayload returns the exact bytes whose digest the signers of a proposal sign. The proposal
// is live or committed.
func (e *Engine) ProposalPayload(ctx context.Context, id string) ([]byte, error) {
	p, how, known, err := e.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case p != nil:
		return p.Payload.Bytes(), nil
	case known && how.State == document.StateCommitted:
		return e.PayloadBytes(ctx, how.Version)
	}
	return nil, endedError(id, how, known)
}
