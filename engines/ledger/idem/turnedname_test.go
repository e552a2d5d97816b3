package idem

import (
	"bytes"
	"errors"
	"testing"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// A bit of a run's name that a disk has changed makes no key new, while the index is in memory either.
func TestTurnedNameOfARun(t *testing.T) {
	for _, first := range []uint64{1, 5, 9} {
		for bit := range 64 {
			tx := storetest.NewTx(t, tables.Buckets()...)
			x := New(4, Cut{Width: 1 << 40, Max: 4})
			for seq := uint64(1); seq <= turnedKeys; seq++ {
				must(t, tx, func(_ store.Reader, w *store.Writes) error {
					journal(w, []entry{{Entry{keyOf(seq), seq}, int64(seq)}})
					return nil
				})
				x.Insert(keyOf(seq), seq, int64(seq))
				x.Committed()
			}
			seal(t, x, tx)
			if first^1<<bit == 1 || first^1<<bit == 5 || first^1<<bit == 9 {
				continue
			}
			must(t, tx, func(r store.Reader, w *store.Writes) error {
				for k, v := range r.Range(bucketOf(first), nil, nil) {
					w.Put(bucketOf(first^1<<bit), bytes.Clone(k), bytes.Clone(v))
				}
				w.Drop(bucketOf(first))
				return nil
			})
			lost := 0
			_, err := storetest.Do(tx, command(func(r store.Reader, _ *store.Writes) error {
				for seq := uint64(1); seq <= turnedKeys; seq++ {
					if _, found := x.Lookup(r, keyOf(seq), 0, 0); !found {
						lost++
					}
				}
				return nil
			}))
			if lost != 0 && err == nil || err != nil && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("run %d, bit %d: %d keys are new, %v", first, bit, lost, err)
			}
		}
	}
}
