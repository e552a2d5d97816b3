package pack

import (
	"bytes"
	"compress/gzip"
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
	"ronbox/engines/edge/tile"
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
	if err != nil || two.Format != tile.MVT || !bytes.Contains(two.VectorLayers, []byte(`"hospitales"`)) ||
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
	for name, b := range map[string][]byte{
		"a.pmtiles": sound, "twolayers.pmtiles": sound, "World.pmtiles": sound, "_x.pmtiles": sound,
		strings.Repeat("y", 65) + ".pmtiles": sound,

		"cut.pmtiles": sound[:100], "brotli.pmtiles": brotli.bytes(), "text.mbtiles": []byte("text"),
		"empty.mbtiles": nil, "broken.pmtiles": made(broken, broken).bytes(),
		"UP.PMTILES": sound, "up.MBTiles": sound,
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
		"broken":                             "none of 2 tiles that were read decodes",
		"UP.PMTILES":                         "rename the file to up.pmtiles",
		"up.MBTiles":                         "rename the file to up.mbtiles",
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
	if n := s.Failed(); n != 12 {
		t.Errorf("%d packs failed", n)
	}
}

func TestPackBound(t *testing.T) {
	_, s, dir := newPackRig(t)
	for i := range maxPacks + 2 {
		putPack(t, filepath.Join(dir, fmt.Sprintf("p%03d.pmtiles", i)), made("x", "y").bytes())
	}
	if err := s.scan(lookAtOnce); err != nil {
		t.Fatal(err)
	}
	openAll(t, s)
	all := s.List()
	if len(all) != maxPacks+2 || s.Failed() != 2 || all[maxPacks-1].State != asset.PackVerifying ||
		!strings.Contains(all[maxPacks].Fault, "more than 256") {
		t.Errorf("%d packs, %d failed: %+v", len(all), s.Failed(), all[maxPacks])
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
	if _, err := s.Tile(t.Context(), TileRef{Pack: "stamen_toner_z3"}, anyCoding); !errors.Is(err, ErrPending) {
		t.Errorf("a tile before its pack is checked: %v", err)
	}
	for range 2 {
		p := s.current.Load().take() // the check of each pack
		s.verify(t.Context(), p, result{})
	}
	if got, err := s.Tile(t.Context(), TileRef{Pack: "stamen_toner_z3"}, anyCoding); err != nil || got.Version != "" {
		t.Errorf("a tile before its pack is hashed: version %q, %v", got.Version, err)
	}
	if _, err := s.File("stamen_toner_z3"); !errors.Is(err, ErrPending) {
		t.Errorf("before it is hashed: %v", err)
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
			func(at TileRef) error { _, err := e.pack.stored(b.Context(), at, e.info.Format); return err })
		measure(b, id+"/pread", refs, func(at TileRef) error {
			n := len(all[at])
			_, err := e.pack.file.ReadAt(make([]byte, n), e.pack.stamp.size-int64(n))
			return err
		})
		e.pack.Close()
	}
}
