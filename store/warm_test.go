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

	"ronbox/store/page"
)

// grown returns a file with a table of several levels, and its keys.
func grown(t *testing.T) (path string, keys [][]byte) {
	t.Helper()
	r := open(t, newFile(t))
	defer r.stop()
	r.db.StrictMode = false
	for from := 0; from < 20_000; from += 10_000 {
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
func leafOf(raw []byte, id uint64, key []byte) uint64 {
	for {
		p, le := raw[id*PageSize:], binary.LittleEndian
		if le.Uint16(p[8:]) == page.Leaf {
			return id
		}
		next := uint64(0)
		for i := range int(le.Uint16(p[10:])) {
			head := p[page.Header+i*page.ElementLen:]
			pos, n := le.Uint32(head), le.Uint32(head[4:])
			if i == 0 || bytes.Compare(head[pos:pos+n], key) <= 0 {
				next = le.Uint64(head[8:])
			}
		}
		id = next
	}
}

// Whatever keys are asked for, there or not, exactly the pages in which they lie are asked for
// last; of a range, all in between too.
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
	warmed := func(spans ...page.Span) (got []uint64) {
		(&warming{f: bytes.NewReader(raw), pages: len(raw), ask: func(pages []uint64) { got = pages }}).run(root, spans)
		return got
	}
	pagesOf := func(keys [][]byte) (want []uint64) {
		for _, key := range keys {
			want = append(want, leafOf(raw, root, key))
		}
		slices.Sort(want)
		return slices.Compact(want)
	}
	if got, want := warmed(page.Span{}), pagesOf(keys); !slices.Equal(got, want) || len(want) < 100 {
		t.Errorf("%d pages for all rows, want %d", len(got), len(want))
	}
	rapid.Check(t, func(t *rapid.T) {
		asked := rapid.SliceOf(rapid.OneOf(
			rapid.SampledFrom(keys), rapid.SliceOfN(rapid.Byte(), 1, 8), rapid.Just(keys[0]), rapid.Just([]byte{0xFF}),
		)).Draw(t, "keys")
		slices.SortFunc(asked, bytes.Compare)
		var points []page.Span
		for _, key := range asked {
			points = append(points, page.Span{Lo: key, Hi: key})
		}
		if got, want := warmed(points...), pagesOf(asked); !slices.Equal(got, want) {
			t.Fatalf("pages %v, want %v", got, want)
		}
		from := rapid.IntRange(0, len(keys)-1).Draw(t, "from")
		to := rapid.IntRange(from, len(keys)-1).Draw(t, "to")
		if got, want := warmed(page.Span{Lo: keys[from], Hi: keys[to]}), pagesOf(keys[from:to+1]); !slices.Equal(got, want) {
			t.Fatalf("pages %v from %d to %d, want %v", got, from, to, want)
		}
	})
}

// Warm is only a hint: it ignores tables that are empty, small or in memory, and damaged files.
func TestWarmSaysNothing(t *testing.T) {
	path, keys := grown(t)
	for _, r := range []*rig{open(t, newFile(t)), open(t, path), inMemory(t, Options{}).start()} {
		warm := do[int]{"test.do/1", func(rd Reader, _ Stamp, w *Writes) (int, error) {
			Warm(rd, testRows, keys)
			Warm(rd, testRows, nil)
			WarmRange(rd, testRows, nil, nil)
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
	one := raw[4*PageSize:][:PageSize]
	binary.LittleEndian.PutUint64(one, 0)
	binary.LittleEndian.PutUint16(one[8:], page.Branch)
	f.Add(one, []byte("007"))
	f.Fuzz(func(_ *testing.T, one, key []byte) { // a branch that may lead to itself
		w := &warming{f: bytes.NewReader(one), pages: 10, ask: func([]uint64) {}}
		w.run(0, []page.Span{{Lo: key, Hi: key}, {Lo: append(key, 'x'), Hi: nil}})
		w.run(0, []page.Span{{}})
	})
}

// Pages that were read before are found to be in memory. Another thread that waits for the disk
// hides it once.
func TestResidentPagesAreNotAskedFor(t *testing.T) {
	path, keys := grown(t)
	s := idle(t, path, testConfig())
	defer s.stop()
	found := 0
	for range 100 {
		if err := s.View(t.Context(), func(r Reader) error {
			found += oneIf(resident(r, testRows, keys))
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if found < 50 {
		t.Errorf("the pages are in memory %d times of 100", found)
	}
}

func oneIf(yes bool) int {
	if yes {
		return 1
	}
	return 0
}
