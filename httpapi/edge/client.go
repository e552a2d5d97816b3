package edge

import (
	"context"
	"net/http"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/edge"
	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// Catalog is the answer of GET /edge/catalog.
type Catalog struct {
	Mode  string `json:"mode"` // offline or live
	Packs []Pack `json:"packs"`
}

// Pack is one map pack.
type Pack struct {
	ID      string `json:"id"`
	Kind    string `json:"kind"` // pmtiles or mbtiles
	MinZoom uint8  `json:"min_zoom"`
	MaxZoom uint8  `json:"max_zoom"`
	Tiles   uint64 `json:"tiles"`          // 0 until they are counted
	State   string `json:"state"`          // opening, verifying, verified, changed or failed
	ETag    string `json:"etag"`           // of the whole file, without quotes; "" until it is known
	Fault   string `json:"fault,omitzero"` // why it failed, or why next did
	Next    string `json:"next,omitzero"`  // the state of a file that is to take its place: verifying or failed
}

// Pending reports whether the state of the pack is not final yet.
func (p Pack) Pending() bool {
	return p.State != string(edge.PackVerified) && p.State != string(edge.PackFailed) || p.Next == string(edge.PackVerifying)
}

// PackOf is a pack as the catalog has it.
func PackOf(p edge.PackInfo) Pack {
	return Pack{p.ID, string(p.Kind), p.MinZoom, p.MaxZoom, p.Tiles, string(p.State), strings.Trim(p.ETag(), `"`), p.Fault, string(p.Next)}
}

// TileJSON is the answer of GET /edge/tiles/:pack.json, version 3.0.0 of the format.
type TileJSON struct {
	TileJSON     string         `json:"tilejson"`
	Tiles        []string       `json:"tiles"`
	Name         string         `json:"name,omitzero"`
	Description  string         `json:"description,omitzero"`
	Attribution  string         `json:"attribution,omitzero"` // of the pack: may hold HTML
	Format       string         `json:"format"`
	MinZoom      uint8          `json:"minzoom"`
	MaxZoom      uint8          `json:"maxzoom"`
	Bounds       [4]float64     `json:"bounds"` // west, south, east, north
	Center       [3]float64     `json:"center"` // longitude, latitude, zoom
	VectorLayers jsontext.Value `json:"vector_layers,omitzero"`
}

// TileJSONOf is the TileJSON of a pack that is served below base.
func TileJSONOf(p edge.PackInfo, base string) TileJSON {
	return TileJSON{
		TileJSON: "3.0.0", Name: p.Name, Description: p.Description, Attribution: p.Attribution, Format: string(p.Format),
		MinZoom: p.MinZoom, MaxZoom: p.MaxZoom, Bounds: p.Bounds, Center: p.Center, VectorLayers: jsontext.Value(p.VectorLayers),
		Tiles: []string{base + tilesPath + p.ID + "/{z}/{x}/{y}." + string(p.Format) + "?v=" + p.Version},
	}
}

// Fill is the body of POST /edge/fills.
type Fill struct {
	URL     string `json:"url"`
	Expect  string `json:"expect,omitzero"`  // b3:… of the bytes; others are refused
	Refresh bool   `json:"refresh,omitzero"` // fetch it although it is stored
}

// Object is what is stored for a URL, and the answer of POST /edge/fills.
type Object struct {
	URL  string `json:"url"`
	Path string `json:"path"` // that it is served under
	B3   string `json:"b3"`
	Size int64  `json:"size"`
	Type string `json:"type"`
	New  bool   `json:"new,omitzero"` // by this fill; else it was there
}

// Verify is the body of POST /admin/v1/edge/verify.
type Verify struct {
	Fix bool `json:"fix,omitzero"` // set damaged objects aside, and fetch them anew where that is allowed
}

// VerifyLine is one line of the NDJSON answer to POST /admin/v1/edge/verify: progress, a finding, the end, or a problem.
type VerifyLine struct {
	Done    int64         `json:"done,omitzero"` // bytes of objects that were read
	Total   int64         `json:"total,omitzero"`
	Found   *Finding      `json:"found,omitzero"`
	Sum     *Verified     `json:"sum,omitzero"` // the end
	Problem *wire.Problem `json:"problem,omitzero"`
}

// Finding is something that is stored and damaged.
type Finding struct {
	Kind  string `json:"kind"`         // object, pack or row
	Name  string `json:"name"`         // the b3:… of an object, the id of a pack, the bucket and the key of a row
	URL   string `json:"url,omitzero"` // one that led to the object
	Size  int64  `json:"size"`
	Fault string `json:"fault"`
	Done  string `json:"done"` // kept, refetched or dropped
}

// Verified counts what was read.
type Verified struct {
	Objects int   `json:"objects"`
	Packs   int   `json:"packs"`
	Bytes   int64 `json:"bytes"` // of objects
	Bad     int   `json:"bad"`
}

// Client calls the routes of the edge.
type Client struct{ *client.Client }

// NewClient gives the calls of the edge over c.
func NewClient(c *client.Client) Client { return Client{c} }

// Catalog reads the packs.
func (c Client) Catalog(ctx context.Context) (Catalog, error) {
	return client.Ask[Catalog](ctx, c.Client, client.Call{Path: prefix + "catalog"})
}

// EdgeBytes reads an asset, a tile, a page or one of its files, by its escaped path below /edge/.
func (c Client) EdgeBytes(ctx context.Context, path string) ([]byte, error) {
	return client.Ask[[]byte](ctx, c.Client, client.Call{Path: prefix + path, Limit: 64 << 20})
}

// Fill has the node fetch a URL, and waits for it.
func (c Client) Fill(ctx context.Context, f Fill) (Object, error) {
	return client.Ask[Object](ctx, c.Client, client.Call{Method: http.MethodPost, Path: prefix + "fills", Body: f})
}

// Rescan has the node take up what has changed in its folder of packs.
func (c Client) Rescan(ctx context.Context) (Catalog, error) {
	return client.Ask[Catalog](ctx, c.Client, client.Call{Method: http.MethodPost, Path: adminPath + "rescan"})
}

// Verify has the node read all that is stored, and calls progress, if there is one, as it goes on. It takes an hour at most; the client's timeout does
// not count. That something is damaged is an answer, not an error.
func (c Client) Verify(ctx context.Context, v Verify, progress func(done, total int64)) (found []Finding, sum Verified, err error) {
	k := client.Call{Method: http.MethodPost, Path: adminPath + "verify", Body: v}
	err = client.ReadLines(ctx, c.Client, k, func(l VerifyLine) (bool, error) {
		switch {
		case l.Problem != nil:
			return true, l.Problem
		case l.Sum != nil:
			sum = *l.Sum
			return true, nil
		case l.Found != nil:
			found = append(found, *l.Found)
		case progress != nil:
			progress(l.Done, l.Total)
		}
		return false, nil
	})
	return found, sum, err
}
