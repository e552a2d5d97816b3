package period

import (
	"context"
	"fmt"
	"io"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// exportRecords is how many records or rows one view of an export reads: some 20 ms.
const exportRecords = 2048

// exporter writes the lines of a period file.
type exporter struct {
	store *store.Store
	c     tables.Closing
	w     io.Writer
	rest  func(context.Context) // between two views; nil: no rest
	tell  func(done uint64)     // of the records; nil: nobody asks
	names map[refOf]string      // of the view at hand
	line  record.PeriodLine     // used again for each line
	buf   []byte                // likewise
	prev  record.Statement      // of the period before
	batch record.Batch          // that the next record is of
	root  b3.Digest             // of the batch before
	tree  merkle.Tree           // of the batch at hand
}

// refOf is the ref of an account or an asset.
type refOf struct {
	asset bool
	ref   uint64
}

// export writes all lines. The statement of the closing is known.
func (x *exporter) export(ctx context.Context) error {
	err := x.view(ctx, func(r store.Reader) error {
		x.prev = tables.StatementOf(r, x.c.Period-1)
		x.root = x.prev.LastRoot
		return x.put(record.PeriodLine{Kind: record.LinePeriod, Opening: record.NewPeriodOpening(&x.prev)})
	})
	if err == nil {
		err = x.base(ctx)
	}
	if err == nil {
		err = x.records(ctx)
	}
	if err == nil {
		err = x.put(record.PeriodLine{Kind: record.LineClose, Close: x.c.File.Statement})
	}
	return err
}

// view calls fn in a view, after the rest between two of them.
func (x *exporter) view(ctx context.Context, fn func(r store.Reader) error) error {
	if x.rest != nil {
		x.rest(ctx)
	}
	x.names = map[refOf]string{}
	return x.store.View(ctx, func(r store.Reader) error {
		if err := goesOn(r, &x.c); err != nil {
			return err
		}
		return fn(r)
	})
}

func (x *exporter) put(l record.PeriodLine) error {
	x.line = l
	x.buf = x.line.Append(x.buf[:0])
	_, err := x.w.Write(x.buf)
	return err
}

// base writes the rows of the base that the period begins with.
func (x *exporter) base(ctx context.Context) error {
	var from tables.BaseRow
	for done := false; !done; {
		err := x.view(ctx, func(r store.Reader) error {
			n := 0
			for row := range tables.BaseAt(r, x.prev.Period).RowsFrom(from) {
				if n == exportRecords {
					from = row.Clone()
					return nil
				}
				n++
				if err := x.baseRow(r, row); err != nil {
					return err
				}
			}
			done = true
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (x *exporter) baseRow(r store.Reader, row tables.BaseRow) error {
	l, err := row.Line("")
	if err != nil {
		return err
	}
	switch l.Base {
	case record.BaseAccount:
		l.Name, err = x.name(r, refOf{false, l.Ref})
	case record.BaseAsset:
		l.Name, err = x.name(r, refOf{true, uint64(l.Asset)})
	}
	if err != nil {
		return err
	}
	return x.put(record.PeriodLine{Kind: record.LineBase, Base: l})
}

// records writes the records, and the header of each batch behind its last one.
func (x *exporter) records(ctx context.Context) error {
	for next := x.prev.ToSeq + 1; next <= x.c.Seq; {
		end := min(next+exportRecords, x.c.Seq+1)
		err := x.view(ctx, func(r store.Reader) error {
			tables.WarmRecords(r, next, end)
			for seq, raw := range tables.Raws(r, next, end) {
				if seq != next {
					break
				}
				if err := x.record(r, seq, raw); err != nil {
					return err
				}
				next++
			}
			if next != end {
				return fmt.Errorf("%w: record %d is missing", store.ErrCorrupt, next)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if x.tell != nil {
			x.tell(next - x.prev.ToSeq - 1)
		}
	}
	return nil
}

func (x *exporter) record(r store.Reader, seq uint64, raw []byte) error {
	l := record.Line{Kind: record.LineRecord, Raw: raw}
	err := l.Record.Decode(raw)
	if err != nil {
		return fmt.Errorf("%w: record %d: %w", store.ErrCorrupt, seq, err)
	}
	x.tree.Add(raw)
	rec := &l.Record
	for _, one := range []struct {
		name *string
		of   refOf
	}{
		{&l.Names.From, refOf{false, rec.From}},
		{&l.Names.To, refOf{false, rec.To}},
		{&l.Names.Asset, refOf{true, uint64(rec.Asset)}},
	} {
		if one.of.ref != 0 && err == nil {
			*one.name, err = x.name(r, one.of)
		}
	}
	if err == nil {
		err = x.put(record.PeriodLine{Kind: record.LineRecord, Entry: l})
	}
	if err != nil {
		return err
	}
	return x.ends(r, rec)
}

// ends writes the header of the batch of rec, if rec is its last record: the header must be that of
// its records, and follow the one before.
func (x *exporter) ends(r store.Reader, rec *record.Record) error {
	if x.batch.No != rec.Batch {
		var known bool
		if x.batch, known = tables.Batch(r, rec.Batch); !known {
			return fmt.Errorf("%w: batch %d has no header", store.ErrCorrupt, rec.Batch)
		}
	}
	if rec.Seq != x.batch.Last() {
		return nil
	}
	if x.batch.Merkle != x.tree.Root() || x.batch.Prev != x.root {
		return fmt.Errorf("%w: batch %d is not that of its records, or does not follow the one before",
			store.ErrCorrupt, rec.Batch)
	}
	x.root = x.batch.Root()
	return x.put(record.PeriodLine{
		Kind: record.LineBatch, Entry: record.Line{Kind: record.LineBatch, Batch: x.batch},
	})
}

// name returns the name of a ref.
func (x *exporter) name(r store.Reader, of refOf) (string, error) {
	if name, ok := x.names[of]; ok {
		return name, nil
	}
	name, known := nameOf(r, of.asset, of.ref)
	if !known {
		return "", fmt.Errorf("%w: ref %d has no name", store.ErrCorrupt, of.ref)
	}
	x.names[of] = name
	return name, nil
}
