package edge

import (
	"net/http"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/tile"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
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

const (
	scopePack = "edge.pack"
	packsPath = prefix + "packs/"

	// packWithin is the time to send the largest pack over a slow line.
	packWithin = 7 * 24 * time.Hour
)

// uploads returns the routes that change the folder of packs of this node.
func (h handlers) uploads() []httpapi.Route {
	return httpapi.Routes(func(r *httpapi.Route) {
		r.Pattern, r.Endpoint = packsPath+":"+paramFile, "/edge/packs"
		r.Scope, r.Class = scopePack, httpapi.ClassWrite
		r.AnyParam, r.Local = true, true
	}, httpapi.Route{
		Method:   http.MethodPut,
		Handle:   h.putPack,
		Deadline: packWithin,
		Body:     httpapi.StreamBody,
		Media:    httpapi.TypeBytes,
		MaxBody:  maxPut,
		ID:       "putPack",
		In:       []byte(nil),
		Summary:  "Send a pack to this node",
		Doc: "Checks the body, and serves it as the pack of its name; a pack that has the name serves until then. " +
			"What would not be served is refused as pack_refused, and with ?b3= other bytes as other_digest: " +
			"nothing is left of them. A repetition answers 200 instead of 201. In a cluster the pack is on the " +
			"member that was asked alone.",
		Query: httpapi.Params(putDigest),
		Answers: append(httpapi.Answers(http.StatusCreated, edgeapi.Pack{}),
			httpapi.Answers(http.StatusOK, edgeapi.Pack{})...),
		Problems: []int{http.StatusUnprocessableEntity, http.StatusInsufficientStorage},
	}, httpapi.Route{
		Method:   http.MethodDelete,
		Handle:   h.deletePack,
		Deadline: httpapi.DefaultDeadline,
		ID:       "removePack",
		Summary:  "Remove a pack from this node",
		Doc: "Removes the file of the pack, which is no longer served. A repetition answers 404. In a cluster " +
			"other members keep theirs.",
		Answers:  []openapi.Answer{{Status: http.StatusNoContent, Doc: "the pack is removed"}},
		Problems: []int{http.StatusNotFound},
	})
}

// putPack serves PUT /edge/packs/:file.
func (h handlers) putPack(c *httpapi.Request) error {
	digest, err := putDigest.Of(c)
	if err != nil {
		return err
	}
	u := pack.Upload{File: c.Param(paramFile), Body: c.Stream(), Size: c.HTTP().ContentLength}
	if digest != "" {
		u.Expect, _ = b3.Parse(digest) // putDigest has checked it
	}
	info, fresh, err := h.packs.Upload(c.Context(), u)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if fresh {
		status = http.StatusCreated
	}
	return c.Respond(status, PackOf(info))
}

// deletePack serves DELETE /edge/packs/:file.
func (h handlers) deletePack(c *httpapi.Request) error {
	if err := h.packs.Remove(c.Param(paramFile)); err != nil {
		return err
	}
	c.WriteHeader(http.StatusNoContent)
	return nil
}

// getTileJSON serves GET /edge/tiles/:pack.json of a pack whose tiles are served.
func (h handlers) getTileJSON(c *httpapi.Request) error {
	id, ok := strings.CutSuffix(c.Param(paramTileJSON), ".json")
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
	return sendJSON(c, TileJSONOf(p, base))
}
