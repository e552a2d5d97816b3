package edge

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/engines/fleet/usage"
	"ronbox/httpapi"
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
	Fault   string `json:"fault,omitzero"` // why the pack, or the file of next, failed
	Next    string `json:"next,omitzero"`  // the state of the file that will replace the pack: verifying or failed
}

// Pending reports whether the state of the pack may still change by itself.
func (p Pack) Pending() bool {
	return p.State != string(asset.PackVerified) && p.State != string(asset.PackFailed) ||
		p.Next == string(asset.PackVerifying)
}

// PackOf converts a pack for the catalog.
func PackOf(p pack.Info) Pack {
	return Pack{
		p.ID,
		string(p.Kind),
		p.MinZoom,
		p.MaxZoom,
		p.Tiles,
		string(p.State),
		strings.Trim(p.ETag(), `"`),
		p.Fault,
		string(p.Next),
	}
}

// TileJSON is the answer of GET /edge/tiles/:pack.json, version 3.0.0 of the format.
type TileJSON struct {
	TileJSON     string         `json:"tilejson"`
	Tiles        []string       `json:"tiles"`
	Name         string         `json:"name,omitzero"`
	Description  string         `json:"description,omitzero"`
	Attribution  string         `json:"attribution,omitzero"` // may contain HTML
	Format       string         `json:"format"`
	MinZoom      uint8          `json:"minzoom"`
	MaxZoom      uint8          `json:"maxzoom"`
	Bounds       [4]float64     `json:"bounds"` // west, south, east, north
	Center       [3]float64     `json:"center"` // longitude, latitude, zoom
	VectorLayers jsontext.Value `json:"vector_layers,omitzero"`
}

// TileJSONOf returns the TileJSON of a pack with URLs that begin with base.
func TileJSONOf(p pack.Info, base string) TileJSON {
	return TileJSON{
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
	Missing bool      `json:"missing,omitzero"` // the file is missing or was damaged, so nothing is served
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

// Client calls the routes of the edge.
type Client struct{ *client.Client }

// NewClient returns a client of the edge that sends its calls through c.
func NewClient(c *client.Client) Client { return Client{c} }

// Catalog returns the packs.
func (c Client) Catalog(ctx context.Context) (Catalog, error) {
	return client.Ask[Catalog](ctx, c.Client, client.Call{Path: prefix + "catalog"})
}

// UsagePath returns the path of the signed statement of an epoch.
func UsagePath(epoch uint64) string { return usagePath + strconv.FormatUint(epoch, 10) }

// Usage returns the signed statement of an epoch. It does not verify it.
func (c Client) Usage(ctx context.Context, epoch uint64) ([]byte, error) {
	return client.Ask[[]byte](ctx, c.Client, client.Call{Path: UsagePath(epoch), Limit: usage.MaxSize})
}

// EdgeBytes returns an asset, a tile, a page or a file of a page, by its escaped path below /edge/.
func (c Client) EdgeBytes(ctx context.Context, path string) ([]byte, error) {
	return client.Ask[[]byte](ctx, c.Client, client.Call{Path: prefix + path, Limit: 64 << 20})
}

// Fill fetches a URL on the node and waits for it.
func (c Client) Fill(ctx context.Context, f Fill) (Object, error) {
	return client.Ask[Object](ctx, c.Client, client.Call{Method: http.MethodPost, Path: prefix + "fills", Body: f})
}

// ObjectPut describes an object to put.
type ObjectPut struct {
	Body     io.Reader
	Size     int64
	Type     string    // media type; "": bytes
	Expect   b3.Digest // the digest that the bytes must have; zero accepts any
	Announce bool      // announce the object to other nodes
}

// PutObject stores and pins an object on the node. It is idempotent. After a failure Body has been
// read in part.
func (c Client) PutObject(ctx context.Context, o ObjectPut) (Object, error) {
	q := client.Query{}.Text("type", o.Type)
	if !o.Expect.IsZero() {
		q = q.Text("b3", o.Expect.String())
	}
	if !o.Announce {
		q = q.Text("announce", "0")
	}
	return client.Ask[Object](ctx, c.Client, client.Call{
		Method: http.MethodPut, Path: objectsPath, Query: q, Stream: o.Body, Length: o.Size,
		Header: http.Header{"Content-Type": {httpapi.TypeBytes}},
	})
}

// EdgeKeys returns a page of at most limit stored URLs that begin with prefix and follow after, or
// only of pinned ones if pinned is set.
func (c Client) EdgeKeys(ctx context.Context, prefix, after string, limit int, pinned bool) (StoredList, error) {
	q := client.Query{}.Text("prefix", prefix).Text("after", after).Text("limit", strconv.Itoa(limit))
	if pinned {
		q = q.Text("pinned", "1")
	}
	return client.Ask[StoredList](ctx, c.Client, client.Call{Path: keysPath, Query: q})
}

// EdgeStore returns how full the content store is.
func (c Client) EdgeStore(ctx context.Context) (Store, error) {
	return client.Ask[Store](ctx, c.Client, client.Call{Path: storePath})
}

// EdgeKeep pins, unpins or removes URLs.
func (c Client) EdgeKeep(ctx context.Context, do asset.Action, urls []string) (Kept, error) {
	return client.Ask[Kept](ctx, c.Client,
		client.Call{Method: http.MethodPost, Path: keysPath + "/" + string(do), Body: Keep{urls}})
}

// Rescan scans the folder of packs on the node.
func (c Client) Rescan(ctx context.Context) (Catalog, error) {
	return client.Ask[Catalog](ctx, c.Client, client.Call{Method: http.MethodPost, Path: adminPath + "rescan"})
}

// Verify reads all stored content on the node and returns the findings. It calls progress, if not
// nil, during the run, which takes at most an hour; the timeout of the client does not apply.
// Damage is not an error.
func (c Client) Verify(ctx context.Context, v Verify,
	progress func(done, total int64)) (found []Finding, sum Verified, err error) {
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
