package edge

import (
	"cmp"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/sites"
	"ronbox/httpapi"
	"ronbox/httpapi/openapi"
	edgeapi "ronbox/httpapi/wire/edge"
)

const (
	scopePut    = "edge.put"
	objectsPath = prefix + "objects"
	sitesPath   = prefix + "sites/"
	paramSite   = "site"

	// sandbox gives a page of a site an origin of its own, so that it reads neither the cookies nor
	// the storage nor the answers of this node. Tabs that it opens are not in the sandbox, so that
	// they show other hosts as usual; a page of a site has its own sandbox there. It must never
	// contain allow-same-origin or allow-top-navigation. There is no frame-ancestors, because no
	// value of it admits the page of a site, whose origin is opaque: a page in the sandbox has no
	// rights that a frame could misuse.
	sandbox = "sandbox allow-scripts allow-forms allow-popups allow-popups-to-escape-sandbox allow-downloads " +
		"allow-modals"

	// putWithin is the time to send the longest object over a slow line, as for a fill.
	putWithin = time.Hour
	// maxPut is the largest edge.cas.max_bytes. The engine enforces edge.fill.max_object_bytes.
	maxPut = 1 << 50
)

// sites returns the routes of published content.
func (h handlers) sites() []httpapi.Route {
	read := httpapi.Routes(h.asRead, httpapi.Route{
		Pattern:  "sites/*" + paramSite,
		Endpoint: "/edge/sites",
		Copy:     httpapi.CopyOutage,
		Handle:   h.getSite,
		ID:       "getSiteFile",
		Summary:  "A file of a published site, by the name of the site and its path",
		Others:   httpapi.QueryRaw,
		CSP:      sandbox,
		Framed:   true,
		Headers: []openapi.Param{
			{Name: "Range", Doc: "one range of bytes; several are answered with the whole"},
			{Name: "If-Range", Doc: "the tag of the content that the range is a part of"},
			{Name: "Accept", Doc: "text/html: 200.html of the site is sent instead of a missing file"},
			{Name: "Accept-Encoding", Doc: "br, zstd or gzip: x.br, x.zst or x.gz may be sent instead of x"},
		},
		Answers: append(bytesOf("*/*", http.StatusOK, http.StatusPartialContent, http.StatusNotModified),
			openapi.Answer{Status: http.StatusPermanentRedirect, Doc: "a directory; Location has the slash"},
			openapi.Answer{Status: http.StatusNotFound, Type: "*/*", Doc: "404.html of the site"}),
		Problems: []int{http.StatusRequestedRangeNotSatisfiable, http.StatusForbidden, http.StatusBadGateway,
			http.StatusGatewayTimeout},
	})
	return append(read, httpapi.Route{
		Method:   http.MethodPut,
		Pattern:  objectsPath,
		Handle:   h.putObject,
		Scope:    scopePut,
		Class:    httpapi.ClassWrite,
		Deadline: putWithin,
		Endpoint: objectsPath,
		Body:     httpapi.StreamBody,
		Media:    httpapi.TypeBytes,
		MaxBody:  maxPut,
		ID:       "putObject",
		In:       []byte(nil),
		Summary:  "Store and pin an object",
		Doc: "Keeps the body under its BLAKE3 hash and pins it. A repetition of the same bytes answers 200 " +
			"instead of 201 and changes nothing. With ?b3= other bytes are refused as other_digest.",
		Query:    httpapi.Params(putDigest, putType, putAnnounce),
		Answers:  append(stored(http.StatusCreated), stored(http.StatusOK)...),
		Problems: []int{http.StatusConflict, http.StatusUnprocessableEntity, http.StatusInsufficientStorage},
	})
}

// stored declares an answer with a stored object.
func stored(status int) []openapi.Answer {
	out := httpapi.Answers(status, edgeapi.Object{})
	out[0].Headers = []openapi.Param{{Name: "Location", Doc: "the path that serves the object", Required: true}}
	return out
}

// Query parameters of an upload.
var (
	putDigest = httpapi.Checked(httpapi.Text("b3", "the b3:… that the bytes must have"), "",
		"must be b3: and 64 hex digits", func(v string) bool { _, err := b3.Parse(v); return err == nil })
	putType = httpapi.Checked(httpapi.Text("type", "media type of the object, one of those that sites are served with"),
		"", "must be a media type of sites, as image/png or text/html; charset=utf-8", site.Allowed)
	putAnnounce = httpapi.Flag("announce", true, "0: do not announce the object to other nodes")
)

// putObject serves PUT /edge/objects.
func (h handlers) putObject(c *httpapi.Request) error {
	digest, err := putDigest.Of(c)
	announce, errAnnounce := putAnnounce.Of(c)
	kind, errType := putType.Of(c)
	if err := cmp.Or(err, errAnnounce, errType); err != nil {
		return err
	}
	r := content.PutRequest{Body: c.Stream(), Size: c.HTTP().ContentLength, Type: kind, Announce: announce}
	if digest != "" {
		r.Expect, _ = b3.Parse(digest) // putDigest has checked it
	}
	p, err := h.e.Put(c.Context(), r)
	if err != nil {
		return err
	}
	status := http.StatusOK
	if p.New {
		status = http.StatusCreated
	}
	path := assetsPath + p.Path
	c.Set("Location", path)
	return c.Respond(status,
		edgeapi.Object{URL: p.URL, Path: path, B3: p.Digest.String(), Size: p.Size, Type: p.Type, New: p.New,
			Pinned: true, Copies: p.Copies})
}

// getSite serves GET /edge/sites/*site: the file that Look of package site returns, with 404 if it
// is the page for missing files. A directory without a slash at its end is redirected, so that
// relative links of its page work.
func (h handlers) getSite(c *httpapi.Request) error {
	if runs(c.HTTP().Header) {
		return errScript
	}
	name, path, inside := strings.Cut(c.Param(paramSite), "/")
	header := c.HTTP().Header
	r := sites.Request{
		Name:   name,
		Path:   path,
		Page:   httpapi.Weight(header["Accept"], "text/html") > 0,
		Weight: func(coding string) float64 { return httpapi.Weight(header["Accept-Encoding"], coding) },
	}
	r.From, _ = c.Network()
	f, err := h.e.Site(c.Context(), r)
	switch {
	case errors.Is(err, site.ErrDirectory), err == nil && !inside:
		if err == nil {
			f.Close()
		}
		return addSlash(c)
	case err != nil:
		return err
	}
	defer f.Close()
	c.Set("Cache-Status", "ronbox-edge; "+cacheStatus(f.Object))
	c.Set("Age", strconv.FormatInt(int64(f.Age/time.Second), 10))
	for _, name := range f.Found.Vary {
		c.Header().Add("Vary", name)
	}
	x := payload{
		etag:   f.ETag(),
		kind:   f.Type,
		cache:  httpapi.CacheAsk,
		coding: f.Found.Coding,
		bytes:  f.Bytes,
		file:   f.File,
		size:   f.Size,
	}
	if f.Found.Missing {
		x.status = http.StatusNotFound
	}
	if err := send(c, c.HTTP(), x); err != nil || f.Filled {
		return err
	}
	h.e.Hit()
	return nil
}

// addSlash redirects to the path of the request with a slash at its end. The target is relative to
// the last segment, so that it also works behind a proxy with another prefix.
func addSlash(c *httpapi.Request) error {
	u := c.HTTP().URL
	last := u.Path[strings.LastIndexByte(u.Path, '/')+1:]
	to := url.URL{Path: "./" + last + "/", RawQuery: u.RawQuery}
	c.Set("Cache-Control", httpapi.CacheAsk)
	c.Set("Location", to.String())
	c.WriteHeader(http.StatusPermanentRedirect)
	return nil
}
