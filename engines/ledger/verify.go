package ledger

import (
	"context"

	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// VerifyTail goes over this many of the newest batches, of these many records together at most: in a large ledger each may ask for four pages
// of the disk that are in no memory after a start, and a second should do.
const (
	tailBatches = 1024
	tailRecords = 1 << 14
)

// verify goes over the journal as the configuration asks: records, images, roots, chain; with VerifyFull also what is derived from them. A file
// that was in safe mode is verified in full whatever is asked, unless it is found damaged before.
func (l *Local) verify(ctx context.Context) error {
	var o lverify.Options
	how := l.boot.VerifyOnOpen
	if l.doubt != "" && !l.books.barred.Load() {
		l.log.Warn("verify_all", "reason", l.doubt)
		how = VerifyFull
	}
	switch how {
	case VerifyNone:
		return nil
	case VerifyTail:
		from, err := l.tail(ctx)
		if err != nil || from == 0 {
			return err
		}
		o.From = max(from, 2) // 1 is all, and what is derived
	}
	o.Progress = func(done, total uint64) { l.progress("verify the ledger", int64(done), int64(total)) }
	return l.store.View(ctx, func(r store.Reader) error {
		if o.From > 1 {
			l.books.warmTail(r, o.From)
		}
		rep, err := lverify.Verify(ctx, r, o)
		if err == nil && !rep.OK {
			return &damageError{rep.Err()}
		}
		return err
	})
}

// tail is the first batch of the tail, 0 for none.
func (l *Local) tail(ctx context.Context) (from uint64, err error) {
	cur := &l.books.cur
	if cur.Batches == 0 {
		return 0, nil
	}
	from = cur.Batches - min(cur.Batches, tailBatches) + 1
	if cur.Seq <= tailRecords {
		return from, nil
	}
	err = l.store.View(ctx, func(r store.Reader) error {
		if rec, known := tables.Record(r, cur.Seq-tailRecords); known {
			from = max(from, min(rec.Batch+1, cur.Batches))
		}
		return nil
	})
	return from, err
}

// warmTail has the disk read what a check from a batch on holds images against, side by side: the records that they follow on, and the rows that
// tell whether those are the newest.
func (b *books) warmTail(r store.Reader, batch uint64) {
	first, known := tables.Batch(r, batch)
	if !known || b.cur.Accounts < cleanRows {
		return
	}
	var rows []tables.StateKey
	var past []uint64
	var rec record.Record
	for _, raw := range tables.Raws(r, first.First, b.cur.Seq+1) {
		if rec.Decode(raw) != nil {
			return // the check tells
		}
		for i := range rec.Images {
			if im := &rec.Images[i]; im.Prev != 0 && im.Prev < first.First {
				rows, past = append(rows, tables.StateKey{Account: im.Account, Asset: im.Asset}), append(past, im.Prev)
			}
		}
	}
	tables.WarmStates(r, rows)
	tables.WarmRecordsAt(r, past)
}
