package edge

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ronbox/engines/edge/pack"
	edgeapi "ronbox/httpapi/wire/edge"
)

// layersOf returns the layers of a style, each with its type and what it draws.
func layersOf(s edgeapi.Style) string {
	var out []string
	for _, l := range s.Layers {
		out = append(out, strings.TrimRight(l.Type+" "+l.SourceLayer, " "))
	}
	return strings.Join(out, ", ")
}

func TestStyleOf(t *testing.T) {
	t.Parallel()
	pictures, vectors := "background, raster", func(names ...string) string {
		out := "background"
		for _, name := range names {
			out += fmt.Sprintf(", fill %[1]s, line %[1]s, circle %[1]s", name)
		}
		for _, name := range names {
			out += ", symbol " + name
		}
		return out
	}
	for _, tt := range []struct {
		doc            string
		p              pack.Info
		source, layers string
	}{
		{"vectors", pack.Info{Format: "mvt", VectorLayers: []byte(`[{"id":"roads"},{"id":"water"}]`)},
			"vector  0", vectors("roads", "water")},
		{"vectors of MapLibre", pack.Info{Format: "mlt", VectorLayers: []byte(`[{"id":"l"}]`)}, "vector mlt 0", vectors("l")},
		{"no layers", pack.Info{Format: "mvt"}, "vector  0", "background"},
		{"no list of layers", pack.Info{Format: "mvt", VectorLayers: []byte(`{"id":"l"}`)}, "vector  0", "background"},
		{"layers of others, twice, and without a name",
			pack.Info{Format: "mvt", VectorLayers: []byte(`[{"id":1},7,{"id":"a"},{},{"id":""},{"id":"a"},{"id":"b"}]`)},
			"vector  0", vectors("a", "b")},
		{"pictures", pack.Info{Format: "webp", TileSize: 512}, "raster  512", pictures},
		{"pictures of an unknown size", pack.Info{Format: "png"}, "raster  256", pictures},
		{"tiny pictures", pack.Info{Format: "png", TileSize: 1}, "raster  64", pictures},
		{"an unknown format", pack.Info{}, "raster  256", pictures},
	} {
		tt.p.ID = "p"
		s := StyleOf(tt.p, "https://maps.example", "")
		src := s.Sources["pack"]
		if got := fmt.Sprintln(src.Type, src.Encoding, src.TileSize); got != tt.source+"\n" || len(s.Sources) != 1 ||
			src.URL != "https://maps.example/edge/tiles/p.json" {
			t.Errorf("%s: source %q of %v, want %q", tt.doc, got, s.Sources, tt.source)
		}
		if got := layersOf(s); got != tt.layers || s.Version != 8 || s.Glyphs != "" {
			t.Errorf("%s: version %d, glyphs %q, %s, want %s", tt.doc, s.Version, s.Glyphs, got, tt.layers)
		}
	}
}

// Each layer of a style has an id of its own, and its parts are JSON whatever the layer is named.
func TestStyleLayers(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 2 * maxStyled {
		names = append(names, fmt.Sprintf(`{"id":"\"<%d> \\ "}`, i))
	}
	s := StyleOf(pack.Info{ID: "p", Format: "mvt", VectorLayers: []byte("[" + strings.Join(names, ",") + "]")},
		"http://n", "https://fonts.example/{fontstack}/{range}.pbf")
	ids := map[string]bool{}
	for _, l := range s.Layers {
		ids[l.ID] = true
		for _, part := range [][]byte{l.Filter, l.Layout, l.Paint} {
			if part != nil && !json.Valid(part) {
				t.Errorf("%s: %s", l.ID, part)
			}
		}
	}
	if len(ids) != len(s.Layers) || len(s.Layers) != 1+4*maxStyled {
		t.Errorf("%d layers with %d ids", len(s.Layers), len(ids))
	}
	if s.Glyphs != "https://fonts.example/{fontstack}/{range}.pbf" {
		t.Errorf("glyphs %q", s.Glyphs)
	}
}

// A map begins at the center of a pack, or where all of the pack is seen.
func TestStyleView(t *testing.T) {
	t.Parallel()
	alps := [4]float64{5, 43, 17, 49}
	for _, tt := range []struct {
		doc    string
		p      pack.Info
		center [2]float64
		zoom   float64
	}{
		{"a center", pack.Info{Bounds: alps, Center: [3]float64{7, 46, 9}, MaxZoom: 14}, [2]float64{7, 46}, 9},
		{"a center elsewhere", pack.Info{Bounds: alps, Center: [3]float64{70, 46, 9}, MaxZoom: 14}, [2]float64{11, 46}, 4},
		{"bounds", pack.Info{Bounds: alps, MaxZoom: 14}, [2]float64{11, 46}, 4},
		{"bounds of a detail", pack.Info{Bounds: alps, MinZoom: 8, MaxZoom: 14}, [2]float64{11, 46}, 8},
		{"bounds of a sketch", pack.Info{Bounds: alps, MaxZoom: 2}, [2]float64{11, 46}, 2},
		{"the world", pack.Info{Bounds: [4]float64{-180, -85, 180, 85}, MaxZoom: 3}, [2]float64{}, 0},
		{"nothing", pack.Info{MaxZoom: 14}, [2]float64{}, 0},
	} {
		if s := StyleOf(tt.p, "", ""); s.Center != tt.center || s.Zoom != tt.zoom {
			t.Errorf("%s: %v at %v, want %v at %v", tt.doc, s.Center, s.Zoom, tt.center, tt.zoom)
		}
	}
}
