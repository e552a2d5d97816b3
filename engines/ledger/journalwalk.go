package ledger

import (
	"slices"
	"strings"

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

// paymentWalk reads the records from one seq to another, in either direction.
type paymentWalk struct {
	l        *Local
	f        *PaymentFilter
	account  uint64 // ref of f.Account, 0 for any
	asset    uint32 // ref of f.Asset, 0 for any
	from, to uint64 // that are left when a slice begins
	read     uint64 // by the slice
	found    []Outcome
	rec      record.Record
}

// left returns the records that are left after the slice.
func (w *paymentWalk) left() (from, to uint64) {
	if w.f.Newest {
		return w.from, w.to - w.read
	}
	return w.from + w.read, w.to
}

// closed returns a *ClosedError if a slice of w would begin in a closed period.
func (w *paymentWalk) closed(p past) error {
	switch {
	case !w.f.Newest:
		return p.closed(w.from)
	case w.from <= w.to:
		return p.closed(w.to)
	}
	return nil
}

// slice selects from the next records. It reports whether there are no more. It may run again.
func (w *paymentWalk) slice(r store.Reader) (done bool, err error) {
	w.read, w.found = 0, w.found[:0]
	past := w.l.past(r)
	if err := w.closed(past); err != nil {
		return false, err
	}
	var head record.Batch
	for {
		from, to := w.left()
		if from > to {
			return true, nil
		}
		if w.read == paymentsScan || len(w.found) == paymentsFound {
			return false, nil
		}
		seq := from
		if w.f.Newest {
			seq = to
		}
		if past.Below(seq) {
			return false, nil
		}
		if !tables.ReadRecord(r, seq, &w.rec) {
			return false, ErrRange
		}
		w.read++
		if !w.wants() {
			continue
		}
		if head.No != w.rec.Batch {
			var known bool
			if head, known = tables.Batch(r, w.rec.Batch); !known {
				return false, &store.RowError{Bucket: "ledger/batches", Cause: errNoHeader}
			}
		}
		out, err := w.l.single(r, &w.rec, head.Root())
		if err != nil {
			return false, err
		}
		w.found = append(w.found, out)
	}
}

// wants reports whether the filter selects the record.
func (w *paymentWalk) wants() bool {
	return w.rec.Op.MovesMoney() &&
		(len(w.f.Ops) == 0 || slices.Contains(w.f.Ops, w.rec.Op)) &&
		(w.asset == 0 || w.asset == w.rec.Asset) &&
		(w.account == 0 || w.account == w.rec.From || w.account == w.rec.To) &&
		strings.Contains(w.rec.Memo, w.f.Memo)
}
