package idem

import (
	"slices"
	"testing"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// A check reports at the beginning of each run, and regularly after that, the number of records
// compared and their total.
func TestCheckTells(t *testing.T) {
	const first, second = tellEvery + 5, 3 // records of two runs; one more is in an open slot
	tx := storetest.NewTx(t, tables.Buckets()...)
	x := New(1, Cut{Width: 1 << 40, Max: first})
	seq := uint64(0)
	group := func(n int) {
		var log []entry
		for range n {
			seq++
			e := entry{Entry{keyOf(seq), seq}, int64(seq)}
			x.Insert(e.Key, e.Seq, e.at)
			log = append(log, e)
		}
		must(t, tx, func(_ store.Reader, w *store.Writes) error { journal(w, log); return nil })
		x.Committed()
	}
	group(first)
	x.Reload(Cut{Width: 1 << 40, Max: second})
	group(second)
	group(1)
	seal(t, x, tx)
	var told [][2]uint64
	keys, err := Check(tx.Reader(), 0, func(done, total uint64) error {
		told = append(told, [2]uint64{done, total})
		return nil
	})
	if err != nil || keys != first+second {
		t.Errorf("%d keys, %v", keys, err)
	}
	const total = first + second
	if want := [][2]uint64{{0, total}, {tellEvery, total}, {first, total}}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}
