package tables

import (
	"errors"
	"testing"

	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

func TestJournal(t *testing.T) {
	b := longBooks()
	tx := ledgerOf(t, b, 0)
	r := tx.Reader()
	if head, known := GetHead(r); !known || head != b.head || LastSeq(r) != head.Seq || LastBatch(r) != head.Batches {
		t.Errorf("head %+v, last %d, %d", head, LastSeq(r), LastBatch(r))
	}
	n := uint64(0)
	for seq, rec := range Records(r, 3, 50) {
		want := b.records[seq-1].Append(nil)
		if got := rec.Append(nil); string(got) != string(want) || string(Raw(r, seq)) != string(want) || seq != 3+n {
			t.Fatalf("record %d: %x, want %x", seq, got, want)
		}
		if header, known := Batch(r, rec.Batch); !known || header.First != seq {
			t.Fatalf("batch of record %d: %+v", seq, header)
		}
		n++
	}
	if n != 47 {
		t.Errorf("%d records", n)
	}
	if _, known := Record(r, b.head.Seq+1); known {
		t.Error("a record behind the last")
	}
	if _, known := Batch(r, 0); known {
		t.Error("a batch before the first")
	}
	for at, want := range map[int64]uint64{0: 1, 10: 1, 11: 2, 20: 2, 5001: 501, int64(b.head.Seq) * 10: b.head.Seq, int64(b.head.Seq)*10 + 1: b.head.Seq + 1} {
		if got := Since(r, at); got != want {
			t.Errorf("since %d: record %d, want %d", at, got, want)
		}
	}
	if empty := storetest.NewTx(t, Buckets()...).Reader(); Since(empty, 5) != 1 || LastSeq(empty) != 0 {
		t.Error("an empty ledger does not begin with record 1")
	}
}

// A row that does not match its key ends a view with an error.
func TestWrongRows(t *testing.T) {
	b := longBooks()
	tx := ledgerOf(t, b, 0)
	raw := b.records[5].Append(nil)
	flipped := append([]byte{}, raw...)
	flipped[20] ^= 4
	header := record.Batch{No: 7, First: 7, Count: 1}
	do(t, tx, func(_ store.Reader, w *store.Writes) {
		w.Put(bJournal, seqKey(100_000), raw)
		w.Put(bJournal, seqKey(6), flipped)
		w.Put(bBatches, seqKey(8), header.Append(nil))
		w.Put(bBatches, seqKey(9), []byte{1})
		w.Put(bState, stateKeys().Append(nil, StateKey{1, 1}), []byte{accountV1})
		w.Put(bState, stateKeys().Append(nil, StateKey{1, 0}), []byte{balanceV1})
		w.Put(bHolds, seqKey(1), make([]byte, 1+holdSize))
	})
	for name, fn := range map[string]func(r store.Reader){
		"another record": func(r store.Reader) { Record(r, 100_000) },
		"a flipped bit":  func(r store.Reader) { Record(r, 6) },
		"another header": func(r store.Reader) { Batch(r, 8) },
		"no header":      func(r store.Reader) { Batch(r, 9) },
		"no balance":     func(r store.Reader) { GetBalance(r, 1, 1) },
		"no account":     func(r store.Reader) { GetAccount(r, 1) },
		"no row": func(r store.Reader) {
			for range States(r, StateKey{}) {
			}
		},
		"no hold": func(r store.Reader) { GetHold(r, 1) },
	} {
		_, err := storetest.Do(tx, write(func(r store.Reader, _ *store.Writes) { fn(r) }))
		if !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := LogNodes(tx.Reader())(3); !errors.Is(err, store.ErrCorrupt) {
		t.Errorf("no node: %v", err)
	}
}
