package store_test

import (
	"testing"

	"ronbox/store"
	"ronbox/store/storetest"
)

var (
	cleared   = &store.Bucket{Name: "test/cleared"}
	uncleared = &store.Bucket{Name: "test/other"}
)

// clearAll puts rows into both buckets, clears one, and puts a row again.
type clearAll struct{ Before, After int }

func (clearAll) Kind() string { return "test.clear/1" }

func (c clearAll) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for i := range c.Before {
		w.Put(cleared, []byte{1, byte(i >> 8), byte(i)}, make([]byte, 100))
		w.Put(uncleared, []byte{1, byte(i >> 8), byte(i)}, nil)
	}
	w.Clear(cleared)
	for i := range c.After {
		w.Put(cleared, []byte{2, byte(i)}, nil)
	}
	return struct{}{}, nil
}

// Clear removes every row of its bucket that existed before or that the command put earlier, and no
// rows of other buckets.
func TestClear(t *testing.T) {
	tx := storetest.NewTx(t, cleared, uncleared)
	for _, c := range []clearAll{{0, 0}, {1000, 3}, {5, 0}, {1000, 2}} {
		if _, err := storetest.Do(tx, c); err != nil {
			t.Fatal(err)
		}
		n := 0
		for range tx.Reader().Range(cleared, nil, nil) {
			n++
		}
		if n != c.After {
			t.Errorf("%+v: %d rows", c, n)
		}
	}
	n := 0
	for range tx.Reader().Range(uncleared, nil, nil) {
		n++
	}
	if n != 1000 {
		t.Errorf("%d rows of another bucket", n)
	}
}
