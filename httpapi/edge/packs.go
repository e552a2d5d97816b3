package edge

import (
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/edge/pack"
	edgeapi "ronbox/httpapi/wire/edge"
)

// PackOf converts a pack for the catalog.
func PackOf(p pack.Info) edgeapi.Pack {
	return edgeapi.Pack{
		ID:      p.ID,
		Kind:    string(p.Kind),
		MinZoom: p.MinZoom,
		MaxZoom: p.MaxZoom,
		Tiles:   p.Tiles,
		State:   string(p.State),
		ETag:    strings.Trim(p.ETag(), `"`),
		Fault:   p.Fault,
		Next:    string(p.Next),
	}
}

// TileJSONOf returns the TileJSON of a pack with URLs that begin with base.
func TileJSONOf(p pack.Info, base string) edgeapi.TileJSON {
	return edgeapi.TileJSON{
		TileJSON:     "3.0.0",
		Name:         p.Name,
		Description:  p.Description,
		Attribution:  p.Attribution,
		Format:       string(p.Format),
		MinZoom:      p.MinZoom,
		MaxZoom:      p.MaxZoom,
		Bounds:       p.Bounds,
		Center:       p.Center,
		VectorLayers: jsontext.Value(p.VectorLayers),
		Tiles:        []string{base + tilesPath + p.ID + "/{z}/{x}/{y}." + string(p.Format) + "?v=" + p.Version},
	}
}
