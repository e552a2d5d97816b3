package idem

import (
	"bytes"
	"errors"
	"testing"

	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// turned is a row of a run with a changed bit in its key or its value.
type turned struct {
	run        *store.Bucket
	key, value []byte
	was        struct{ key, value []byte }
}

// turnedRows returns a changed row for every byte of every row of the runs.
func turnedRows(r store.Reader) (all []turned) {
	for b := range store.Subs(r, tables.Idem) {
		for k, v := range r.Range(b, nil, nil) {
			for i := range len(k) + len(v) {
				t := turned{run: b, key: bytes.Clone(k), value: bytes.Clone(v)}
				t.was.key, t.was.value = bytes.Clone(k), bytes.Clone(v)
				if i < len(k) {
					t.key[i] ^= 1 << (i % 8)
				} else {
					t.value[i-len(k)] ^= 1 << (i % 8)
				}
				all = append(all, t)
			}
		}
	}
	return all
}

// bootAndFind loads an index as a boot does, and looks up all n keys.
func bootAndFind(tx *storetest.Tx, n uint64) (wrong, lost uint64, err error) {
	_, err = storetest.Do(tx, command(func(r store.Reader, _ *store.Writes) error {
		x := New(4, Cut{Width: 1 << 40, Max: 4})
		for l := x.Loader(); !l.Step(r); {
		}
		for next := x.Loader().From(); next <= n; {
			next = x.Read(r, next, n+1, 100)
		}
		for seq := uint64(1); seq <= n; seq++ {
			if got, found := x.Lookup(r, keyOf(seq), 0, int64(seq)); !found {
				lost++
			} else if got != seq {
				wrong++
			}
		}
		return nil
	}))
	return wrong, lost, err
}

const turnedKeys = 13

// turnable returns a file with three sealed runs of four keys each and their journal, and the index
// that sealed them.
func turnable(t *testing.T) (*storetest.Tx, *Index) {
	t.Helper()
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
	return tx, x
}

// After any bit of a run has changed, each key leads to its record or the run is reported as
// corrupt. A check always finds the change, unless a boot seals the run again.
func TestTurnedBitOfARun(t *testing.T) {
	tx, _ := turnable(t)
	if wrong, lost, err := bootAndFind(tx, turnedKeys); wrong+lost != 0 || err != nil {
		t.Fatalf("%d keys lead elsewhere, %d nowhere, %v", wrong, lost, err)
	}
	all := turnedRows(tx.Reader())
	for _, row := range all {
		must(t, tx, func(_ store.Reader, w *store.Writes) error {
			w.Delete(row.run, row.was.key)
			w.Put(row.run, row.key, row.value)
			return nil
		})
		wrong, lost, err := bootAndFind(tx, turnedKeys)
		if wrong+lost != 0 && err == nil || err != nil && !errors.Is(err, store.ErrCorrupt) {
			t.Errorf("run %x, %x: %x is %x: %x: %d keys lead elsewhere, %d nowhere, %v", row.run.Name, row.was.key,
				row.was.value, row.key, row.value, wrong, lost, err)
		}
		must(t, tx, func(_ store.Reader, w *store.Writes) error {
			w.Delete(row.run, row.key)
			w.Put(row.run, row.was.key, row.was.value)
			return nil
		})
	}
	t.Log(len(all), "bytes")
}

// A boot fails if a run between others is missing or is marked as incomplete, because its keys were
// used. The newest run is sealed again instead.
func TestLostRun(t *testing.T) {
	for name, tt := range map[string]struct {
		lose func(w *store.Writes)
		bad  bool
	}{
		"the second":                  {func(w *store.Writes) { w.Drop(bucketOf(5)) }, true},
		"the meta row of the first":   {func(w *store.Writes) { w.Delete(bucketOf(1), behind(tagMeta)) }, true},
		"the meta row of the second":  {func(w *store.Writes) { w.Delete(bucketOf(5), behind(tagMeta)) }, true},
		"the meta row of the newest":  {func(w *store.Writes) { w.Delete(bucketOf(9), behind(tagMeta)) }, false},
		"the newest":                  {func(w *store.Writes) { w.Drop(bucketOf(9)) }, false},
		"the two newest meta rows":    {func(w *store.Writes) { w.Delete(bucketOf(5), behind(tagMeta)); w.Delete(bucketOf(9), behind(tagMeta)) }, true},
		"the place of one not sealed": {func(w *store.Writes) { w.Drop(bucketOf(9)); w.Put(bucketOf(10), behind(tagPart), make([]byte, 4)) }, true},
		"all, and one begun behind": {func(w *store.Writes) {
			w.Drop(bucketOf(1))
			w.Drop(bucketOf(5))
			w.Delete(bucketOf(9), behind(tagMeta))
		}, true},
	} {
		tx, _ := turnable(t)
		must(t, tx, func(_ store.Reader, w *store.Writes) error { tt.lose(w); return nil })
		if wrong, lost, err := bootAndFind(tx, turnedKeys); wrong != 0 || lost != 0 ||
			errors.Is(err, store.ErrCorrupt) != tt.bad {
			t.Errorf("%s: %d keys lead elsewhere, %d nowhere, %v", name, wrong, lost, err)
		}
	}
}

// A run that is dropped during a lookup is not reported as damaged. Its keys are too old to count.
func TestLookBesideADrop(t *testing.T) {
	x, tx := filled(t, 100)
	seal(t, x, tx)
	// its group has not ended
	_, err := storetest.Do(tx, command(func(r store.Reader, w *store.Writes) error { x.Drop(w, 1); return nil }))
	if err != nil {
		t.Fatal(err)
	}
	_, err = storetest.Do(tx, command(func(r store.Reader, _ *store.Writes) error {
		if seq, found := x.Lookup(r, keyOf(7), 0, 0); found {
			t.Errorf("the group that drops it finds record %d", seq)
		}
		seq, found, err := x.Find(keyOf(7), 0, func(fn func(store.Reader) error) error { return fn(r) })
		if found {
			t.Errorf("a reader finds record %d", seq)
		}
		return err
	}))
	if err != nil {
		t.Error(err)
	}
}

// A changed bit in the name of a run makes no key new, even while the index is in memory.
func TestTurnedNameOfARun(t *testing.T) {
	for _, first := range []uint64{1, 5, 9} {
		for bit := range 64 {
			if first^1<<bit == 1 || first^1<<bit == 5 || first^1<<bit == 9 {
				continue
			}
			tx, x := turnable(t)
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
