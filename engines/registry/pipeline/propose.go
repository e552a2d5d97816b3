package pipeline

import (
	"cmp"
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/engines/registry/trace"
	"ronbox/engines/registry/views"
)

// Propose enters the next descriptor set, in full or as a delta, to be approved. It fills in the
// members that the draft leaves out; ProposalPayload then returns the canonical payload. wantB3,
// unless "", must be the digest of the completed payload. A repeated call returns the live
// proposal.
//
// It never waits for room in the queue, and waits for an answer until ctx or timeouts.propose ends.
// A *record.FieldError, record.ErrHardLimit, ErrVersionSkew or ErrChainMismatch is final for this
// draft. After flow.ErrBusy, *NotReadyError, *PendingLimitError or *TimeoutError the same call may
// succeed later.
func (w *Writer) Propose(ctx context.Context, actor engines.Actor, payload []byte,
	wantB3, corrID string) (out document.Proposed, err error) {
	ctx, span := trace.Start(ctx, w.deps.Tracer, "propose", corrID)
	defer func() { span.End(err) }()
	if err := cmp.Or(w.Follows(), w.ready()); err != nil {
		return document.Proposed{}, err
	}
	st := w.deps.Published.State.Load()
	if st.View.Head.Version == 0 {
		return document.Proposed{}, &document.NotReadyError{Cause: document.CauseNoGenesis}
	}
	ctx, cancel := context.WithTimeout(ctx, w.rule().Propose)
	defer cancel()
	req, err := w.proposeRequest(ctx, st, payload, wantB3)
	if err != nil {
		return document.Proposed{}, err
	}
	a, err := w.pipeline.submit(ctx, w.pipeline.proposals, req, actor, corrID)
	span.About(a.proposed.ID, req.payload.Version, req.payload.B3())
	return a.proposed, err
}

// proposeRequest does the work that needs no queue, on the goroutine of the caller.
func (w *Writer) proposeRequest(ctx context.Context, st *tables.State, draft []byte,
	wantB3 string) (proposeReq, error) {
	release, err := w.workSlot(ctx)
	if err != nil {
		return proposeReq{}, err
	}
	defer release()
	read, err := record.ReadDraft(draft)
	if err != nil {
		return proposeReq{}, err
	}
	p, err := w.complete(st, read, wantB3)
	if err != nil {
		return proposeReq{}, err
	}
	if twin := st.SameDraft(p, read); twin != nil {
		p = twin.Payload
	}
	id, err := w.newID()
	return proposeReq{id: id, payload: p, packed: w.deps.Reader.Codec.Pack(p.Bytes())}, err
}

// complete finds the base of the draft, completes it and checks it. The resulting items are cached
// for the commit.
func (w *Writer) complete(st *tables.State, draft *record.Sketch, wantB3 string) (*record.Payload, error) {
	want, err := wantedDigest(wantB3)
	if err != nil {
		return nil, err
	}
	base, err := w.baseOf(st, draft)
	if err != nil {
		return nil, err
	}
	p, items, err := draft.Complete(base, w.deps.Keeper.Wall())
	if err != nil {
		return nil, err
	}
	if err := checkPolicy(p); err != nil {
		return nil, err
	}
	if want != (b3.Digest{}) && want != p.B3() {
		return nil, &record.FieldError{Field: "payload_b3", Reason: "the completed payload has " + p.B3().String()}
	}
	w.deps.Reader.Remember(p, items)
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

// baseOf returns the base of a draft: HEAD for the next version, else the live proposal that its
// prev_hash names.
func (w *Writer) baseOf(st *tables.State, draft *record.Sketch) (record.Base, error) {
	head := st.View.Base()
	if draft.Version <= head.Version+1 { // an old version is refused against HEAD
		return head, nil
	}
	if draft.Version > head.Version+uint64(w.rule().MaxStack) {
		return record.Base{}, fmt.Errorf("version %d, HEAD is %d: %w", draft.Version, head.Version,
			record.ErrVersionSkew)
	}
	var parent *tables.Proposal
	err := record.ErrChainMismatch
	if draft.PrevHash != nil {
		parent, err = st.CheckBase(draft.Version, *draft.PrevHash, w.rule().MaxStack)
	}
	if err != nil {
		return record.Base{}, fmt.Errorf(
			"a proposal above HEAD+1 names the proposal it builds on by prev_hash: %w", err)
	}
	return w.stackedBase(st, parent)
}

// stackedBase returns the base that a live proposal will be.
func (w *Writer) stackedBase(st *tables.State, p *tables.Proposal) (record.Base, error) {
	below := st.View.Base()
	if p.Row.PrevHash != st.View.Head.PayloadB3 {
		parent := st.ByPayload(p.Row.PrevHash)
		if parent == nil {
			return record.Base{}, record.ErrChainMismatch
		}
		var err error
		if below, err = w.stackedBase(st, parent); err != nil {
			return record.Base{}, err
		}
	}
	items, err := w.deps.Reader.ItemsAfter(p.Payload, below)
	if err != nil {
		return record.Base{}, err
	}
	return record.Base{
		Origin: below.Origin, Version: p.Row.Version, PayloadB3: p.Row.PayloadB3, Items: items,
		Signers: p.Payload.SignersAfter(below.Signers),
	}, nil
}

// Genesis begins the log with version 1: a full set with the first signer set, approved by each of
// its active keys. A repeated call returns the same answer. It returns ErrConflict if the log has
// another genesis, and a *GenesisApprovalError if an approval is invalid, foreign or repeated.
func (w *Writer) Genesis(ctx context.Context, actor engines.Actor, payload []byte, given []record.Approval,
	corrID string) (document.Committed, error) {
	if err := w.Follows(); err != nil {
		return document.Committed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.rule().Commit)
	defer cancel()
	begun := w.deps.Published.Head()
	if begun.Head.Version == 0 {
		if err := w.ready(); err != nil {
			return document.Committed{}, err
		}
	}
	req, err := w.genesisRequest(ctx, payload, given, begun)
	if err != nil {
		return document.Committed{}, err
	}
	if begun.Head.Version > 0 {
		return genesisCommitted(ctx, w.deps.Reader, begun.GenesisB3)
	}
	a, err := w.pipeline.submit(ctx, w.pipeline.proposals, req, actor, corrID)
	return a.committed, err
}

// genesisCommitted returns the answer to a repeated genesis.
func genesisCommitted(ctx context.Context, rd *views.Reader, genesis b3.Digest) (document.Committed, error) {
	raw, _, err := views.RowOf(ctx, rd, tables.Entries, 1)
	if err != nil {
		return document.Committed{}, err
	}
	entry, err := record.ParseEntry(raw)
	if err != nil {
		return document.Committed{}, fmt.Errorf("entry of version 1: %w", err)
	}
	return document.Committed{
		Version: 1, PayloadB3: genesis, CommittedAt: entry.CommittedAt, Hash: entry.Hash(),
		Replayed: true,
	}, nil
}

// genesisRequest does the work that needs no queue. If the log has begun, it only compares the
// genesis.
func (w *Writer) genesisRequest(ctx context.Context, payload []byte, given []record.Approval,
	begun *tables.HeadView) (genesisReq, error) {
	release, err := w.workSlot(ctx)
	if err != nil {
		return genesisReq{}, err
	}
	defer release()
	p, err := record.ParsePayload(payload)
	if err != nil {
		return genesisReq{}, err
	}
	if begun.Head.Version > 0 {
		if p.B3() != begun.GenesisB3 {
			err = fmt.Errorf("genesis: %w: the log begins with genesis %s, this is %s", document.ErrConflict,
				begun.GenesisB3, p.B3())
		}
		return genesisReq{}, err
	}
	if p.Kind != record.KindGenesis {
		return genesisReq{}, &record.FieldError{Field: "kind", Reason: "a log begins with " + record.KindGenesis}
	}
	if pin := w.pipeline.cfg.Genesis; pin != "" && pin != p.B3().String() {
		return genesisReq{}, &record.FieldError{
			Field:  "payload",
			Reason: "trust roots pin " + pin + ", this is " + p.B3().String(),
		}
	}
	if origin := w.deps.Keeper.Origin(); p.Origin != origin {
		return genesisReq{}, &record.FieldError{Field: "payload.origin", Reason: fmt.Sprintf(
			"must be %q, the node's registry.origin: set that key or make the genesis for it", origin)}
	}
	items, err := p.Check(record.Base{Origin: p.Origin})
	if err == nil {
		err = checkPolicy(p)
	}
	if err != nil {
		return genesisReq{}, err
	}
	counted, err := w.genesisQuorum(p, given)
	if err != nil {
		return genesisReq{}, err
	}
	id, err := w.newID()
	packed := w.deps.Reader.Codec.Pack(p.Bytes())
	return genesisReq{id: id, payload: p, packed: packed, approvals: counted, items: items}, err
}

// genesisQuorum demands an approval by every active key, as proof that its owner holds it.
func (w *Writer) genesisQuorum(p *record.Payload, given []record.Approval) ([]record.Approval, error) {
	received := record.FormatTime(w.deps.Keeper.Now())
	stamped := make([]record.Approval, 0, len(given))
	seen := map[string]bool{}
	for i, a := range given {
		wrong := func(cause error, reason string) error {
			return &document.GenesisApprovalError{Index: i, SignerID: a.SignerID, Reason: reason, Err: cause}
		}
		signer, known := p.SignerSet.Find(a.SignerID)
		switch {
		case !known:
			return nil, wrong(record.ErrInvalidSig, "is not a signer of this genesis")
		case record.VerifyApproval(a, signer, p.B3()) != nil:
			return nil, wrong(record.ErrInvalidSig, "the signature is not a signature of this genesis with "+
				"that signer's key")
		case seen[a.SignerID]:
			return nil, wrong(&document.DuplicateApprovalError{SignerID: a.SignerID}, "was given before")
		}
		seen[a.SignerID] = true
		a.ReceivedAt = received
		stamped = append(stamped, a)
	}
	return record.Quorum(p.SignerSet, 1, stamped, p.B3(), p.SignerSet.Active())
}

// checkPolicy returns an error if a payload installs a witness policy without a valid quorum: the
// registry could not decide when too many witnesses object. Committed versions are not checked.
func checkPolicy(p *record.Payload) error {
	if p.SignerSet == nil || p.SignerSet.WitnessPolicy == "" {
		return nil
	}
	if _, err := checkpoint.ReadPolicy(p.SignerSet.WitnessPolicy); err != nil {
		return &record.FieldError{Field: "signer_set.witness_policy", Reason: err.Error() +
			"; end it with a line quorum and the name of a witness or a group, or quorum none"}
	}
	return nil
}
