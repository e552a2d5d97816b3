package mbtiles_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"ronbox/engines/edge/mbtiles"
	"ronbox/engines/edge/packtest"
	"ronbox/engines/edge/tile"
)

// TestWarnings verifies files that have one defect each, of which other tiles do not depend: each is
// found and counted, the row is skipped, and the two sound tiles are read.
func TestWarnings(t *testing.T) {
	metadata := func(name, value string) string {
		return fmt.Sprintf("DELETE FROM metadata WHERE name = '%s'; INSERT INTO metadata VALUES ('%[1]s', '%s');", name,
			value)
	}
	row := func(values string) string { return "INSERT INTO tiles VALUES (" + values + ");" }
	for _, tt := range []struct{ want, script string }{
		{"", ""},
		{"row_outside 1 ", row("32, 0, 0, 'x'")},
		{"row_outside 1 ", row("-1, 0, 0, 'x'")},
		{"row_outside 1 ", row("1, 2, 0, 'x'")},
		{"row_outside 1 ", row("1, 0, 2, 'x'")},
		{"row_outside 2 ", row("1, 0, -1, 'x'") + row("1, 0, -2, 'x'")},
		{"row_type 1 ", row("1, 1, 1, 5")},
		{"row_type 1 ", row("1, 1, 1, 5.5")},
		{"row_type 1 ", row("NULL, 1, 1, 'x'")},
		{"row_type 1 ", row("1, 'a', 1, 'x'")},
		{"row_type 1 ", row("1, 1, 0.5, 'x'")},
		{"empty_tile 2 ", row("1, 1, 1, NULL") + row("1, 1, 0, ''")},
		{"long_tile 1 ", row(fmt.Sprintf("1, 1, 1, zeroblob(%d)", within.MaxTile+1))},
		{"row_type 1 row_outside 1 empty_tile 1 ", row("1, 1, 1, 5") + row("1, 1, 9, 'x'") + row("1, 1, 0, ''")},
		{"bounds 1 ", metadata("bounds", "0,0,0,0")},
		{"bounds 1 ", metadata("bounds", "10,0,-10,5")},
		{"bounds 1 ", metadata("bounds", "the world")},
		{"zoom 1 ", metadata("maxzoom", "32")},
		{"zoom 1 ", metadata("maxzoom", "1.5")},
		{"zoom 1 ", metadata("minzoom", "")},
		{"zoom 1 ", metadata("minzoom", "9")},
		{"zoom 2 ", metadata("minzoom", "low") + metadata("maxzoom", "high")},
		{"metadata 1 ", "INSERT INTO metadata VALUES ('description', zeroblob(4194304));"},
		{"metadata 1 ", "INSERT INTO metadata VALUES ('attribution', zeroblob(9000000));"},
	} {
		path := t.TempDir() + "/made.mbtiles"
		packtest.WriteMBTiles(t, path, packtest.Sound+tt.script)
		r := open(t, path)
		found := ""
		n, err := r.Verify(t.Context(), check(&found))
		if tt.want == "zoom 2 " {
			found = strings.Replace(found, "zoom 1 zoom 1 ", "zoom 2 ", 1)
		}
		if err != nil || n < 2 || found != tt.want {
			t.Errorf("%s: %d tiles, %v, found %q, want %q", tt.script, n, err, found, tt.want)
		}
		if r.MinZoom != 0 || r.MaxZoom != 1 {
			t.Errorf("%s: zoom %d to %d", tt.script, r.MinZoom, r.MaxZoom)
		}
		for z, want := range []string{"world", "north"} {
			if b, err := r.Tile(t.Context(), uint8(z), 0, 0, anyRoom); err != nil || string(b) != want {
				t.Errorf("%s: tile of zoom %d: %q, %v", tt.script, z, b, err)
			}
		}
		for y := range uint32(2) {
			b, err := r.Tile(t.Context(), 1, 1, y, anyRoom)
			if b != nil || err != nil && !errors.Is(err, tile.ErrSkipped) {
				t.Errorf("%s: tile 1/1/%d: %q, %v", tt.script, y, b, err)
			}
		}
	}
}

// TestZooms reads zoom levels in every spelling of a whole number, and those of the tiles.
func TestZooms(t *testing.T) {
	for _, tt := range []struct {
		script    string
		low, high uint8
	}{
		{"UPDATE metadata SET value = value || '.0' WHERE name LIKE '%zoom'", 0, 1},
		{"UPDATE metadata SET value = ' ' || value || ' ' WHERE name LIKE '%zoom'", 0, 1},
		{"UPDATE metadata SET value = '1e1' WHERE name = 'maxzoom'", 0, 10},
		{"UPDATE metadata SET value = 5.0 WHERE name = 'maxzoom'", 0, 5},
		{"DELETE FROM metadata; UPDATE tiles SET zoom_level = 3 WHERE zoom_level = 1", 0, 3},
		{"DELETE FROM metadata; DELETE FROM tiles", 0, 0},
		{"DELETE FROM metadata; INSERT INTO tiles VALUES (99, 0, 0, 'x'), ('a', 0, 0, 'x'), (-1, 0, 0, 'x')", 0, 1},
	} {
		path := t.TempDir() + "/made.mbtiles"
		packtest.WriteMBTiles(t, path, packtest.Sound+tt.script)
		if r := open(t, path); r.MinZoom != tt.low || r.MaxZoom != tt.high {
			t.Errorf("%s: %d to %d, want %d to %d", tt.script, r.MinZoom, r.MaxZoom, tt.low, tt.high)
		}
	}
}

// TestVirtualTables opens files whose tiles or metadata read a virtual table.
func TestVirtualTables(t *testing.T) {
	fts := "CREATE VIRTUAL TABLE f USING fts5(name, value, zoom_level, tile_column, tile_row, tile_data);"
	for _, script := range []string{
		"DROP TABLE tiles; CREATE VIRTUAL TABLE Tiles USING fts5(zoom_level, tile_column, tile_row, tile_data)",
		fts + "DROP TABLE metadata; CREATE VIEW metadata AS SELECT name, value FROM f",
		fts + "DROP TABLE tiles; CREATE VIEW tiles AS SELECT zoom_level, tile_column, tile_row, tile_data FROM f",
		"DROP TABLE metadata; CREATE VIEW metadata AS SELECT key AS name, value FROM json_each('{}')",
		"DROP TABLE metadata; CREATE VIEW metadata AS SELECT 'name' AS name, name AS value FROM pragma_table_list",
	} {
		path := t.TempDir() + "/made.mbtiles"
		packtest.WriteMBTiles(t, path, packtest.Sound+script)
		if r, err := mbtiles.Open(t.Context(), path, within); !errors.Is(err, mbtiles.ErrUnfit) {
			t.Errorf("%s: %v", script, err)
			r.Close()
		}
	}
}
