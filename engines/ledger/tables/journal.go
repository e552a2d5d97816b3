package tables

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"
	"slices"

	"ronbox/appliance/b3"
	"ronbox/appliance/merkle"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// journal holds the bytes that are hashed: they have a version and a checksum of their own.
var journal = store.NewTable(bJournal, store.U64(), rawValue())

// Raw returns the bytes of the record seq, nil if there is no such record. They are valid until the
// end of the view.
func Raw(r store.Reader, seq uint64) []byte {
	var key [8]byte
	binary.BigEndian.PutUint64(key[:], seq)
	return r.Get(bJournal, key[:])
}

// Record reads the record seq. Bytes that are no record, or another one, end the command or the
// view in a RowError.
func Record(r store.Reader, seq uint64) (rec record.Record, known bool) {
	return rec, ReadRecord(r, seq, &rec)
}

// MustRecord reads a record up to the head. If it is missing, the command or the view ends in a
// RowError.
func MustRecord(r store.Reader, seq uint64) record.Record {
	rec, known := Record(r, seq)
	if !known {
		panic(missing(bJournal, seqKey(seq)))
	}
	return rec
}

// ReadRecord is Record into rec. It reuses the memory of rec.
func ReadRecord(r store.Reader, seq uint64, rec *record.Record) bool {
	raw := Raw(r, seq)
	if raw == nil {
		return false
	}
	decodeRecord(seq, raw, rec)
	return true
}

// Raws walks the bytes of the records from one seq up to, not including, another, as they stand in
// the file: holes are the caller's to see.
func Raws(r store.Reader, from, to uint64) iter.Seq2[uint64, []byte] {
	return journal.Range(r, from, to)
}

// Records walks the records from one seq up to, not including, another. The record is used again
// for the next one.
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

// LastSeq returns the seq of the newest record in the file, 0 if there are no records.
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

// batches holds headers as they are hashed: they have a version and a checksum of their own.
var batches = store.NewTable(bBatches, store.U64(), store.Value[record.Batch]{
	Encode: func(b record.Batch) ([]byte, error) { return b.Append(nil), nil },
	Decode: record.DecodeBatch,
})

// Head is the end of the journal, with the counters that the next command continues. Each command
// that writes records writes it.
type Head struct {
	Seq       uint64    // of the newest record
	Batches   uint64    // how many there are
	At        int64     // of the newest batch, Unix ns
	LastRoot  b3.Digest // of the newest batch
	Accounts  uint64    // refs given to accounts: 1 to this
	Assets    uint32    // refs given to assets: 1 to this
	OpenHolds uint64
	Tail      Tail // the headers of the newest batches
}

var heads = store.NewTable(bMeta, store.String[string](), headValue()).Summed()

// GetHead reads the head; the zero Head is that of a ledger without records.
func GetHead(r store.Reader) (Head, bool) { return heads.Get(r, keyHead) }

// PutHead writes the head.
func PutHead(w *store.Writes, h Head) { heads.Put(w, keyHead, h) }

// The row of the head: its version, the numbers, then the headers that wait.
const (
	headV2   = 2
	headSize = 36 + b3.Size + 8
)

func headValue() store.Value[Head] {
	return store.Value[Head]{
		Encode: func(h Head) ([]byte, error) {
			b := make([]byte, 0, 1+headSize+len(h.Tail.raw)+store.SumSize)
			b = le.AppendUint64(append(b, headV2), h.Seq)
			b = le.AppendUint64(b, h.Batches)
			b = le.AppendUint64(b, uint64(h.At))
			b = le.AppendUint64(b, h.Accounts)
			b = le.AppendUint32(b, h.Assets)
			b = append(b, h.LastRoot[:]...)
			b = le.AppendUint64(b, h.OpenHolds)
			return append(b, h.Tail.raw...), nil
		},
		Decode: func(b []byte) (h Head, err error) {
			if len(b) < 1+headSize {
				return h, errLength
			}
			if b[0] != headV2 {
				return h, errVersion
			}
			n := b[1:]
			h.Seq, h.Batches, h.At = le.Uint64(n), le.Uint64(n[8:]), int64(le.Uint64(n[16:]))
			h.Accounts, h.Assets = le.Uint64(n[24:]), le.Uint32(n[32:])
			copy(h.LastRoot[:], n[36:])
			h.OpenHolds = le.Uint64(n[36+b3.Size:])
			h.Tail.raw = string(n[headSize:])
			switch {
			case h.At < 0:
				return h, errNumber
			case len(h.Tail.raw)%record.BatchSize != 0:
				return h, errLength
			}
			return h, nil
		},
	}
}

// TailBatches is how many headers are written to ledger/batches together. Until so many have come
// they wait in the row of the head, which each commit writes anyway: most commits leave the pages
// of the table alone. The number is part of the format. With one more, ledger/meta would take over
// a quarter of a page, and so a page of its own.
const TailBatches = 8

// Tail holds the headers after the last batch with a number that is a multiple of TailBatches. It
// is immutable.
type Tail struct{ raw string }

// Count returns the number of headers: Batches modulo TailBatches.
func (t Tail) Count() uint64 { return uint64(len(t.raw) / record.BatchSize) }

// tabled returns the number of headers in ledger/batches.
func (h *Head) tabled() uint64 { return h.Batches - h.Tail.Count() }

// waiting returns the header of batch no, if it is in the row of the head.
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

// LastBatch returns the number of the last batch in the file, those in the row of the head
// included.
func LastBatch(r store.Reader) uint64 {
	no, _, _ := batches.Last(r)
	h, _ := GetHead(r)
	closed := GetHorizon(r).Batch // headers up to it may be dropped
	return max(no, closed-closed%TailBatches) + h.Tail.Count()
}

// Since returns the first seq of the first batch after the horizon that is not older than at, Unix
// ns, or the seq after the newest record if all are older.
func Since(r store.Reader, at int64) uint64 {
	// batches up to older are older or closed, those from end on are not
	older, end := GetHorizon(r).Batch, LastBatch(r)+1
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

// PutBatch writes the records of the next batch, with consecutive seqs from b.First on, and adds
// its header to h. The caller writes h with PutHead. The records must not change before the command
// is answered.
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
	raw, keys := []byte(t.raw), make([]byte, 0, 8*TailBatches)
	for no := last + 1 - t.Count(); no <= last; no++ {
		n := len(keys)
		keys = binary.BigEndian.AppendUint64(keys, no)
		w.Put(bBatches, keys[n:n+8:n+8], raw[:record.BatchSize:record.BatchSize])
		raw = raw[record.BatchSize:]
	}
}

var mlog = store.NewTable(bMlog, store.U64(), digestValue()).Summed().Alone()

// LogNodes reads the stored nodes of the log of batch roots. A node that is not there is a
// RowError.
func LogNodes(r store.Reader) merkle.ReadNode {
	return func(pos uint64) (b3.Digest, error) {
		d, known := mlog.Get(r, pos)
		if !known {
			return d, missing(bMlog, seqKey(pos))
		}
		return d, nil
	}
}

// LogNode reads one node.
func LogNode(r store.Reader, pos uint64) (b3.Digest, bool) { return mlog.Get(r, pos) }

// PutLogNodes writes nodes, in ascending order of position.
func PutLogNodes(w *store.Writes, nodes ...merkle.LogNode) {
	for _, n := range nodes {
		mlog.Put(w, n.Pos, n.Hash)
	}
}

// WarmStates has the disk read rows of ledger/state side by side.
func WarmStates(r store.Reader, keys []StateKey) {
	store.Warm(r, bState, sorted(stateKeys(), keys))
}

// WarmNames has the disk read the rows that Ref reads for names of accounts, side by side.
func WarmNames(r store.Reader, accounts []string) {
	store.Warm(r, bNames, sorted(accountNames(), accounts))
}

// WarmRecordsAt has the disk read single records side by side.
func WarmRecordsAt(r store.Reader, seqs []uint64) {
	store.Warm(r, bJournal, sorted(store.U64(), seqs))
}

// WarmRecords has the disk read the records from one seq up to, not including, another, side by
// side.
func WarmRecords(r store.Reader, from, to uint64) {
	store.WarmRange(r, bJournal, seqKey(from), seqKey(to))
}

// sorted writes keys in the order of their table, each once.
func sorted[K any](of store.Key[K], keys []K) [][]byte {
	raw := make([][]byte, len(keys))
	for i, k := range keys {
		raw[i] = of.Append(nil, k)
	}
	slices.SortFunc(raw, bytes.Compare)
	return slices.CompactFunc(raw, bytes.Equal)
}

// accountNames are the keys of ledger/names that accounts have.
func accountNames() store.Key[string] {
	return store.Key[string]{
		Append: func(dst []byte, name string) []byte { return nameKeys().Append(dst, nameKey{kindAccount, name}) },
	}
}
