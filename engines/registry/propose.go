package registry

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/record"
)

// Propose enters the next descriptor set, whole or as a delta, to be approved. What the draft leaves out is filled in; the
// canonical payload is then to be had under the proposal. wantB3, unless "", must be the digest of the completed payload.
// Proposing the same payload again answers the live proposal.
//
// It never waits for room, and for an answer only until ctx or timeouts.propose ends. A *record.FieldError,
// record.ErrHardLimit, ErrVersionSkew or ErrChainMismatch is final for this draft; after flow.ErrBusy, *NotReadyError,
// *PendingLimitError or *TimeoutError the same call may succeed later.
func (e *Engine) Propose(ctx context.Context, actor engines.Actor, payload []byte, wantB3, corrID string) (out Proposed, err error) {
	ctx, span := e.span(ctx, "propose", corrID)
	defer func() { span.end(err) }()
	if err := e.ready(); err != nil {
		return Proposed{}, err
	}
	st := e.current.Load()
	if st.view.Head.Version == 0 {
		return Proposed{}, &NotReadyError{Cause: CauseNoGenesis}
	}
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Propose.D())
	defer cancel()
	req, err := e.proposeRequest(ctx, st, payload, wantB3)
	if err != nil {
		return Proposed{}, err
	}
	a, err := e.submit(ctx, e.proposals, req, actor, corrID)
	span.about(a.proposed.ID, req.payload.Version, req.payload.B3())
	return a.proposed, err
}

// proposeRequest does the caller's part: all that needs no queue.
func (e *Engine) proposeRequest(ctx context.Context, st *state, draft []byte, wantB3 string) (proposeReq, error) {
	release, err := e.workSlot(ctx)
	if err != nil {
		return proposeReq{}, err
	}
	defer release()
	p, err := e.complete(st, draft, wantB3)
	if err != nil {
		return proposeReq{}, err
	}
	if twin := st.sameDraft(p, draft); twin != nil {
		p = twin.payload
	}
	id, err := e.newID()
	return proposeReq{id: id, payload: p, packed: e.codec.pack(p.Bytes())}, err
}

// complete finds what the draft builds on, fills it in and checks it. The resulting items are kept for the commit.
func (e *Engine) complete(st *state, draft []byte, wantB3 string) (*record.Payload, error) {
	want, err := wantedDigest(wantB3)
	if err != nil {
		return nil, err
	}
	base, err := e.baseOf(st, draft)
	if err != nil {
		return nil, err
	}
	p, items, err := record.Complete(draft, base, e.now())
	if err != nil {
		return nil, err
	}
	if want != (b3.Digest{}) && want != p.B3() {
		return nil, &record.FieldError{Field: "payload_b3", Reason: "the completed payload has " + p.B3().String()}
	}
	e.cache.putItems(p, items)
	return p, nil
}

func wantedDigest(s string) (b3.Digest, error) {
	if s == "" {
		return b3.Digest{}, nil
	}
	d, err := b3.Parse(s)
	if err != nil {
		return b3.Digest{}, &record.FieldError{Field: "payload_b3", Reason: err.Error()}
	}
	return d, nil
}

// baseOf finds what a draft builds on: HEAD for the next version, else the live proposal that its prev_hash names.
func (e *Engine) baseOf(st *state, draft []byte) (record.Base, error) {
	hint, err := record.PeekDraft(draft)
	if err != nil {
		return record.Base{}, err
	}
	head := st.view.base()
	if hint.Version <= head.Version+1 { // an old version is refused against HEAD
		return head, nil
	}
	if hint.Version > head.Version+uint64(e.live().Proposals.MaxStack) {
		return record.Base{}, fmt.Errorf("version %d, HEAD is %d: %w", hint.Version, head.Version, record.ErrVersionSkew)
	}
	var parent *proposal
	if err = record.ErrChainMismatch; hint.PrevHash != nil {
		parent, err = st.checkBase(hint.Version, *hint.PrevHash, e.live().Proposals.MaxStack)
	}
	if err != nil {
		return record.Base{}, fmt.Errorf("a proposal above HEAD+1 names the proposal it builds on by prev_hash: %w", err)
	}
	return e.stackedBase(st, parent)
}

// stackedBase is the base that a live proposal will be.
func (e *Engine) stackedBase(st *state, p *proposal) (record.Base, error) {
	below := st.view.base()
	if p.row.PrevHash != st.view.Head.PayloadB3 {
		parent := st.byPayload(p.row.PrevHash)
		if parent == nil {
			return record.Base{}, record.ErrChainMismatch
		}
		var err error
		if below, err = e.stackedBase(st, parent); err != nil {
			return record.Base{}, err
		}
	}
	items, err := e.itemsAfter(p.payload, below)
	if err != nil {
		return record.Base{}, err
	}
	return record.Base{
		Origin: below.Origin, Version: p.row.Version, PayloadB3: p.row.PayloadB3, Items: items, Signers: p.payload.SignersAfter(below.Signers),
	}, nil
}

// Genesis begins the log: version 1, a full set with the first signer set, approved by each of its active keys. Given again
// it answers the same; another one is refused with ErrConflict once there is a HEAD. An approval that is bad, foreign or
// repeated is a *GenesisApprovalError.
func (e *Engine) Genesis(ctx context.Context, actor engines.Actor, payload []byte, given []record.Approval, corrID string) (Committed, error) {
	ctx, cancel := context.WithTimeout(ctx, e.live().Timeouts.Commit.D())
	defer cancel()
	begun := e.Head()
	if begun.Head.Version == 0 {
		if err := e.ready(); err != nil {
			return Committed{}, err
		}
	}
	req, err := e.genesisRequest(ctx, payload, given, begun)
	if err != nil {
		return Committed{}, err
	}
	if begun.Head.Version > 0 {
		return e.genesisCommitted(ctx, begun.genesis)
	}
	a, err := e.submit(ctx, e.proposals, req, actor, corrID)
	return a.committed, err
}

// genesisCommitted is the answer of the call that began the log, given again.
func (e *Engine) genesisCommitted(ctx context.Context, genesis b3.Digest) (Committed, error) {
	raw, _, err := rowOf(ctx, e, entries, 1)
	if err != nil {
		return Committed{}, err
	}
	entry, err := record.ParseEntry(raw)
	if err != nil {
		return Committed{}, fmt.Errorf("entry of version 1: %w", err)
	}
	return Committed{Version: 1, PayloadB3: genesis, CommittedAt: entry.CommittedAt, Hash: entry.Hash(), Replayed: true}, nil
}

// genesisRequest does the caller's part. Once the log has begun, it only looks whether it is with this genesis.
func (e *Engine) genesisRequest(ctx context.Context, payload []byte, given []record.Approval, begun *HeadView) (genesisReq, error) {
	release, err := e.workSlot(ctx)
	if err != nil {
		return genesisReq{}, err
	}
	defer release()
	p, err := record.ParsePayload(payload)
	if err != nil {
		return genesisReq{}, err
	}
	if begun.Head.Version > 0 {
		if p.B3() != begun.genesis {
			err = fmt.Errorf("genesis: %w: the log begins with genesis %s, this is %s", ErrConflict, begun.genesis, p.B3())
		}
		return genesisReq{}, err
	}
	if p.Kind != record.KindGenesis {
		return genesisReq{}, &record.FieldError{Field: "kind", Reason: "a log begins with " + record.KindGenesis}
	}
	if pin := e.boot.Bootstrap.TrustRootsHash; pin != "" && pin != p.B3().String() {
		return genesisReq{}, &record.FieldError{Field: "payload", Reason: "trust roots pin " + pin + ", this is " + p.B3().String()}
	}
	if origin := e.Origin(); p.Origin != origin {
		return genesisReq{}, &record.FieldError{Field: "payload.origin", Reason: fmt.Sprintf(
			"must be %q, the node's registry.origin: set that key or make the genesis for it", origin)}
	}
	items, err := p.Check(record.Base{Origin: p.Origin})
	if err != nil {
		return genesisReq{}, err
	}
	counted, err := e.genesisQuorum(p, given)
	if err != nil {
		return genesisReq{}, err
	}
	id, err := e.newID()
	return genesisReq{id: id, payload: p, packed: e.codec.pack(p.Bytes()), approvals: counted, items: items}, err
}

// genesisQuorum wants every active key: each proves that its owner has it.
func (e *Engine) genesisQuorum(p *record.Payload, given []record.Approval) ([]record.Approval, error) {
	received := record.FormatTime(e.now())
	stamped := make([]record.Approval, 0, len(given))
	seen := map[string]bool{}
	for i, a := range given {
		wrong := func(cause error, reason string) error {
			return &GenesisApprovalError{Index: i, SignerID: a.SignerID, Reason: reason, Err: cause}
		}
		signer, known := p.SignerSet.Find(a.SignerID)
		switch {
		case !known:
			return nil, wrong(record.ErrInvalidSig, "is no signer of this genesis")
		case record.VerifyApproval(a, signer, p.B3()) != nil:
			return nil, wrong(record.ErrInvalidSig, "the signature is not one of this genesis by that signer's key")
		case seen[a.SignerID]:
			return nil, wrong(&DuplicateApprovalError{SignerID: a.SignerID}, "was given before")
		}
		seen[a.SignerID] = true
		a.ReceivedAt = received
		stamped = append(stamped, a)
	}
	return record.Quorum(p.SignerSet, 1, stamped, p.B3(), p.SignerSet.Active())
}

// newID draws a proposal id: its first part is the time, so that ids sort by age.
func (e *Engine) newID() (ulid.ULID, error) {
	id, err := ulid.New(ulid.Timestamp(e.now()), rand.Reader)
	if err != nil {
		return id, fmt.Errorf("draw a proposal id: %w", err)
	}
	return id, nil
}

// workSlot waits for one of the slots in which callers parse, hash and verify, so that they cannot starve the rest of the node.
func (e *Engine) workSlot(ctx context.Context) (release func(), err error) {
	select {
	case e.slots <- struct{}{}:
		return func() { <-e.slots }, nil
	case <-ctx.Done():
		if err := context.Cause(ctx); !errors.Is(err, context.DeadlineExceeded) {
			return nil, err
		}
		e.m.timeouts["commit"](1)
		return nil, &TimeoutError{Op: "work"}
	}
}

// maxProposalPage bounds a page of proposals.
const maxProposalPage = 100

// Proposals gives a page of the live proposals, oldest first, from behind cursor ("" for the first page). A limit outside 1..100 is 100.
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

// ProposalPayload gives the exact bytes that signers of a live proposal sign the digest of. A committed one's are those of its version.
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
