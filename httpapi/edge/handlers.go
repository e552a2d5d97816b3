package edge

import (
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/edge"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
)

// handlers serve the routes.
type handlers struct {
	e      Engine
	packs  Packs
	static static
	page   *template.Template
}

// Values of Cache-Control beside those of httpapi.
const (
	cacheDay  = "public, max-age=86400" // of what was fetched: it stays as it is until it is refreshed
	cacheHour = "public, max-age=3600"  // of tiles without their version
)

// plain lets through the paths that say the same before and after decoding.
func plain(next httpapi.Handler) httpapi.Handler {
	return func(c *httpapi.Request) error {
		u := c.HTTP().URL
		if escaped := strings.ToLower(u.RawPath); strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%5c") ||
			!utf8.ValidString(u.Path) || strings.ContainsFunc(u.Path, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			return errPath
		}
		return next(c)
	}
}

// getAsset serves GET /edge/assets/*path: an object by hash or by where it was fetched from, or the file of a pack.
func (h handlers) getAsset(c *httpapi.Request) error {
	o, err := h.e.Asset(c.Context(), c.Param(paramPath))
	if err != nil {
		return err
	}
	defer o.Close()
	x := content{etag: o.ETag(), kind: o.Type, cache: cacheDay, bytes: o.Bytes, file: o.File, size: o.Size}
	switch {
	case o.Immutable:
		x.cache = httpapi.CacheForever
	case o.From == edge.FromPack:
		x.cache = httpapi.CacheAsk // ranges of two versions must not mix
	}
	from := "hit; detail=" + o.From
	if o.Filled {
		from = "fwd=uri-miss; stored"
	}
	c.Set("Cache-Status", "ronbox-edge; "+from) // RFC 9211
	return send(c, c.HTTP(), x)
}

// getTile serves GET /edge/tiles/:pack/:z/:x/:y.ext. A tile that the pack leaves out is 204, one that it cannot have 404.
func (h handlers) getTile(c *httpapi.Request) error {
	at, ext, err := tileOf(c)
	if err != nil {
		return err
	}
	info, err := h.packs.Info(at.Pack)
	if err != nil {
		return err
	}
	if !info.Format.Matches(ext) {
		return errExt
	}
	c.Header().Add("Vary", "Accept-Encoding")
	t, err := h.packs.Tile(c.Context(), at, accepts(c.HTTP()))
	if err != nil {
		if errors.Is(err, edge.ErrNoTile) {
			c.Set("Cache-Control", cacheHour)
			c.WriteHeader(http.StatusNoContent)
			return nil
		}
		return err
	}
	x := content{etag: t.ETag(), kind: t.Format.ContentType(), cache: cacheHour, coding: string(t.Coding), bytes: t.Bytes, size: int64(len(t.Bytes)), whole: true}
	if v := c.Query().Get("v"); v != "" && v == t.Version {
		x.cache = httpapi.CacheForever
	}
	return send(c, c.HTTP(), x)
}

// tileOf reads the path of a tile.
func tileOf(c *httpapi.Request) (at edge.TileRef, ext string, err error) {
	row, ext, _ := strings.Cut(c.Param(paramTile), ".")
	var n [3]uint64
	for i, text := range []string{c.Param(paramZoom), c.Param(paramColumn), row} {
		if text != "0" && !httpapi.CanonicalNumber(text) {
			return at, "", errTile
		}
		if n[i], err = strconv.ParseUint(text, 10, []int{8, 32, 32}[i]); err != nil {
			return at, "", errTile
		}
	}
	at = edge.TileRef{Pack: c.Param(paramPack), Z: uint8(n[0]), X: uint32(n[1]), Y: uint32(n[2])}
	if !at.Valid() {
		return at, "", errTile
	}
	return at, ext, nil
}

// getTileJSON serves GET /edge/tiles/:pack.json.
func (h handlers) getTileJSON(c *httpapi.Request) error {
	id, ok := strings.CutSuffix(c.Param(paramTileJSON), ".json")
	if !ok {
		return edge.ErrNotFound
	}
	p, err := h.packs.Info(id)
	if err != nil {
		return err
	}
	base, err := h.base(c.HTTP())
	if err != nil {
		return err
	}
	return sendJSON(c, TileJSONOf(p, base))
}

// sendJSON answers a read that has a tag.
func sendJSON(c *httpapi.Request, doc any) error {
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return c.SendTagged(httpapi.CacheAsk, httpapi.TagOf(body), body)
}

// base is what URLs of the node begin with: edge.public_url, or the scheme and the host that the request names.
func (h handlers) base(r *http.Request) (string, error) {
	if public := h.e.Config().PublicURL; public != "" {
		return strings.TrimRight(public, "/"), nil
	}
	if r.Host == "" || len(r.Host) > 262 || strings.Trim(r.Host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]") != "" {
		return "", errHost
	}
	if r.TLS != nil {
		return "https://" + r.Host, nil
	}
	return "http://" + r.Host, nil
}

// catalog is what the routes tell of packs.
func (h handlers) catalog(all []edge.PackInfo) Catalog {
	out := Catalog{Mode: h.e.Config().Mode, Packs: make([]Pack, len(all))}
	for i, p := range all {
		out.Packs[i] = PackOf(p)
	}
	return out
}

// getCatalog serves GET /edge/catalog.
func (h handlers) getCatalog(c *httpapi.Request) error { return sendJSON(c, h.catalog(h.packs.List())) }

// postRescan serves POST /admin/v1/edge/rescan.
func (h handlers) postRescan(c *httpapi.Request) error {
	all, err := h.packs.Rescan(c.Context())
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, h.catalog(all))
}

// postFill serves POST /edge/fills.
func (h handlers) postFill(c *httpapi.Request) error {
	var in Fill
	if err := c.Decode(&in); err != nil {
		return err
	}
	req := edge.FillRequest{URL: in.URL, Refresh: in.Refresh}
	if in.Expect != "" {
		var err error
		if req.Expect, err = b3.Parse(in.Expect); err != nil {
			return httpapi.BadBody("expect", "must be b3: and 64 hex digits")
		}
	}
	f, err := h.e.Fill(c.Context(), req)
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, Object{f.URL, assetsPath + f.Path, f.Digest.String(), f.Size, f.Type, f.New})
}

// postVerify serves POST /admin/v1/edge/verify: lines of progress and findings, then the sum or the problem.
func (h handlers) postVerify(c *httpapi.Request) error {
	var in Verify
	if err := c.Decode(&in); err != nil {
		return err
	}
	lines := c.Lines()
	sum, err := h.e.Verify(c.Context(), edge.VerifyOptions{
		Fix:      in.Fix,
		Progress: func(done, total int64) { lines.Progress(VerifyLine{Done: done, Total: total}) },
		Found: func(f edge.Finding) {
			lines.Write(VerifyLine{Found: &Finding{f.Kind, f.Name, f.URL, f.Size, f.Fault, f.Done}})
		},
	})
	if err != nil {
		return lines.End(err, func(p *wire.Problem) any { return VerifyLine{Problem: p} })
	}
	lines.Write(VerifyLine{Sum: &Verified{sum.Objects, sum.Packs, sum.Bytes, sum.Bad}})
	return nil
}
