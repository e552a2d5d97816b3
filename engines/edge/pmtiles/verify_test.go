package pmtiles

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"testing"

	"ronbox/engines/edge/tile"
)

// TestWarnings verifies archives that have one defect each, of which the tiles do not depend: each is
// found and counted, and the other tiles are read.
func TestWarnings(t *testing.T) {
	u64 := func(at int, v uint64) func(*archive) {
		return func(a *archive) { a.Header = func(b []byte) { binary.LittleEndian.PutUint64(b[at:], v) } }
	}
	places := func(all ...place) func(*archive) {
		return func(a *archive) { a.Directory = func([]byte) []byte { return encode(all) } }
	}
	for _, tt := range []struct {
		want  string // codes and counts; "" if the archive is sound
		skips int    // tiles
		spoil func(*archive)
	}{
		{"", 0, func(*archive) {}},
		{"", 0, func(a *archive) { a.Header = func(b []byte) { clear(b[72:96]) } }},
		{"counts 1", 0, u64(72, 6)},
		{"counts 1", 0, u64(80, 2)},
		{"counts 1", 0, u64(88, 9)},
		{"counts 3", 0, func(a *archive) { a.Header = func(b []byte) { b[72], b[80], b[88] = 7, 7, 7 } }},
		{"clustered 1", 0, places(place{ID: 0, Run: 1, Length: 5, Offset: 3}, place{ID: 1, Run: 3, Length: 3},
			place{ID: 4, Run: 1, Length: 4, Offset: 8})},
		{"section 1", 0, u64(48, 1<<63)},
		{"section 1", 0, u64(64, 1<<64-1)},
		{"section 1", 0, u64(64, 11)}, // the last tile leaves it
		{"directory_coding 1", 0, func(a *archive) { a.Header = func(b []byte) { b[97] = 0 } }},
		{"directory_coding 1", 0, func(a *archive) {
			a.Internal = 2
			a.Header = func(b []byte) { b[97] = 0 }
		}},
		{"bounds 1", 0, func(a *archive) { a.Header = func(b []byte) { clear(b[102:118]) } }},
		{"bounds 1", 0, func(a *archive) { a.Bounds = [4]float64{10, 20, 5, 30} }},
		{"bounds 1", 0, func(a *archive) { a.Bounds = [4]float64{10, 20, 15, 91} }},
		{"empty_tile 3", 3, places(place{ID: 0, Run: 1, Length: 5}, place{ID: 1, Run: 3, Offset: 5},
			place{ID: 4, Run: 1, Length: 7, Offset: 5})},
		{"long_tile 1", 1, func(a *archive) { a.Tiles[2].Data = make([]byte, 8<<20+1) }},
	} {
		a := small()
		tt.spoil(&a)
		r, err := openBytes(a.Bytes())
		if err != nil {
			t.Fatalf("%s: %v", tt.want, err)
		}
		faults, warnings := verified(t, r)
		if strings.Contains(tt.want, "empty") {
			warnings = strings.TrimPrefix(warnings, "counts 1, ") // of the contents
		}
		if faults != "" || warnings != tt.want {
			t.Errorf("warnings %q, want %q, faults %q", warnings, tt.want, faults)
		}
		skipped := 0
		for id := range uint64(5) {
			at := refOf(id)
			b, err := r.Tile(t.Context(), at.Z, at.X, at.Y, anyRoom)
			if errors.Is(err, tile.ErrSkipped) {
				skipped++
			} else if err != nil || len(b) == 0 {
				t.Errorf("%s: tile %d: %d bytes, %v", tt.want, id, len(b), err)
			}
		}
		if skipped != tt.skips {
			t.Errorf("%s: %d tiles are skipped, want %d", tt.want, skipped, tt.skips)
		}
	}
}

// TestSample verifies archives of any number of entries: the sample is bounded, evenly spaced and
// begins with the first tile.
func TestSample(t *testing.T) {
	for _, n := range []int{1, 63, 64, 65, 128, 129, 1000} {
		a := archive{Type: 1, MaxZoom: 9}
		for i := range n {
			a.Tiles = append(a.Tiles, tiles{ID: uint64(i), Run: 1, Data: fmt.Append(nil, "tile ", i)})
		}
		r, err := openBytes(a.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		var got []int
		_, err = r.Verify(t.Context(), tile.Check{Found: func(tile.Finding) {}, Sample: func(b []byte) {
			i := 0
			if _, err := fmt.Sscanf(string(b), "tile %d", &i); err != nil {
				t.Error(err)
			}
			got = append(got, i)
		}})
		if err != nil || got[0] != 0 || len(got) > tile.MaxSample || len(got) < min(n, tile.MaxSample/2) {
			t.Fatalf("of %d entries: %v, %v", n, got, err)
		}
		stride := 1
		if len(got) > 1 {
			stride = got[1]
		}
		for i, at := range got {
			if at != i*stride {
				t.Fatalf("of %d entries: %v", n, got)
			}
		}
		if last := got[len(got)-1]; last+stride < n {
			t.Errorf("of %d entries the last one read is %d", n, last)
		}
	}
}

// TestVerifyEnds verifies for a caller who has left.
func TestVerifyEnds(t *testing.T) {
	ended, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	r, err := openBytes(small().Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Verify(ended, tile.Check{}); err == nil || err.Error() != "enough" {
		t.Errorf("verify of a caller who has left: %v", err)
	}
}
