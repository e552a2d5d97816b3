package pmtiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"ronbox/engines/edge/tile"
)

// memory is a Leaves without eviction.
type memory struct {
	mu   sync.Mutex
	m    map[string]Leaf
	hits int
}

func (m *memory) Get(place string) (Leaf, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	leaf, ok := m.m[place]
	if ok {
		m.hits++
	}
	return leaf, ok
}

func (m *memory) Set(place string, leaf Leaf, bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if bytes < int64(len(leaf.entries))*entryBytes {
		panic("a leaf is larger than it is said to be")
	}
	m.m[place] = leaf
}

// TestEveryTile reads every tile of the real packs, and missing tiles, and compares them with a
// second reader.
func TestEveryTile(t *testing.T) {
	for _, tt := range []struct {
		file  string
		tiles int
	}{{"stamen_toner_z3.pmtiles", 85}, {"usgs-mt-whitney-8-15-webp-512.pmtiles", 50}} {
		path := "../../../testdata/packs/" + tt.file
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		want, err := readArchive(whole)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) != tt.tiles {
			t.Errorf("%s: %d tiles, want %d", tt.file, len(want), tt.tiles)
		}
		sameTiles(t, openFile(t, path), want)
	}
}

// sameTiles compares a reader with the content of an archive, and reads missing tiles.
func sameTiles(t *testing.T, r *Reader, want map[zxy][]byte) {
	t.Helper()
	for ref, b := range want {
		got, err := r.Tile(t.Context(), ref.Z, ref.X, ref.Y, anyRoom)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%v: %d bytes, %v, want %d", ref, len(got), err, len(b))
		}
		beside := zxy{Z: ref.Z, X: ref.X ^ 1<<ref.Z>>1, Y: ref.Y}
		if _, there := want[beside]; there {
			continue
		}
		if got, err := r.Tile(t.Context(), beside.Z, beside.X, beside.Y, anyRoom); err != nil || got != nil {
			t.Fatalf("%v is not there: %d bytes, %v", beside, len(got), err)
		}
	}
	tiles, err := r.Verify(t.Context(), tile.Check{
		Found:  func(f tile.Finding) { t.Errorf("finding: %+v", f) },
		Sample: func([]byte) {},
	})
	if err != nil || tiles != uint64(len(want)) {
		t.Errorf("verify: %d tiles, %v, want %d", tiles, err, len(want))
	}
}

// many returns an archive of n runs with gaps.
func many(n int) (a archive) {
	id := uint64(0)
	for i := range n {
		run := uint32(1 + i%3)
		a.Tiles = append(a.Tiles, tiles{ID: id, Run: run, Data: fmt.Appendf(nil, "tile %d", i%(n/2+1))})
		id += uint64(run) + uint64(i%2)
	}
	a.Type, a.MaxZoom, a.Metadata = 1, 9, `{"name":"many","vector_layers":[]}`
	return a
}

// TestSynthesized reads archives of every depth and compression.
func TestSynthesized(t *testing.T) {
	for depth := range maxDepth + 1 {
		for _, internal := range []byte{1, 2, 4} {
			t.Run(fmt.Sprintf("%d leaves deep, compression %d", depth, internal), func(t *testing.T) {
				n := 2000
				if testing.Short() {
					n = 1000
				}
				a := many(n)
				a.Internal, a.Leaf, a.Depth = internal, 12, depth
				if depth == 0 {
					a.Tiles = a.Tiles[:500]
				}
				if depth == 1 {
					a.Leaf = 100
				}
				b := a.Bytes()
				want, err := readArchive(b)
				if err != nil {
					t.Fatal(err)
				}
				kept := &memory{m: map[string]Leaf{}}
				for range 2 {
					r, err := Open(bytes.NewReader(b), int64(len(b)), options(7, kept))
					if err != nil {
						t.Fatal(err)
					}
					sameTiles(t, r, want)
					if meta, err := r.ReadMetadata(); err != nil || string(meta) != a.Metadata {
						t.Errorf("metadata %q, %v", meta, err)
					}
				}
				if (kept.hits > 0) != (depth > 0) {
					t.Errorf("%d leaves came from memory", kept.hits)
				}
			})
		}
	}
}

// TestLeavesOfOtherArchives lets two archives that differ only in their tiles share a Leaves.
func TestLeavesOfOtherArchives(t *testing.T) {
	kept := &memory{m: map[string]Leaf{}}
	for range 2 {
		for archive := range uint64(2) {
			a := many(100)
			a.Tiles = a.Tiles[archive:]
			a.Leaf, a.Depth = 10, 1
			b := a.Bytes()
			want, err := readArchive(b)
			if err != nil {
				t.Fatal(err)
			}
			r, err := Open(bytes.NewReader(b), int64(len(b)), options(archive, kept))
			if err != nil {
				t.Fatal(err)
			}
			sameTiles(t, r, want)
		}
	}
}

// TestSpoiledLeaves opens archives with a sound root and corrupt leaves: a lookup and a
// verification fail.
func TestSpoiledLeaves(t *testing.T) {
	// Two tiles, each in its own leaf; leafAt changes the entries of the root.
	build := func(change func([]place, []byte) []byte) []byte {
		a := small()
		a.Leaf, a.Depth = 1, 1
		b := a.Bytes()
		root := binary.LittleEndian.Uint64(b[8:])
		entries := []place{}
		at := uint64(0)
		for i, id := range []uint64{0, 1, 4} {
			leaf := encode(
				[]place{
					{ID: id, Run: []uint32{1, 3, 1}[i], Length: []uint32{5, 3, 4}[i], Offset: []uint64{0, 5, 8}[i]},
				},
			)
			entries = append(entries, place{ID: id, Length: uint32(len(leaf)), Offset: at})
			at += uint64(len(leaf))
		}
		return change(entries, b[:root:root])
	}
	// whole writes an archive of a root and leaves without changes.
	whole := func(header []byte, root []place, leaves []byte) []byte {
		b := bytes.Clone(header)
		dir := encode(root)
		parts := [][]byte{dir, nil, leaves, []byte("worldsealand")}
		at := uint64(headerSize)
		for i, part := range parts {
			binary.LittleEndian.PutUint64(b[8+16*i:], at)
			binary.LittleEndian.PutUint64(b[16+16*i:], uint64(len(part)))
			at += uint64(len(part))
		}
		return append(b, bytes.Join(parts, nil)...)
	}
	self := encode([]place{{ID: 0, Length: 5, Offset: 0}})
	for _, tt := range []struct {
		words string
		b     []byte
	}{
		{"ids are not inside", build(func(root []place, h []byte) []byte {
			leaf := encode([]place{{ID: 9, Run: 1, Length: 5}})
			return whole(h, []place{{ID: 0, Length: uint32(len(leaf))}, {ID: 5, Run: 1, Length: 1}}, leaf)
		})},
		{"ids are not inside", build(func(_ []place, h []byte) []byte {
			leaf := encode([]place{{ID: 0, Run: 6, Length: 5}})
			return whole(h, []place{{ID: 0, Length: uint32(len(leaf))}, {ID: 5, Run: 1, Length: 1}}, leaf)
		})},
		{"ids are not inside", build(func(_ []place, h []byte) []byte { // an empty leaf
			return whole(h, []place{{ID: 0, Length: 1}}, []byte{0})
		})},
		{"deep", build(func(_ []place, h []byte) []byte { // a leaf that points to itself
			return whole(h, []place{{ID: 0, Length: uint32(len(self))}}, self)
		})},
		{"entries in", build(func(_ []place, h []byte) []byte {
			return whole(h, []place{{ID: 0, Length: 9}}, binary.AppendUvarint(nil, 1<<60))
		})},
	} {
		r, err := openBytes(tt.b)
		if err == nil {
			_, err = r.Tile(t.Context(), 0, 0, 0, anyRoom)
		}
		if !errors.Is(err, ErrUnfit) {
			t.Errorf("%s: a tile of it: err = %v", tt.words, err)
			continue
		}
		if r == nil {
			continue // the opening has failed
		}
		if faults, _ := verified(t, r); !strings.Contains(faults, tt.words) {
			t.Errorf("verify: faults %q, want %q", faults, tt.words)
		}
	}
}

// TestDirectoryBomb opens archives with directories that are small in the file and large in memory.
func TestDirectoryBomb(t *testing.T) {
	for _, internal := range []byte{2, 4} {
		a := small()
		a.Internal, a.WithoutCompression = internal, true
		a.Directory = func([]byte) []byte { return bomb(internal, 34) }
		b := a.Bytes()
		// gzip cannot compress it to the size of a root, so it must be a leaf.
		if root := binary.LittleEndian.Uint64(b[16:]); root > maxRoot {
			a.Leaf, a.Depth = 3, 1
			n := 0
			a.Directory = func(d []byte) []byte {
				if n++; n == 1 {
					return bomb(internal, 34)
				}
				return pack(internal, d)
			}
			b = a.Bytes()
		}
		r, err := openBytes(b)
		if err == nil {
			_, err = r.Tile(t.Context(), 0, 0, 0, anyRoom)
		}
		if !errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), "more than 16777216 bytes") {
			t.Errorf("compression %d: err = %v", internal, err)
		}
	}
}

func TestEmpty(t *testing.T) {
	a := archive{Type: 1}
	r, err := openBytes(a.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if b, err := r.Tile(t.Context(), 0, 0, 0, anyRoom); b != nil || err != nil {
		t.Errorf("a tile of nothing: %q, %v", b, err)
	}
	a.Header = func(b []byte) { b[72] = 1 }
	if _, err := openBytes(a.Bytes()); !errors.Is(err, ErrUnfit) {
		t.Errorf("an empty root beside a count: %v", err)
	}
}

// TestConcurrentLookups has many goroutines read tiles of the same leaves.
func TestConcurrentLookups(t *testing.T) {
	a := many(1000)
	a.Internal, a.Leaf, a.Depth = 2, 50, 1
	b := a.Bytes()
	want, err := readArchive(b)
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(bytes.NewReader(b), int64(len(b)), options(1, &memory{m: map[string]Leaf{}}))
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for ref, b := range want {
				if got, err := r.Tile(t.Context(), ref.Z, ref.X, ref.Y, anyRoom); err != nil || !bytes.Equal(got, b) {
					t.Errorf("%v: %d bytes, %v", ref, len(got), err)
					return
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkTile(b *testing.B) {
	path := "../../../testdata/packs/stamen_toner_z3.pmtiles"
	r := openFile(b, path)
	b.Run("tile", func(b *testing.B) {
		for b.Loop() {
			if _, err := r.Tile(b.Context(), 3, 1, 2, anyRoom); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("pread", func(b *testing.B) {
		f, err := os.Open(path)
		if err != nil {
			b.Fatal(err)
		}
		defer f.Close()
		got, err := r.Tile(b.Context(), 3, 1, 2, anyRoom)
		if err != nil {
			b.Fatal(err)
		}
		for b.Loop() {
			if _, err := f.ReadAt(make([]byte, len(got)), int64(r.Tiles.Offset)); err != nil {
				b.Fatal(err)
			}
		}
	})
}
