package server

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/cmd/ronbox/server/config"
	edgeapi "ronbox/httpapi/wire/edge"
)

// fieldPack is a pack of testdata/field, which was made after a bug report against another server.
type fieldPack struct {
	warnings, format, ext, kind, coding string
	more                                string // a part of the TileJSON, without spaces
	less                                string // is not in the TileJSON
}

var fieldPacks = map[string]fieldPack{
	"tilemaker-header.pmtiles":    {"section 1", "mvt", ".mvt", "application/x-protobuf", "gzip", `"bounds":`, `"encoding"`},
	"bounds-zero.pmtiles":         {"bounds 1", "mvt", ".mvt", "application/x-protobuf", "gzip", `"scheme":"xyz"`, `"bounds"`},
	"tile-type-6.pmtiles":         {"", "mlt", ".mlt", "application/vnd.maplibre-tile", "gzip", `"encoding":"mlt"`, `"tileSize"`},
	"metadata-view.mbtiles":       {"", "mvt", ".mvt", "application/x-protobuf", "gzip", `"vector_layers":[{"id":"l"`, `"center"`},
	"png-no-format.mbtiles":       {"", "png", ".png", "image/png", "", `"tileSize":1`, `"bounds"`},
	"format-image-png.mbtiles":    {"", "png", ".png", "image/png", "", `"tileSize":1`, `"center"`},
	"format-upper-png.mbtiles":    {"", "png", ".png", "image/png", "", `"name":"t"`, `"encoding"`},
	"zoom-decimal.mbtiles":        {"", "mvt", ".mvt", "application/x-protobuf", "gzip", `"maxzoom":1`, `"center"`},
	"row-minus-one.mbtiles":       {"row_outside 1", "mvt", ".mvt", "application/x-protobuf", "gzip", `"maxzoom":1`, `"center"`},
	"png-json-row-broken.mbtiles": {"json 1", "png", ".png", "image/png", "", `"format":"png"`, `"vector_layers"`},
	"tiles-zlib.mbtiles":          {"coding 5", "mvt", ".mvt", "application/x-protobuf", "deflate", `"maxzoom":1`, `"center"`},
}

// TestFieldPacks serves packs as people have them: each has its warnings, and each tile URL of its
// TileJSON answers 200.
func TestFieldPacks(t *testing.T) {
	t.Parallel()
	r := mapNode(t, func(c *config.Config) {
		must(t, os.CopyFS(c.Path(config.PacksName), os.DirFS("testdata/field")))
	})
	all, err := r.socket().Catalog(t.Context())
	must(t, err)
	packs := map[string]edgeapi.Pack{}
	for _, p := range all.Packs {
		packs[p.ID+"."+p.Kind] = p
	}
	for file, want := range fieldPacks {
		p := packs[file]
		got := ""
		for _, w := range p.Warnings {
			got += fmt.Sprint(w.Code, " ", w.Count)
		}
		if got != want.warnings || p.State != "verified" {
			t.Errorf("%s is %s with %v, want %q", file, p.State, p.Warnings, want.warnings)
		}
		r.servesField(p, want)
	}
	r.tooLarge("tile-decodes-to-12mib")
	r.halt()
}

// servesField reads the TileJSON and the five tiles of a pack.
func (r *rig) servesField(p edgeapi.Pack, want fieldPack) {
	r.t.Helper()
	_, body := r.get("/edge/tiles/"+p.ID+".json", nil)
	var doc edgeapi.TileJSON
	must(r.t, json.Unmarshal(body, &doc))
	text := string(body)
	if doc.Format != want.format || !strings.Contains(text, want.more) || strings.Contains(text, want.less) ||
		!strings.Contains(doc.Tiles[0], "/{z}/{x}/{y}"+want.ext+"?v=") || doc.MinZoom != 0 || doc.MaxZoom != 1 {
		r.t.Errorf("%s: %s", p.ID, body)
	}
	for _, at := range []string{"0/0/0", "1/0/0", "1/0/1", "1/1/0", "1/1/1"} {
		path := strings.TrimPrefix(doc.Tiles[0], "http://"+r.Addr())
		path = strings.Replace(path, "{z}/{x}/{y}", at, 1)
		for _, accept := range []string{"gzip, deflate", "identity"} {
			resp, b := r.get(path, http.Header{"Accept-Encoding": {accept}})
			coding := want.coding
			if accept == "identity" {
				coding = ""
			}
			if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != want.kind ||
				resp.Header.Get("Content-Encoding") != coding || len(b) < 20 {
				r.t.Errorf("%s %s: %s %v, %d bytes", path, accept, resp.Status, resp.Header, len(b))
			}
		}
	}
	if resp, _ := r.get("/edge/tiles/"+p.ID+"/0/0/0", nil); resp.StatusCode != 200 {
		r.t.Errorf("%s without an extension: %s", p.ID, resp.Status)
	}
	if resp, _ := r.get("/edge/tiles/"+p.ID+"/0/0/0.exe", nil); resp.StatusCode != 400 {
		r.t.Errorf("%s with another extension: %s", p.ID, resp.Status)
	}
}

// tooLarge reads a tile of 12 MiB: it is sent as stored, and otherwise refused by itself.
func (r *rig) tooLarge(id string) {
	r.t.Helper()
	path := "/edge/tiles/" + id + "/0/0/0.mvt"
	if resp, b := r.get(path, http.Header{"Accept-Encoding": {"gzip"}}); resp.StatusCode != 200 || len(b) != 12252 {
		r.t.Errorf("%s as stored: %s, %d bytes", id, resp.Status, len(b))
	}
	resp, body := r.get(path, nil)
	if resp.StatusCode != 406 || resp.Header.Get("Retry-After") != "" ||
		!strings.Contains(string(body), `"reason":"tile_too_large"`) || strings.Contains(string(body), `"retryable":true`) {
		r.t.Errorf("%s decoded: %s %v: %s", id, resp.Status, resp.Header, body)
	}
}

// TestRefusedPackIsNeverServed adds a pack whose tiles do not decode: no request gets a tile, and none
// is asked to try again.
func TestRefusedPackIsNeverServed(t *testing.T) {
	t.Parallel()
	r := mapNode(t, func(c *config.Config) { c.Edge.Packs.Watch = unit.Duration(time.Second) })
	path := filepath.Join(r.services.Config().PacksDir(), "bad.mbtiles")
	makePack(t, path, `CREATE TABLE metadata (name text, value text);
		CREATE TABLE tiles (zoom_level integer, tile_column integer, tile_row integer, tile_data blob);
		CREATE UNIQUE INDEX tile_index ON tiles (zoom_level, tile_column, tile_row);
		INSERT INTO tiles VALUES (0, 0, 0, x'1f8b080000000000')`)
	r.await("the pack is refused", func() bool { // the node finds it by itself
		resp, body := r.get("/edge/tiles/bad/0/0/0", http.Header{"Accept-Encoding": {"gzip"}})
		if resp.StatusCode == 200 {
			t.Fatalf("%s: a tile that no check has seen", resp.Status)
		}
		return strings.Contains(string(body), `"reason":"pack_failed"`) && resp.Header.Get("Retry-After") == ""
	})
	for _, path := range []string{"/edge/tiles/bad.json", "/edge/styles/bad.json"} {
		resp, body := r.get(path, nil)
		if !strings.Contains(string(body), `"reason":"pack_failed"`) || resp.StatusCode != 503 {
			t.Errorf("%s: %s %s", path, resp.Status, body)
		}
	}
	if _, body := r.get("/edge/catalog", nil); strings.Contains(string(body), "styles/bad") {
		t.Errorf("a refused pack has a style: %s", body)
	}
	r.halt()
}
