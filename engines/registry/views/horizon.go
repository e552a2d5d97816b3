package views

import (
	"context"
	"errors"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// Horizon returns where the log begins.
func (rd *Reader) Horizon(ctx context.Context) (document.Horizon, error) {
	out := document.Horizon{MinVersion: rd.pub.Head().MinVersion, Kept: []uint64{}}
	if out.MinVersion <= 1 {
		return out, nil
	}
	err := rd.View(ctx, func(r store.Reader) error {
		out.MinVersion, _ = tables.MetaNumber.Get(r, tables.KeyMin)
		note, _ := tables.Retentions.Get(r, out.MinVersion)
		out.Statement, out.Kept = string(note), out.Kept[:0]
		for _, set := range tables.Epochs.All(r) {
			if set.Version < out.MinVersion {
				out.Kept = append(out.Kept, set.Version)
			}
		}
		return nil
	})
	return out, err
}

// held is as known, but accepts the pruned versions whose entry and payload are kept: genesis and
// changes of signers.
func (rd *Reader) held(ctx context.Context, v uint64) error {
	pruned := rd.known(v)
	if !errors.Is(pruned, document.ErrPruned) {
		return pruned
	}
	return rd.View(ctx, func(r store.Reader) error {
		if tables.KeptVersions(r)[v] {
			return nil
		}
		return pruned
	})
}

// orGone is as orPruned, but returns err for the pruned versions that are kept.
func (rd *Reader) orGone(ctx context.Context, v uint64, err error) error {
	if pruned := rd.held(ctx, v); errors.Is(pruned, document.ErrPruned) {
		return pruned
	}
	return err
}
