package ledger

import (
	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// journalWalk goes through the journal batch by batch and holds each against its header, and the
// headers against one another.
type journalWalk struct {
	next uint64 // seq of the next record
	no   uint64 // of the next batch
	prev b3.Digest
	tree merkle.Tree
	rec  record.Record
}

// each is given every record, and every header after its records.
type each func(r store.Reader, rec *record.Record, h *record.Batch) error

// step goes on by some n records, up to the batch last.
func (w *journalWalk) step(r store.Reader, last uint64, n int, do each) error {
	if w.no > 1 && w.prev.IsZero() {
		before, known := tables.Batch(r, w.no-1)
		if !known {
			return damage("the header of batch %d is not there", w.no-1)
		}
		w.prev = before.Root()
	}
	for until := w.next + uint64(n); w.no <= last && w.next < until; {
		if err := w.batch(r, do); err != nil {
			return err
		}
	}
	return nil
}

func (w *journalWalk) batch(r store.Reader, do each) error {
	h, known := tables.Batch(r, w.no)
	switch {
	case !known:
		return damage("the header of batch %d is not there", w.no)
	case h.First != w.next:
		return damage("batch %d begins with record %d, not with %d", w.no, h.First, w.next)
	case h.Prev != w.prev:
		return damage("batch %d does not name the root of the batch before it", w.no)
	}
	for seq, raw := range tables.Raws(r, h.First, h.Last()+1) {
		if seq != w.next {
			break
		}
		if err := w.rec.Decode(raw); err != nil {
			return damage("record %d: %w", seq, err)
		}
		if w.rec.Seq != seq || w.rec.Batch != h.No || w.rec.At != h.At {
			return damage("record %d is another one, or of another batch", seq)
		}
		w.tree.Add(raw)
		if err := do(r, &w.rec, nil); err != nil {
			return err
		}
		w.next++
	}
	if w.next != h.Last()+1 {
		return damage("the record %d is not there", w.next)
	}
	if w.tree.Root() != h.Merkle {
		return damage("the records of batch %d do not lead to its root", w.no)
	}
	w.prev, w.no = h.Root(), w.no+1
	return do(r, nil, &h)
}
