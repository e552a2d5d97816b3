package pipeline

import (
	"context"
	"fmt"
	"time"

	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/trace"
)

// Approve records the signature of a signer under a live proposal. It verifies the signature before
// it queues the call.
//
// Errors: ErrNotFound, ErrExpired, *StateError; record.ErrInvalidSig, *record.RevokedKeyError,
// record.ErrClockSkew; *DuplicateApprovalError; ErrForbidden if the token of the actor is bound to
// another signer; the temporary errors of Propose.
func (w *Writer) Approve(ctx context.Context, actor engines.Actor, id string, a record.Approval,
	corrID string) (out document.Approved, err error) {
	ctx, span := trace.Start(ctx, w.deps.Tracer, "approve", corrID)
	defer func() { span.End(err) }()
	if err := w.Follows(); err != nil {
		return document.Approved{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.rule().Approve)
	defer cancel()
	prop, err := w.livingProposal(ctx, id)
	if err != nil {
		return document.Approved{}, err
	}
	span.About(id, prop.Row.Version, prop.Row.PayloadB3)
	if actor.Signer != "" && actor.Signer != a.SignerID {
		return document.Approved{}, &document.ForbiddenError{
			Reason: fmt.Sprintf("the token may approve for %s, not for %.128s", actor.Signer, a.SignerID),
		}
	}
	req, err := w.checkApproval(ctx, prop, a)
	if err != nil {
		if document.Reason(err) != "" { // the pipeline counts its own refusals
			w.pipeline.m.approvals[approvalRejected](1)
		}
		return document.Approved{}, err
	}
	done, err := w.pipeline.submit(ctx, w.pipeline.approvals, req, actor, corrID)
	span.Quorum(done.approved.Quorum)
	return done.approved, err
}

// checkApproval verifies the signature and its time. The pipeline decides whether the key still
// counts.
func (w *Writer) checkApproval(ctx context.Context, prop *tables.Proposal, a record.Approval) (approveReq, error) {
	signer, ok := prop.Payload.Approver(w.deps.Published.Head().Signers, a.SignerID)
	if !ok {
		return approveReq{}, fmt.Errorf("signer %.60q is neither in the set in force nor in the proposal's: %w",
			a.SignerID, record.ErrInvalidSig)
	}
	if err := a.CheckClock(prop.Payload.CreatedAt, w.deps.Keeper.Wall(), w.rule().MaxSkew); err != nil {
		return approveReq{}, err
	}
	release, err := w.workSlot(ctx)
	if err != nil {
		return approveReq{}, err
	}
	defer release()
	begun := time.Now()
	if err := record.VerifyApproval(a, signer, prop.Row.PayloadB3); err != nil {
		return approveReq{}, err
	}
	w.pipeline.m.approvalSeconds(time.Since(begun).Seconds())
	a.ReceivedAt = record.FormatTime(w.deps.Keeper.Now())
	return approveReq{id: prop.ID, approval: a, key: tables.KeyOf(signer)}, nil
}

// Commit makes a proposal the next version if its approvals reach the quorum. A repeated call
// returns the same answer.
//
// Errors: ErrNotFound, ErrExpired, *StateError; *record.QuorumError, *record.RevokedKeyError;
// record.ErrVersionSkew while a version below it in its stack is not committed;
// record.ErrChainMismatch if HEAD has moved; the temporary errors of Propose. After flow.ErrUnknown
// or *TimeoutError a repeated call returns the outcome.
func (w *Writer) Commit(ctx context.Context, actor engines.Actor,
	id, corrID string) (out document.Committed, err error) {
	ctx, span := trace.Start(ctx, w.deps.Tracer, "commit", corrID)
	defer func() { span.End(err) }()
	if err := w.Follows(); err != nil {
		return document.Committed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.rule().Commit)
	defer cancel()
	prop, how, known, err := w.find(ctx, id)
	switch {
	case err != nil:
		return document.Committed{}, err
	case prop == nil && known && how.State == document.StateCommitted:
		return how.Replay(), nil
	case prop == nil:
		return document.Committed{}, endedError(id, how, known)
	}
	span.About(id, prop.Row.Version, prop.Row.PayloadB3)
	span.Quorum(quorumOf(prop.Payload, w.deps.Published.Head().Signers))
	if err := w.ready(); err != nil {
		return document.Committed{}, err
	}
	a, err := w.pipeline.submit(ctx, w.pipeline.approvals, commitReq{id: prop.ID}, actor, corrID)
	return a.committed, err
}

// Withdraw ends a live proposal and every proposal stacked on it. It returns ErrForbidden unless
// the actor is the capability that proposed it or an admin.
func (w *Writer) Withdraw(ctx context.Context, actor engines.Actor, id, corrID string) error {
	if err := w.Follows(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, w.rule().Approve)
	defer cancel()
	prop, err := w.livingProposal(ctx, id)
	if err != nil {
		return err
	}
	_, err = w.pipeline.submit(ctx, w.pipeline.approvals, withdrawReq{id: prop.ID}, actor, corrID)
	return err
}

// maxProposalPage bounds a page of proposals.
const maxProposalPage = 100

// Proposals returns a page of the live proposals, oldest first, after cursor ("" for the first
// page). A limit outside 1..100 counts as 100.
func (w *Writer) Proposals(_ context.Context, cursor string, limit int) (document.ProposalList, error) {
	if limit < 1 || limit > maxProposalPage {
		limit = maxProposalPage
	}
	st := w.deps.Published.State.Load()
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
		out.Proposals = append(out.Proposals, w.describe(st.View, p))
	}
	return out, nil
}

// Proposal returns a live or ended proposal.
func (w *Writer) Proposal(ctx context.Context, id string) (document.Proposal, error) {
	p, how, known, err := w.find(ctx, id)
	switch {
	case err != nil:
		return document.Proposal{}, err
	case p != nil:
		return w.describe(w.deps.Published.Head(), p), nil
	case !known:
		return document.Proposal{}, endedError(id, how, known)
	}
	ended := record.FormatTime(time.UnixMilli(how.AtMS))
	return document.Proposal{
		ID: id, State: how.State, Version: how.Version, PayloadB3: how.PayloadB3, EndedAt: ended,
	}, nil
}

// describe returns a live proposal as a reader sees it. It is expired once its time is over, even
// if it was not swept yet.
func (w *Writer) describe(head *tables.HeadView, p *tables.Proposal) document.Proposal {
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
	if p.Expired(w.deps.Keeper.Now()) {
		out.State = document.StateExpired
	}
	return out
}

// ProposalPayload returns the exact bytes whose digest the signers of a proposal sign. The proposal
// is live or committed.
func (w *Writer) ProposalPayload(ctx context.Context, id string) ([]byte, error) {
	p, how, known, err := w.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case p != nil:
		return p.Payload.Bytes(), nil
	case known && how.State == document.StateCommitted:
		return w.deps.Reader.PayloadBytes(ctx, how.Version)
	}
	return nil, endedError(id, how, known)
}
