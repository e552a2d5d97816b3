package tables

import (
	"encoding/binary"
	"fmt"
	"iter"

	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// batches holds headers as they are hashed: they have a version and a checksum of their own.
var batches = store.NewTable(bBatches, store.U64(), store.Value[record.Batch]{
	Encode: func(b record.Batch) ([]byte, error) { return b.Append(nil), nil },
	Decode: record.DecodeBatch,
})

// TailBatches is how many headers are written to ledger/batches together. Until so many have come they wait in the row of the head, which each
// commit writes anyway: most commits leave the pages of the table alone. The number is part of the format. With one more, ledger/meta
// would take over a quarter of a page, and so a page of its own.
const TailBatches = 8

// Tail are the headers that wait: those of the batches behind the last one whose number is a multiple of TailBatches. It is immutable.
type Tail struct{ raw string }

// Count is how many there are: what Batches leaves over, divided by TailBatches.
func (t Tail) Count() uint64 { return uint64(len(t.raw) / record.BatchSize) }

// tabled is how many headers ledger/batches has.
func (h *Head) tabled() uint64 { return h.Batches - h.Tail.Count() }

// waiting gives the header of batch no, if it waits.
func (h *Head) waiting(no uint64) (record.Batch, bool) {
	if no <= h.tabled() || no > h.Batches {
		return record.Batch{}, false
	}
	at := (no - h.tabled() - 1) * record.BatchSize
	b, err := record.DecodeBatch([]byte(h.Tail.raw[at : at+record.BatchSize]))
	if err != nil {
		panic(wrong(bMeta, []byte(keyHead), "%w", err))
	}
	if b.No != no {
		panic(wrong(bMeta, []byte(keyHead), "it has the header of batch %d in the place of %d", b.No, no))
	}
	return b, true
}

// Batch reads the header of batch no.
func Batch(r store.Reader, no uint64) (record.Batch, bool) {
	b, known := batches.Get(r, no)
	if known && b.No != no {
		panic(wrong(bBatches, seqKey(no), "it is the header of batch %d", b.No))
	}
	if !known {
		h, _ := GetHead(r)
		b, known = h.waiting(no)
	}
	return b, known
}

// Batches walks the headers from one number up to, not including, another.
func Batches(r store.Reader, from, to uint64) iter.Seq2[uint64, record.Batch] {
	return func(yield func(uint64, record.Batch) bool) {
		for no, b := range batches.Range(r, from, to) {
			if !yield(no, b) {
				return
			}
		}
		h, _ := GetHead(r)
		for no := max(from, h.tabled()+1); no < to; no++ {
			if b, known := h.waiting(no); !known || !yield(no, b) {
				return
			}
		}
	}
}

// LastBatch is how many headers the file has, those that wait included, if none is missing or there twice.
func LastBatch(r store.Reader) uint64 {
	no, _, _ := batches.Last(r)
	h, _ := GetHead(r)
	return no + h.Tail.Count()
}

// Since is the first seq of the first batch that is not older than at, Unix ns; behind the newest record if all are.
func Since(r store.Reader, at int64) uint64 {
	older, end := uint64(0), LastBatch(r)+1 // batches up to older are older, those from end on are not
	for older+1 < end {
		no := older + (end-older)/2
		if b, known := Batch(r, no); known && b.At >= at {
			end = no
		} else {
			older = no
		}
	}
	if b, known := Batch(r, end); known {
		return b.First
	}
	return LastSeq(r) + 1
}

// PutBatch writes the records of the next batch, whose seqs follow one another from b.First on, and takes its header into the head, which
// PutHead is to write. The records must not change before the command is answered.
func PutBatch(w *store.Writes, h *Head, b *record.Batch, records [][]byte) {
	if b.No != h.Batches+1 {
		panic(fmt.Sprintf("tables: batch %d after batch %d", b.No, h.Batches))
	}
	keys := make([]byte, 0, 8*len(records))
	for i, raw := range records {
		keys = binary.BigEndian.AppendUint64(keys, b.First+uint64(i))
		w.Put(bJournal, keys[8*i:8*i+8:8*i+8], raw)
	}
	h.Seq, h.Batches, h.At, h.LastRoot = b.Last(), b.No, b.At, b.Root()
	h.Tail.raw += string(b.Append(nil))
	if b.No%TailBatches == 0 {
		h.Tail.put(w, b.No)
		h.Tail = Tail{}
	}
}

// put writes the headers to ledger/batches, the last one under the number given.
func (t Tail) put(w *store.Writes, last uint64) {
	raw := []byte(t.raw)
	for no := last + 1 - uint64(len(raw)/record.BatchSize); no <= last; no++ {
		w.Put(bBatches, seqKey(no), raw[:record.BatchSize:record.BatchSize])
		raw = raw[record.BatchSize:]
	}
}
