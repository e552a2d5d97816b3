package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"

	"ronbox/appliance/host/hosttest"
	"ronbox/store/page"
)

// A row of a summed table that has a flipped bit, is truncated or replaces another row is detected
// as damaged.
func TestSummedRowsAreHeld(t *testing.T) {
	table := NewTable(testRows, U64(), CBOR[string]()).Summed()
	rapid.Check(t, func(rt *rapid.T) {
		c, err := NewScratch(day, testRows)
		if err != nil {
			rt.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		put := func(fn func(Reader, *Writes)) {
			if _, err := Try(
				c,
				Command[int](
					do[int]{"test.sum/1", func(r Reader, _ Stamp, w *Writes) (int, error) { fn(r, w); return 0, nil }},
				),
			); err != nil {
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

// Whatever bit of a key a disk has changed, in a leaf or on the way to it: the row is read as it
// was, or found damaged, and never not there.
func TestTurnedKeysAreNotAbsent(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	const rows = 300
	table := NewTable(testRows, String[string](), CBOR[int]()).Summed().Alone()
	keyOf := func(n int) string { return fmt.Sprintf("%03d-%x", n, sha256.Sum256([]byte{byte(n), byte(n >> 8)})) }
	r := open(t, newFile(t))
	mustCommit(r, do[int]{"test.sum/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		for i := range rows {
			table.Put(w, keyOf(i), i)
		}
		return 0, nil
	}})
	r.stop()
	f, err := os.OpenFile(r.Path(), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	file, err := os.ReadFile(r.Path())
	if err != nil {
		t.Fatal(err)
	}
	damaged := 0
	for i := 0; i < rows; i += 7 {
		key := keyOf(i)
		for at := bytes.Index(file, []byte(key)); at >= 0; {
			turned := at + i%len(key)
			for _, b := range []byte{file[turned] ^ 1<<(i%8), file[turned]} {
				if _, err := f.WriteAt([]byte{b}, int64(turned)); err != nil {
					t.Fatal(err)
				}
				got, known, err := readTurned(r.Path(), table, key)
				if err == nil && (!known || got != i) || err != nil && !errors.Is(err, ErrCorrupt) ||
					err != nil && b == file[turned] {
					t.Errorf("%s, byte %d of the file: %d, %v, %v", key, turned, got, known, err)
				}
				if err != nil {
					damaged++
				}
			}
			next := bytes.Index(file[at+1:], []byte(key))
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	if damaged < rows/7 {
		t.Errorf("%d changes were met", damaged)
	}
}

// Nor is a row not there that a changed bit makes look like a sub-bucket.
func TestTurnedFlagsHideNoRow(t *testing.T) {
	const rows = 300
	table := NewTable(testRows, U64(), CBOR[uint64]()).Summed().Alone()
	r := open(t, newFile(t))
	mustCommit(r, do[int]{"test.sum/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
		for i := range uint64(rows) {
			table.Put(w, i, i)
		}
		return 0, nil
	}})
	r.stop()
	file, err := os.ReadFile(r.Path())
	if err != nil {
		t.Fatal(err)
	}
	met := 0
	for off := 0; off+PageSize <= len(file); off += PageSize {
		b := file[off : off+PageSize]
		if binary.LittleEndian.Uint16(b[8:]) != page.Leaf {
			continue
		}
		for i := range int(binary.LittleEndian.Uint16(b[10:])) {
			at := page.Header + i*page.ElementLen
			e, err := page.ElementAt(b, at, page.Leaf)
			if err != nil || len(e.Key) != 8 || binary.BigEndian.Uint64(e.Key) >= rows {
				continue
			}
			overwrite(t, r.Path(), int64(off+at), []byte{b[at] ^ 1}) // a sub-bucket
			if n, known, err := readTurned(r.Path(), table, binary.BigEndian.Uint64(e.Key)); !errors.Is(
				err,
				ErrCorrupt,
			) {
				t.Fatalf("row %d is taken for %d, %v, %v", binary.BigEndian.Uint64(e.Key), n, known, err)
			}
			overwrite(t, r.Path(), int64(off+at), b[at:at+1])
			met++
		}
	}
	if met < rows {
		t.Errorf("%d rows were looked at", met)
	}
}

// readTurned reads a row of a file at rest.
func readTurned[K, V any](path string, table Table[K, V], key K) (v V, known bool, err error) {
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		return v, false, err
	}
	defer func() { _ = db.Close() }()
	err = readRows(db, nil, func(r *txReader) error { v, known = table.Get(r, key); return nil })
	return v, known, err
}
