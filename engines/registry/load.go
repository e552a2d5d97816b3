package registry

import (
	"context"
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// rawState is what one read transaction copies out of the file; it is parsed after the transaction has ended.
type rawState struct {
	head      record.Head
	audit     AuditRef
	tree      treeRow
	min       uint64
	origin    string
	genesis   []byte
	set       []byte // canonical signer set in force
	payload   []byte // packed, of HEAD
	ids       []ulid.ULID
	props     []storedProp
	approvals map[ulid.ULID][][]byte
	faults    []error // rows of proposals that do not decode
}

// load reads HEAD, its items and the live proposals. The items are carried over if HEAD is the same.
func (e *Engine) load(ctx context.Context, known *state) (*state, error) {
	var raw rawState
	if err := e.view(ctx, func(r store.Reader) error { raw = readState(r); return nil }); err != nil {
		return nil, err
	}
	if !e.loaded.Load() { // after that the committer keeps it
		e.tree.Store(&raw.tree)
	}
	view, err := e.viewOf(ctx, raw, known.view)
	if err != nil {
		return nil, err
	}
	s := newState(view)
	s.audit = raw.audit
	e.enterAll(s, raw, view.Signers)
	return s, nil
}

func readState(r store.Reader) rawState {
	var s rawState
	s.head, _ = metaHead.Get(r, keyHead)
	s.audit, _ = metaAudit.Get(r, keyAuditHead)
	s.tree, _ = metaTree.Get(r, keyTree)
	s.min, _ = metaNumber.Get(r, keyMin)
	s.genesis, _ = metaRaw.Get(r, keyGenesis)
	origin, _ := metaRaw.Get(r, keyOrigin)
	s.origin = string(origin)
	s.payload, _ = payloads.Get(r, s.head.Version)
	installed, _ := epochs.Get(r, uint32(s.head.Epoch))
	s.set = installed.set
	readProposals(r, &s)
	return s
}

// viewOf builds the view of the HEAD read.
func (e *Engine) viewOf(ctx context.Context, raw rawState, known *HeadView) (*HeadView, error) {
	v := HeadView{CheckpointSize: e.checkpointSize(), Head: raw.head, Origin: raw.origin, Incarnation: e.store.Info().Incarnation, MinVersion: raw.min}
	if raw.head.Version == 0 {
		return newHeadView(v), nil
	}
	copy(v.genesis[:], raw.genesis)
	var err error
	if v.Signers, err = record.ParseSignerSet(raw.set); err != nil {
		return nil, fmt.Errorf("signer set of epoch %d: %w", raw.head.Epoch, err)
	}
	payload, err := e.codec.payload(raw.payload)
	if err != nil {
		return nil, fmt.Errorf("payload of HEAD: %w", err)
	}
	v.Expiry, v.signersB3 = payload.Expiry, v.Signers.B3()
	if known.ref() == refOf(raw.head) {
		v.Items = known.Items
	} else if v.Items, err = e.materialise(ctx, raw.head.Version); err != nil {
		return nil, err
	}
	if v.Items.Root() != payload.ItemsRoot {
		return nil, fmt.Errorf("items of HEAD: root %s, signed %s: %w", v.Items.Root(), payload.ItemsRoot, store.ErrCorrupt)
	}
	return newHeadView(v), nil
}

func (e *Engine) proposalOf(id ulid.ULID, p storedProp, rawApprovals [][]byte, set *record.SignerSet) (*proposal, error) {
	payload, err := e.codec.payload(p.packed)
	if err != nil {
		return nil, err
	}
	out := &proposal{id: id, row: p.row, payload: payload, packed: p.packed}
	for _, raw := range rawApprovals {
		a, err := record.ParseApproval(raw)
		if err != nil {
			return nil, err
		}
		signer, ok := payload.Approver(set, a.SignerID)
		if !ok {
			return nil, fmt.Errorf("approval by %s, who is in no signer set: %w", a.SignerID, store.ErrCorrupt)
		}
		out.approvals, out.keys = append(out.approvals, a), append(out.keys, keyOf(signer))
	}
	return out, nil
}

// keyOf is the digest under which a signer's approvals are kept.
func keyOf(s record.Signer) b3.Digest { return b3.Sum(s.Key()) }
