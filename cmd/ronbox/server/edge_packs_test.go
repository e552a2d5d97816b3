package server

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"ronbox/engines/edge/packtest"
)

// TestHostilePacksHoldNothingUp starts a node with hostile packs: it is ready, serves sound packs,
// and lists each hostile one with its fault.
func TestHostilePacksHoldNothingUp(t *testing.T) {
	cfg, _ := devConfig(t)
	must(t, copyPacks(cfg, packsFolder))
	for _, h := range packtest.Hostile() {
		if !h.Slow {
			packtest.WriteMBTiles(t, filepath.Join(cfg.Path(PacksName), h.Name+".mbtiles"), h.Script)
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
