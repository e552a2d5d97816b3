package edge

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tile"
	edgeapi "ronbox/httpapi/wire/edge"
)

// PackOf converts a pack for the catalog.
func PackOf(p pack.Info) edgeapi.Pack {
	out := edgeapi.Pack{
		ID:      p.ID,
		Kind:    string(p.Kind),
		MinZoom: p.MinZoom,
		MaxZoom: p.MaxZoom,
		Tiles:   p.Tiles,
		State:   string(p.State),
		ETag:    strings.Trim(p.ETag(), `"`),
		Fault:   p.Fault,
		Next:    string(p.Next),
		Skipped: p.Skipped,
	}
	if p.Ready() == nil {
		out.Style = stylesPath + p.ID + ".json"
	}
	for _, w := range p.Warnings {
		out.Warnings = append(out.Warnings, edgeapi.PackWarning{Code: string(w.Code), Text: w.Text, Count: w.Count})
	}
	return out
}

// TileJSONOf returns the TileJSON of a pack with URLs that begin with base.
func TileJSONOf(p pack.Info, base string) edgeapi.TileJSON {
	out := edgeapi.TileJSON{
		TileJSON:     "3.0.0",
		Name:         p.Name,
		Description:  p.Description,
		Attribution:  p.Attribution,
		Version:      p.Revision,
		Type:         p.Type,
		Scheme:       "xyz",
		Format:       string(p.Format),
		TileSize:     p.TileSize,
		MinZoom:      p.MinZoom,
		MaxZoom:      p.MaxZoom,
		Bounds:       p.Bounds,
		VectorLayers: jsontext.Value(p.VectorLayers),
		Tiles:        []string{base + tilePath(p)},
	}
	if p.Format == tile.MLT {
		out.Encoding = "mlt"
	}
	if lon, lat := p.Center[0], p.Center[1]; lon >= p.Bounds[0] && lon <= p.Bounds[2] && lat >= p.Bounds[1] &&
		lat <= p.Bounds[3] {
		out.Center = p.Center
	}
	return out
}

// tilePath returns the path of the tiles of a pack, with an extension if their format is known, and
// with the version if that is known.
func tilePath(p pack.Info) string {
	path := tilesPath + p.ID + "/{z}/{x}/{y}"
	if p.Format != "" {
		path += "." + string(p.Format)
	}
	if p.Version != "" {
		path += "?v=" + p.Version
	}
	return path
}
