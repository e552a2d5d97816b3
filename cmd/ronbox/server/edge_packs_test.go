package server

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"zombiezen.com/go/sqlite"
	"zombiezen.com/go/sqlite/sqlitex"

	"ronbox/appliance/host/hosttest"
	"ronbox/cmd/ronbox/server/config"
	"ronbox/cmd/ronbox/server/initdir"
	"ronbox/engines/edge/packtest"
)

// TestHostilePacksHoldNothingUp starts a node with hostile packs: it is ready, serves sound packs,
// and lists each hostile one with its fault.
func TestHostilePacksHoldNothingUp(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("engines/edge opens the same packs: left to the run without -race")
	}
	cfg, _ := devConfig(t)
	must(t, initdir.CopyPacks(cfg, packsFolder))
	for _, h := range packtest.Hostile() {
		if !h.Slow {
			packtest.WriteMBTiles(t, filepath.Join(cfg.Path(config.PacksName), h.Name+".mbtiles"), h.Script)
		}
	}
	r := start(t, cfg)
	catalog := ""
	r.await("packs to be opened", func() bool {
		_, body := r.get("/edge/catalog", nil)
		catalog = string(body)
		return !strings.Contains(catalog, `"opening"`) && !strings.Contains(catalog, `"verifying"`)
	})
	for path, want := range map[string]int{
		"/readyz": http.StatusOK, "/edge/tiles/stamen_toner_z3/1/0/0.png": http.StatusOK,
	} {
		if resp, body := r.get(path, nil); resp.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", path, resp.StatusCode, body, want)
		}
	}
	for _, h := range packtest.Hostile() {
		if !h.Slow && !strings.Contains(catalog, `"`+h.Name+`"`) || strings.Count(catalog, `"state":"verified"`) != 3 {
			t.Fatalf("%s in %s", h.Name, catalog)
		}
	}
}

// hostilePack adds two packs to the sound one: one with endless metadata, and one that is not a
// pack.
func hostilePack(t *testing.T, cfg *config.Config) {
	makePack(t, cfg.Path("packs/endless.mbtiles"), `
CREATE TABLE n (i integer);
WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM c LIMIT 100) INSERT INTO n SELECT i FROM c;
CREATE VIEW metadata AS SELECT a.i AS name, b.i AS value FROM n a, n b, n c, n d, n e, n f, n g, n h
  WHERE a.i+b.i+c.i+d.i+e.i+f.i+g.i+h.i < 0;
CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row)`)
	must(t, os.WriteFile(cfg.Path("packs/noise.pmtiles"), []byte(strings.Repeat("noise", 1000)), 0o600))
}

func makePack(t *testing.T, path, script string) {
	t.Helper()
	db, err := sqlite.OpenConn(path, sqlite.OpenReadWrite|sqlite.OpenCreate)
	must(t, err)
	must(t, sqlitex.ExecuteScript(db, script, nil))
	must(t, db.Close())
}

// rescans rescans the folder of packs repeatedly.
func rescans(ctx context.Context, r *rig, met *answers) {
	c := r.socket()
	for ctx.Err() == nil {
		if _, err := c.Rescan(ctx); err == nil {
			met.add(http.StatusOK)
		}
	}
}

// packIsNamed expects both bad packs in the catalogue, each with its fault.
func packIsNamed(t *testing.T, r *rig) {
	for _, id := range []string{"endless", "noise"} {
		r.await(id+" is failed", func() bool {
			info, err := r.services.Edge().Packs().Info(id)
			return err == nil && info.State == "failed" && info.Fault != ""
		})
	}
}

// bombTile adds a pack with one tile, which is 64 MiB of zeros compressed by gzip.
func bombTile(t *testing.T, cfg *config.Config) {
	makePack(t, cfg.Path("packs/bomb.mbtiles"), fmt.Sprintf(`
CREATE TABLE metadata (name text, value text);
CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);
INSERT INTO metadata VALUES ('name','bomb'),('format','png');
INSERT INTO tiles VALUES (0, 0, 0, x'%x')`, gzipped(string(make([]byte, 64<<20)))))
}
