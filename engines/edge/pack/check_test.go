package pack

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/packtest"
	"ronbox/engines/edge/tile"
	"ronbox/store"
)

// codes returns the codes and counts of the warnings of a pack.
func codes(i Info) string {
	var out []string
	for _, w := range i.Warnings {
		out = append(out, fmt.Sprint(w.Code, " ", w.Count))
	}
	return strings.Join(out, ", ")
}

const (
	pngTile = "\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x01\x00\x00\x00\x01\x00"
	jpgTile = "\xff\xd8\xff\xe0"
)

// TestWarnings serves packs with one defect each that the check of the pack finds, beside sound
// twins, also after a restart.
func TestWarnings(t *testing.T) {
	r, s, dir := newPackRig(t)
	gz := string(compress(2, []byte("a tile")))
	archive := func(coding, kind byte, tiles ...string) []byte {
		a := madePack{coding: coding, maxZoom: 2, bounds: [4]float64{-180, -85, 180, 85}}
		a.header = func(b []byte) { b[99] = kind }
		for i, data := range tiles {
			a.tiles = append(a.tiles, madeTile{uint64(i), 1, []byte(data)})
		}
		return a.bytes()
	}
	sqlite := func(script string) []byte { return scripted(t, packtest.Sound+script) }
	type want struct {
		file    []byte
		codes   string
		format  Format
		skipped uint64
	}
	metadata := "INSERT INTO metadata VALUES "
	all := map[string]want{
		"sound.pmtiles":     {archive(2, 1, gz, gz), "", "mvt", 0},
		"picture.pmtiles":   {archive(1, 2, pngTile), "", "png", 0},
		"format.pmtiles":    {archive(1, 2, jpgTile, jpgTile, pngTile), "format 2", "jpg", 0},
		"maplibre.pmtiles":  {archive(2, 6, string(compress(2, []byte("\x1a\x01")))), "", "mlt", 0},
		"unnamed.pmtiles":   {archive(1, 0, pngTile), "", "png", 0},
		"future.pmtiles":    {archive(2, 200, gz), "", "mvt", 0},
		"coding.pmtiles":    {archive(2, 1, gz, "plain"), "coding 1", "mvt", 0},
		"rotten.pmtiles":    {archive(2, 1, gz, broken), "undecodable 1", "mvt", 0},
		"brotli.pmtiles":    {archive(3, 1, "no mark"), "", "mvt", 0},
		"sound2.mbtiles":    {sqlite(""), "", "png", 0},
		"svg.mbtiles":       {sqlite("UPDATE metadata SET value = 'svg+xml' WHERE name = 'format'"), "format 1", "", 0},
		"media.mbtiles":     {sqlite("UPDATE metadata SET value = 'IMAGE/JPEG' WHERE name = 'format'"), "", "jpg", 0},
		"json.mbtiles":      {sqlite(metadata + "('json', '{''a'':1}')"), "json 1", "png", 0},
		"outside.mbtiles":   {sqlite("INSERT INTO tiles VALUES (1, 0, -1, 'x')"), "row_outside 1", "png", 1},
		"two.mbtiles":       {sqlite("INSERT INTO tiles VALUES (1, 0, -1, 'x'), (1, 1, 1, 5)"), "row_type 1, row_outside 1", "png", 2},
		"long-meta.pmtiles": {withMetadata(`{"name":"x","vector_layers":[{"id":"` + strings.Repeat("x", 4<<20) + `"}]}`), "metadata 1", "mvt", 0},
		"bad-meta.pmtiles":  {withMetadata("no object"), "metadata 1", "mvt", 0},
	}
	for name, w := range all {
		putPack(t, filepath.Join(dir, name), w.file)
	}
	r.start()
	rescan(t, s)
	if i, err := s.Info("coding"); err != nil ||
		i.Warnings[0].Text != "1 of 2 tiles that were read have the coding none, not gzip" {
		t.Errorf("the text: %+v, %v", i.Warnings, err)
	}
	for range 2 {
		for name, w := range all {
			i, err := s.Info(strings.TrimSuffix(name, filepath.Ext(name)))
			if err != nil || i.State != asset.PackVerified || codes(i) != w.codes || i.Format != w.format ||
				i.Skipped != w.skipped || i.Ready() != nil {
				t.Errorf("%s is %s with %q of %q, %d skipped, want %q of %q, %d: %v %s", name, i.State, codes(i), i.Format,
					i.Skipped, w.codes, w.format, w.skipped, err, i.Fault)
			}
			if _, err := s.Tile(t.Context(), TileRef{Pack: i.ID}, anyCoding); err != nil {
				t.Errorf("%s: a tile: %v", name, err)
			}
		}
		r.reboot()
		s = r.set
		rescan(t, s)
	}
}

// withMetadata returns a pack with metadata.
func withMetadata(text string) []byte {
	a := made("a 1", "a")
	whole := a.bytes()
	a.header = func(b []byte) {
		binary.LittleEndian.PutUint64(b[24:], uint64(len(whole)))
		binary.LittleEndian.PutUint64(b[32:], uint64(len(text)))
	}
	return append(a.bytes(), text...)
}

// TestOlderRow starts with the row of an older release, which has no rules: the packs are checked
// again, whatever their result was, and their digests are still compared.
func TestOlderRow(t *testing.T) {
	r, s, dir := newPackRig(t, "stamen_toner_z3.pmtiles", "twolayers.mbtiles")
	r.start()
	rescan(t, s)
	rows := []result{}
	for _, row := range s.current.Load().rows {
		rows = append(rows, result{File: row.File, Size: row.Size, MTime: row.MTime, Inode: row.Inode, Digest: row.Digest,
			Tiles: row.Tiles, Fault: "refused by older rules"})
	}
	if _, err := store.Commit(t.Context(), r.store, store.Work, rememberCmd{rows}); err != nil {
		t.Fatal(err)
	}
	rot(t, filepath.Join(dir, "stamen_toner_z3.pmtiles"), 500_000)
	r.stop()
	r.open()
	s = r.set
	openAll(t, s)
	if got, want := states(s.List()), "stamen_toner_z3 verifying, twolayers verifying"; got != want {
		t.Errorf("after the start: %s, want %s", got, want)
	}
	r.start()
	if err := s.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, want := states(s.List()), "stamen_toner_z3 failed, twolayers verified"; got != want {
		t.Errorf("checked again: %s, want %s", got, want)
	}
}

// TestServedBeforeHashed checks a pack and then hashes it: it serves in between, and one that fails
// its check never does.
func TestServedBeforeHashed(t *testing.T) {
	_, s, dir := newPackRig(t)
	putPack(t, filepath.Join(dir, "good.pmtiles"), made("good 1", "good").bytes())
	putPack(t, filepath.Join(dir, "bad.pmtiles"), made(broken, broken).bytes())
	if err := s.scan(lookAtOnce); err != nil {
		t.Fatal(err)
	}
	openAll(t, s)
	served := func(id string) string {
		_, err := s.Tile(t.Context(), TileRef{Pack: id}, anyCoding)
		return fmt.Sprint(err)
	}
	if served("good") != "pack good is verifying" || served("bad") != "pack bad is verifying" {
		t.Errorf("before the check: %s, %s", served("good"), served("bad"))
	}
	for range 2 {
		p := s.current.Load().take()
		s.verify(t.Context(), p, result{})
	}
	if got := states(s.List()); got != "bad failed, good verifying" || served("good") != "<nil>" ||
		!strings.HasPrefix(served("bad"), "pack bad is failed: none of 2 tiles") {
		t.Errorf("after the check: %s, %s, %s", got, served("good"), served("bad"))
	}
	verifyAll(t, s)
	if got := states(s.List()); got != "bad failed, good verified" {
		t.Errorf("at the end: %s", got)
	}
}

// TestLooks watches the folder: a file is opened after two equal looks, and what does not change
// publishes nothing.
func TestLooks(t *testing.T) {
	_, s, dir := newPackRig(t)
	look := func(want string) {
		t.Helper()
		if err := s.scan(lookWatch); err != nil {
			t.Fatal(err)
		}
		openAll(t, s)
		if got := states(s.List()); got != want {
			t.Errorf("after a look: %s, want %s", got, want)
		}
	}
	path := filepath.Join(dir, "p.pmtiles")
	whole := made("old 1", "old").bytes()
	for n := 20; n < len(whole); n += 50 { // it is copied
		if err := os.WriteFile(path, whole[:n], 0o600); err != nil {
			t.Fatal(err)
		}
		look("p opening")
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	look("p opening")
	look("p verifying")
	verifyAll(t, s)
	before := s.current.Load()
	look("p verified")
	if s.current.Load() != before {
		t.Error("a look that finds nothing publishes a generation")
	}
	putPack(t, path, made("next 2", "next").bytes()) // another file
	look("p verified")
	if i := s.List()[0]; i.Next != "" {
		t.Errorf("after one look: %+v", i)
	}
	look("p verified")
	if i := s.List()[0]; i.Next != asset.PackVerifying {
		t.Errorf("after two looks: %+v", i)
	}
	verifyAll(t, s)
	if err := os.WriteFile(path, append(whole, make([]byte, 9)...), 0o600); err != nil { // in place
		t.Fatal(err)
	}
	look("p changed")
	look("p changed")
	verifyAll(t, s)
	look("p verified")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	look("")
}

// TestWatched starts the tasks with a short watch: a copied file is verified without a command.
func TestWatched(t *testing.T) {
	r, _, dir := newPackRig(t)
	r.stop()
	r.cfg.Watch = 1e6
	r.open()
	r.start()
	putPack(t, filepath.Join(dir, "p.pmtiles"), made("x 1", "x").bytes())
	until(t, "the pack is verified", func() bool { return states(r.set.List()) == "p verified" })
}

// TestTextOfGuests has bytes in the texts of packs that are not UTF-8: what is kept of them is, so
// that it can be sent as JSON.
func TestTextOfGuests(t *testing.T) {
	r, s, dir := newPackRig(t)
	long := strings.Repeat("ä", maxFault)
	script := packtest.Sound + `DELETE FROM metadata; INSERT INTO metadata VALUES ('name', CAST(x'61ff62' AS TEXT)),
		('type', CAST(x'ff' AS TEXT)), ('version', CAST(x'fe' AS TEXT)), ('attribution', CAST(x'c3' AS TEXT)),
		('bounds', CAST(x'ff' AS TEXT)), ('format', CAST(x'ff' AS TEXT)), ('maxzoom', '` + long + `'),
		('json', CAST(x'7b22766563746f725f6c6179657273223a5b7b226964223a22ff227d5d7d' AS TEXT));`
	packtest.WriteMBTiles(t, filepath.Join(dir, "p.mbtiles"), script)
	putPack(t, filepath.Join(dir, "q.pmtiles"), withMetadata("{\"name\":\"\xff\",\"vector_layers\":[{\"id\":\"\xff\"}]}"))
	r.start()
	for _, i := range rescan(t, s) {
		texts := append([]string{i.Fault, string(i.Format)}, i.Name, i.Type, i.Revision, i.Attribution, string(i.VectorLayers))
		for _, w := range i.Warnings {
			texts = append(texts, w.Text)
		}
		if i.State != asset.PackVerified || i.Name == "" || len(i.VectorLayers) == 0 {
			t.Errorf("%+v", i)
		}
		for _, text := range texts {
			if !utf8.ValidString(text) {
				t.Errorf("%s: %q", i.ID, text)
			}
		}
	}
	k := checkup{}
	k.add(tile.Finding{Text: "x" + long, Count: 1})
	if text := k.warnings[0].Text; !utf8.ValidString(text) || len(text) > maxFault {
		t.Errorf("a long text: %q", text)
	}
}
