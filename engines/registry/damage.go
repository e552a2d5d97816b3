package registry

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/oklog/ulid/v2"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// flag reports a row that is damaged and that the registry can do without: it is left out, logged, and a soft readiness key until the next
// start. The row stays in the file, where the check of the file finds it.
func (e *Engine) flag(err error) {
	e.log.Error("row.damaged", "reason", err.Error())
	e.board.Set(service, keyRows, err)
}

// rowError names a row that does not decode.
func rowError(b *store.Bucket, key []byte, cause error) error {
	return &store.RowError{Bucket: b.Name, Key: append([]byte{}, key...), Cause: cause}
}

// readProposals reads the proposals and their approvals row by row. Rows that do not decode are returned as faults.
func readProposals(r store.Reader, s *rawState) {
	rows, keys := propValue(), idKey()
	for k, v := range r.Range(bProp, nil, nil) {
		id, err := keys.Decode(k)
		var p storedProp
		if err == nil {
			p, err = rows.Decode(v)
		}
		if err == nil {
			err = indexed(r, id, p.row)
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

// indexed checks that both indexes name a proposal: a row whose key or expiry has changed is in neither or in one.
func indexed(r store.Reader, id ulid.ULID, row propRow) error {
	named := r.Get(bPropB3, row.PayloadB3[:])
	expires := r.Get(bPropExp, expiryKeys().Append(nil, expiry{uint64(row.ExpiresMS), id}))
	if !bytes.Equal(named, id[:]) || expires == nil {
		return errors.New("the indexes of proposals do not name it")
	}
	return nil
}

// checkRow compares the row of a proposal with its payload.
func (p *proposal) checkRow() error {
	row, payload := p.row, p.payload
	if payload.B3() != row.PayloadB3 || payload.Version != row.Version || payload.PrevHash != row.PrevHash || int64(len(payload.Bytes())) != row.Bytes {
		return rowError(bProp, p.id[:], errors.New("the row is not that of its payload"))
	}
	return nil
}

// enterAll enters the stored proposals into s. A proposal whose rows are damaged is left out, and with it those that stand on it: nobody can
// sign or commit it, and it is proposed again.
func (e *Engine) enterAll(s *state, raw rawState, signers *record.SignerSet) {
	for i, id := range raw.ids {
		prop, err := e.proposalOf(id, raw.props[i], raw.approvals[id], signers)
		if err == nil {
			err = prop.checkRow()
		}
		if err != nil {
			raw.faults = append(raw.faults, fmt.Errorf("proposal %s is left out: %w", idText(id), rowError(bProp, id[:], err)))
			continue
		}
		s.enter(prop)
	}
	if len(raw.faults) > 0 {
		e.flag(errors.Join(raw.faults...))
	}
}

// checkMeta compares the rows of reg/meta that no hash covers with the verified log.
func checkMeta(origin string, tree treeRow, verified record.Head, logOrigin string, covered uint64) error {
	switch {
	case verified.Version > 0 && origin != logOrigin:
		return rowError(bMeta, []byte(keyOrigin), fmt.Errorf("it is %.200q, the log is %q", origin, logOrigin))
	case tree.Size > verified.Version || tree.Size < covered || tree.Bytes < 0:
		return rowError(bMeta, []byte(keyTree), fmt.Errorf("it covers %d entries, the log has %d, and %d are under a checkpoint", tree.Size, verified.Version, covered))
	}
	return nil
}

// tolerate returns err unless it is a damaged row, which is flagged.
func (e *Engine) tolerate(ctx context.Context, err error) error {
	if ctx.Err() != nil || !errors.Is(err, store.ErrCorrupt) {
		return err
	}
	e.flag(err)
	return nil
}
