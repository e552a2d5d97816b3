package store

import (
	"bytes"
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// A row of a summed table with any bit turned, cut short, or in the place of another, is none.
func TestSummedRowsAreHeld(t *testing.T) {
	table := NewTable(testRows, U64(), CBOR[string]()).Summed()
	rapid.Check(t, func(rt *rapid.T) {
		c, err := NewScratch(day, testRows)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		put := func(fn func(Reader, *Writes)) {
			if _, err := Try(c, Command[int](do[int]{"test.sum/1", func(r Reader, _ Stamp, w *Writes) (int, error) { fn(r, w); return 0, nil }})); err != nil {
				rt.Fatal(err)
			}
		}
		key, value := rapid.Uint64Range(0, 1<<40).Draw(rt, "key"), rapid.StringN(0, 40, -1).Draw(rt, "value")
		put(func(_ Reader, w *Writes) { table.Put(w, key, value) })
		at, cut := key, rapid.IntRange(0, 3).Draw(rt, "cut")
		put(func(r Reader, w *Writes) {
			raw := bytes.Clone(r.Get(testRows, U64().Append(nil, key)))
			switch {
			case cut == 0:
				at ^= 1 << rapid.IntRange(0, 63).Draw(rt, "bit of the key")
			case cut == 1:
				raw = raw[:rapid.IntRange(0, len(raw)-1).Draw(rt, "length")]
			default:
				bit := rapid.IntRange(0, 8*len(raw)-1).Draw(rt, "bit")
				raw[bit/8] ^= 1 << (bit % 8)
			}
			w.Put(testRows, U64().Append(nil, at), raw)
		})
		if got, err := readSummed(table, c.Reader(), at); !errors.Is(err, ErrCorrupt) {
			rt.Errorf("%q is read as %q, %v", value, got, err)
		}
	})
}

func readSummed(table Table[uint64, string], r Reader, key uint64) (v string, err error) {
	defer func() {
		if row, ok := recover().(*RowError); ok {
			err = row
		}
	}()
	v, _ = table.Get(r, key)
	return v, nil
}
