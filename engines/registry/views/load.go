package views

import (
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// rawState is copied out of the file in one read transaction and parsed afterwards.
type rawState struct {
	head      record.Head
	audit     tables.AuditRef
	tree      tables.TreeRow
	min       uint64
	origin    string
	genesis   []byte
	set       []byte // canonical signer set in force
	payload   []byte // packed, of HEAD
	ids       []ulid.ULID
	props     []tables.StoredProp
	approvals map[ulid.ULID][][]byte
	faults    []error // rows of proposals that do not decode
}

// Load reads HEAD, its items and the live proposals. The items of known are reused if HEAD is the
// same.
func (rd *Reader) Load(ctx context.Context, known *tables.State) (*tables.State, error) {
	var raw rawState
	if err := rd.View(ctx, func(r store.Reader) error { raw = readState(r); return nil }); err != nil {
		return nil, err
	}
	if !rd.pub.Loaded.Load() { // afterwards the committer updates it
		rd.pub.Tree.Store(&raw.tree)
	}
	view, err := rd.viewOf(ctx, raw, known.View)
	if err != nil {
		return nil, err
	}
	s := tables.NewState(view)
	s.Audit = raw.audit
	rd.enterAll(s, raw, view.Signers)
	return s, nil
}

func readState(r store.Reader) rawState {
	var s rawState
	s.head, _ = tables.MetaHead.Get(r, tables.KeyHead)
	s.audit, _ = tables.MetaAudit.Get(r, tables.KeyAuditHead)
	s.tree, _ = tables.MetaTree.Get(r, tables.KeyTree)
	s.min, _ = tables.MetaNumber.Get(r, tables.KeyMin)
	s.genesis, _ = tables.MetaRaw.Get(r, tables.KeyGenesis)
	origin, _ := tables.MetaRaw.Get(r, tables.KeyOrigin)
	s.origin = string(origin)
	s.payload, _ = tables.Payloads.Get(r, s.head.Version)
	installed, _ := tables.Epochs.Get(r, uint32(s.head.Epoch))
	s.set = installed.Set
	readProposals(r, &s)
	return s
}

// viewOf builds the view of a HEAD.
func (rd *Reader) viewOf(ctx context.Context, raw rawState, known *tables.HeadView) (*tables.HeadView, error) {
	v := tables.HeadView{
		CheckpointSize: rd.pub.Covered(), Head: raw.head, Origin: raw.origin,
		Incarnation: rd.store.Info().Incarnation, MinVersion: raw.min,
	}
	if raw.head.Version == 0 {
		return tables.NewHeadView(v), nil
	}
	copy(v.GenesisB3[:], raw.genesis)
	var err error
	if v.Signers, err = record.ParseSignerSet(raw.set); err != nil {
		return nil, fmt.Errorf("signer set of epoch %d: %w", raw.head.Epoch, err)
	}
	payload, err := rd.Codec.Payload(raw.payload)
	if err != nil {
		return nil, fmt.Errorf("payload of HEAD: %w", err)
	}
	v.Expiry, v.SignersB3 = payload.Expiry, v.Signers.B3()
	if known.Ref() == tables.RefOf(raw.head) {
		v.Items = known.Items
	} else if v.Items, err = rd.Materialise(ctx, raw.head.Version); err != nil {
		return nil, err
	}
	if v.Items.Root() != payload.ItemsRoot {
		return nil, fmt.Errorf("items of HEAD: root %s, signed %s: %w", v.Items.Root(), payload.ItemsRoot,
			store.ErrCorrupt)
	}
	return tables.NewHeadView(v), nil
}

func (rd *Reader) proposalOf(id ulid.ULID, p tables.StoredProp, rawApprovals [][]byte,
	set *record.SignerSet) (*tables.Proposal, error) {
	payload, err := rd.Codec.Payload(p.Packed)
	if err != nil {
		return nil, err
	}
	out := &tables.Proposal{ID: id, Row: p.Row, Payload: payload, Packed: p.Packed}
	for _, raw := range rawApprovals {
		a, err := record.ParseApproval(raw)
		if err != nil {
			return nil, err
		}
		signer, ok := payload.Approver(set, a.SignerID)
		if !ok {
			return nil, fmt.Errorf("approval by %s, which is in no signer set: %w", a.SignerID, store.ErrCorrupt)
		}
		out.Approvals, out.Keys = append(out.Approvals, a), append(out.Keys, tables.KeyOf(signer))
	}
	return out, nil
}

// flag reports a damaged row that the registry can work without. The row is left out and logged,
// and a soft readiness key is set until the next start. The row stays in the file, where the check
// of the file finds it.
func (rd *Reader) flag(err error) {
	rd.log.Error("row.damaged", "reason", err.Error())
	rd.board.Set(tables.Service, KeyRows, err)
}

// readProposals reads the proposals and their approvals. It returns rows that do not decode as
// faults.
func readProposals(r store.Reader, s *rawState) {
	rows, keys := tables.PropValue(), tables.IDKey()
	for k, v := range r.Range(tables.PropBucket, nil, nil) {
		id, err := keys.Decode(k)
		var p tables.StoredProp
		if err == nil {
			p, err = rows.Decode(v)
		}
		if err == nil {
			err = tables.CheckExpiry(r, id, p.Row)
		}
		if err != nil {
			s.faults = append(s.faults, tables.RowError(tables.PropBucket, k, err))
			continue
		}
		s.ids, s.props = append(s.ids, id), append(s.props, p)
	}
	s.approvals = map[ulid.ULID][][]byte{}
	pairs := tables.ApprovalKeys()
	for k, v := range r.Range(tables.ApprovalBucket, nil, nil) {
		key, err := pairs.Decode(k)
		if err != nil {
			s.faults = append(s.faults, tables.RowError(tables.ApprovalBucket, k, err))
			continue
		}
		s.approvals[key.ID] = append(s.approvals[key.ID], append([]byte(nil), v...))
	}
}

// enterAll adds the stored proposals to s. A proposal with a damaged row is left out, as are the
// proposals stacked on it: they cannot be signed or committed and have to be proposed again.
func (rd *Reader) enterAll(s *tables.State, raw rawState, signers *record.SignerSet) {
	for i, id := range raw.ids {
		prop, err := rd.proposalOf(id, raw.props[i], raw.approvals[id], signers)
		if err == nil && !tables.RowFits(prop.Row, prop.Payload) {
			err = errors.New("the row is not that of its payload")
		}
		if err != nil {
			raw.faults = append(raw.faults,
				fmt.Errorf("proposal %s is left out: %w", tables.IDText(id),
					tables.RowError(tables.PropBucket, id[:], err)))
			continue
		}
		s.Enter(prop)
	}
	if len(raw.faults) > 0 {
		rd.flag(errors.Join(raw.faults...))
	}
}

// CheckMeta compares the rows of reg/meta that no hash covers with the verified log.
func CheckMeta(origin string, tree tables.TreeRow, verified record.Head, logOrigin string) error {
	switch {
	case verified.Version > 0 && origin != logOrigin:
		return tables.RowError(tables.MetaBucket, []byte(tables.KeyOrigin),
			fmt.Errorf("it is %.200q, the log is %q", origin, logOrigin))
	case tree.Size != verified.Version || tree.Bytes < 0:
		return tables.RowError(tables.MetaBucket, []byte(tables.KeyTree),
			fmt.Errorf("it covers %d entries, the log has %d", tree.Size, verified.Version))
	}
	return nil
}

// Tolerate returns err unless it is a damaged row, which it flags.
func (rd *Reader) Tolerate(ctx context.Context, err error) error {
	if ctx.Err() != nil || !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	rd.flag(err)
	return nil
}

// KeyRows is soft: a damaged row is left out.
const KeyRows = "stored_rows"
