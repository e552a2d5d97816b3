package idem

import (
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// A table behaves as a map that keeps the greater number, after any sequence of puts and clears.
func TestTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table Table
		want := map[Key]uint64{}
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			var put []Entry
			for range rapid.IntRange(0, 100).Draw(t, "entries") {
				e := Entry{keyOf(rapid.Uint64Max(150).Draw(t, "key")), rapid.Uint64Range(1, 1000).Draw(t, "seq")}
				_, known := want[e.Key]
				if fresh := table.Put(e.Key, e.Seq); fresh == known {
					t.Fatalf("%x is new: %v", e.Key, fresh)
				}
				want[e.Key] = max(want[e.Key], e.Seq)
				put = append(put, e)
			}
			for n := range uint64(150) {
				if k := keyOf(n); table.Get(k) != want[k] {
					t.Fatalf("%x leads to %d, want %d", k, table.Get(k), want[k])
				}
			}
			if table.Len() != len(want) || len(table.appendTo(nil)) != len(want) {
				t.Fatalf("%d entries, want %d", table.Len(), len(want))
			}
			if rapid.Bool().Draw(t, "grow") {
				table.grow(8 * len(table.rows)) // so that clearing goes entry by entry
			}
			table.Clear(put)
			if clear(want); len(table.appendTo(nil)) > 0 && len(put) == table.Len() {
				t.Fatal("entries outlive a clearing")
			}
			for _, e := range table.appendTo(nil) {
				t.Fatalf("%x outlives a clearing", e.Key)
			}
		}
	})
}

// A key takes at most 45 bytes of a table of any size, and 38 bytes on average.
func TestTableIsCompact(t *testing.T) {
	var table Table
	sum, worst := 0.0, 0.0
	const n, from = 60_000, 1000
	for i := range uint64(n) {
		table.Put(keyOf(i), i+1)
		if i >= from {
			each := float64(len(table.rows)) * float64(unsafe.Sizeof(Entry{})) / float64(i+1)
			sum, worst = sum+each, max(worst, each)
		}
	}
	if mean := sum / (n - from); worst > 45.1 || mean > 38 {
		t.Errorf("%.1f bytes a key on average, %.1f at worst", mean, worst)
	}
}
