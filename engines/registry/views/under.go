package views

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"ronbox/appliance/b3"
	"ronbox/engines/registry/checkpoint"
	"ronbox/engines/registry/logtree"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/rverify"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// LogKeys returns the log keys of all signer sets so far. A signature by a former key remains
// valid.
func (rd *Reader) LogKeys(ctx context.Context) (checkpoint.Keys, error) {
	var vkeys []string
	err := rd.View(ctx, func(r store.Reader) error {
		for epoch, installed := range tables.Epochs.All(r) {
			set, err := record.ParseSignerSet(installed.Set)
			if err != nil {
				return fmt.Errorf("signer set of epoch %d, installed by version %d: %w", epoch, installed.Version, err)
			}
			vkeys = append(vkeys, set.LogKeys...)
		}
		return nil
	})
	if err != nil {
		return checkpoint.Keys{}, err
	}
	return checkpoint.NewKeys(vkeys)
}

// Under returns the state at a checkpoint of at most head versions. It returns store.ErrCorrupt if
// the note or the rows under it do not verify.
func (rd *Reader) Under(ctx context.Context, note []byte,
	head uint64) (at rverify.State, signed checkpoint.Signed, err error) {
	keys, err := rd.LogKeys(ctx)
	if err != nil {
		return at, signed, fmt.Errorf("%w: %w", store.ErrCorrupt, err)
	}
	signed, err = keys.Open(note)
	if err != nil || signed.Size == 0 || signed.Size > head {
		return at, signed, fmt.Errorf("%w: stored checkpoint of %d versions, HEAD is %d (%v)", store.ErrCorrupt,
			signed.Size, head, err)
	}
	if at, err = rd.stateAt(ctx, signed.Size, signed.Root); err != nil {
		err = fmt.Errorf("%w: version %d, under its checkpoint: %w", store.ErrCorrupt, signed.Size, err)
	}
	return at, signed, err
}

// stateAt returns the state of a verifier at version v, whose entry must be the last one under
// root.
func (rd *Reader) stateAt(ctx context.Context, v uint64, root tlog.Hash) (at rverify.State, err error) {
	var entry, audit []byte
	var proof tlog.RecordProof
	var installed []tables.EpochSet
	err = rd.View(ctx, func(r store.Reader) (err error) {
		entry, _ = tables.Entries.Get(r, v)
		if proof, err = (logtree.Reader{Tiles: tables.TilesOf(r)}).Inclusion(v, v-1); err != nil {
			return err
		}
		for _, set := range tables.Epochs.All(r) {
			if set.Version <= v {
				installed = append(installed, set)
			}
		}
		if a, err := record.ParseEntry(entry); err == nil {
			audit, _ = tables.Audits.Get(r, a.AuditSeq+1)
		}
		return nil
	})
	if err != nil {
		return at, err
	}
	if err := tlog.CheckRecord(proof, int64(v), root, int64(v-1), logtree.Leaf(entry)); err != nil {
		return at, err
	}
	a, err := record.ParseEntry(entry)
	if err != nil {
		return at, err
	}
	for _, raw := range installed {
		set, err := record.ParseSignerSet(raw.Set)
		if err != nil {
			return at, err
		}
		at.Signers = set
		at.Epochs = append(at.Epochs, rverify.Epoch{Version: raw.Version, Epoch: set.Epoch, SignerSetB3: set.B3()})
	}
	p, err := rd.PayloadAt(ctx, v)
	if err != nil {
		return at, err
	}
	if at.Signers == nil || p.B3() != a.PayloadB3 || at.Signers.B3() != p.SignerSetB3 ||
		audit == nil && !rd.copy {
		return at, errors.New("payload, signer set and audit record are not those that the entry names")
	}
	if at.Items, err = rd.Materialise(ctx, v); err != nil {
		return at, err
	}
	at.Head = record.Head{
		Version: v, Hash: a.Hash(), PayloadB3: a.PayloadB3, CommittedAt: a.CommittedAt,
		Epoch: at.Signers.Epoch,
	}
	at.Origin = a.Origin
	if !rd.copy {
		at.AuditSeq, at.AuditB3 = a.AuditSeq+1, b3.Sum(audit)
	}
	return at, nil
}
