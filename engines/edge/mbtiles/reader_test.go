package mbtiles_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines/edge/mbtiles"
	"ronbox/engines/edge/tile"
)

type zxy struct {
	Z    uint8
	X, Y uint32
}

// readTiles reads every tile of a file with another query.
func readTiles(path string) (map[zxy][]byte, error) {
	c, err := sqlite.OpenConn("file:"+path+"?immutable=1", sqlite.OpenReadOnly|sqlite.OpenURI)
	if err != nil {
		return nil, err
	}
	out := map[zxy][]byte{}
	err = sqlitex.ExecuteTransient(
		c,
		"SELECT zoom_level, tile_column, (1 << zoom_level) - 1 - tile_row, tile_data FROM tiles",
		&sqlitex.ExecOptions{
			ResultFunc: func(s *sqlite.Stmt) (err error) {
				out[zxy{uint8(s.ColumnInt(0)), uint32(s.ColumnInt64(1)), uint32(s.ColumnInt64(2))}], err = io.ReadAll(
					s.ColumnReader(3))
				return err
			},
		},
	)
	return out, errors.Join(err, c.Close())
}

// within permits all that a sound file needs on a busy machine.
var within = mbtiles.Limits{Within: time.Minute, MaxTile: 8 << 20, MaxMetadata: 4 << 20}

// anyRoom has room for each tile.
func anyRoom(int64) error { return nil }

// check adds the findings of a verification to found: the fatal ones by their text, the others by
// code and count.
func check(found *string) tile.Check {
	return tile.Check{Found: func(f tile.Finding) {
		if f.Fatal {
			*found += f.Text + "\n"
			return
		}
		*found += fmt.Sprint(f.Code, " ", f.Count, " ")
	}, Sample: func([]byte) {}}
}

const fixture = "../../../testdata/packs/twolayers.mbtiles"

func open(t testing.TB, path string) *mbtiles.Reader {
	t.Helper()
	r, err := mbtiles.Open(t.Context(), path, within)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

// TestEveryTile reads every tile of a real file, and missing tiles, and compares them with another
// query.
func TestEveryTile(t *testing.T) {
	want, err := readTiles(fixture)
	if err != nil || len(want) != 554 {
		t.Fatalf("%d tiles, %v, want 554", len(want), err)
	}
	r := open(t, fixture)
	for ref, b := range want {
		got, err := r.Tile(t.Context(), ref.Z, ref.X, ref.Y, anyRoom)
		if err != nil || !bytes.Equal(got, b) {
			t.Fatalf("%v: %d bytes, %v, want %d", ref, len(got), err, len(b))
		}
		beside := zxy{Z: ref.Z, X: ref.X, Y: 1<<ref.Z - 1 - ref.Y}
		if _, there := want[beside]; there {
			continue
		}
		if got, err := r.Tile(t.Context(), beside.Z, beside.X, beside.Y, anyRoom); got != nil || err != nil {
			t.Fatalf("%v is not there: %d bytes, %v", beside, len(got), err)
		}
	}
	found := ""
	if n, err := r.Verify(t.Context(), check(&found)); err != nil || n != 554 || found != "" {
		t.Errorf("verify: %d tiles, %v, %s", n, err, found)
	}
	i := r.Info
	if i.Name != "twolayers.mbtiles" || i.Format != "pbf" || i.MinZoom != 0 || i.MaxZoom != 14 ||
		!strings.HasPrefix(i.JSON, `{"vector_layers"`) ||
		i.Bounds != [4]float64{-117.010059, 17.078149, -88.153455, 32.541025} ||
		i.Center != [3]float64{-99.635010, 19.300774, 14} {
		t.Errorf("info %+v", i)
	}
}

// schema is the script of a sound file with one tile at 0/0/0 and one at 1/0/0 in the north.
const schema = `CREATE TABLE metadata (name text, value text);
	INSERT INTO metadata VALUES ('name', 'made'), ('minzoom', '0'), ('maxzoom', '1'), ('format', 'png');
	CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
	CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);
	INSERT INTO tiles VALUES (0, 0, 0, 'world'), (1, 0, 1, 'north');`

// create creates a file from a script.
func create(t testing.TB, script string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "made & 100%?.mbtiles")
	c, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(sqlitex.ExecuteScript(c, script, nil), c.Close()); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestMade(t *testing.T) {
	r := open(t, create(t, schema))
	for _, tt := range []struct {
		ref  zxy
		want string
	}{{zxy{}, "world"}, {zxy{Z: 1}, "north"}, {zxy{Z: 1, Y: 1}, ""}, {zxy{Z: 31, X: 1<<31 - 1}, ""}} {
		if b, err := r.Tile(t.Context(), tt.ref.Z, tt.ref.X, tt.ref.Y, anyRoom); err != nil || string(b) != tt.want {
			t.Errorf("%v: %q, %v, want %q", tt.ref, b, err, tt.want)
		}
	}
	zooms := open(t, create(t, schema+`DELETE FROM metadata WHERE name LIKE '%zoom';
		INSERT INTO tiles VALUES (7, 0, 0, 'x'); DELETE FROM tiles WHERE zoom_level = 0`))
	if zooms.MinZoom != 1 || zooms.MaxZoom != 7 {
		t.Errorf("zoom levels of tiles: %d to %d, want 1 to 7", zooms.MinZoom, zooms.MaxZoom)
	}
	images := open(t, create(t, `CREATE TABLE metadata (name text, value text);
		CREATE TABLE map (zoom_level integer, tile_column integer, tile_row integer, tile_id text);
		CREATE TABLE images (tile_id text PRIMARY KEY, tile_data blob);
		CREATE UNIQUE INDEX map_index ON map (zoom_level, tile_column, tile_row);
		CREATE VIEW tiles AS SELECT map.zoom_level AS zoom_level, map.tile_column AS tile_column,
			map.tile_row AS tile_row, images.tile_data AS tile_data
			FROM map JOIN images ON images.tile_id = map.tile_id;
		INSERT INTO images VALUES ('a', 'shared'); INSERT INTO map VALUES (0, 0, 0, 'a'), (1, 1, 1, 'a');`))
	if b, err := images.Tile(t.Context(), 1, 1, 0, anyRoom); err != nil || string(b) != "shared" {
		t.Errorf("a view of maps and images: %q, %v", b, err)
	}
}

// TestRefused opens invalid and hostile files.
func TestRefused(t *testing.T) {
	beside := func(path, suffix string) string {
		if err := os.WriteFile(path+suffix, []byte("pages"), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := filepath.Join(t.TempDir(), "text.mbtiles")
	if err := os.WriteFile(text, bytes.Repeat([]byte("not a database "), 1000), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc, path string
		want      error
		words     string
	}{
		{"no database", text, mbtiles.ErrUnfit, "not a database"},
		{"no tiles", create(t, `CREATE TABLE metadata (name text, value text)`), mbtiles.ErrUnfit, "no such table: tiles"},
		{"a log beside it", beside(create(t, schema), "-wal"), mbtiles.ErrUnfit, "has a wal"},
		{"a hot journal", beside(create(t, schema), "-journal"), mbtiles.ErrUnfit, "has a journal"},
		{"no index", create(t, schema+`DROP INDEX tile_index`), mbtiles.ErrUnfit, "CREATE UNIQUE INDEX tile_index"},
		{"a view that recurses", create(t, `CREATE TABLE metadata (name text, value text);
			CREATE VIEW tiles AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
				SELECT 0 AS zoom_level, i AS tile_column, 0 AS tile_row, 'x' AS tile_data FROM n`),
			mbtiles.ErrUnfit, "WITH clause"},
	} {
		r, err := mbtiles.Open(t.Context(), tt.path, within)
		if !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.words) {
			t.Errorf("%s: err = %v, want %v with %q", tt.doc, err, tt.want, tt.words)
		}
		if err == nil {
			r.Close()
		}
	}
	if _, err := mbtiles.Open(t.Context(), filepath.Join(t.TempDir(), "none.mbtiles"), within); !errors.Is(err, mbtiles.ErrUnfit) {
		t.Errorf("no file: err = %v", err)
	}
}

// TestConfined executes statements that views of a file or a bug could execute: changes and access
// to other files are refused.
func TestConfined(t *testing.T) {
	path := create(t, schema)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, path)
	for _, sql := range []string{
		"DELETE FROM tiles", "INSERT INTO tiles VALUES (0, 0, 0, 'x')", "CREATE TABLE x (a)", "CREATE TEMP TABLE x (a)",
		"DROP TABLE tiles", "BEGIN",
		"ATTACH DATABASE '" + fixture + "' AS other", "PRAGMA query_only = off", "PRAGMA trusted_schema = on",
		"PRAGMA user_version", "VACUUM", "REINDEX",
		"CREATE VIRTUAL TABLE v USING fts5(a)",
		"WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n",
	} {
		err := r.Try(t.Context(), sql)
		if err == nil {
			t.Errorf("%s is not refused", sql)
		}
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(before, after) {
		t.Errorf("the file has changed: %v", err)
	}
	left, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(left) != 1 {
		t.Errorf("files beside it: %v, %v", left, err)
	}
}

// TestTooLong reads a tile beyond the bound.
func TestTooLong(t *testing.T) {
	r := open(
		t,
		create(
			t,
			schema+fmt.Sprintf("INSERT INTO tiles VALUES (1, 1, 1, zeroblob(%d)), (1, 1, 0, zeroblob(%d))",
				within.MaxTile+1, within.MaxTile),
		),
	)
	asked := int64(0)
	b, err := r.Tile(t.Context(), 1, 1, 1, func(length int64) error { asked += length; return nil })
	if err != nil || int64(len(b)) != within.MaxTile || asked != within.MaxTile {
		t.Errorf("%d bytes, %v, room for %d, want %d", len(b), err, asked, within.MaxTile)
	}
	full := errors.New("full")
	if b, err := r.Tile(t.Context(), 1, 1, 1, func(int64) error { return full }); b != nil || !errors.Is(err, full) {
		t.Errorf("without room: %d bytes, %v", len(b), err)
	}
	if b, err := r.Tile(t.Context(), 1, 1, 0, anyRoom); !errors.Is(err, tile.ErrSkipped) {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

// TestRunaway interrupts a query that would not end: a join of the tiles with themselves, eight
// times.
func TestRunaway(t *testing.T) {
	script := schema + `ALTER TABLE tiles RENAME TO t;
		CREATE TABLE many (i integer primary key); CREATE UNIQUE INDEX many_i ON many (i);`
	for i := range 100 {
		script += fmt.Sprintf("INSERT INTO many VALUES (%d);", i)
	}
	script += `CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row,
		(SELECT count(*) FROM many a, many b, many c, many d, many e, many f
			WHERE a.i + b.i + c.i + d.i + e.i + f.i > t.zoom_level) AS tile_data FROM t`
	path := create(t, script)
	ctx, cancel := context.WithTimeoutCause(t.Context(), 200*time.Millisecond, errors.New("late"))
	defer cancel()
	r, err := mbtiles.Open(ctx, path, within)
	if err == nil { // the planner may find an index for the whole join
		defer r.Close()
		_, err = r.Tile(ctx, 0, 0, 0, anyRoom)
		if err == nil || err.Error() != "late" {
			t.Errorf("err = %v, want late", err)
		}
		_, err = r.Verify(ctx, check(new(string)))
	}
	if err == nil || (err.Error() != "late" && !errors.Is(err, mbtiles.ErrUnfit)) {
		t.Errorf("err = %v", err)
	}
}

// TestCut reads and verifies a file that is truncated at any page, before or after it was opened.
// It returns errors or faults, and never crashes or returns a part of a tile.
func TestCut(t *testing.T) {
	whole, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	want, err := readTiles(fixture)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "cut.mbtiles")
	for n := 0; n < len(whole); n += 8 * 4096 {
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := mbtiles.Open(t.Context(), path, within)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(path, int64(n)); err != nil {
			t.Fatal(err)
		}
		failed := 0
		for ref, b := range want {
			switch got, err := r.Tile(t.Context(), ref.Z, ref.X, ref.Y, anyRoom); {
			case err != nil:
				failed++
			case got != nil && !bytes.Equal(got, b):
				t.Fatalf("cut at %d: %v has %d other bytes", n, ref, len(got))
			}
		}
		faults := ""
		_, err = r.Verify(t.Context(), check(&faults))
		r.Close()
		if failed == 0 || faults == "" && err == nil {
			t.Errorf("cut at %d of %d: %d tiles failed, faults %q, %v", n, len(whole), failed, faults, err)
		}
		if again, err := mbtiles.Open(t.Context(), path, within); err == nil {
			if _, err = again.Verify(t.Context(), check(&faults)); faults == "" && err == nil {
				t.Errorf("cut at %d: it opens and is sound", n)
			}
			again.Close()
		}
	}
}

// TestFlipped corrupts bytes of a file: every call returns.
func TestFlipped(t *testing.T) {
	whole, err := os.ReadFile(fixture)
	if err != nil {
		t.Fatal(err)
	}
	draw := rand.New(rand.NewPCG(hosttest.Seed(t, "MBTILES_SEED"), 0))
	path := filepath.Join(t.TempDir(), "flipped.mbtiles")
	tries := 60
	if testing.Short() {
		tries = 15
	}
	for range tries {
		spoiled := bytes.Clone(whole)
		for range 1 + draw.IntN(40) {
			at := draw.IntN(len(spoiled))
			if draw.IntN(2) == 0 {
				at = draw.IntN(8) * 4096 // the headers of pages
				at += draw.IntN(128)
			}
			spoiled[at] = byte(draw.Uint32())
		}
		if err := os.WriteFile(path, spoiled, 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := mbtiles.Open(t.Context(), path, within)
		if err != nil {
			continue
		}
		for range 50 {
			z := uint8(draw.IntN(15))
			if b, err := r.Tile(t.Context(), z, draw.Uint32N(1<<z), draw.Uint32N(1<<z), anyRoom); err == nil &&
				int64(len(b)) > within.MaxTile {
				t.Errorf("a tile of %d bytes", len(b))
			}
		}
		_, _ = r.Verify(t.Context(), check(new(string)))
		r.Close()
	}
}

// TestPool has more readers than connections, and some of them leave.
func TestPool(t *testing.T) {
	want, err := readTiles(fixture)
	if err != nil {
		t.Fatal(err)
	}
	r := open(t, fixture)
	var all sync.WaitGroup
	for i := range 4 * mbtiles.Conns {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			n := 0
			for ref, b := range want {
				if n++; n == 50*(i+1) && i%4 == 0 {
					cancel()
				}
				got, err := r.Tile(ctx, ref.Z, ref.X, ref.Y, anyRoom)
				if ctx.Err() != nil {
					if err == nil {
						continue // it was already read
					}
					if !errors.Is(err, context.Canceled) {
						t.Errorf("a caller that has left: %v", err)
					}
					return
				}
				if err != nil || !bytes.Equal(got, b) {
					t.Errorf("%v: %d bytes, %v", ref, len(got), err)
					return
				}
			}
		})
	}
	all.Wait()
}

func BenchmarkTile(b *testing.B) {
	r := open(b, fixture)
	for b.Loop() {
		if _, err := r.Tile(b.Context(), 14, 3656, 7301, anyRoom); err != nil {
			b.Fatal(err)
		}
	}
}
