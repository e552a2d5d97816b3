package registry

import (
	"context"
	"time"

	"ronbox/engines/registry/record"
)

// maxProposalPage bounds a page of proposals.
const maxProposalPage = 100

// Proposals gives a page of the live proposals, oldest first, from behind cursor ("" for the first page). A limit outside
// 1..100 is 100.
func (e *Engine) Proposals(_ context.Context, cursor string, limit int) (ProposalList, error) {
	if limit < 1 || limit > maxProposalPage {
		limit = maxProposalPage
	}
	st := e.current.Load()
	var out ProposalList
	if _, err := parseID(cursor); cursor != "" && err != nil {
		return out, &record.FieldError{Field: "cursor", Reason: "is not one that a list gave"}
	}
	for _, p := range st.sorted() {
		if idText(p.id) <= cursor {
			continue
		}
		if len(out.Proposals) == limit {
			out.Next = out.Proposals[limit-1].ID
			break
		}
		out.Proposals = append(out.Proposals, e.describe(st.view, p))
	}
	return out, nil
}

// Proposal gives a proposal, live or ended.
func (e *Engine) Proposal(ctx context.Context, id string) (Proposal, error) {
	p, how, known, err := e.find(ctx, id)
	switch {
	case err != nil:
		return Proposal{}, err
	case p != nil:
		return e.describe(e.Head(), p), nil
	case !known:
		return Proposal{}, endedError(id, how, known)
	}
	ended := record.FormatTime(time.UnixMilli(how.AtMS))
	return Proposal{ID: id, State: how.State, Version: how.Version, PayloadB3: how.PayloadB3, EndedAt: ended}, nil
}

// describe words a live proposal. One whose time is over is expired, swept or not.
func (e *Engine) describe(head *HeadView, p *proposal) Proposal {
	quorum := quorumOf(p.payload, head.Signers)
	out := Proposal{
		ID: idText(p.id), State: StatePending, Version: p.row.Version, PayloadB3: p.row.PayloadB3, PrevHash: p.row.PrevHash,
		Kind: p.payload.Kind, Mode: p.payload.Mode, CreatedAt: p.payload.CreatedAt, ExpiresAt: p.expiresAt(),
		ItemsCount: &p.payload.ItemsCount, ItemsRoot: p.payload.ItemsRoot, SignerSetB3: p.payload.SignerSetB3,
		Approvals: append([]record.Approval{}, p.approvals...), Quorum: &quorum,
	}
	if p.expired(e.now()) {
		out.State = StateExpired
	}
	return out
}

// ProposalPayload gives the exact bytes that signers of a live proposal sign the digest of. A committed one's are those of
// its version.
func (e *Engine) ProposalPayload(ctx context.Context, id string) ([]byte, error) {
	p, how, known, err := e.find(ctx, id)
	switch {
	case err != nil:
		return nil, err
	case p != nil:
		return p.payload.Bytes(), nil
	case known && how.State == StateCommitted:
		return e.PayloadBytes(ctx, how.Version)
	}
	return nil, endedError(id, how, known)
}
