package ledger

import (
	"context"

	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// VerifyTail goes over this many of the newest batches, of these many records together at most: some 2 s.
const (
	tailBatches = 1024
	tailRecords = 1 << 18
)

// verify goes over the journal as the configuration asks: VerifyTail over records, roots and chain of the newest batches, VerifyFull over
// all of it, images and what is derived from them included. What redo has gone over is not gone over again by VerifyTail.
func (l *Local) verify(ctx context.Context) error {
	switch l.boot.VerifyOnOpen {
	case VerifyNone:
		return nil
	case VerifyTail:
		return l.verifyTail(ctx)
	}
	o := lverify.Options{Progress: func(done, total uint64) { l.progress("verify the ledger", int64(done), int64(total)) }}
	return l.store.View(ctx, func(r store.Reader) error {
		rep, err := lverify.Verify(ctx, r, o)
		if err == nil && !rep.OK {
			return &damageError{rep.Err()}
		}
		return err
	})
}

func (l *Local) verifyTail(ctx context.Context) error {
	first, err := l.tail(ctx)
	end := l.books.cur.hand.low.Batches
	if err != nil || first == 0 || first > end {
		return err
	}
	walk := &journalWalk{no: first}
	err = l.store.View(ctx, func(r store.Reader) error {
		h, known := tables.Batch(r, first)
		if !known {
			return damage("the header of batch %d is not there", first)
		}
		walk.next = h.First
		return nil
	})
	for err == nil && walk.no <= end {
		l.progress("verify the ledger", int64(walk.no-first), int64(end+1-first))
		err = l.store.View(ctx, func(r store.Reader) error {
			return walk.step(r, end, redoSlice, func(store.Reader, *record.Record, *record.Batch) error { return nil })
		})
	}
	return err
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
