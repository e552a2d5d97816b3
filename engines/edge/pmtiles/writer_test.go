package pmtiles

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"

	"github.com/paulmach/orb"
	"pgregory.net/rapid"

	"ronbox/engines/edge/tile"
)

// from returns a Read of b that counts sections.
func from(b []byte, sections *int) Read {
	return func(_ context.Context, all []Section, each func([]byte) error) error {
		for _, s := range all {
			*sections++
			if err := each(b[s.Offset : s.Offset+s.Length]); err != nil {
				return err
			}
		}
		return nil
	}
}

// whole returns the bytes of a part of b.
func whole(b []byte, p *Part) []byte {
	out := bytes.Clone(p.Head)
	for _, s := range p.Ranges {
		out = append(out, b[s.Offset:s.Offset+s.Length]...)
	}
	return out
}

// failing is a test, also one of rapid.
type failing interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}

// checkPart takes the tiles of spans out of b, and reads the part with the reader of this package.
func checkPart(t failing, b []byte, spans []Span) *Part {
	t.Helper()
	want, err := readArchive(b)
	if err != nil {
		t.Fatal(err)
	}
	for ref := range want {
		if !has(spans, TileID(ref.Z, ref.X, ref.Y)) {
			delete(want, ref)
		}
	}
	src, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	p, err := src.Part(context.Background(), Wanted{Spans: spans, Most: 1 << 20, Bounds: [4]float64{-10, -10, 10, 10}}, from(b, &n))
	if len(want) == 0 {
		if !errors.Is(err, ErrNoTiles) {
			t.Fatalf("%v, want %v", err, ErrNoTiles)
		}
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	got := whole(b, p)
	if int64(len(got)) != p.Size || p.Tiles != uint64(len(want)) {
		t.Fatalf("%d bytes and %d tiles, want %d and %d", len(got), p.Tiles, p.Size, len(want))
	}
	kept := &memory{m: map[string]Leaf{}}
	r, err := Open(bytes.NewReader(got), int64(len(got)), options(1, kept))
	if err != nil {
		t.Fatal(err)
	}
	for ref, tile := range want {
		if has, err := r.Tile(context.Background(), ref.Z, ref.X, ref.Y, anyRoom); err != nil || !bytes.Equal(has, tile) {
			t.Fatalf("%v: %q, %v, want %q", ref, has, err, tile)
		}
		if ref.Z < r.MinZoom || ref.Z > r.MaxZoom {
			t.Fatalf("%v is outside of the levels %d to %d", ref, r.MinZoom, r.MaxZoom)
		}
	}
	tiles, err := r.Verify(context.Background(), tile.Check{
		Found:  func(f tile.Finding) { t.Fatalf("finding: %+v", f) },
		Sample: func([]byte) {},
	})
	if err != nil || tiles != p.Tiles || r.Clustered != src.Clustered {
		t.Fatalf("%d tiles, %v, clustered %t", tiles, err, r.Clustered)
	}
	before, _ := src.ReadMetadata()
	if after, err := r.ReadMetadata(); err != nil || !bytes.Equal(after, before) {
		t.Fatalf("metadata %q, %v, want %q", after, err, before)
	}
	return p
}

// A part has the tiles of its spans and no others, each content once, and no defects, whatever the
// source is.
func TestPartLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := many(rapid.IntRange(1, 400).Draw(t, "runs"))
		a.Internal = rapid.SampledFrom([]byte{1, 2, 4}).Draw(t, "compression")
		a.Leaf, a.Depth = rapid.IntRange(2, 40).Draw(t, "leaf"), rapid.IntRange(0, maxDepth).Draw(t, "depth")
		if a.Depth == maxDepth && a.Leaf < 8 {
			a.Leaf = 8 // so that the root fits
		}
		last := a.Tiles[len(a.Tiles)-1]
		end := last.ID + uint64(last.Run)
		var spans []Span
		for at := uint64(0); at < end; {
			s := Span{First: at + rapid.Uint64Range(0, 20).Draw(t, "gap")}
			s.End = s.First + rapid.Uint64Range(1, 90).Draw(t, "length")
			spans = append(spans, s)
			at = s.End + 1
		}
		b := a.Bytes()
		if rapid.Bool().Draw(t, "unclustered") {
			b[96] = 0
		}
		checkPart(t, b, spans)
	})
}

// A part of many entries has leaves, and its contents follow each other in the source.
func TestLargePart(t *testing.T) {
	a := archive{Type: 1, MaxZoom: 9, Metadata: `{"name":"large"}`, Internal: 2, Leaf: 3000, Depth: 1}
	for i := range 40_000 {
		id := uint64(3*i + i*i%2)
		a.Tiles = append(a.Tiles, tiles{ID: id, Run: 1, Data: fmt.Appendf(nil, "%d of %d", i*i%30_011, i%11)})
	}
	b := a.Bytes()
	p := checkPart(t, b, []Span{{0, 100_000}})
	if len(p.Ranges) != 1 || p.MaxZoom != 9 {
		t.Errorf("%d ranges, up to level %d", len(p.Ranges), p.MaxZoom)
	}
	src, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	for most, zoom := range map[int]int{1: 0, 2: 1, 400: 4, 9000: 7, 21_000: 7} {
		n := 0
		_, err := src.Part(t.Context(), Wanted{Spans: []Span{{0, 100_000}}, Most: most}, from(b, &n))
		if many, ok := errors.AsType[*ManyError](err); !ok || many.Zoom != zoom {
			t.Errorf("at most %d entries: %v, want level %d", most, err, zoom)
		}
		if n > most/3000+1 {
			t.Errorf("at most %d entries: %d leaves were read", most, n)
		}
	}
}

// A part of a real pack has its tiles of a region.
func TestPartOfRealPack(t *testing.T) {
	b, err := os.ReadFile("../../../testdata/packs/stamen_toner_z3.pmtiles")
	if err != nil {
		t.Fatal(err)
	}
	spans, _, err := Spans(t.Context(), orb.MultiPolygon{rectangle(5, 45, 11, 48)}, 0, 3, 100)
	if err != nil {
		t.Fatal(err)
	}
	if p := checkPart(t, b, spans); p.Tiles != 4 || p.Size > int64(len(b))/4 {
		t.Errorf("%+v", p)
	}
}

// The leaves of a hostile source are not read without end.
func TestPartOfDeepLeaves(t *testing.T) {
	a := many(900)
	a.Leaf, a.Depth = 4, maxDepth+1
	b := a.Bytes()
	src, err := openBytes(b)
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	if _, err := src.Part(t.Context(), Wanted{Spans: []Span{{0, maxID}}, Most: 1 << 20}, from(b, &n)); !errors.Is(err,
		ErrUnfit) {
		t.Errorf("%v", err)
	}
}
