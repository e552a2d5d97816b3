package tables

import (
	"fmt"

	"ronbox/engines/ledger/record"
)

// IdemKey is the hashed idempotency key that leads to rec, if one does: a batch is known by its first part, what is inside it by nothing.
func IdemKey(rec *record.Record) (key [16]byte, ok bool) {
	ok = rec.Dedupe.Kind == record.DedupeKey && rec.Flags&record.FlagInner == 0 && rec.Part == 0
	return rec.Dedupe.Key, ok
}

// Take moves h past rec, the next record, and counts what rec opens and closes. The batch is taken by TakeBatch, after its last record.
func (h *Head) Take(rec *record.Record) error {
	if rec.Seq != h.Seq+1 || rec.Batch != h.Batches+1 {
		return fmt.Errorf("record %d of batch %d follows on record %d of batch %d", rec.Seq, rec.Batch, h.Seq, h.Batches)
	}
	switch rec.Op {
	case record.OpOpen:
		if h.Accounts++; rec.From != h.Accounts {
			return fmt.Errorf("record %d: it opens the account %d, the next one is %d", rec.Seq, rec.From, h.Accounts)
		}
	case record.OpAsset:
		if h.Assets++; rec.Asset != h.Assets {
			return fmt.Errorf("record %d: it declares the asset %d, the next one is %d", rec.Seq, rec.Asset, h.Assets)
		}
	case record.OpHold:
		h.OpenHolds++
	case record.OpCapture, record.OpRelease, record.OpExpire:
		if h.OpenHolds == 0 {
			return fmt.Errorf("record %d: it closes a hold, and none is open", rec.Seq)
		}
		h.OpenHolds--
	}
	h.Seq = rec.Seq
	return nil
}

// TakeBatch moves h past b, whose records were taken.
func (h *Head) TakeBatch(b *record.Batch) error {
	switch {
	case b.No != h.Batches+1:
		return fmt.Errorf("batch %d follows on batch %d", b.No, h.Batches)
	case b.Last() != h.Seq:
		return fmt.Errorf("batch %d ends with record %d, and record %d was the last", b.No, b.Last(), h.Seq)
	case b.Prev != h.LastRoot:
		return fmt.Errorf("batch %d does not name the root of the batch before it", b.No)
	case b.At <= h.At && h.Batches != 0:
		return fmt.Errorf("batch %d is not younger than the one before it", b.No)
	}
	h.Batches, h.At, h.LastRoot = b.No, b.At, b.Root()
	return nil
}
