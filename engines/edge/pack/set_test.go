package pack

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
)

func anyCoding(Coding) bool { return true }

// accepts returns the accept function of a client for some codings in addition to identity.
func accepts(some ...Coding) func(Coding) bool {
	return func(c Coding) bool { return slices.Contains(some, c) }
}

// TestEveryTileOfRealPacks reads every tile of the three packs as stored and decoded, twice, and
// compares them with a second reader.
func TestEveryTileOfRealPacks(t *testing.T) {
	files := map[string]int{
		"stamen_toner_z3.pmtiles":               85,
		"usgs-mt-whitney-8-15-webp-512.pmtiles": 50,
		"twolayers.mbtiles":                     554,
	}
	names := []string{}
	for name := range files {
		names = append(names, name)
	}
	r, s, dir := newPackRig(t, names...)
	r.start()
	if got, want := states(
		rescan(t, s),
	), "stamen_toner_z3 verified, twolayers verified, usgs-mt-whitney-8-15-webp-512 verified"; got != want {
		t.Fatalf("packs: %s, want %s", got, want)
	}
	for name, tiles := range files {
		want := readPack(t, filepath.Join(dir, name))
		if len(want) != tiles {
			t.Fatalf("%s: %d tiles", name, len(want))
		}
		id := strings.TrimSuffix(name, filepath.Ext(name))
		info, err := s.Info(id)
		if err != nil || info.Tiles != uint64(tiles) {
			t.Errorf("%s counts %d tiles, %v, want %d", id, info.Tiles, err, tiles)
		}
		for range 2 { // from the file, then from memory
			for ref, b := range want {
				checkTile(t, s, ref, b, info.Version)
			}
		}
	}
}

func checkTile(t *testing.T, s *Set, at TileRef, stored []byte, version string) {
	t.Helper()
	got, err := s.Tile(t.Context(), at, anyCoding)
	if err != nil || !bytes.Equal(got.Bytes, stored) || got.Digest != b3.Sum(stored) || got.Version != version {
		t.Fatalf("%+v: %d bytes of %s %s, %v, want %d of %s", at, len(got.Bytes), got.Digest, got.Version, err,
			len(stored), version)
	}
	plain := stored
	if got.Coding == Gzip {
		z, err := gzip.NewReader(bytes.NewReader(stored))
		if err != nil {
			t.Fatal(err)
		}
		if plain, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	got, err = s.Tile(t.Context(), at, accepts())
	if err != nil || got.Coding != Identity || !bytes.Equal(got.Bytes, plain) ||
		got.ETag() != `"`+b3.Sum(plain).String()+`"` {
		t.Fatalf("%+v decoded: %d bytes, coding %q, %v, want %d", at, len(got.Bytes), got.Coding, err, len(plain))
	}
}

func TestPackInfo(t *testing.T) {
	r, s, _ := newPackRig(t, "stamen_toner_z3.pmtiles", "twolayers.mbtiles")
	r.start()
	rescan(t, s)
	toner, err := s.Info("stamen_toner_z3")
	if err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(realPacks, toner.File))
	if err != nil {
		t.Fatal(err)
	}
	d := b3.Sum(whole)
	if toner.Digest != d || toner.ETag() != `"`+d.String()+`"` || toner.Version != d.String()[3:19] ||
		toner.Size != int64(len(whole)) || toner.Format != "png" || toner.Kind != PMTiles ||
		toner.MaxZoom != 3 || toner.VectorLayers != nil || toner.Bounds != [4]float64{-180, -85, 180, 85} {
		t.Errorf("toner: %+v", toner)
	}
	two, err := s.Info("twolayers")
	if err != nil || two.Format != FormatMVT || !bytes.Contains(two.VectorLayers, []byte(`"hospitales"`)) ||
		two.Center[2] != 14 ||
		two.Name != "twolayers.mbtiles" {
		t.Errorf("twolayers: %+v, %v", two, err)
	}
	if n := s.Failed(); n != 0 {
		t.Errorf("%d packs failed", n)
	}
}

// TestPackFolder has files of every kind in the folder.
func TestPackFolder(t *testing.T) {
	r, s, dir := newPackRig(t, "twolayers.mbtiles")
	sound := made("sea 1", "sea").bytes()
	brotli := made("sea 1", "sea")
	brotli.header = func(b []byte) { b[97] = 3 }
	miscounted := made("sea 1", "sea")
	miscounted.header = func(b []byte) { b[72] = 99 }
	for name, b := range map[string][]byte{
		"a.pmtiles": sound, "twolayers.pmtiles": sound, "World.pmtiles": sound, "_x.pmtiles": sound,
		strings.Repeat("y", 65) + ".pmtiles": sound,

		"cut.pmtiles": sound[:100], "brotli.pmtiles": brotli.bytes(), "text.mbtiles": []byte("text"),
		"empty.mbtiles": nil, "miscounted.pmtiles": miscounted.bytes(),
		".hidden.pmtiles": sound, "NOTICE": nil, "b.pmtiles.part": sound,
	} {
		putPack(t, filepath.Join(dir, name), b)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.pmtiles"), 0o700); err != nil {
		t.Fatal(err)
	}
	r.start()
	got := map[string]string{}
	for _, i := range rescan(t, s) {
		got[i.ID] = string(i.State) + ": " + i.Fault
	}
	want := map[string]string{
		"a":                                  "verified: ",
		"twolayers":                          "verified: ",
		"twolayers.pmtiles":                  "twolayers.mbtiles has this id",
		"World.pmtiles":                      "rename the file",
		"_x.pmtiles":                         "rename the file",
		strings.Repeat("y", 65) + ".pmtiles": "rename the file",
		"cut":                                "127 bytes at 0",
		"brotli":                             "directories with compression",
		"text":                               "not a database",
		"empty":                              "no such table",
		"miscounted":                         "99 addressed tiles",
		"folder":                             "is not a file",
	}
	for id, words := range want {
		if !strings.Contains(got[id], words) ||
			strings.HasPrefix(words, "verified") != strings.HasPrefix(got[id], "verified") {
			t.Errorf("%s: %q, want %q", id, got[id], words)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d packs, want %d: %v", len(got), len(want), got)
	}
	if _, err := s.Tile(t.Context(), TileRef{Pack: "cut"}, anyCoding); !errors.Is(err, ErrFailed) ||
		!strings.Contains(err.Error(), "127 bytes at 0") {
		t.Errorf("a tile of a failed pack: %v", err)
	}
	if n := s.Failed(); n != 10 {
		t.Errorf("%d packs failed", n)
	}
}

func TestFormats(t *testing.T) {
	for _, tt := range []struct {
		f    Format
		ext  string
		want bool
		kind string
	}{
		{FormatMVT, "mvt", true, "application/x-protobuf"}, {FormatMVT, "pbf", true, "application/x-protobuf"},
		{FormatMVT, "png", false, "application/x-protobuf"},
		{"jpg", "jpeg", true, "image/jpeg"}, {"png", "", true, "image/png"}, {"png", "jpg", false, "image/png"},
		{"webp", "webp", true, "image/webp"},
		// a failed pack, and a hostile one
		{"", "png", true, "application/octet-stream"}, {"svg+xml", "svg+xml", true, "application/octet-stream"},
	} {
		if got := tt.f.Matches(tt.ext); got != tt.want || tt.f.ContentType() != tt.kind {
			t.Errorf("%q and %q: %v, %s, want %v, %s", tt.f, tt.ext, got, tt.f.ContentType(), tt.want, tt.kind)
		}
	}
}

func TestPackBound(t *testing.T) {
	_, s, dir := newPackRig(t)
	for i := range maxPacks + 2 {
		putPack(t, filepath.Join(dir, fmt.Sprintf("p%03d.pmtiles", i)), made("x", "y").bytes())
	}
	if err := s.scan(false); err != nil {
		t.Fatal(err)
	}
	openAll(t, s)
	all := s.List()
	if len(all) != maxPacks+2 || s.Failed() != 2 || all[maxPacks-1].State != asset.PackVerifying ||
		!strings.Contains(all[maxPacks].Fault, "more than 256") {
		t.Errorf("%d packs, %d failed: %+v", len(all), s.Failed(), all[maxPacks])
	}
}

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
	r.start()
	rescan(t, s)
	for _, tt := range []struct {
		pack   string
		accept func(Coding) bool
		coding Coding
		err    error
	}{
		{"none", accepts(), Identity, nil}, {"none", anyCoding, Identity, nil},
		{"gzip", accepts(), Identity, nil}, {"gzip", accepts(Zstd), Identity, nil}, {"gzip", accepts(Gzip), Gzip, nil},
		{"zstd", accepts(), Identity, nil}, {"zstd", accepts(Gzip), Identity, nil}, {"zstd", accepts(Zstd), Zstd, nil},
		{"brotli", accepts(), "", ErrCoding}, {"brotli", accepts(Gzip, Zstd), "", ErrCoding},
		{"brotli", anyCoding, Brotli, nil},
		{"unknown", accepts(), Identity, nil}, {"unknown", anyCoding, Gzip, nil},
		{"bomb", accepts(), "", ErrFailed}, {"bomb", anyCoding, Gzip, nil},
		{"lying", accepts(), "", ErrFailed}, {"lying", anyCoding, Zstd, nil},
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
	for _, id := range []string{"bomb", "lying"} {
		if _, err := s.Tile(ended, TileRef{Pack: id}, accepts()); !errors.Is(err, ErrFailed) {
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

func TestTileErrors(t *testing.T) {
	r, s, dir := newPackRig(t, "usgs-mt-whitney-8-15-webp-512.pmtiles")
	hole := made("x 1", "x")
	hole.bounds = [4]float64{-90, 0, 0, 60}
	putPack(t, filepath.Join(dir, "hole.pmtiles"), hole.bytes())
	r.start()
	rescan(t, s)
	for _, tt := range []struct {
		at   TileRef
		want error
	}{
		{TileRef{Pack: "hole"}, nil},
		{TileRef{Pack: "hole", Z: 2, X: 1, Y: 1}, ErrNoTile}, // within the bounds
		{TileRef{Pack: "hole", Z: 2, X: 2, Y: 1}, ErrOutside},
		{TileRef{Pack: "hole", Z: 2, X: 0, Y: 1}, ErrOutside},
		{TileRef{Pack: "hole", Z: 2, X: 1, Y: 2}, ErrOutside},
		{TileRef{Pack: "hole", Z: 2, X: 1, Y: 0}, ErrOutside},
		{TileRef{Pack: "hole", Z: 3, X: 3, Y: 3}, ErrOutside}, // deeper than the pack
		{TileRef{Pack: "usgs-mt-whitney-8-15-webp-512", Z: 7}, ErrOutside},
		{TileRef{Pack: "usgs-mt-whitney-8-15-webp-512", Z: 8}, ErrOutside},
		{TileRef{Pack: "hole", Z: 1, X: 2}, ErrBadTile},
		{TileRef{Pack: "hole", Z: 1, Y: 2}, ErrBadTile},
		{TileRef{Pack: "hole", Z: 32}, ErrBadTile},
		{TileRef{Pack: "hole", Z: 31, X: 1<<32 - 1}, ErrBadTile},
		{TileRef{Pack: "none"}, ErrMissing},
	} {
		if _, err := s.Tile(t.Context(), tt.at, anyCoding); !errors.Is(err, tt.want) || (tt.want == nil && err != nil) {
			t.Errorf("%+v: err = %v, want %v", tt.at, err, tt.want)
		}
	}
	if _, err := s.File("none"); !errors.Is(err, ErrMissing) {
		t.Errorf("file of no pack: %v", err)
	}
}

// TestNoRawFile requests the file of an MBTiles pack, and of a pack without a known digest.
func TestNoRawFile(t *testing.T) {
	r, s, _ := newPackRig(t, "twolayers.mbtiles", "stamen_toner_z3.pmtiles")
	if _, err := s.Tile(t.Context(), TileRef{Pack: "stamen_toner_z3"}, anyCoding); !errors.Is(err, ErrOpening) {
		t.Errorf("a tile before its pack is open: %v", err)
	}
	openAll(t, s)
	if _, err := s.File("stamen_toner_z3"); !errors.Is(err, ErrPending) {
		t.Errorf("before it is verified: %v", err)
	}
	if got, err := s.Tile(t.Context(), TileRef{Pack: "stamen_toner_z3"}, anyCoding); err != nil || got.Version != "" {
		t.Errorf("a tile before its pack is verified: version %q, %v", got.Version, err)
	}
	r.start()
	rescan(t, s)
	if _, err := s.File("twolayers"); !errors.Is(err, ErrNoRaw) {
		t.Errorf("err = %v", err)
	}
}

// TestFolder replaces the folder by a file, and removes it.
func TestFolder(t *testing.T) {
	r, s, dir := newPackRig(t, "stamen_toner_z3.pmtiles")
	r.start()
	rescan(t, s)
	away := dir + ".away"
	if err := errors.Join(os.Rename(dir, away), os.WriteFile(dir, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	if err := scanned(t, s); err == nil || !strings.Contains(err.Error(), "scan of packs") {
		t.Errorf("a file for a folder: %v", err)
	}
	if got := states(s.List()); got != "stamen_toner_z3 verified" {
		t.Errorf("the packs are not as they were: %s", got)
	}
	if err := os.Remove(dir); err != nil {
		t.Fatal(err)
	}
	if got := states(rescan(t, s)); got != "" {
		t.Errorf("a folder that is not there has packs: %s", got)
	}
	if err := os.Rename(away, dir); err != nil {
		t.Fatal(err)
	}
	s.Reload()
	until(t, "the pack is back", func() bool { return states(s.List()) == "stamen_toner_z3 verified" })
}

// BenchmarkPackTile measures a tile within the process against a positioned read of the same bytes.
func BenchmarkPackTile(b *testing.B) {
	r, s, dir := newPackRig(b, "stamen_toner_z3.pmtiles", "usgs-mt-whitney-8-15-webp-512.pmtiles", "twolayers.mbtiles")
	r.start()
	rescan(b, s)
	for _, name := range []string{
		"stamen_toner_z3.pmtiles", "usgs-mt-whitney-8-15-webp-512.pmtiles", "twolayers.mbtiles",
	} {
		id := strings.TrimSuffix(name, filepath.Ext(name))
		all := readPack(b, filepath.Join(dir, name))
		refs := []TileRef{}
		for ref := range all {
			refs = append(refs, ref)
		}
		slices.SortFunc(refs, func(a, b TileRef) int {
			return len(all[a]) - len(all[b])
		})
		measure(b, id+"/tile", refs,
			func(at TileRef) error { _, err := s.Tile(b.Context(), at, anyCoding); return err })
		e, err := s.hold(id)
		if err != nil {
			b.Fatal(err)
		}
		measure(b, id+"/tile-uncached", refs,
			func(at TileRef) error { _, err := e.pack.stored(b.Context(), at); return err })
		measure(b, id+"/pread", refs, func(at TileRef) error {
			n := len(all[at])
			_, err := e.pack.file.ReadAt(make([]byte, n), e.pack.stamp.size-int64(n))
			return err
		})
		e.pack.Close()
	}
}
