package mbtiles_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/engines/edge/mbtiles"
	"ronbox/engines/edge/packtest"
)

// TestHostile opens and verifies hostile files. Each is refused before one of its queries can run
// without end.
func TestHostile(t *testing.T) {
	for _, h := range packtest.Hostile() {
		t.Run(h.Name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), h.Name+".mbtiles")
			packtest.WriteMBTiles(t, path, h.Script)
			r, err := mbtiles.Open(t.Context(), path, within)
			if err == nil {
				defer r.Close()
			}
			if h.Slow == (err != nil) ||
				err != nil && (!errors.Is(err, mbtiles.ErrUnfit) || !strings.Contains(err.Error(), h.Fault)) {
				t.Fatalf("open: %v, want %q", err, h.Fault)
			}
			if !h.Slow {
				return
			}
			budget := time.Minute
			if h.Fault == "" {
				budget = 100 * time.Millisecond
			}
			ctx, cancel := context.WithTimeoutCause(t.Context(), budget, errors.New("late"))
			defer cancel()
			faults := ""
			_, err = r.Verify(ctx, check(&faults))
			if late := err != nil &&
				err.Error() == "late"; late != (h.Fault == "") ||
				!strings.Contains(faults, h.Fault) {
				t.Errorf("verify: %v, faults %q, want %q", err, faults, h.Fault)
			}
		})
	}
}

// TestSlowTile reads a tile with a statement that does not end.
func TestSlowTile(t *testing.T) {
	for _, h := range packtest.Hostile() {
		if !h.Slow || h.Fault != "" {
			continue
		}
		path := filepath.Join(t.TempDir(), h.Name+".mbtiles")
		packtest.WriteMBTiles(t, path, h.Script)
		r := open(t, path)
		r.SetWithin(100 * time.Millisecond)
		if _, err := r.Tile(t.Context(), 0, 0, 0, anyRoom); !errors.Is(err, mbtiles.ErrUnfit) ||
			!strings.Contains(err.Error(), "it took more than 100ms") {
			t.Errorf("err = %v", err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("gone"))
		if _, err := r.Tile(ctx, 0, 0, 0, anyRoom); err == nil || err.Error() != "gone" {
			t.Errorf("a caller that has left: err = %v", err)
		}
	}
}

// TestUnusual opens files that are unusual and sound.
func TestUnusual(t *testing.T) {
	for name, script := range map[string]string{
		"a log mode without a log": packtest.Sound,
		"triggers": packtest.Sound + "CREATE TRIGGER g AFTER INSERT ON tiles " +
			"BEGIN DELETE FROM tiles; END;",
		"a check": packtest.Sound + "CREATE TABLE z (a CHECK (a GLOB '*x*')); " +
			"INSERT INTO z VALUES ('x');",
		"views beside": packtest.Sound + "CREATE VIEW v AS SELECT * FROM tiles; " +
			"CREATE VIEW w AS SELECT hex(name) FROM metadata;",
		"a virtual table beside": packtest.Sound + "CREATE VIRTUAL TABLE r USING rtree(id, a, b)",
		"a virtual table in a view": packtest.Sound + "CREATE VIRTUAL TABLE f USING fts5(a);" +
			"CREATE VIEW v AS SELECT * FROM f",
		"metadata is a view": packtest.Sound + "ALTER TABLE metadata RENAME TO kv;" +
			"CREATE VIEW metadata AS SELECT name, value FROM kv",
		"a table without rowid": packtest.Metadata + `CREATE TABLE tiles (
			zoom_level integer, tile_column integer, tile_row integer, tile_data blob,
			PRIMARY KEY (zoom_level, tile_column, tile_row)) WITHOUT ROWID;`,
		"a view of one table": packtest.Metadata + `CREATE TABLE tiles_with_hash (
			zoom_level integer NOT NULL, tile_column integer NOT NULL, tile_row integer NOT NULL,
			tile_data blob, tile_hash text, PRIMARY KEY (zoom_level, tile_column, tile_row));
			CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM tiles_with_hash;`,
	} {
		path := filepath.Join(t.TempDir(), "made.mbtiles")
		packtest.WriteMBTiles(t, path, script)
		if strings.HasPrefix(name, "a log") {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			b[18], b[19] = 2, 2
			if err := os.WriteFile(path, b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r := open(t, path)
		found := ""
		if _, err := r.Verify(t.Context(), check(&found)); err != nil || found != "" {
			t.Errorf("%s: %v, %s", name, err, found)
		}
	}
}

// TestLyingSchema has rows of the schema with another type or name than their statements.
func TestLyingSchema(t *testing.T) {
	lie := "PRAGMA writable_schema = on; UPDATE sqlite_schema SET "
	for _, change := range []string{
		"type = 'view', rootpage = 0, sql = 'CREATE VIRTUAL TABLE metadata USING fts5(name, value)' " +
			"WHERE name = 'metadata'",
		"sql = 'create/**/virtual table metadata USING fts5(name, value)', rootpage = 0 WHERE name = 'metadata'",
		"name = 'other' WHERE name = 'metadata'",
		"type = 'table', rootpage = 0, sql = 'CREATE VIEW metadata AS SELECT 1 AS name, 2 AS value' " +
			"WHERE name = 'metadata'",
	} {
		path := filepath.Join(t.TempDir(), "lying.mbtiles")
		packtest.WriteMBTiles(t, path, packtest.Sound+lie+change)
		if r, err := mbtiles.Open(t.Context(), path, within); !errors.Is(err, mbtiles.ErrUnfit) {
			t.Errorf("%s: %v", change, err)
			r.Close()
		}
	}
}

// TestSchemaCount reads cyclic trees of schema pages.
func TestSchemaCount(t *testing.T) {
	page := make([]byte, 512)
	copy(page, "SQLite format 3\x00\x02\x00")
	page[100], page[104], page[111] = 5, 2, 1 // interior, two cells, the right child is page 1
	if err := mbtiles.CheckSchemaSize(strings.NewReader(string(page)), 512); !errors.Is(err, mbtiles.ErrUnfit) {
		t.Errorf("a page that is its own child: %v", err)
	}
}
