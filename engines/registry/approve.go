package registry

import (
	"context"
	"fmt"
	"time"

	"ronbox/engines"
	"ronbox/engines/registry/record"
)

// Approve records a signer's signature under a live proposal. The signature is verified before the call is queued.
//
// Errors: ErrNotFound, ErrExpired, *StateError; record.ErrInvalidSig, *record.RevokedKeyError, record.ErrClockSkew;
// *DuplicateApprovalError; ErrForbidden when the actor may act for another signer only; those of Propose that may pass.
func (e *Engine) Approve(ctx context.Context, actor engines.Actor, id string, a record.Approval, corrID string) (out Approved, err error) {
	ctx, span := e.span(ctx, "approve", corrID)
	defer func() { span.end(err) }()
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Approve.D())
	defer cancel()
	prop, err := e.livingProposal(ctx, id)
	if err != nil {
		return Approved{}, err
	}
	span.about(id, prop.row.Version, prop.row.PayloadB3)
	if actor.Signer != "" && actor.Signer != a.SignerID {
		return Approved{}, &ForbiddenError{Reason: fmt.Sprintf("the token may approve for %s, not for %.128s", actor.Signer, a.SignerID)}
	}
	req, err := e.checkApproval(ctx, prop, a)
	if err != nil {
		if reasonOf(err) != "" { // the pipeline counts what it refuses
			e.m.approvals[approvalRejected](1)
		}
		return Approved{}, err
	}
	done, err := e.submit(ctx, e.approvals, req, actor, corrID)
	span.quorum(done.approved.Quorum)
	return done.approved, err
}

// checkApproval judges the signature and its time; whether its key still counts is the pipeline's to say.
func (e *Engine) checkApproval(ctx context.Context, prop *proposal, a record.Approval) (approveReq, error) {
	signer, ok := prop.payload.Approver(e.Head().Signers, a.SignerID)
	if !ok {
		return approveReq{}, fmt.Errorf("signer %.60q is neither in the set in force nor in the proposal's: %w", a.SignerID, record.ErrInvalidSig)
	}
	now := e.now()
	if err := a.CheckClock(prop.payload.CreatedAt, now, e.live().Approvals.MaxSkew.D()); err != nil {
		return approveReq{}, err
	}
	release, err := e.workSlot(ctx)
	if err != nil {
		return approveReq{}, err
	}
	defer release()
	begun := time.Now()
	if err := record.VerifyApproval(a, signer, prop.row.PayloadB3); err != nil {
		return approveReq{}, err
	}
	e.m.approvalSeconds(time.Since(begun).Seconds())
	a.ReceivedAt = record.FormatTime(now)
	return approveReq{id: prop.id, approval: a, key: keyOf(signer)}, nil
}

// Commit makes a proposal the next version, if its approvals reach the quorum. Committing it again answers the same.
//
// Errors: ErrNotFound, ErrExpired, *StateError; *record.QuorumError, *record.RevokedKeyError; record.ErrVersionSkew while a
// version below it in its stack waits, record.ErrChainMismatch when HEAD moved; those of Propose that may pass. After
// flow.ErrUnknown or *TimeoutError the same call finds out what became of it.
func (e *Engine) Commit(ctx context.Context, actor engines.Actor, id, corrID string) (out Committed, err error) {
	ctx, span := e.span(ctx, "commit", corrID)
	defer func() { span.end(err) }()
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Commit.D())
	defer cancel()
	prop, how, known, err := e.find(ctx, id)
	switch {
	case err != nil:
		return Committed{}, err
	case prop == nil && known && how.State == StateCommitted:
		return how.replay(), nil
	case prop == nil:
		return Committed{}, endedError(id, how, known)
	}
	span.about(id, prop.row.Version, prop.row.PayloadB3)
	span.quorum(quorumOf(prop.payload, e.Head().Signers))
	if err := e.ready(); err != nil {
		return Committed{}, err
	}
	a, err := e.submit(ctx, e.approvals, commitReq{id: prop.id}, actor, corrID)
	return a.committed, err
}

// Withdraw ends a live proposal for the capability that proposed it or for an admin, and with it all that is stacked on it.
// Another's is ErrForbidden.
func (e *Engine) Withdraw(ctx context.Context, actor engines.Actor, id, corrID string) error {
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Approve.D())
	defer cancel()
	prop, err := e.livingProposal(ctx, id)
	if err != nil {
		return err
	}
	_, err = e.submit(ctx, e.approvals, withdrawReq{id: prop.id}, actor, corrID)
	return err
}

// livingProposal finds what a write is about, or says why there is none.
func (e *Engine) livingProposal(ctx context.Context, id string) (*proposal, error) {
	prop, how, known, err := e.find(ctx, id)
	if err == nil {
		err = e.ready()
	}
	if err == nil && prop == nil {
		err = endedError(id, how, known)
	}
	return prop, err
}

// find gives the live proposal of an id, or else how it ended, if that is known.
func (e *Engine) find(ctx context.Context, id string) (prop *proposal, how doneRow, known bool, err error) {
	pid, err := parseID(id)
	if err != nil {
		return nil, how, false, err
	}
	if prop = e.current.Load().live[pid]; prop == nil {
		how, known, err = rowOf(ctx, e, doneOutcome, pid)
	}
	return prop, how, known, err
}
