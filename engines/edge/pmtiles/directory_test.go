package pmtiles

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// TestTileID compares the curve with a second implementation and with the examples of the format's
// specification.
func TestTileID(t *testing.T) {
	for _, tt := range []struct {
		z    uint8
		x, y uint32
		id   uint64
	}{
		{0, 0, 0, 0}, {1, 0, 0, 1}, {1, 0, 1, 2}, {1, 1, 1, 3}, {1, 1, 0, 4}, {2, 0, 0, 5}, {12, 3423, 1763, 19078479},
		{31, 1<<31 - 1, 0, maxID - 1},
	} {
		if got := TileID(tt.z, tt.x, tt.y); got != tt.id {
			t.Errorf("%d/%d/%d: id %d, want %d", tt.z, tt.x, tt.y, got, tt.id)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		id := rapid.Uint64Range(0, maxID-1).Draw(t, "id")
		ref := refOf(id)
		if got := TileID(ref.Z, ref.X, ref.Y); got != id {
			t.Fatalf("%d/%d/%d: id %d, want %d", ref.Z, ref.X, ref.Y, got, id)
		}
	})
}

func entriesOf(d directory) (out []place) {
	for _, e := range d {
		out = append(out, place{ID: e.id, Run: e.run, Length: e.length, Offset: e.offset})
	}
	return out
}

// TestDirectoryLaw encodes and parses valid directories: the entries are equal, and find agrees
// with a linear search.
func TestDirectoryLaw(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var entries []place
		id, section := uint64(0), uint64(1<<40)
		for i := range rapid.IntRange(0, 300).Draw(t, "entries") {
			id += rapid.Uint64Range(min(uint64(i), 1), 1<<20).Draw(t, "gap")
			e := place{
				ID:     id,
				Run:    uint32(rapid.IntRange(0, 9).Draw(t, "run")),
				Length: uint32(rapid.IntRange(1, maxDirectory).Draw(t, "length")),
				Offset: rapid.Uint64Range(0, 1<<40-maxDirectory).Draw(t, "offset"),
			}
			entries = append(entries, e)
			id += uint64(max(e.Run, 1)) - 1
		}
		d, err := parseDirectory(encode(entries), maxEntries, section, section)
		if err != nil {
			t.Fatal(err)
		}
		if got := entriesOf(d); len(got) != len(entries) ||
			(len(got) > 0 && !bytes.Equal(encode(got), encode(entries))) {
			t.Fatalf("read %d entries, wrote %d", len(got), len(entries))
		}
		ask := rapid.Uint64Range(0, id+2).Draw(t, "ask")
		want := -1
		for i, e := range entries {
			if e.ID <= ask && (e.Run == 0 || ask < e.ID+uint64(e.Run)) &&
				(i+1 == len(entries) || entries[i+1].ID > ask) {
				want = i
			}
		}
		if i, ok := d.find(ask); ok != (want >= 0) || (ok && i != want) {
			t.Fatalf("find %d: %d %v, want %d", ask, i, ok, want)
		}
	})
}

func TestDirectoryBounds(t *testing.T) {
	tiles, leaves := uint64(1<<30), uint64(1<<30)
	entry := func(id uint64, run, length uint32, offset uint64) place {
		return place{ID: id, Run: run, Length: length, Offset: offset}
	}
	of := encode
	raw := func(numbers ...uint64) (b []byte) {
		for _, n := range numbers {
			b = binary.AppendUvarint(b, n)
		}
		return b
	}
	for _, tt := range []struct {
		words string // "" if the directory is valid
		b     []byte
	}{
		{"", of(nil)},
		{"", of([]place{entry(0, 1, 1, 0), entry(1, 2, 1, 1), entry(3, 0, 1, 0)})},
		{"", of([]place{entry(0, 1, 1<<30, 0)})},
		{"", of([]place{entry(0, 1, 0, 1<<40)})}, // an empty tile
		{"", of([]place{entry(0, 0, 1<<24, 0)})},
		{"", of([]place{entry(maxID-1, 1, 1, 0)})},
		{"0 entries in 0 bytes", nil},
		{"entries in", raw(1 << 60)},
		{"2 entries in 7 bytes", raw(2, 1, 1, 1, 1, 1, 1)},
		{"a number is missing, too many or too large, or ids do not rise", append(raw(1), 0xff, 0xff, 0xff, 0xff)},
		{"a number is missing, too many or too large, or ids do not rise", raw(2, 0, 0, 1, 1, 1, 1, 1, 2)},
		{"a number is missing, too many or too large, or ids do not rise", raw(1, maxID, 1, 1, 1)},
		{"a number is missing, too many or too large, or ids do not rise", raw(2, 7, 1<<64-5, 1, 1, 1, 1, 1, 1)},
		{"a number is missing, too many or too large, or ids do not rise", raw(1, 0, 1<<32, 1, 1)},
		{"a number is missing, too many or too large, or ids do not rise", raw(1, 0, 1, 1<<32, 1)},
		{"a run of 2 tiles from id 0 reaches past 1", of([]place{entry(0, 2, 1, 0), entry(1, 1, 1, 0)})},
		{"reaches past", of([]place{entry(maxID-1, 2, 1, 0)})},
		{"entry 0: a leaf directory of 0 bytes", of([]place{entry(0, 0, 0, 0)})},
		{"a leaf directory of 16777217 bytes, at most 16777216", of([]place{entry(0, 0, maxDirectory+1, 0)})},
		{"the file has 1073741824", of([]place{entry(0, 1, 2, 1<<30-1)})},
		{"the file has 1073741824", of([]place{entry(0, 1, 1, 1<<64-3)})},
		// the second entry begins where the first one wraps to
		{"the file has 1073741824", raw(2, 0, 1, 1, 1, 9, 1, 1<<64-1, 0)},
		{"a number is missing, too many or too large, or ids do not rise", raw(1, 0, 1, 1, 0)},
		{"a number is missing, too many or too large, or ids do not rise", raw(1, 0, 1, 1000000)},
		{"a number is missing, too many or too large, or ids do not rise", append(of([]place{entry(0, 1, 1, 0)}), 0)},
	} {
		_, err := parseDirectory(tt.b, maxEntries, tiles, leaves)
		if tt.words == "" && err != nil ||
			tt.words != "" && (!errors.Is(err, ErrUnfit) || !strings.Contains(err.Error(), tt.words)) {
			t.Errorf("%x: err = %v, want %q", tt.b, err, tt.words)
		}
	}
}

// FuzzDirectory parses arbitrary bytes: an accepted directory is valid and unchanged after it is
// encoded and parsed again.
func FuzzDirectory(f *testing.F) {
	f.Add(
		encode(
			[]place{
				{ID: 0, Run: 1, Length: 5, Offset: 0},
				{ID: 1, Run: 3, Length: 3, Offset: 5},
				{ID: 9, Length: 7, Offset: 90},
			},
		),
	)
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, b []byte) {
		section := uint64(1 << 20)
		d, err := parseDirectory(b, maxEntries, section, section)
		if err != nil {
			return
		}
		again, err := parseDirectory(encode(entriesOf(d)), maxEntries, section, section)
		if err != nil {
			t.Fatalf("written again: %v", err)
		}
		for i, e := range d {
			if again[i] != e {
				t.Fatalf("entry %d: %+v, then %+v", i, e, again[i])
			}
			if e.length > 0 && e.offset+uint64(e.length) > section || (i > 0 && e.id <= d[i-1].id) {
				t.Fatalf("entry %d: %+v", i, e)
			}
		}
	})
}
