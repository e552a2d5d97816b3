package tables

import (
	"encoding/binary"
	"iter"

	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// journal holds the bytes that are hashed: they have a version and a checksum of their own.
var journal = store.NewTable(bJournal, store.U64(), rawValue())

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

func seqKey(seq uint64) []byte { return binary.BigEndian.AppendUint64(nil, seq) }
