package edge

import (
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tile"
	"ronbox/httpapi"
	edgeapi "ronbox/httpapi/wire/edge"
)

// getStyle serves GET /edge/styles/:pack.json of a pack whose tiles are served.
func (h handlers) getStyle(c *httpapi.Request) error {
	id, ok := strings.CutSuffix(c.Param(paramStyle), ".json")
	if !ok {
		return asset.ErrNotFound
	}
	p, err := h.ready(id)
	if err != nil {
		return err
	}
	base, err := h.base(c)
	if err != nil {
		return err
	}
	return sendJSON(c, StyleOf(p, base, h.e.Config().Style.Glyphs))
}

// Bounds of what a pack contributes to its style.
const (
	// maxStyled bounds the layers of a pack that are drawn. The names of layers come from its file,
	// and each takes 1 KiB of the style.
	maxStyled = 256
	// Pictures are drawn at least this wide: with smaller ones a screen takes thousands of tiles.
	minPicture = 64
	// defaultPicture is the width of pictures that did not decode.
	defaultPicture = 256
)

const (
	styleSource = "pack"
	// styleFont is the font that servers of glyphs for free maps have.
	styleFont = "Noto Sans Regular"
)

// styleColours are the colours of the layers of a pack, in their order.
var styleColours = []string{"#3b76c4", "#c4503b", "#3f9a52", "#8a5bb5", "#c28a1e", "#2a9d9d"}

// StyleOf returns the MapLibre style of a pack, whose TileJSON has a URL that begins with base.
// glyphs is the template of the URLs of glyphs, or "".
func StyleOf(p pack.Info, base, glyphs string) edgeapi.Style {
	source := edgeapi.StyleSource{Type: "vector", URL: base + tilesPath + p.ID + ".json"}
	layers := []edgeapi.StyleLayer{
		{ID: "ground", Type: "background", Paint: object("background-color", "#f4f2ec")},
	}
	switch p.Format {
	case tile.MVT, tile.MLT:
		if p.Format == tile.MLT {
			source.Encoding = "mlt"
		}
		layers = append(layers, vectorLayers(vectorNames(p.VectorLayers))...)
	default:
		source.Type, source.TileSize = "raster", defaultPicture
		if p.TileSize > 0 {
			source.TileSize = max(p.TileSize, minPicture)
		}
		layers = append(layers, edgeapi.StyleLayer{ID: "pictures", Type: "raster", Source: styleSource})
	}
	out := edgeapi.Style{
		Version: 8,
		Name:    p.Name,
		Glyphs:  glyphs,
		Sources: map[string]edgeapi.StyleSource{styleSource: source},
		Layers:  layers,
	}
	out.Center, out.Zoom = viewOf(TileJSONOf(p, base))
	return out
}

// viewOf returns the first view of a map: the center of the pack, or the middle of its bounds at a
// zoom at which they take 512 pixels. It returns zero if neither is known.
func viewOf(t edgeapi.TileJSON) (center [2]float64, zoom float64) {
	if t.Center[2] > 0 {
		return [2]float64(t.Center[:2]), t.Center[2]
	}
	west, south, east, north := t.Bounds[0], t.Bounds[1], t.Bounds[2], t.Bounds[3]
	if east <= west || north <= south {
		return center, 0
	}
	fits := math.Floor(math.Log2(360 / max(east-west, north-south)))
	return [2]float64{(west + east) / 2, (south + north) / 2},
		min(max(fits, float64(t.MinZoom)), float64(t.MaxZoom))
}

// vectorNames returns the distinct ids of vector_layers, at most maxStyled. Entries without one are
// skipped.
func vectorNames(raw []byte) (names []string) {
	var entries []jsontext.Value
	if json.Unmarshal(raw, &entries) != nil {
		return nil
	}
	seen := map[string]bool{"": true}
	for _, entry := range entries {
		var layer struct {
			ID string `json:"id"`
		}
		if json.Unmarshal(entry, &layer) != nil || seen[layer.ID] {
			continue
		}
		seen[layer.ID] = true
		if names = append(names, layer.ID); len(names) == maxStyled {
			break
		}
	}
	return names
}

// vectorLayers returns the layers of a style that draw layers of vector tiles: areas, lines and
// points of each, and above them their labels.
func vectorLayers(names []string) (out []edgeapi.StyleLayer) {
	layer := func(name, kind, drawn, shape string, paint, layout jsontext.Value) edgeapi.StyleLayer {
		l := edgeapi.StyleLayer{ID: name + " " + kind, Type: drawn, Source: styleSource, SourceLayer: name,
			Paint: paint, Layout: layout}
		if shape != "" {
			l.Filter = jsontext.Value(`["in",["geometry-type"],["literal",["` + shape + `","Multi` + shape + `"]]]`)
		}
		return l
	}
	for i, name := range names {
		colour := styleColours[i%len(styleColours)]
		out = append(out,
			layer(name, "areas", "fill", "Polygon",
				object("fill-color", colour, "fill-opacity", 0.35, "fill-outline-color", colour), nil),
			layer(name, "lines", "line", "LineString",
				object("line-color", colour, "line-width", 1.6), nil),
			layer(name, "points", "circle", "Point",
				object("circle-color", colour, "circle-radius", 3.5, "circle-stroke-width", 1,
					"circle-stroke-color", "#fff"), nil))
	}
	for _, name := range names {
		out = append(out, layer(name, "labels", "symbol", "",
			object("text-color", "#222", "text-halo-color", "#fff", "text-halo-width", 1.2),
			object("text-field", []string{"get", "name"}, "text-font", []string{styleFont}, "text-size", 12,
				"text-offset", []float64{0, 0.9})))
	}
	return out
}

// object returns a JSON object of names, each followed by its value, in their order.
func object(members ...any) jsontext.Value {
	out := jsontext.Value("{")
	for i, m := range members {
		b, err := json.Marshal(m)
		if err != nil {
			panic(err) // the values are constants
		}
		out = append(out, b...)
		out = append(out, ":,"[i%2])
	}
	out[len(out)-1] = '}'
	return out
}
