package pmtiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"ronbox/engines/edge/tile"
)

func TestHeaderOfRealPacks(t *testing.T) {
	for _, tt := range []struct {
		file string
		want Header
	}{
		{"stamen_toner_z3.pmtiles", Header{
			Root: Section{127, 213}, Metadata: Section{340, 75}, Leaves: Section{415, 0}, Tiles: Section{415, 715637},
			Addressed: 85, Entries: 84, Contents: 80,
			Clustered: true, Internal: tile.Gzip, TileType: tile.PNG, MaxZoom: 3,
			Bounds: [4]float64{-180, -85, 180, 85},
		}},
	} {
		r := openFile(t, "../../../testdata/packs/"+tt.file)
		got := r.Header
		got.Root, got.Metadata, got.Leaves, got.Tiles = tt.want.Root, tt.want.Metadata, tt.want.Leaves, tt.want.Tiles
		got.Entries, got.Contents = tt.want.Entries, tt.want.Contents
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.file, got, tt.want)
		}
	}
}

// small is a sound archive with a header that tests corrupt.
func small() archive {
	return archive{
		Tiles: []tiles{
			{ID: 0, Run: 1, Data: []byte("world")},
			{ID: 1, Run: 3, Data: []byte("sea")},
			{ID: 4, Run: 1, Data: []byte("land")},
		},
		Type:     1,
		MaxZoom:  1,
		Metadata: `{"name":"small"}`,
	}
}

func TestHeaderBounds(t *testing.T) {
	u64 := func(at int, v uint64) func([]byte) {
		return func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v) }
	}
	both := func(fs ...func([]byte)) func([]byte) {
		return func(b []byte) {
			for _, f := range fs {
				f(b)
			}
		}
	}
	octet := func(at int, v byte) func([]byte) { return func(b []byte) { b[at] = v } }
	size := uint64(len(small().Bytes()))
	for _, tt := range []struct {
		doc   string
		spoil func([]byte)
		want  error
		words string
	}{
		{"nothing is wrong", func([]byte) {}, nil, ""},
		{"another magic", octet(3, 'x'), ErrUnfit, "does not begin as PMTiles"},
		{"version 2", octet(7, 2), ErrUnfit, "does not begin as PMTiles"},
		{"root leaves the file", u64(16, 16257), ErrUnfit, "root directory at 127"},
		{"root offset wraps", u64(8, 1<<64-1), ErrUnfit, "root directory of"},
		{"root length wraps", both(u64(8, 127), u64(16, 1<<64-1)), ErrUnfit, "root directory at 127"},
		{"no root", u64(16, 0), ErrUnfit, "root directory of 0 bytes"},
		{"root inside the header", u64(8, 100), ErrUnfit, "not between the header and 16384"},
		{"metadata leaves the file", u64(32, size), nil, ""},
		{"leaves leave the file", u64(48, size), nil, ""},
		{"tiles leave the file", u64(64, size), nil, ""},
		{"tiles begin behind the file", both(u64(56, 1<<63), u64(64, 1<<63)), ErrUnfit, "the file has 0"},
		{"zoom 32", octet(101, 32), ErrUnfit, "zoom levels 0 to 32"},
		{"zooms swapped", octet(100, 2), ErrUnfit, "zoom levels 2 to 1"},
		{"brotli directories", octet(97, 3), ErrUnfit, `directories with compression "br"`},
		{"unknown directories", octet(97, 0), nil, ""},
		{"directories of no known kind", octet(97, 9), ErrUnfit, "compressions 9 and 1"},
		{"tiles of no known coding", octet(98, 5), ErrUnfit, "compressions 1 and 5"},
	} {
		a := small()
		a.Header = tt.spoil
		_, err := openBytes(a.Bytes())
		if !errors.Is(err, tt.want) || (tt.want != nil && !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%s: err = %v, want %v with %q", tt.doc, err, tt.want, tt.words)
		}
	}
}

// TestHeaderBoundsOfLargeFiles reaches bounds that a small file cannot reach.
func TestHeaderBoundsOfLargeFiles(t *testing.T) {
	file := make([]byte, 40<<20)
	put := func(at int, v uint64) { binary.LittleEndian.PutUint64(file[at:], v) }
	for _, tt := range []struct {
		words string
		spoil func()
	}{
		{"root directory of 16258 bytes at 127 is not between", func() { put(16, maxRoot+1) }},
		{"is not between the header and 16384", func() { put(8, rootEnd-9) }},
	} {
		copy(file, small().Bytes())
		tt.spoil()
		if _, _, err := parseHeader(file, uint64(len(file))); !errors.Is(err, ErrUnfit) ||
			!strings.Contains(err.Error(), tt.words) {
			t.Errorf("err = %v, want %q", err, tt.words)
		}
	}
	copy(file, small().Bytes())
	put(8, headerSize)
	put(16, maxRoot)
	if _, _, err := parseHeader(file, uint64(len(file))); err != nil {
		t.Errorf("a root of %d bytes behind the header: %v", maxRoot, err)
	}
}

// TestTruncated truncates an archive at every byte: opening it or reading from it fails, and the
// remaining tiles are unchanged.
func TestTruncated(t *testing.T) {
	whole := small().Bytes()
	for n := range whole {
		r, err := openBytes(whole[:n])
		if err == nil {
			t.Fatalf("an archive cut at %d of %d bytes opens: %+v", n, len(whole), r.Header)
		}
	}
	for n := range whole { // truncated under an open reader
		src := &cutReader{b: whole}
		r, err := Open(src, int64(len(whole)), options(1, nil))
		if err != nil {
			t.Fatal(err)
		}
		src.b = whole[:n]
		b, err := r.Tile(t.Context(), 1, 1, 0, anyRoom)
		if !errors.Is(err, ErrUnfit) {
			t.Fatalf("cut at %d of %d, the last tile: %q, %v", n, len(whole), b, err)
		}
	}
}

// cutReader is a file that can be truncated while it is read.
type cutReader struct{ b []byte }

func (c *cutReader) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(c.b).ReadAt(p, off)
}

// bomb compresses many mebibytes of zeros to few bytes. It repeats one compressed mebibyte, because
// both codings allow concatenation.
func bomb(code byte, mebibytes int) []byte {
	return bytes.Repeat(pack(code, make([]byte, 1<<20)), mebibytes)
}

// options returns the options of an archive in tests.
func options(serial uint64, cache Leaves) Options {
	return Options{Serial: serial, Cache: cache, Slots: NewSlots().Share(), MaxTile: 8 << 20}
}

// anyRoom has room for each tile.
func anyRoom(int64) error { return nil }

// verified verifies an archive. It returns the fatal findings and the codes and counts of the others.
func verified(t testing.TB, r *Reader) (faults, warnings string) {
	t.Helper()
	counts := map[tile.Code]uint64{}
	_, err := r.Verify(t.Context(), tile.Check{Found: func(f tile.Finding) {
		if f.Fatal {
			faults += f.Text + "\n"
			return
		}
		counts[f.Code] += f.Count
	}, Sample: func([]byte) {}})
	if err != nil {
		t.Fatalf("verify: %v", err)
	}
	var out []string
	for code, n := range counts {
		out = append(out, fmt.Sprint(code, " ", n))
	}
	slices.Sort(out)
	return faults, strings.Join(out, ", ")
}

func openBytes(b []byte) (*Reader, error) {
	return Open(bytes.NewReader(b), int64(len(b)), options(1, nil))
}

func openFile(t testing.TB, path string) *Reader {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	st, err := f.Stat()
	if err != nil {
		t.Fatal(err)
	}
	r, err := Open(f, st.Size(), options(1, nil))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// FuzzHeader opens arbitrary bytes as an archive, and reads and verifies it. No call panics or uses
// much memory.
func FuzzHeader(f *testing.F) {
	f.Add(small().Bytes())
	for _, internal := range []byte{2, 4} {
		a := small()
		a.Internal, a.Leaf, a.Depth = internal, 1, 3
		f.Add(a.Bytes())
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := openBytes(b)
		if err != nil {
			if !errors.Is(err, ErrUnfit) {
				t.Fatalf("err = %v", err)
			}
			return
		}
		_, _ = r.ReadMetadata()
		for z := uint8(0); z < 4; z++ {
			if got, err := r.Tile(t.Context(), z, 0, 1<<z-1, anyRoom); err == nil && len(got) > len(b) {
				t.Fatalf("a tile of %d bytes out of %d", len(got), len(b))
			}
		}
		verified(t, r)
	})
}
