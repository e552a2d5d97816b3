package pack

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"path/filepath"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/tile"
)

// TestTileCodings reads tiles stored in every coding.
func TestTileCodings(t *testing.T) {
	r, s, dir := newPackRig(t)
	plain := bytes.Repeat([]byte("a tile "), 100)
	for coding, name := range map[byte]string{1: "none", 2: "gzip", 3: "brotli", 4: "zstd", 0: "unknown"} {
		stored := coding
		if coding == 0 {
			stored = 2
		}
		a := madePack{coding: coding, tiles: []madeTile{{0, 1, compress(stored, plain)}}}
		putPack(t, filepath.Join(dir, name+".pmtiles"), a.bytes())
	}
	bomb := madePack{coding: 2, tiles: []madeTile{{0, 1, compress(2, make([]byte, maxDecoded+1))}}}
	putPack(t, filepath.Join(dir, "bomb.pmtiles"), bomb.bytes())
	lying := madePack{coding: 4, tiles: []madeTile{{0, 1, plain}}}
	putPack(t, filepath.Join(dir, "lying.pmtiles"), lying.bytes())
	zlibbed := madePack{coding: 1, tiles: []madeTile{{0, 1, compress('z', plain)}}}
	putPack(t, filepath.Join(dir, "zlib.pmtiles"), zlibbed.bytes())
	rotten := madePack{coding: 2, maxZoom: 1, tiles: []madeTile{{0, 1, []byte(broken)}, {1, 1, compress(2, plain)}}}
	putPack(t, filepath.Join(dir, "rotten.pmtiles"), rotten.bytes())
	r.start()
	rescan(t, s)
	for _, tt := range []struct {
		pack   string
		accept func(Coding) bool
		coding Coding
		err    error
	}{
		{"none", accepts(), Identity, nil}, {"none", anyCoding, Identity, nil},
		{"gzip", accepts(), Identity, nil}, {"gzip", accepts(tile.Zstd), Identity, nil}, {"gzip", accepts(Gzip), Gzip, nil},
		{"zstd", accepts(), Identity, nil}, {"zstd", accepts(Gzip), Identity, nil}, {"zstd", accepts(tile.Zstd), tile.Zstd, nil},
		{"brotli", accepts(), "", ErrCoding}, {"brotli", accepts(Gzip, tile.Zstd), "", ErrCoding},
		{"brotli", anyCoding, tile.Brotli, nil},
		{"unknown", accepts(), Identity, nil}, {"unknown", anyCoding, Gzip, nil},
		{"bomb", accepts(), "", ErrTooLarge}, {"bomb", anyCoding, Gzip, nil},
		{"lying", accepts(), Identity, nil}, {"lying", anyCoding, Identity, nil},
		{"zlib", accepts(), Identity, nil}, {"zlib", accepts(tile.Deflate), tile.Deflate, nil},
		{"rotten", accepts(), "", ErrCoding}, {"rotten", anyCoding, Gzip, nil},
	} {
		for range 2 {
			got, err := s.Tile(t.Context(), TileRef{Pack: tt.pack}, tt.accept)
			if !errors.Is(err, tt.err) || got.Coding != tt.coding {
				t.Errorf("%s: coding %q, %v, want %q, %v", tt.pack, got.Coding, err, tt.coding, tt.err)
			}
			if err == nil && got.Coding == Identity && !bytes.Equal(got.Bytes, plain) {
				t.Errorf("%s: %d bytes, want %d", tt.pack, len(got.Bytes), len(plain))
			}
			if err == nil && got.Digest != b3.Sum(got.Bytes) {
				t.Errorf("%s: the digest is of other bytes", tt.pack)
			}
			s.tiles.Settle()
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel() // so that decoding a tile again returns another error
	for id, want := range map[string]error{"bomb": ErrTooLarge, "rotten": ErrCoding} {
		if _, err := s.Tile(ended, TileRef{Pack: id}, accepts()); !errors.Is(err, want) {
			t.Errorf("%s: %v: a tile that does not decode is decoded at each request", id, err)
		}
	}
	kept := func() bool {
		_, kept := s.tiles.Get(s.current.Load().packs["gzip"].pack.key(TileRef{Pack: "gzip"}, 1))
		return kept
	}
	if !kept() {
		t.Error("a decoded tile is not kept")
	}
	if s.Purge(); kept() {
		t.Error("a tile is left after a purge")
	}
}

// TestTileRoom reads tiles that are too large for the cache: they share the room, which each returns
// when it is closed. A caller that finds none waits until its context ends, and other tiles are read.
func TestTileRoom(t *testing.T) {
	r, s, dir := newPackRig(t)
	plain := make([]byte, 6<<20)
	a := madePack{coding: 1, maxZoom: 1, tiles: []madeTile{
		{0, 1, make([]byte, 20<<20)}, {1, 1, compress(2, plain)}, {2, 1, []byte("small")},
	}}
	putPack(t, filepath.Join(dir, "p.pmtiles"), a.bytes())
	r.start()
	rescan(t, s)
	room := s.env.room.units
	var all []Tile
	get := func(ctx context.Context, id uint64, size, used int) {
		t.Helper()
		at := hilbert(id)
		at.Pack = "p"
		got, err := s.Tile(ctx, at, accepts())
		if err != nil || len(got.Bytes) != size || got.Coding != Identity || room.Used() != used {
			t.Fatalf("tile %d: %d bytes, %q, %v, room used %d, want %d and %d", id, len(got.Bytes), got.Coding, err,
				room.Used(), size, used)
		}
		all = append(all, got)
	}
	get(t.Context(), 0, 20<<20, 20)
	get(t.Context(), 0, 20<<20, 40)
	get(t.Context(), 1, 6<<20, 46) // decoded, then only the decoded form is counted
	get(t.Context(), 2, 5, 46)
	get(t.Context(), 1, 6<<20, 52)
	ended, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("gone")
	done := make(chan error)
	go func() {
		_, err := s.Tile(ended, TileRef{Pack: "p"}, accepts())
		done <- err
	}()
	until(t, "the reader waits", func() bool { return room.Used() == room.Cap() })
	get(t.Context(), 2, 5, room.Cap())
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) || room.Used() != 52 {
		t.Errorf("without room: %v, room used %d", err, room.Used())
	}
	for _, got := range all {
		got.Close()
	}
	if room.Used() != 0 || s.env.room.turn.Used() != 0 {
		t.Errorf("room used at the end: %d", room.Used())
	}
}

// A tile that is large only as it is stored is cached in its decoded form, and owns no room there.
func TestCachedTileOwnsNoRoom(t *testing.T) {
	r, s, dir := newPackRig(t)
	plain := make([]byte, 1<<20-20)
	var stored bytes.Buffer
	z, err := gzip.NewWriterLevel(&stored, gzip.NoCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil || stored.Len() <= maxCached {
		t.Fatalf("%d bytes, %v", stored.Len(), err)
	}
	putPack(t, filepath.Join(dir, "p.pmtiles"), madePack{coding: 2, tiles: []madeTile{{0, 1, stored.Bytes()}}}.bytes())
	r.start()
	rescan(t, s)
	for range 2 {
		got, err := s.Tile(t.Context(), TileRef{Pack: "p"}, accepts())
		if err != nil || len(got.Bytes) != len(plain) || got.space != nil || s.env.room.units.Used() != 0 {
			t.Fatalf("%d bytes, %v, %+v, room used %d", len(got.Bytes), err, got.space, s.env.room.units.Used())
		}
		got.Close()
	}
}
