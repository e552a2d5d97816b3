package store

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"testing"

	bolt "go.etcd.io/bbolt"
	"pgregory.net/rapid"
)

// grown is a file whose table has several levels, and what it is.
func grown(t *testing.T) (path string, keys [][]byte) {
	t.Helper()
	r := open(t, newFile(t))
	defer r.stop()
	r.db.StrictMode = false
	for from := 0; from < 40_000; from += 10_000 {
		mustCommit(r, do[int]{"test.do/1", func(_ Reader, _ Stamp, w *Writes) (int, error) {
			for i := from; i < from+10_000; i++ {
				key := fmt.Appendf(nil, "%0100d", i)
				w.Put(testRows, key, nil)
				keys = append(keys, key)
			}
			return 0, nil
		}})
	}
	return r.Path(), keys
}

// leafOf finds by a walk of its own in which page a key lies, or would.
func leafOf(raw []byte, page uint64, key []byte) uint64 {
	for {
		p, le := raw[page*PageSize:], binary.LittleEndian
		if le.Uint16(p[8:]) == leafPage {
			return page
		}
		next := uint64(0)
		for i := range int(le.Uint16(p[10:])) {
			head := p[pageHeader+i*elementLen:]
			pos, n := le.Uint32(head), le.Uint32(head[4:])
			if i == 0 || bytes.Compare(head[pos:pos+n], key) <= 0 {
				next = le.Uint64(head[8:])
			}
		}
		page = next
	}
}

// Whatever keys are asked for, there or not, exactly the pages in which they lie are asked for last.
func TestWarmFindsThePages(t *testing.T) {
	path, keys := grown(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := idle(t, path, testConfig())
	defer r.stop()
	root := uint64(0)
	if err := r.db.View(func(tx *bolt.Tx) error {
		root = uint64(tx.Bucket([]byte(testRows.Name)).Root())
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	rapid.Check(t, func(t *rapid.T) {
		asked := rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom(keys), rapid.SliceOfN(rapid.Byte(), 1, 8), rapid.Just(keys[0]), rapid.Just([]byte{0xFF}),
		)).Draw(t, "keys")
		slices.SortFunc(asked, bytes.Compare)
		var want, got []uint64
		for _, key := range asked {
			want = append(want, leafOf(raw, root, key))
		}
		slices.Sort(want)
		levels := 0
		(&warming{f: bytes.NewReader(raw), ask: func(pages []uint64) { got, levels = pages, levels+1 }}).run(root, asked)
		if want = slices.Compact(want); !slices.Equal(got, want) || len(asked) > 0 && levels < 2 {
			t.Fatalf("pages %v after %d levels, want %v", got, levels, want)
		}
	})
}

// It is a hint: a table that is empty, small or in memory, and a damaged file, are none of its business.
func TestWarmSaysNothing(t *testing.T) {
	path, keys := grown(t)
	for _, r := range []*rig{open(t, newFile(t)), open(t, path), inMemory(t, Options{}).start()} {
		warm := do[int]{"test.do/1", func(rd Reader, _ Stamp, w *Writes) (int, error) {
			Warm(rd, testRows, keys)
			Warm(rd, testRows, nil)
			w.Put(testRows, []byte("k"), nil)
			return 0, nil
		}}
		mustCommit(r, warm)
		mustCommit(r, warm)
		if err := r.View(t.Context(), func(rd Reader) error {
			Warm(rd, testRows, keys)
			return nil
		}); err != nil {
			t.Error(err)
		}
		r.stop()
	}
}

func FuzzWarm(f *testing.F) {
	raw, err := os.ReadFile(filled(f))
	if err != nil {
		f.Fatal(err)
	}
	page := raw[4*PageSize:][:PageSize]
	binary.LittleEndian.PutUint64(page, 0)
	binary.LittleEndian.PutUint16(page[8:], branchPage)
	f.Add(page, []byte("007"))
	f.Fuzz(func(_ *testing.T, page, key []byte) { // a branch that may lead to itself
		(&warming{f: bytes.NewReader(page), ask: func([]uint64) {}}).run(0, [][]byte{key, append(key, 'x')})
	})
}
