package edge

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/engines/edge/asset"
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
	Fault   string `json:"fault,omitzero"` // why the pack, or the file of next, failed
	Next    string `json:"next,omitzero"`  // the state of the file that will replace the pack: verifying or failed

	Warnings []PackWarning `json:"warnings,omitzero"` // defects with which the pack is served
	Skipped  uint64        `json:"skipped,omitzero"`  // tiles that the pack has and that are not served: 204
	Style    string        `json:"style,omitzero"`    // path of its MapLibre style; missing while its tiles are not served
}

// PackWarning is a defect of a pack, of which its other tiles do not depend.
type PackWarning struct {
	// counts, clustered, section, directory_coding, metadata, json, zoom, bounds, format, coding,
	// empty_tile, long_tile, row_outside, row_type or undecodable; at most one of each
	Code  string `json:"code"`
	Text  string `json:"text"`
	Count uint64 `json:"count"`
}

// Pending reports whether the state of the pack may still change by itself.
func (p Pack) Pending() bool {
	return p.State != string(asset.PackVerified) && p.State != string(asset.PackFailed) ||
		p.Next == string(asset.PackVerifying)
}

// TileJSON is the answer of GET /edge/tiles/:pack.json, version 3.0.0 of the format.
type TileJSON struct {
	TileJSON     string         `json:"tilejson"`
	Tiles        []string       `json:"tiles"`
	Name         string         `json:"name,omitzero"`
	Description  string         `json:"description,omitzero"`
	Attribution  string         `json:"attribution,omitzero"` // may contain HTML
	Version      string         `json:"version,omitzero"`     // of the tileset, as it names it
	Type         string         `json:"type,omitzero"`        // baselayer or overlay, as the tileset names it
	Scheme       string         `json:"scheme"`               // xyz
	Format       string         `json:"format"`               // mvt, mlt, png, jpg, webp, avif, or "" if unknown
	Encoding     string         `json:"encoding,omitzero"`    // mlt for vector tiles of MapLibre
	TileSize     int            `json:"tileSize,omitzero"`    // width of pictures in pixels
	MinZoom      uint8          `json:"minzoom"`
	MaxZoom      uint8          `json:"maxzoom"`
	Bounds       [4]float64     `json:"bounds,omitzero"` // west, south, east, north; missing if unknown
	Center       [3]float64     `json:"center,omitzero"` // longitude, latitude, zoom; missing if unknown
	VectorLayers jsontext.Value `json:"vector_layers,omitzero"`
}

// Style is the answer of GET /edge/styles/:pack.json: a MapLibre style of version 8.
type Style struct {
	Version int                    `json:"version"`
	Name    string                 `json:"name,omitzero"`
	Center  [2]float64             `json:"center,omitzero"` // longitude, latitude; missing if unknown
	Zoom    float64                `json:"zoom,omitzero"`
	Glyphs  string                 `json:"glyphs,omitzero"` // edge.style.glyphs
	Sources map[string]StyleSource `json:"sources"`         // pack
	Layers  []StyleLayer           `json:"layers"`
}

// StyleSource is the source of a style.
type StyleSource struct {
	Type     string `json:"type"` // vector or raster
	URL      string `json:"url"`  // of the TileJSON
	TileSize int    `json:"tileSize,omitzero"`
	Encoding string `json:"encoding,omitzero"` // mlt for vector tiles of MapLibre
}

// StyleLayer is a layer of a style.
type StyleLayer struct {
	ID          string         `json:"id"`
	Type        string         `json:"type"` // background, raster, fill, line, circle or symbol
	Source      string         `json:"source,omitzero"`
	SourceLayer string         `json:"source-layer,omitzero"` // a layer of the vector tiles
	Filter      jsontext.Value `json:"filter,omitzero"`
	Layout      jsontext.Value `json:"layout,omitzero"`
	Paint       jsontext.Value `json:"paint,omitzero"`
}

// ExtractStart is the body of POST /edge/extracts.
type ExtractStart struct {
	// https://, a host of edge.allow, and the path of a PMTiles archive, optionally with a query
	URL     string         `json:"url"`
	Pack    string         `json:"pack"`            // id of the pack that it becomes
	BBox    []float64      `json:"bbox,omitzero"`   // west, south, east, north; west above east crosses the antimeridian
	Region  jsontext.Value `json:"region,omitzero"` // a Polygon or MultiPolygon of GeoJSON, instead of bbox
	MinZoom uint8          `json:"min_zoom,omitzero"`
	MaxZoom *uint8         `json:"max_zoom,omitzero"` // missing: that of the source
	DryRun  bool           `json:"dry_run,omitzero"`  // only plan: read the directories of the source
}

// Extract describes a pack that is made of some tiles of an archive at a host.
type Extract struct {
	Pack      string     `json:"pack"`
	URL       string     `json:"url"` // without its query
	BBox      [4]float64 `json:"bbox"`
	MinZoom   uint8      `json:"min_zoom"`
	MaxZoom   uint8      `json:"max_zoom"`
	State     string     `json:"state"` // planning (of a dry run), reading, waiting, checking, done or failed
	Tiles     uint64     `json:"tiles"`
	Bytes     int64      `json:"bytes"` // of the pack
	DoneBytes int64      `json:"done_bytes"`
	Requests  int64      `json:"requests"`         // to the host
	LeftS     int64      `json:"left_s,omitzero"`  // seconds until all bytes are here; missing if unknown
	ETag      string     `json:"etag"`             // of the source
	Fault     string     `json:"fault,omitzero"`   // why it waits or has failed
	Refused   bool       `json:"refused,omitzero"` // it was read in full, and the pack would not be served
}

// ExtractList is the answer of GET /edge/extracts.
type ExtractList struct {
	Extracts []Extract `json:"extracts"` // the oldest first
}

// Fill is the body of POST /edge/fills.
type Fill struct {
	// https://, a host of edge.allow, and a path that begins with /, optionally with a query
	URL     string `json:"url"`
	Expect  string `json:"expect,omitzero"`  // the b3:… that the bytes must have
	Refresh bool   `json:"refresh,omitzero"` // fetch the URL even if it is stored
	NoPin   bool   `json:"no_pin,omitzero"`  // do not pin the URL, so that it may be evicted
}

// Object describes a stored object. It is the answer of POST /edge/fills and PUT /edge/objects.
type Object struct {
	URL  string `json:"url"`  // of a put object the b3:… of its bytes
	Path string `json:"path"` // the path that serves the object
	B3   string `json:"b3"`
	Size int64  `json:"size"`
	Type string `json:"type"`
	New  bool   `json:"new,omitzero"` // this request stored the object; false if it was stored before
	// Unchanged: the host was asked whether the stored object has changed, and it has not.
	Unchanged bool `json:"unchanged,omitzero"`

	Pinned   bool   `json:"pinned,omitzero"`   // the URL is not evicted
	Unpinned string `json:"unpinned,omitzero"` // why a requested pin was not made, or a refresh removed a pin
	// Copies counts the members of a cluster that have a put object: 1 if no other took it soon.
	Copies int `json:"copies,omitzero"`
}

// StoredList is the answer of GET /edge/keys.
type StoredList struct {
	Keys []StoredKey `json:"keys"`
	Next string      `json:"next,omitzero"` // the after of the next page; missing on the last page
}

// StoredKey describes a stored URL.
type StoredKey struct {
	Key     string    `json:"key"` // the whole URL, with its query
	B3      string    `json:"b3,omitzero"`
	Size    int64     `json:"size"`
	Type    string    `json:"type,omitzero"`
	Pinned  bool      `json:"pinned"`
	Used    time.Time `json:"used,omitzero"`    // the last use, to 10 minutes
	Fetched time.Time `json:"fetched,omitzero"` // missing if an older release fetched it
	// Of the object of a URL; missing if an older release fetched it.
	Checked    time.Time `json:"checked,omitzero"`     // the host last answered for it
	FreshUntil time.Time `json:"fresh_until,omitzero"` // in live mode the host is asked again after it
	Missing    bool      `json:"missing,omitzero"`     // the file is missing or was damaged, so nothing is served
}

// Store is the answer of GET /edge/store. An object counts for each of its pinned URLs.
type Store struct {
	Bytes     int64 `json:"bytes"` // of objects
	MaxBytes  int64 `json:"max_bytes"`
	Pinned    int64 `json:"pinned_bytes"`
	MaxPinned int64 `json:"max_pinned_bytes"`
	Free      int64 `json:"free_bytes"` // that objects may still take, of max_bytes and of the disk
	Objects   int64 `json:"objects"`
	URLs      int64 `json:"urls"`
	Pins      int64 `json:"pins"`      // URLs
	Evictions int64 `json:"evictions"` // URLs since the start
}

// Keep is the body of POST /edge/keys/pin, unpin and rm.
type Keep struct {
	Keys []string `json:"keys"` // 1 to 256 URLs, or b3:… of objects that were put
}

// Kept is the answer of POST /edge/keys/pin, unpin and rm.
type Kept struct {
	Changed []string `json:"changed"`
	Missing []string `json:"missing"`        // URLs without a stored object
	Freed   int64    `json:"freed,omitzero"` // bytes of removed objects
}

// Verify is the body of POST /admin/v1/edge/verify.
type Verify struct {
	Fix bool `json:"fix,omitzero"` // set damaged objects aside, and fetch them again if that is allowed
}

// VerifyLine is one line of the NDJSON answer of POST /admin/v1/edge/verify: progress, a finding,
// the sum at the end, or a problem.
type VerifyLine struct {
	Done    int64         `json:"done,omitzero"` // bytes of objects that were read
	Total   int64         `json:"total,omitzero"`
	Found   *Finding      `json:"found,omitzero"`
	Sum     *Verified     `json:"sum,omitzero"` // the last line
	Problem *wire.Problem `json:"problem,omitzero"`
}

// Finding describes damaged content.
type Finding struct {
	Kind  string `json:"kind"`         // object, pack or row
	Name  string `json:"name"`         // the b3:… of an object, the id of a pack, the bucket and the key of a row
	URL   string `json:"url,omitzero"` // a URL of the object
	Size  int64  `json:"size"`
	Fault string `json:"fault"`
	Done  string `json:"done"` // kept, refetched or dropped
}

// Verified counts the content that was read.
type Verified struct {
	Objects int   `json:"objects"`
	Packs   int   `json:"packs"`
	Bytes   int64 `json:"bytes"` // of objects
	Bad     int   `json:"bad"`
}

// PlacementList is the answer of GET /edge/placements.
type PlacementList struct {
	Placements []Placement `json:"placements"` // by id; empty without a fleet
}

// Placement describes what the registry places on this node, and how much of it is there.
type Placement struct {
	ID       string `json:"id"`      // placement/…
	Content  string `json:"content"` // b3:… or name:…
	State    string `json:"state"`   // waiting, fetching, complete or refused
	Manifest string `json:"manifest,omitzero"`
	Objects  int    `json:"objects"` // distinct ones, with the manifest
	Missing  int    `json:"missing"` // objects that are not pinned here yet
	Wanted   int64  `json:"wanted"`  // bytes of all objects
	Bytes    int64  `json:"bytes"`   // bytes of the objects that are pinned here
	Reason   string `json:"reason,omitzero"`
}
