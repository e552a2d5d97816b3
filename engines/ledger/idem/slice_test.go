package idem

import (
	"slices"
	"testing"

	"ronbox/store"
	"ronbox/store/storetest"
)

// Sealing refuses a block in which two neighbours are out of order or equal.
func TestSealRefusesDisorder(t *testing.T) {
	x, tx := filled(t, 100)
	good, _ := x.Sealer().Next()
	for b := range good.Blocks {
		for i := 1; i < len(good.Blocks[b]); i++ {
			for name, change := range map[string]func(e []Entry){
				"swapped": func(e []Entry) { e[i-1], e[i] = e[i], e[i-1] },
				"twice":   func(e []Entry) { e[i-1] = e[i] },
			} {
				bad := good
				bad.Blocks = slices.Clone(good.Blocks)
				bad.Blocks[b] = slices.Clone(good.Blocks[b])
				change(bad.Blocks[b])
				if _, err := storetest.Do(
					tx,
					command(func(r store.Reader, w *store.Writes) error { return x.Seal(r, w, &bad) }),
				); err == nil {
					t.Errorf("keys %d and %d of block %d, %s: taken", i-1, i, b, name)
				}
			}
		}
	}
}

// Size returns at least the bytes that a slice writes, and not many more.
func TestSliceSize(t *testing.T) {
	x, tx := filled(t, 2*sliceKeys)
	all := 0
	for i, s := range seal(t, x, tx) {
		part := 0
		for _, e := range s.Blocks {
			key, row := encodeBlock(0, e)
			part += len(key) + len(row)
		}
		if part += len(s.Filter); s.Last() {
			part += len(behind(tagMeta)) + len(s.Meta.encode())
		}
		if told := s.Size(); told < part || told > part*2+200 {
			t.Errorf("slice %d writes %d bytes and tells of %d", i, part, told)
		}
		all += part
	}
	if all < 2*sliceKeys*entrySize {
		t.Errorf("the slices have %d bytes in all", all)
	}
}
