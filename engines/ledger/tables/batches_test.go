package tables

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/record"
	"ronbox/store"
	"ronbox/store/storetest"
)

// chained is a command that appends n batches of one empty record each.
func chained(r store.Reader, w *store.Writes, n int) {
	h, _ := GetHead(r)
	for range n {
		no := h.Batches + 1
		PutBatch(w, &h, &record.Batch{No: no, First: no, Count: 1, At: int64(no) * 10, Prev: h.LastRoot}, [][]byte{{}})
	}
	PutHead(w, h)
}

// All batches are readable and the file is the same, however many batches each command writes.
func TestBatchesAreRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tx, single := storetest.NewTx(t, Buckets()...), storetest.NewTx(t, Buckets()...)
		r, last := tx.Reader(), uint64(0)
		for _, n := range rapid.SliceOfN(rapid.IntRange(1, 3*TailBatches), 1, 5).Draw(t, "batches") {
			do(t, tx, func(r store.Reader, w *store.Writes) { chained(r, w, n) })
			for range n {
				do(t, single, func(r store.Reader, w *store.Writes) { chained(r, w, 1) })
			}
			last += uint64(n)
			prev := record.Batch{}
			for no := uint64(1); no <= last; no++ {
				b, known := Batch(r, no)
				if !known || b.No != no || prev.No != 0 && b.Prev != prev.Root() {
					t.Fatalf("batch %d of %d: %+v", no, last, b)
				}
				if at := Since(r, b.At); at != no {
					t.Fatalf("since %d: record %d", b.At, at)
				}
				prev = b
			}
			head, _ := GetHead(r)
			if _, known := Batch(r, last+1); known || LastBatch(r) != last || head.LastRoot != prev.Root() ||
				Since(r, prev.At+1) != last+1 {
				t.Fatalf("%d batches, the last is %d, the head %+v", last, LastBatch(r), head)
			}
			if tabled, _, _ := batches.Last(r); tabled != last/TailBatches*TailBatches {
				t.Fatalf("ledger/batches has %d of %d", tabled, last)
			}
		}
		from := rapid.Uint64Range(0, last+2).Draw(t, "from")
		to := rapid.OneOf(rapid.Uint64Range(0, last+2), rapid.Just[uint64](math.MaxUint64)).Draw(t, "to")
		next := max(from, 1)
		for no, b := range Batches(r, from, to) {
			if no != next || b.No != no || no >= to {
				t.Fatalf("batch %d between %d and %d, not %d", no, from, to, next)
			}
			next++
		}
		if next != max(from, 1, min(last+1, to)) {
			t.Fatalf("batches from %d to %d end before %d of %d", from, to, next, last)
		}
		if store.StateHash(r, Buckets()) != store.StateHash(single.Reader(), Buckets()) {
			t.Fatal("the file depends on how the batches came")
		}
	})
}

// ledger/meta stays inside the root page even with the maximum number of waiting headers. bbolt
// stores a bucket inline up to a quarter of a page.
func TestMetaIsInline(t *testing.T) {
	tx, most := storetest.NewTx(t, Buckets()...), 0
	do(t, tx, func(_ store.Reader, w *store.Writes) { PutGenesis(w, StoreKey{1}) })
	for range 2 * TailBatches {
		do(t, tx, func(r store.Reader, w *store.Writes) { chained(r, w, 1) })
		const bucket, page, element = 16, 16, 16
		size := bucket + page
		for k, v := range tx.Reader().Range(bMeta, nil, nil) {
			size += element + len(k) + len(v)
		}
		most = max(most, size)
	}
	if most > store.PageSize/4 || most+record.BatchSize <= store.PageSize/4 {
		t.Errorf("it takes %d bytes of %d, another header %d", most, store.PageSize/4, record.BatchSize)
	}
}

// Waiting headers are checked for their number, place and bytes, and against the headers of the
// table.
func TestWrongTails(t *testing.T) {
	put := func(change func(h *Head, raw []byte) []byte) func(store.Reader, *store.Writes) {
		return func(r store.Reader, w *store.Writes) {
			h, _ := GetHead(r)
			h.Tail.raw = string(change(&h, []byte(h.Tail.raw)))
			PutHead(w, h)
		}
	}
	one := record.BatchSize
	for name, change := range map[string]func(store.Reader, *store.Writes){
		"the first is gone":    put(func(_ *Head, raw []byte) []byte { return raw[one:] }),
		"the last is gone":     put(func(_ *Head, raw []byte) []byte { return raw[:2*one] }),
		"the last is cut":      put(func(_ *Head, raw []byte) []byte { return raw[:3*one-1] }),
		"one is doubled":       put(func(_ *Head, raw []byte) []byte { return append(raw[:one:one], raw...) }),
		"one in place of next": put(func(_ *Head, raw []byte) []byte { copy(raw[one:], raw[:one]); return raw }),
		"two changed places": put(func(_ *Head, raw []byte) []byte {
			return append(append(append([]byte{}, raw[one:2*one]...), raw[:one]...), raw[2*one:]...)
		}),
		"a bit is wrong":    put(func(_ *Head, raw []byte) []byte { raw[one+50] ^= 8; return raw }),
		"all are gone":      put(func(*Head, []byte) []byte { return nil }),
		"of another ledger": put(func(h *Head, raw []byte) []byte { h.Batches += TailBatches; return raw }),
		"one is in both": func(r store.Reader, w *store.Writes) {
			b, _ := Batch(r, TailBatches+1)
			batches.Put(w, b.No, b)
		},
		"one waits for too long": func(r store.Reader, w *store.Writes) {
			h, _ := GetHead(r)
			b, _ := Batch(r, TailBatches)
			h.Tail.raw = string(b.Append(nil)) + h.Tail.raw
			PutHead(w, h)
			batches.Delete(w, TailBatches)
		},
		"one in neither":   func(_ store.Reader, w *store.Writes) { batches.Delete(w, TailBatches) },
		"the head is gone": func(_ store.Reader, w *store.Writes) { heads.Delete(w, keyHead) },
	} {
		tx := storetest.NewTx(t, Buckets()...)
		do(t, tx, func(r store.Reader, w *store.Writes) { chained(r, w, TailBatches+3) })
		do(t, tx, change)
		found := false
		_, err := storetest.Do(tx, write(func(r store.Reader, _ *store.Writes) {
			h, _ := GetHead(r)
			found = LastBatch(r) != TailBatches+3 || h.Tail.Count() != h.Batches%TailBatches
			for no := uint64(1); no <= h.Batches; no++ {
				_, known := Batch(r, no)
				found = found || !known
			}
		}))
		if !found && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("%s: not found, %v", name, err)
		}
	}
}
