package edge

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/sites"
	"ronbox/engines/fleet/usage"
	"ronbox/httpapi"
	"ronbox/httpapi/limit"
	"ronbox/httpapi/openapi"
	edgeapi "ronbox/httpapi/wire/edge"
)

// Engine is the part of the edge engine that the routes call. errors.go maps its errors.
type Engine interface {
	Config() *config.Config
	Asset(ctx context.Context, path, query string) (*asset.Object, error)
	FetchAsset(ctx context.Context, path string, from netip.Addr, may func() bool) (*asset.Object, error)
	Fill(ctx context.Context, r fill.Request) (fill.Filled, error)
	Verify(ctx context.Context, o content.VerifyOptions) (content.Verified, error)
	Keys(ctx context.Context, q content.KeyQuery) (page []content.KeyInfo, next string, err error)
	Keep(ctx context.Context, do asset.Action, urls []string) (asset.KeepResult, error)
	Statement(ctx context.Context, epoch uint64) (signed []byte, err error)
	Put(ctx context.Context, r content.PutRequest) (content.Put, error)
	Site(ctx context.Context, r sites.Request) (sites.File, error)
	Placements() []placed.Placement
	Usage() (content.Usage, error)
	// Hit counts an answer from what is stored.
	Hit()
	// Rejected counts a refused request.
	Rejected(reason string)
}

// Packs is the part of the pack set that the routes call.
type Packs interface {
	List() []pack.Info
	Info(id string) (pack.Info, error)
	Tile(ctx context.Context, at pack.TileRef, accept func(pack.Coding) bool) (pack.Tile, error)
	Rescan(ctx context.Context) ([]pack.Info, error)
	Upload(ctx context.Context, u pack.Upload) (info pack.Info, fresh bool, err error)
	Remove(file string) error
}

// searchNetworks bounds the number of networks with a share of searches. The network that has been
// idle longest is evicted first.
const searchNetworks = 65_536

// NewShare returns the share of a fleet: a network may begin four fifths of the searches of a
// second, so that it leaves room for another.
func NewShare(now func() time.Time) func(network netip.Addr, rps int) (ok bool, wait time.Duration) {
	shares := limit.NewKeyed[netip.Addr](searchNetworks, 0, 0)
	return func(network netip.Addr, rps int) (ok bool, wait time.Duration) {
		most := max(1, rps*4/5)
		return shares.TakeAt(network, now(), limit.Per(float64(most), most))
	}
}

// Names of the service, its scopes, paths and parameters.
const (
	service   = "edge"
	scopeFill = "edge.fill"
	scopeKeep = "edge.keep"
	// scopeFetch permits to have any object fetched by its hash from the nodes of the fleet.
	scopeFetch = "edge.fetch"

	prefix     = "/edge/"
	assetsPath = prefix + "assets/"
	tilesPath  = prefix + "tiles/"
	stylesPath = prefix + "styles/"
	keysPath   = prefix + "keys"
	usagePath  = prefix + "usage/"
	storePath  = prefix + "store"
	adminPath  = "/admin/v1/edge/"

	paramObject   = "object"
	paramPath     = "path"
	paramPack     = "pack"
	paramTileJSON = "tilejson"
	paramStyle    = "style"
	paramZoom     = "z"
	paramColumn   = "x"
	paramTile     = "y"
	paramFile     = "file"
	paramEpoch    = "epoch"
)

// PreviewPath is the path of the pages that draw packs, before the id of a pack.
const PreviewPath = prefix + "preview/"

// Bounds of the routes.
const (
	// sendWindow is the time in which a client must take 64 KiB: 256 KiB in 60 s.
	sendWindow = 15 * time.Second
	// fillWithin is the time of three tries of a minute and the waits between them.
	fillWithin = 190 * time.Second
	// verifyWithin is the time to read all stored content: 10 GiB take a minute on a slow disk, and
	// packs may be larger.
	verifyWithin = time.Hour
)

// New returns the edge's service of the HTTP surface.
func New(e Engine, packs Packs, extracts Extracts) httpapi.Service {
	files := staticFiles()
	h := handlers{
		e:        e,
		packs:    packs,
		extracts: extracts,
		static:   files,
		page:     template.Must(template.New("preview").Parse(string(files["preview.html"].plain.bytes))),
	}
	text := func(name, doc string) httpapi.PathParam {
		return httpapi.PathParam{Param: openapi.Param{Name: name, Doc: doc}}
	}
	return httpapi.Service{
		Name:          service,
		Prefix:        prefix,
		Errors:        errorMaps(),
		Refusals:      edgeapi.Refusals,
		RetryAfter:    1,
		TimeoutStatus: http.StatusServiceUnavailable,
		Routes: slices.Concat(h.reads(), h.writes(), h.keeps(), h.sites(), h.uploads(), h.extractions(),
			h.placements()),
		Params: []httpapi.PathParam{
			text(paramObject, "64 hex digits: the BLAKE3 of the object"),
			text(paramPath, "<pack>.pmtiles, or <host[:port]>/<path> of an object of that host, whose query is part "+
				"of its URL"),
			text(paramPack, "id of a pack: the name of its file without the extension"),
			text(paramTileJSON, "id of a pack, and .json"),
			text(paramStyle, "id of a pack, and .json"),
			text(paramZoom, "zoom, 0 to 31"),
			text(paramColumn, "column from the west, below 2^z"),
			text(paramTile, "row from the north, below 2^z, and the extension of the pack's tiles"),
			text(paramFile, "path of an embedded file, or the name of the file of a pack: ID.pmtiles or ID.mbtiles"),
			httpapi.NumberParam(paramEpoch, 1, "Unix seconds divided by the length of an epoch, rounded down"),
			text(paramSite,
				"name of a site, optionally with @ and a version, then / and the path of a file or directory"),
		},
		Refused: func(reason string) { e.Rejected(cmp.Or(seedWords[reason], reason)) },
	}
}

var contentVersion = httpapi.Text("v",
	"version of the content, from TileJSON or a page; with it the answer may be cached for ever")

// reads returns the routes that need no scope.
func (h handlers) reads() []httpapi.Route {
	return httpapi.Routes(
		h.asRead,
		httpapi.Route{
			Pattern:  "assets/b3/:object",
			Endpoint: "/edge/assets",
			Copy:     httpapi.CopyExact,
			Handle:   h.getAsset,
			More:     scopeFetch,
			ID:       "getObject",
			Summary:  "An object by its hash",
			Others:   httpapi.QueryRaw,
			CSP:      "default-src 'none'; sandbox",
			Answers:  bytesOf("*/*", http.StatusOK, http.StatusPartialContent, http.StatusNotModified),
			Headers:  assetHeaders(),
			Problems: []int{http.StatusRequestedRangeNotSatisfiable, http.StatusForbidden,
				http.StatusFailedDependency, http.StatusBadGateway},
		},
		httpapi.Route{
			Pattern:  "assets/*path",
			Endpoint: "/edge/assets",
			Handle:   h.getAsset,
			More:     scopeFetch,
			ID:       "getAsset",
			Summary:  "An object by its URL, or the file of a pack",
			Others:   httpapi.QueryRaw,
			CSP:      "default-src 'none'; sandbox",
			Answers:  bytesOf("*/*", http.StatusOK, http.StatusPartialContent, http.StatusNotModified),
			Headers:  assetHeaders(),
			Problems: []int{http.StatusRequestedRangeNotSatisfiable, http.StatusForbidden,
				http.StatusFailedDependency, http.StatusBadGateway},
		},
		httpapi.Route{
			Pattern:  "tiles/:pack/:z/:x/:y",
			Endpoint: "/edge/tiles",
			Copy:     httpapi.CopyExact,
			Handle:   h.getTile,
			ID:       "getTile",
			Summary:  "One tile",
			Query:    httpapi.Params(contentVersion),
			Headers:  []openapi.Param{{Name: "Accept-Encoding", Doc: "codings of the tile that the caller accepts"}},
			Problems: []int{http.StatusNotAcceptable},
			Answers: append(bytesOf("*/*", http.StatusOK, http.StatusNotModified),
				openapi.Answer{Status: http.StatusNoContent, Doc: "the pack has no such tile"}),
		},
		httpapi.Route{
			Pattern: "tiles/:tilejson",
			Copy:    httpapi.CopyExact,
			Handle:  h.getTileJSON,
			ID:      "getTileJson",
			Summary: "The TileJSON of a pack",
			Answers: httpapi.Tagged(edgeapi.TileJSON{}),
		},
		httpapi.Route{
			Pattern: "styles/:style",
			Copy:    httpapi.CopyExact,
			Handle:  h.getStyle,
			ID:      "getStyle",
			Summary: "A MapLibre style that draws a pack",
			Answers: httpapi.Tagged(edgeapi.Style{}),
		},
		httpapi.Route{
			Pattern: "catalog",
			Copy:    httpapi.CopyOutage,
			Handle:  h.getCatalog,
			ID:      "listPacks",
			Summary: "The packs",
			Answers: httpapi.Tagged(edgeapi.Catalog{}),
		},
		httpapi.Route{
			Pattern: "preview/:pack",
			Handle:  h.getPreview,
			CSP:     policy,
			ID:      "previewPack",
			Summary: "A page that draws a pack",
			Answers: bytesOf("text/html", http.StatusOK, http.StatusNotModified),
		},
		httpapi.Route{
			Pattern:  "usage/:epoch",
			Handle:   h.getUsage,
			ID:       "getUsageStatement",
			Summary:  "The signed statement of what this node received from others in an epoch",
			Answers:  httpapi.Tagged(usage.Document{}),
			Problems: []int{http.StatusConflict},
		},
		httpapi.Route{
			Pattern: "static/*file",
			Copy:    httpapi.CopyExact,
			Handle:  h.getStatic,
			CSP:     policy,
			ID:      "getPreviewFile",
			Summary: "A file of the preview",
			Query:   httpapi.Params(contentVersion),
			Answers: bytesOf("*/*", http.StatusOK, http.StatusNotModified),
		},
	)
}

// assetHeaders describes the request headers of the routes of assets.
func assetHeaders() []openapi.Param {
	return []openapi.Param{
		{Name: "Range", Doc: "one range of bytes; several are answered with the whole"},
		{Name: "If-Range", Doc: "the tag of the content that the range is a part of"},
		{Name: near.HopHeader, Doc: "0: answer from the store of this node alone"},
	}
}

// asRead completes a route that needs no scope.
func (h handlers) asRead(r *httpapi.Route) {
	httpapi.Read(prefix, "")(r)
	r.Others = cmp.Or(r.Others, httpapi.QueryIgnore)
	if r.Pattern != assetsPath+"*"+paramPath { // which has its own rules
		r.Handle = plain(r.Handle)
	}
	r.AnyParam, r.Reloads, r.Hints = true, true, true
	r.Long, r.Window = true, sendWindow
	r.Shared = func() bool { return h.e.Config().CORS }
	r.Headers = append(r.Headers,
		openapi.Param{Name: "If-None-Match", Doc: "tags of the content that the caller has"},
		openapi.Param{Name: "If-Match", Doc: "tags of the content that the caller expects"})
	r.Expose = []string{"Content-Range", "Accept-Ranges", "Content-Length", "Cache-Status", "Age"}
	r.Problems = append(r.Problems, http.StatusNotFound, http.StatusPreconditionFailed)
}

// bytesOf declares answers that have an entity tag and, except for 304, a body of a type.
func bytesOf(kind string, statuses ...int) (out []openapi.Answer) {
	for _, status := range statuses {
		a := openapi.Answer{
			Status:  status,
			Doc:     http.StatusText(status),
			Type:    kind,
			Headers: []openapi.Param{{Name: "ETag", Doc: "b3: and the BLAKE3 of the whole", Required: true}},
		}
		if status == http.StatusNotModified {
			a.Type = ""
		}
		out = append(out, a)
	}
	return out
}

// writes returns the route of fills and the routes of the operator.
func (h handlers) writes() []httpapi.Route {
	return append(httpapi.Routes(
		httpapi.Admin(adminPath),
		httpapi.Route{
			Method:  http.MethodPost,
			Pattern: "rescan",
			Handle:  h.postRescan,
			ID:      "rescanPacks",
			Summary: "Scan the folder of packs",
			Doc: "Looks for new, changed and removed packs. A repetition has no further effect. It answers 429 if " +
				"too many scans are queued.",
			Answers: httpapi.Answers(http.StatusOK, edgeapi.Catalog{}),
		},
		httpapi.Route{
			Method:  http.MethodPost,
			Pattern: "verify",
			Handle:  h.postVerify,
			ID:      "verifyContent",
			Summary: "Read all stored content and report damage",
			Doc: "Reads all stored content and compares it with its hashes. With fix it removes damaged objects, " +
				"so that they are fetched again; otherwise it changes nothing.",
			Deadline: verifyWithin,
			Long:     true,
			In:       edgeapi.Verify{},
			Answers: []openapi.Answer{{
				Status: http.StatusOK,
				Type:   httpapi.TypeLines,
				Doc:    "progress and findings, then the sum or a problem",
				Body:   edgeapi.VerifyLine{},
			}},
		},
	), httpapi.Route{
		Method:   http.MethodPost,
		Pattern:  prefix + "fills",
		Handle:   h.postFill,
		Scope:    scopeFill,
		Class:    httpapi.ClassWrite,
		Deadline: fillWithin,
		Hints:    true,
		Endpoint: "/edge/fills",
		Body:     httpapi.JSONBody,
		In:       edgeapi.Fill{},
		ID:       "fillAsset",
		Summary:  "Fetch and store a URL, and wait for it",
		Doc: "Fetches the object of a URL unless it is stored, keeps it under its hash and, by default, pins " +
			"the URL. A repetition is answered from the store unless it asks for refresh. The fill continues " +
			"if the caller leaves.",
		Answers: httpapi.Answers(http.StatusOK, edgeapi.Object{}),
		Problems: []int{http.StatusNotFound, http.StatusFailedDependency, http.StatusBadGateway,
			http.StatusInsufficientStorage},
	})
}

// keeps returns the routes that list, pin and remove stored URLs, and the route of their store.
func (h handlers) keeps() []httpapi.Route {
	keep := func(r *httpapi.Route) {
		r.Pattern = keysPath + r.Pattern
		r.Endpoint, r.Scope, r.Deadline = keysPath, scopeKeep, httpapi.DefaultDeadline
		if r.Method == "" {
			r.Method, r.Class = http.MethodPost, httpapi.ClassWrite
			r.Body, r.In = httpapi.JSONBody, edgeapi.Keep{}
			r.Answers = httpapi.Answers(http.StatusOK, edgeapi.Kept{})
			r.Problems = append(r.Problems, http.StatusInsufficientStorage)
		}
	}
	store := httpapi.Route{
		Method:   http.MethodGet,
		Pattern:  storePath,
		Handle:   h.getStore,
		Scope:    scopeKeep,
		Class:    httpapi.ClassRead,
		Deadline: httpapi.DefaultDeadline,
		Endpoint: keysPath,
		ID:       "getContentStore",
		Summary:  "How full the content store is",
		Answers:  httpapi.Answers(http.StatusOK, edgeapi.Store{}),
	}
	return append(httpapi.Routes(
		keep,
		httpapi.Route{Method: http.MethodGet, Class: httpapi.ClassRead, Handle: h.getKeys,
			ID:      "listStoredUrls",
			Summary: "The stored URLs, whole, with their queries",
			Answers: httpapi.Answers(http.StatusOK, edgeapi.StoredList{}),
			Query:   httpapi.Params(keysPrefix, keysAfter, keysLimit, keysPinned)},
		httpapi.Route{Pattern: "/" + string(asset.Pin), Handle: h.postKeep(asset.Pin),
			ID: "pinUrls", Summary: "Pin URLs, so that they are not evicted",
			Doc: "Pinned URLs are not evicted and count against the room for pins. A repetition has no further " +
				"effect.",
			Problems: []int{http.StatusConflict}},
		httpapi.Route{Pattern: "/" + string(asset.Unpin), Handle: h.postKeep(asset.Unpin),
			ID: "unpinUrls", Summary: "Unpin URLs, so that they may be evicted",
			Doc: "Objects stay stored until they are evicted. A repetition has no further effect."},
		httpapi.Route{Pattern: "/" + string(asset.Remove), Handle: h.postKeep(asset.Remove),
			ID:      "removeUrls",
			Summary: "Remove URLs, pinned ones too, and each object with the last URL that leads to it",
			Doc:     "Frees the room of objects that no other URL leads to. A repetition has no further effect."},
	), store)
}
