package idem

import (
	"testing"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// A key of an old run is found even if the filter of a newer run has a false positive for it,
// whichever run that is.
func TestFoundBehindAMistake(t *testing.T) {
	const each, runs = 40, 4 // plus one key in an open slot
	// Only the newer runs: their keys are known in advance, and their false positives select the
	// keys of the oldest run.
	var filters [runs]filter
	for i := range runs {
		filters[i] = newFilter(each)
		for seq := uint64(each*i + 1); seq <= uint64(each*(i+1)); seq++ {
			k := keyOf(seq)
			filters[i].add(&k)
		}
	}
	for newer := 1; newer < runs; newer++ {
		at := uint64(1 << 32)
		for k := keyOf(at); !filters[newer].has(&k); k = keyOf(at) {
			at++
		}
		tx, x := storetest.NewTx(t, tables.Buckets()...), New(2, Cut{Width: 1 << 40, Max: each})
		insert := func(k Key, seq uint64) {
			must(t, tx, func(_ store.Reader, w *store.Writes) error {
				journal(w, []entry{{Entry{k, seq}, int64(seq)}})
				return nil
			})
			x.Insert(k, seq, int64(seq))
			x.Committed()
		}
		insert(keyOf(at), 1)
		for seq := uint64(2); seq <= each*runs+1; seq++ {
			insert(keyOf(seq), seq)
		}
		seal(t, x, tx)
		if n := x.Stats().Runs; n != runs {
			t.Fatalf("%d runs", n)
		}
		if seq, found := x.Lookup(tx.Reader(), keyOf(at), 0, 0); !found || seq != 1 {
			t.Errorf("run %d is mistaken: the key leads to %d", newer, seq)
		}
		if got := x.Stats().Mistaken; got != 1 {
			t.Errorf("run %d is mistaken: counted %d times", newer, got)
		}
	}
}
