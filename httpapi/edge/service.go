package edge

import (
	"cmp"
	"context"
	"html/template"
	"net/http"
	"slices"
	"time"

	"ronbox/engines/edge"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/openapi"
)

// Engine is what the routes ask of the edge. Its errors are worded in errors.go.
type Engine interface {
	Config() *edge.Config
	Asset(ctx context.Context, path string) (*edge.Object, error)
	Fill(ctx context.Context, r edge.FillRequest) (edge.Filled, error)
	Verify(ctx context.Context, o edge.VerifyOptions) (edge.Verified, error)
	// Rejected counts a refusal.
	Rejected(reason string)
}

// Packs answers for the map packs.
type Packs interface {
	List() []edge.PackInfo
	Info(id string) (edge.PackInfo, error)
	Tile(ctx context.Context, at edge.TileRef, accept func(edge.Coding) bool) (edge.Tile, error)
	Rescan(ctx context.Context) ([]edge.PackInfo, error)
}

// Names of the service, its scope, its paths and their parameters.
const (
	service   = "edge"
	scopeFill = "edge.fill"

	prefix     = "/edge/"
	assetsPath = prefix + "assets/"
	tilesPath  = prefix + "tiles/"
	adminPath  = "/admin/v1/edge/"

	paramPath     = "path"
	paramPack     = "pack"
	paramTileJSON = "tilejson"
	paramZoom     = "z"
	paramColumn   = "x"
	paramTile     = "y"
	paramFile     = "file"
)

// PreviewPath is the path of the pages that draw packs, before the id of one.
const PreviewPath = prefix + "preview/"

// Bounds of the routes.
const (
	// sendWindow is what a client gets to take 64 KiB: 256 KiB in 60 s.
	sendWindow = 15 * time.Second
	// fillWithin is three tries of a minute, and the waits between them.
	fillWithin = 190 * time.Second
	// verifyWithin is what reading all that is stored may take: 10 GiB take a minute on a slow disk, packs may have more.
	verifyWithin = time.Hour
)

// New is the edge's part of the surface.
func New(e Engine, packs Packs) httpapi.Service {
	files := newStatic()
	h := handlers{e: e, packs: packs, static: files, page: template.Must(template.New("preview").Parse(string(files["preview.html"].plain.bytes)))}
	text := func(name, doc string) httpapi.PathParam {
		return httpapi.PathParam{Param: openapi.Param{Name: name, Doc: doc}}
	}
	return httpapi.Service{
		Name: service, Prefix: prefix, Errors: rules(), Words: fillWords(), Code: code, RetryAfter: 1, LateStatus: http.StatusServiceUnavailable,
		Routes: slices.Concat(h.reads(), h.writes()),
		Params: []httpapi.PathParam{
			text(paramPath, "b3/ and 64 hex digits, or <pack>.pmtiles, or <host[:port]>/<path> of what is fetched from there"),
			text(paramPack, "id of a pack: the name of its file without the extension"), text(paramTileJSON, "id of a pack, and .json"),
			text(paramZoom, "zoom, 0 to 31"), text(paramColumn, "column from the west, below 2^z"),
			text(paramTile, "row from the north, below 2^z, and the extension of the pack's tiles"), text(paramFile, "of an embedded file"),
		},
		Refused: func(reason string) { e.Rejected(cmp.Or(seedWords[reason], reason)) },
	}
}

// reads are the routes of everybody.
func (h handlers) reads() []httpapi.Route {
	version := []openapi.Param{{Name: "v", Doc: "version of the content, as TileJSON and pages give it: with it the answer may be kept for ever"}}
	return httpapi.Routes(func(r *httpapi.Route) {
		r.Method, r.Pattern, r.Class, r.AnyParam, r.Endpoint = http.MethodGet, prefix+r.Pattern, httpapi.ClassRead, true, cmp.Or(r.Endpoint, httpapi.EndpointRead)
		r.Deadline, r.Reloads, r.Hints, r.Others = httpapi.DefaultDeadline, true, true, httpapi.QueryIgnore
		r.Handle, r.Long, r.Window = plain(r.Handle), true, sendWindow
		r.Headers = append(r.Headers, openapi.Param{Name: "If-None-Match", Doc: "tags of what the caller has"}, openapi.Param{Name: "If-Match", Doc: "tags of what the caller expects"})
		r.Expose = []string{"Content-Range", "Accept-Ranges", "Content-Length", "Cache-Status"}
		r.Problems = append(r.Problems, http.StatusNotFound, http.StatusPreconditionFailed)
	},
		httpapi.Route{Pattern: "assets/*path", Endpoint: "/edge/assets", Handle: h.getAsset, Summary: "An object by its hash or its origin, or the file of a pack",
			CSP: "default-src 'none'; sandbox", Answers: bytesOf("*/*", http.StatusOK, http.StatusPartialContent, http.StatusNotModified),
			Headers:  []openapi.Param{{Name: "Range", Doc: "one range of bytes"}, {Name: "If-Range", Doc: "the tag that it is of"}},
			Problems: []int{http.StatusRequestedRangeNotSatisfiable, http.StatusForbidden, http.StatusFailedDependency, http.StatusBadGateway}},
		httpapi.Route{Pattern: "tiles/:pack/:z/:x/:y", Endpoint: "/edge/tiles", Handle: h.getTile, Summary: "One tile", Query: version,
			Headers: []openapi.Param{{Name: "Accept-Encoding", Doc: "codings of the tile that the caller reads"}}, Problems: []int{http.StatusNotAcceptable},
			Answers: append(bytesOf("*/*", http.StatusOK, http.StatusNotModified), openapi.Answer{Status: http.StatusNoContent, Doc: "the pack leaves it out"})},
		httpapi.Route{Pattern: "tiles/:tilejson", Handle: h.getTileJSON, Summary: "The TileJSON of a pack", Answers: httpapi.Tagged(TileJSON{})},
		httpapi.Route{Pattern: "catalog", Handle: h.getCatalog, Summary: "The packs", Answers: httpapi.Tagged(Catalog{})},
		httpapi.Route{Pattern: "preview/:pack", Handle: h.getPreview, CSP: policy, Summary: "A page that draws a pack", Answers: bytesOf("text/html", http.StatusOK, http.StatusNotModified)},
		httpapi.Route{Pattern: "static/*file", Handle: h.getStatic, CSP: policy, Summary: "A file of the preview", Query: version, Answers: bytesOf("*/*", http.StatusOK, http.StatusNotModified)},
	)
}

// bytesOf declares answers that have a tag, and bytes of a type unless they are 304.
func bytesOf(kind string, statuses ...int) (out []openapi.Answer) {
	for _, status := range statuses {
		a := openapi.Answer{Status: status, Doc: http.StatusText(status), Type: kind, Headers: []openapi.Param{{Name: "ETag", Doc: "b3: and the BLAKE3 of the whole", Required: true}}}
		if status == http.StatusNotModified {
			a.Type = ""
		}
		out = append(out, a)
	}
	return out
}

// writes are the routes that fetch, and those of the operator.
func (h handlers) writes() []httpapi.Route {
	admin := func(r *httpapi.Route) {
		r.Pattern, r.Scope, r.Class, r.Admin, r.Endpoint = adminPath+r.Pattern, auth.ScopeAdmin, httpapi.ClassAdmin, true, "admin"
		r.Deadline = cmp.Or(r.Deadline, httpapi.DefaultDeadline)
	}
	return append(httpapi.Routes(admin,
		httpapi.Route{Method: http.MethodPost, Pattern: "rescan", Handle: h.postRescan, Summary: "Take up what has changed in the folder of packs",
			Answers: httpapi.Answers(http.StatusOK, Catalog{})},
		httpapi.Route{Method: http.MethodPost, Pattern: "verify", Handle: h.postVerify, Summary: "Read all that is stored and report what is damaged",
			Deadline: verifyWithin, Long: true, Body: httpapi.JSONBody, In: Verify{},
			Answers: []openapi.Answer{{Status: http.StatusOK, Type: httpapi.TypeLines, Doc: "progress and findings, then the sum or a problem", Body: VerifyLine{}}}},
	), httpapi.Route{
		Method: http.MethodPost, Pattern: prefix + "fills", Handle: h.postFill, Scope: scopeFill, Class: httpapi.ClassWrite, Deadline: fillWithin, Hints: true,
		Endpoint: "/edge/fills", Body: httpapi.JSONBody, In: Fill{}, Summary: "Fetch a URL to be served from then on, and wait for it",
		Answers:  httpapi.Answers(http.StatusOK, Object{}),
		Problems: []int{http.StatusNotFound, http.StatusFailedDependency, http.StatusBadGateway, http.StatusInsufficientStorage},
	})
}
