package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// rawState is copied out of the file in one read transaction and parsed afterwards.
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

// load reads HEAD, its items and the live proposals. The items of known are reused if HEAD is the
// same.
func (e *Engine) load(ctx context.Context, known *state) (*state, error) {
	var raw rawState
	if err := e.view(ctx, func(r store.Reader) error { raw = readState(r); return nil }); err != nil {
		return nil, err
	}
	if !e.loaded.Load() { // afterwards the committer updates it
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

// viewOf builds the view of a HEAD.
func (e *Engine) viewOf(ctx context.Context, raw rawState, known *HeadView) (*HeadView, error) {
	v := HeadView{
		CheckpointSize: e.checkpointSize(), Head: raw.head, Origin: raw.origin,
		Incarnation: e.store.Info().Incarnation, MinVersion: raw.min,
	}
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
		return nil, fmt.Errorf("items of HEAD: root %s, signed %s: %w", v.Items.Root(), payload.ItemsRoot,
			store.ErrCorrupt)
	}
	return newHeadView(v), nil
}

func (e *Engine) proposalOf(id ulid.ULID, p storedProp, rawApprovals [][]byte,
	set *record.SignerSet) (*proposal, error) {
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
			return nil, fmt.Errorf("approval by %s, which is in no signer set: %w", a.SignerID, store.ErrCorrupt)
		}
		out.approvals, out.keys = append(out.approvals, a), append(out.keys, keyOf(signer))
	}
	return out, nil
}

// keyOf returns the digest under which the approvals of a signer are stored.
func keyOf(s record.Signer) b3.Digest { return b3.Sum(s.Key()) }

// flag reports a damaged row that the registry can work without. The row is left out and logged,
// and a soft readiness key is set until the next start. The row stays in the file, where the check
// of the file finds it.
func (e *Engine) flag(err error) {
	e.log.Error("row.damaged", "reason", err.Error())
	e.board.Set(service, keyRows, err)
}

// rowError returns the error of a row that does not decode.
func rowError(b *store.Bucket, key []byte, cause error) error {
	return &store.RowError{Bucket: b.Name, Key: append([]byte{}, key...), Cause: cause}
}

// readProposals reads the proposals and their approvals. It returns rows that do not decode as
// faults.
func readProposals(r store.Reader, s *rawState) {
	rows, keys := propValue(), idKey()
	for k, v := range r.Range(bProp, nil, nil) {
		id, err := keys.Decode(k)
		var p storedProp
		if err == nil {
			p, err = rows.Decode(v)
		}
		if err == nil {
			err = checkExpiry(r, id, p.row)
		}
		if err != nil {
			s.faults = append(s.faults, rowError(bProp, k, err))
			continue
		}
		s.ids, s.props = append(s.ids, id), append(s.props, p)
	}
	s.approvals = map[ulid.ULID][][]byte{}
	pairs := approvalKeys()
	for k, v := range r.Range(bAppr, nil, nil) {
		key, err := pairs.Decode(k)
		if err != nil {
			s.faults = append(s.faults, rowError(bAppr, k, err))
			continue
		}
		s.approvals[key.id] = append(s.approvals[key.id], append([]byte(nil), v...))
	}
}

// checkExpiry compares the id and the expiry of a proposal with their second copy in reg/prop_exp:
// nothing else in the row depends on them.
func checkExpiry(r store.Reader, id ulid.ULID, row propRow) error {
	if r.Get(bPropExp, expiryKeys().Append(nil, expiry{uint64(row.ExpiresMS), id})) == nil {
		return errors.New("reg/prop_exp does not name it")
	}
	return nil
}

// rowFits reports whether the row of a proposal describes its payload.
func rowFits(row propRow, p *record.Payload) bool {
	return p.B3() == row.PayloadB3 && p.Version == row.Version && p.PrevHash == row.PrevHash &&
		int64(len(p.Bytes())) == row.Bytes
}

// enterAll adds the stored proposals to s. A proposal with a damaged row is left out, as are the
// proposals stacked on it: they cannot be signed or committed and have to be proposed again.
func (e *Engine) enterAll(s *state, raw rawState, signers *record.SignerSet) {
	for i, id := range raw.ids {
		prop, err := e.proposalOf(id, raw.props[i], raw.approvals[id], signers)
		if err == nil && !rowFits(prop.row, prop.payload) {
			err = errors.New("the row is not that of its payload")
		}
		if err != nil {
			raw.faults = append(raw.faults,
				fmt.Errorf("proposal %s is left out: %w", idText(id), rowError(bProp, id[:], err)))
			continue
		}
		s.enter(prop)
	}
	if len(raw.faults) > 0 {
		e.flag(errors.Join(raw.faults...))
	}
}

// checkMeta compares the rows of reg/meta that no hash covers with the verified log.
func checkMeta(origin string, tree treeRow, verified record.Head, logOrigin string) error {
	switch {
	case verified.Version > 0 && origin != logOrigin:
		return rowError(bMeta, []byte(keyOrigin), fmt.Errorf("it is %.200q, the log is %q", origin, logOrigin))
	case tree.Size != verified.Version || tree.Bytes < 0:
		return rowError(bMeta, []byte(keyTree),
			fmt.Errorf("it covers %d entries, the log has %d", tree.Size, verified.Version))
	}
	return nil
}

// tolerate returns err unless it is a damaged row, which it flags.
func (e *Engine) tolerate(ctx context.Context, err error) error {
	if ctx.Err() != nil || !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	e.flag(err)
	return nil
}
