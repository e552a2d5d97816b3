package edge

import (
	"cmp"
	"errors"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/pack"
	"ronbox/httpapi"
	"ronbox/httpapi/wire"
	edgeapi "ronbox/httpapi/wire/edge"
)

// handlers holds the handlers of the routes.
type handlers struct {
	e        Engine
	packs    Packs
	extracts Extracts
	static   static
	page     *template.Template
}

// Values of Cache-Control in addition to those of httpapi.
const (
	cacheHour = "public, max-age=3600" // of tiles requested without their version
)

// plain refuses paths that change their meaning when they are decoded.
func plain(next httpapi.Handler) httpapi.Handler {
	return func(c *httpapi.Request) error {
		u := c.HTTP().URL
		escaped := strings.ToLower(u.RawPath)
		control := func(r rune) bool { return r < 0x20 || r == 0x7f }
		if strings.Contains(escaped, "%2f") || strings.Contains(escaped, "%5c") ||
			!utf8.ValidString(u.Path) || strings.ContainsFunc(u.Path, control) {
			return errPath
		}
		return next(c)
	}
}

// getAsset serves GET /edge/assets/b3/:object and /edge/assets/*path: an object by its hash or its
// URL, or the file of a pack.
func (h handlers) getAsset(c *httpapi.Request) error {
	if runs(c.HTTP().Header) {
		return errScript
	}
	o, err := h.asset(c)
	if err != nil {
		return err
	}
	defer o.Close()
	x := payload{etag: o.ETag(), kind: o.Type, bytes: o.Bytes, file: o.File, size: o.Size}
	switch {
	case o.Immutable:
		x.cache = httpapi.CacheForever
	case o.From == asset.FromPack:
		x.cache = httpapi.CacheAsk // so that ranges of two versions do not mix
	default:
		var age string
		if age, x.cache = freshness(o); age != "" {
			c.Set("Age", age)
		}
	}
	c.Set("Cache-Status", "ronbox-edge; "+cacheStatus(o))
	if err := send(c, c.HTTP(), x); err != nil || o.Filled {
		return err
	}
	h.e.Hit()
	return nil
}

// asset returns the object of a request. One that is not stored here is fetched by its hash from
// the fleet, unless the sender is a node that does so itself, or the leader is to. Without the
// scope edge.fetch only objects of opened manifests are.
func (h handlers) asset(c *httpapi.Request) (*asset.Object, error) {
	path, _ := strings.CutPrefix(asset.EscapedPath(c.HTTP().URL), assetsPath)
	if object := c.Param(paramObject); object != "" {
		path = "b3/" + object
	}
	o, err := h.e.Asset(c.Context(), path, c.HTTP().URL.RawQuery)
	hops := c.HTTP().Header[near.HopHeader] != nil
	if hops || c.Copied() || !errors.Is(err, asset.ErrNotFound) && !errors.Is(err, asset.ErrCorrupt) {
		return o, err
	}
	from, _ := c.Network()
	fetched, ferr := h.e.FetchAsset(c.Context(), path, from, c.HoldsMore)
	if errors.Is(ferr, asset.ErrNotFound) {
		return o, err
	}
	return fetched, ferr
}

// runs reports whether a page of this node asks for an object as script or style, or any page as a
// service worker. The console's policy allows its own origin, which stored objects and sites share.
// A page of a site has another origin, because of its sandbox.
func runs(h http.Header) bool {
	if h["Service-Worker"] != nil {
		return true
	}
	if h.Get("Sec-Fetch-Site") != "same-origin" {
		return false
	}
	switch h.Get("Sec-Fetch-Dest") {
	case "script", "style", "worker", "sharedworker", "serviceworker":
		return true
	}
	return false
}

// getTile serves GET /edge/tiles/:pack/:z/:x/:y.ext. It answers 204 for a tile that the pack leaves
// out, and 404 for a tile outside of the pack.
func (h handlers) getTile(c *httpapi.Request) error {
	at, ext, err := tileOf(c)
	if err != nil {
		return err
	}
	info, err := h.ready(at.Pack)
	if err != nil {
		return err
	}
	if !info.Format.Matches(ext) {
		return errExt
	}
	c.Header().Add("Vary", "Accept-Encoding")
	t, err := h.packs.Tile(c.Context(), at, accepts(c.HTTP()))
	if err != nil {
		if errors.Is(err, pack.ErrNoTile) {
			c.Set("Cache-Control", cacheHour)
			c.WriteHeader(http.StatusNoContent)
			return nil
		}
		return err
	}
	defer t.Close()
	x := payload{
		etag:   t.ETag(),
		kind:   t.Format.ContentType(),
		cache:  cacheHour,
		coding: string(t.Coding),
		bytes:  t.Bytes,
		size:   int64(len(t.Bytes)),
		whole:  true,
	}
	version, err := contentVersion.Of(c)
	if err != nil {
		return err
	}
	if version != "" && version == t.Version {
		x.cache = httpapi.CacheForever
	}
	if err := send(c, c.HTTP(), x); err != nil {
		return err
	}
	h.e.Hit()
	return nil
}

// ready returns a pack whose tiles are served.
func (h handlers) ready(id string) (pack.Info, error) {
	info, err := h.packs.Info(id)
	if err != nil {
		return info, err
	}
	return info, info.Ready()
}

// tileOf parses the path of a tile.
func tileOf(c *httpapi.Request) (at pack.TileRef, ext string, err error) {
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
	at = pack.TileRef{Pack: c.Param(paramPack), Z: uint8(n[0]), X: uint32(n[1]), Y: uint32(n[2])}
	if !at.Valid() {
		return at, "", errTile
	}
	return at, ext, nil
}

// getUsage serves GET /edge/usage/:epoch. A statement never changes.
func (h handlers) getUsage(c *httpapi.Request) error {
	text := c.Param(paramEpoch)
	epoch, err := strconv.ParseUint(text, 10, 64)
	if err != nil || !httpapi.CanonicalNumber(text) {
		return errEpoch
	}
	signed, err := h.e.Statement(c.Context(), epoch)
	if err != nil {
		return err
	}
	return c.SendTagged(httpapi.CacheForever, httpapi.TagOf(signed), signed)
}

// sendJSON sends doc with an entity tag.
func sendJSON(c *httpapi.Request, doc any) error {
	body, err := json.Marshal(doc)
	if err != nil {
		return err
	}
	return c.SendTagged(httpapi.CacheAsk, httpapi.TagOf(body), body)
}

// base returns the prefix of the node's URLs: edge.public_url, or the scheme and host of the
// request.
func (h handlers) base(c *httpapi.Request) (string, error) {
	if public := h.e.Config().PublicURL; public != "" {
		return strings.TrimRight(public, "/"), nil
	}
	scheme, host := c.Origin()
	if host == "" || len(host) > 262 ||
		strings.Trim(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-:[]") != "" {
		return "", errHost
	}
	return scheme + "://" + host, nil
}

// catalog converts packs to a Catalog.
func (h handlers) catalog(all []pack.Info) edgeapi.Catalog {
	out := edgeapi.Catalog{Mode: h.e.Config().Mode, Packs: make([]edgeapi.Pack, len(all))}
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
	var in edgeapi.Fill
	if err := c.Decode(&in); err != nil {
		return err
	}
	req := fill.Request{URL: in.URL, Refresh: in.Refresh, Pin: !in.NoPin}
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
	return c.Respond(http.StatusOK,
		edgeapi.Object{URL: f.URL, Path: assetsPath + f.Path, B3: f.Digest.String(), Size: f.Size, Type: f.Type,
			New: f.New, Unchanged: f.Same, Pinned: f.Pinned, Unpinned: f.Unpinned})
}

// postVerify serves POST /admin/v1/edge/verify. It sends lines of progress and findings, and then
// the sum or a problem.
func (h handlers) postVerify(c *httpapi.Request) error {
	var in edgeapi.Verify
	if err := c.Decode(&in); err != nil {
		return err
	}
	lines := c.Lines()
	sum, err := h.e.Verify(c.Context(), content.VerifyOptions{
		Fix:      in.Fix,
		Progress: func(done, total int64) { lines.Progress(edgeapi.VerifyLine{Done: done, Total: total}) },
		Found: func(f content.Finding) {
			lines.Write(edgeapi.VerifyLine{Found: &edgeapi.Finding{
				Kind: f.Kind, Name: f.Name, URL: f.URL, Size: f.Size, Fault: f.Fault, Done: f.Done,
			}})
		},
	})
	if err != nil {
		return lines.End(err, func(p *wire.Problem) any { return edgeapi.VerifyLine{Problem: p} })
	}
	lines.Write(edgeapi.VerifyLine{Sum: &edgeapi.Verified{
		Objects: sum.Objects, Packs: sum.Packs, Bytes: sum.Bytes, Bad: sum.Bad,
	}})
	return nil
}

const defaultKeys = 100 // of one page

// Query parameters of the list of URLs.
var (
	keysPrefix = httpapi.Text("prefix", "the beginning of the URLs")
	keysAfter  = httpapi.Text("after", "next of the previous page")
	keysLimit  = httpapi.Number("limit", defaultKeys, 1, asset.MaxKeys,
		"URLs of a page; a page with a next may have fewer")
	keysPinned = httpapi.Flag("pinned", false, "1: only pinned URLs")
)

// getKeys serves GET /edge/keys.
func (h handlers) getKeys(c *httpapi.Request) error {
	prefix, err := keysPrefix.Of(c)
	after, errAfter := keysAfter.Of(c)
	limit, errLimit := keysLimit.Of(c)
	pinned, errPinned := keysPinned.Of(c)
	if err := cmp.Or(err, errAfter, errLimit, errPinned); err != nil {
		return err
	}
	q := content.KeyQuery{Prefix: prefix, After: after, Limit: int(limit), Pinned: pinned}
	page, next, err := h.e.Keys(c.Context(), q)
	if err != nil {
		return err
	}
	out := edgeapi.StoredList{Keys: make([]edgeapi.StoredKey, len(page)), Next: next}
	for i, k := range page {
		key := edgeapi.StoredKey{
			Key: k.URL, Size: k.Size, Type: k.Type, Pinned: k.Pinned, Used: k.Used.UTC(), Fetched: k.Fetched.UTC(),
			Missing: k.Used.IsZero(),
		}
		if k.Checked != 0 {
			key.Checked, key.FreshUntil = time.Unix(0, k.Checked).UTC(), time.Unix(0, k.Fresh).UTC()
		}
		if !k.Digest.IsZero() {
			key.B3 = k.Digest.String()
		}
		out.Keys[i] = key
	}
	return c.Respond(http.StatusOK, out)
}

// getStore serves GET /edge/store.
func (h handlers) getStore(c *httpapi.Request) error {
	u, err := h.e.Usage()
	if err != nil {
		return err
	}
	return c.Respond(http.StatusOK, edgeapi.Store{
		Bytes:     u.Bytes,
		MaxBytes:  u.MaxBytes,
		Pinned:    u.Pinned,
		MaxPinned: u.MaxPinned,
		Free:      u.Free,
		Objects:   u.Objects,
		URLs:      u.URLs,
		Pins:      u.Pins,
		Evictions: u.Evicted,
	})
}

// postKeep serves POST /edge/keys/pin, unpin and rm.
func (h handlers) postKeep(do asset.Action) httpapi.Handler {
	return func(c *httpapi.Request) error {
		var in edgeapi.Keep
		if err := c.Decode(&in); err != nil {
			return err
		}
		if len(in.Keys) == 0 || len(in.Keys) > asset.MaxKeep {
			return httpapi.BadBody("keys", "must hold 1 to "+strconv.Itoa(asset.MaxKeep)+" URLs")
		}
		k, err := h.e.Keep(c.Context(), do, in.Keys)
		if err != nil {
			return err
		}
		out := edgeapi.Kept{
			Changed: append([]string{}, k.Changed...),
			Missing: append([]string{}, k.Missing...),
			Freed:   k.Freed,
		}
		return c.Respond(http.StatusOK, out)
	}
}
