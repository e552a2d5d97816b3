package tables

import (
	"encoding/binary"
	"iter"

	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// journal and batches hold the bytes that are hashed: they have a version and a checksum of their own.
var (
	journal = store.NewTable(bJournal, store.U64(), rawValue())
	batches = store.NewTable(bBatches, store.U64(), store.Value[record.Batch]{
		Encode: func(b record.Batch) ([]byte, error) { return b.Append(nil), nil },
		Decode: record.DecodeBatch,
	})
)

// Raw is the bytes of the record seq, nil if there is none. They die with the reader.
func Raw(r store.Reader, seq uint64) []byte {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], seq)
	return r.Get(bJournal, key[:])
}

// Record reads the record seq. Bytes that are no record, or another one, end the command or the view in a RowError.
func Record(r store.Reader, seq uint64) (rec record.Record, known bool) {
	return rec, ReadRecord(r, seq, &rec)
}

// ReadRecord is Record into rec, whose memory it uses again.
func ReadRecord(r store.Reader, seq uint64, rec *record.Record) bool {
	raw := Raw(r, seq)
	if raw == nil {
		return false
	}
	decodeRecord(seq, raw, rec)
	return true
}

// Raws walks the bytes of the records from one seq up to, not including, another, as they stand in the file: holes are the caller's to see.
func Raws(r store.Reader, from, to uint64) iter.Seq2[uint64, []byte] {
	return journal.Range(r, from, to)
}

// Records walks the records from one seq up to, not including, another. The record is used again for the next one.
func Records(r store.Reader, from, to uint64) iter.Seq2[uint64, *record.Record] {
	return func(yield func(uint64, *record.Record) bool) {
		var rec record.Record
		for seq, raw := range journal.Range(r, from, to) {
			if decodeRecord(seq, raw, &rec); !yield(seq, &rec) {
				return
			}
		}
	}
}

// LastSeq is the seq of the newest record in the file, 0 if there is none.
func LastSeq(r store.Reader) uint64 {
	seq, _, _ := journal.Last(r)
	return seq
}

func decodeRecord(seq uint64, raw []byte, rec *record.Record) {
	err := rec.Decode(raw)
	if err == nil && rec.Seq != seq {
		panic(wrong(bJournal, seqKey(seq), "it is the record %d", rec.Seq))
	}
	if err != nil {
		panic(wrong(bJournal, seqKey(seq), "%w", err))
	}
}

// Batch reads the header of batch no.
func Batch(r store.Reader, no uint64) (record.Batch, bool) {
	b, known := batches.Get(r, no)
	if known && b.No != no {
		panic(wrong(bBatches, seqKey(no), "it is the header of batch %d", b.No))
	}
	return b, known
}

// Batches walks the headers from one number up to, not including, another.
func Batches(r store.Reader, from, to uint64) iter.Seq2[uint64, record.Batch] {
	return batches.Range(r, from, to)
}

// LastBatch is the number of the newest header in the file, 0 if there is none.
func LastBatch(r store.Reader) uint64 {
	no, _, _ := batches.Last(r)
	return no
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

// PutBatch writes the records of one batch, whose seqs follow one another from b.First on, and its header. The records must not change
// before the command is answered.
func PutBatch(w *store.Writes, b *record.Batch, records [][]byte) {
	keys := make([]byte, 0, 8*len(records))
	for i, raw := range records {
		keys = binary.BigEndian.AppendUint64(keys, b.First+uint64(i))
		w.Put(bJournal, keys[8*i:8*i+8:8*i+8], raw)
	}
	batches.Put(w, b.No, *b)
}

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
