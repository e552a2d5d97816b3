package pmtiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"runtime"
	"strings"
	"testing"
)

func TestHeaderOfRealPacks(t *testing.T) {
	for _, tt := range []struct {
		file string
		want Header
	}{
		{"stamen_toner_z3.pmtiles", Header{
			Root: Section{127, 213}, Metadata: Section{340, 75}, Leaves: Section{415, 0}, Tiles: Section{415, 715637},
			Addressed: 85, Entries: 84, Contents: 80,
			Clustered: true, Internal: Gzip, TileCompression: None, TileType: "png", MaxZoom: 3,
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
		{"root behind the file", u64(16, 16257), ErrUnfit, "root directory of"},
		{"root offset wraps", u64(8, 1<<64-1), ErrUnfit, "root directory of"},
		{"root length wraps", both(u64(8, 127), u64(16, 1<<64-1)), ErrUnfit, "root directory of"},
		{"no root", u64(16, 0), ErrUnfit, "root directory of 0 bytes"},
		{"root inside the header", u64(8, 100), ErrUnfit, "not between the header and 16384"},
		{"metadata behind the file", u64(32, size), ErrUnfit, "metadata"},
		{"leaves behind the file", u64(48, size), ErrUnfit, "leaf directories"},
		{"tiles behind the file", u64(64, size), ErrUnfit, "tile data"},
		{"tiles wrap", both(u64(56, 1<<63), u64(64, 1<<63)), ErrUnfit, "tile data"},
		{"zoom 32", octet(101, 32), ErrUnfit, "zoom levels 0 to 32"},
		{"zooms swapped", octet(100, 2), ErrUnfit, "zoom levels 2 to 1"},
		{"brotli directories", octet(97, 3), ErrUnfit, `directories with compression "br"`},
		{"unknown directories", octet(97, 0), ErrUnfit, `directories with compression "unknown"`},
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
		{"root directory of 16258 bytes at 127, at most 16257", func() { put(16, maxRoot+1) }},
		{"is not between the header and 16384", func() { put(8, rootEnd-9) }},
		{"metadata of 10485761 bytes at 140, at most 10485760", func() { put(32, maxMetadata+1) }},
	} {
		copy(file, small().Bytes())
		tt.spoil()
		if _, err := parseHeader(file, uint64(len(file))); !errors.Is(err, ErrUnfit) ||
			!strings.Contains(err.Error(), tt.words) {
			t.Errorf("err = %v, want %q", err, tt.words)
		}
	}
	copy(file, small().Bytes())
	put(8, headerSize)
	put(16, maxRoot)
	if _, err := parseHeader(file, uint64(len(file))); err != nil {
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
		r, err := Open(src, int64(len(whole)), 1, nil, NewSlots().Share())
		if err != nil {
			t.Fatal(err)
		}
		src.b = whole[:n]
		b, err := r.Tile(t.Context(), 1, 1, 0)
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

func TestDecode(t *testing.T) {
	plain := bytes.Repeat([]byte("0123456789"), 100)
	for c, code := range map[Compression]byte{None: 1, Gzip: 2, Zstd: 4} {
		packed := pack(code, plain)
		if got, err := c.Decode(packed, len(plain)); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%v: %d bytes, %v", c, len(got), err)
		}
		if _, err := c.Decode(packed, len(plain)-1); !errors.Is(err, ErrUnfit) {
			t.Errorf("%v: one byte more than the limit: err = %v", c, err)
		}
		if c == None {
			continue
		}
		for n := 1; n < len(packed); n++ { // no tile and no directory has 0 bytes
			if got, err := c.Decode(packed[:n], len(plain)); err == nil {
				t.Errorf("%v: cut at %d of %d it decodes to %d bytes", c, n, len(packed), len(got))
			}
		}
		flipped := bytes.Clone(packed)
		flipped[len(flipped)/2] ^= 0x10
		if got, err := c.Decode(flipped, len(plain)); err == nil && bytes.Equal(got, plain) {
			t.Errorf("%v: a flipped bit changes nothing", c)
		}
	}
	if _, err := Brotli.Decode(plain, len(plain)); !errors.Is(err, ErrUnfit) {
		t.Errorf("brotli: err = %v", err)
	}
}

// bomb compresses many mebibytes of zeros to few bytes. It repeats one compressed mebibyte, because
// both codings allow concatenation.
func bomb(code byte, mebibytes int) []byte {
	return bytes.Repeat(pack(code, make([]byte, 1<<20)), mebibytes)
}

// TestBombs decodes a gibibyte from few bytes: it is refused at the limit and never held in memory.
func TestBombs(t *testing.T) {
	for c, code := range map[Compression]byte{Gzip: 2, Zstd: 4} {
		bomb := bomb(code, 1024)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := c.Decode(bomb, 10<<20)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, ErrUnfit) {
			t.Errorf("%v: err = %v", c, err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > 64<<20 {
			t.Errorf("%v: %d bytes of bomb took %d MiB", c, len(bomb), took>>20)
		}
	}
}

func openBytes(b []byte) (*Reader, error) {
	return Open(bytes.NewReader(b), int64(len(b)), 1, nil, NewSlots().Share())
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
	r, err := Open(f, st.Size(), 1, nil, NewSlots().Share())
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
			if tile, err := r.Tile(t.Context(), z, 0, 1<<z-1); err == nil && len(tile) > len(b) {
				t.Fatalf("a tile of %d bytes out of %d", len(tile), len(b))
			}
		}
		if _, err := r.Verify(t.Context(), func(string) {}); err != nil {
			t.Fatalf("verify: %v", err)
		}
	})
}
