package period

import (
	"context"
	"fmt"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// appendNames adds the names of the period to the log of names: accounts, then assets.
func (b *builder) appendNames(ctx context.Context) error {
	size := b.prev.Names()
	err := b.names(ctx, false, b.prev.Accounts+1, b.accounts, &size)
	if err == nil {
		err = b.names(ctx, true, uint64(b.prev.Assets)+1, uint64(len(b.assets)), &size)
	}
	return err
}

// names appends the names with the refs from to to.
func (b *builder) names(ctx context.Context, asset bool, from, to uint64, size *uint64) error {
	for ; from <= to; from += commandRows {
		end, at := min(from+commandRows-1, to), *size
		err := b.write(ctx, int(end-from+1), func(r store.Reader, w *store.Writes) error {
			fresh := map[uint64]b3.Digest{}
			for ref := from; ref <= end; ref++ {
				name, known := nameOf(r, asset, ref)
				if !known {
					return fmt.Errorf("%w: ref %d has no name", store.ErrCorrupt, ref)
				}
				leaf := record.NameLeaf(asset, ref, name)
				if err := tables.AppendName(r, w, at+ref-from, leaf, fresh); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		*size += end - from + 1
	}
	return nil
}

func nameOf(r store.Reader, asset bool, ref uint64) (string, bool) {
	if asset {
		return tables.AssetName(r, uint32(ref))
	}
	return tables.Name(r, ref)
}

// seal makes the statement, and leaves the closing at Exporting.
func (b *builder) seal(ctx context.Context) error {
	var s record.Statement
	err := b.store.View(ctx, func(r store.Reader) (err error) {
		s, err = b.statement(r)
		return err
	})
	if err != nil {
		return err
	}
	return b.write(ctx, 1, func(r store.Reader, w *store.Writes) error {
		c := tables.GetClosing(r)
		c.Step, c.File.Statement = tables.Exporting, s.Text()
		c.OwnBytes, c.OwnRows = b.bytes, b.rows
		tables.PutClosing(w, c)
		return nil
	})
}

// statement is the statement of the period.
func (b *builder) statement(r store.Reader) (s record.Statement, err error) {
	before := tables.StatementOf(r, b.prev.Period)
	first, known := tables.Batch(r, b.prev.Batch+1)
	last, ends := tables.Batch(r, b.c.Batch)
	if !known || !ends || last.Last() != b.c.Seq {
		return s, fmt.Errorf("%w: batch %d does not end with record %d", store.ErrCorrupt, b.c.Batch, b.c.Seq)
	}
	s = record.Statement{
		Period: b.c.Period, FromSeq: first.First, ToSeq: b.c.Seq, FromBatch: first.No, ToBatch: last.No,
		FromAt: first.At, ToAt: last.At, LastRoot: last.Root(), Accounts: b.accounts, Assets: uint32(len(b.assets)),
		HoldsOpen: uint64(len(b.open)), References: b.references, StateRoot: tables.BaseAt(r, b.c.Period).StateRoot(),
	}
	if before.Period != 0 {
		s.Prev = before.Digest()
	}
	for _, pos := range merkle.LogPeaks(s.ToBatch) {
		d, err := tables.LogNodes(r)(pos)
		if err != nil {
			return s, err
		}
		s.Peaks = append(s.Peaks, d)
	}
	s.LogRoot = merkle.FoldPeaks(s.Peaks)
	s.NamesRoot, err = tables.NamesRoot(r, s.Accounts+uint64(s.Assets))
	return s, err
}
