package edge

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"path"
	"strings"

	"ronbox/engines/edge"
	"ronbox/httpapi"
)

// policy of the page that draws a pack: all of it comes from the node. Pictures are made from the bytes of tiles, which is what blob is for.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; img-src 'self' data: blob:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed static
var embedded embed.FS

// static are the embedded files, by the path below /edge/static/. One that ends in .gz is served under the name without it.
type static map[string]staticFile

// staticFile is a file, and the same as gzip where it is held so.
type staticFile struct{ plain, zipped content }

// version is the v that a URL of the file needs to be kept for ever.
func (f staticFile) version() string { return f.plain.etag[len(`"b3:`):][:16] }

const typePage = "text/html; charset=utf-8"

var staticKinds = map[string]string{".mjs": "text/javascript; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8"}

// contentOf is a whole answer of bytes.
func contentOf(body []byte, kind, cache, coding string) content {
	return content{etag: httpapi.TagOf(body), kind: kind, cache: cache, coding: coding, bytes: body, size: int64(len(body)), whole: true}
}

// newStatic reads the embedded files. A fault in them is one of the build.
func newStatic() static {
	out := static{}
	err := fs.WalkDir(embedded, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := embedded.ReadFile(name)
		name, zipped := strings.CutSuffix(strings.TrimPrefix(name, "static/"), ".gz")
		kind, cache, f := staticKinds[path.Ext(name)], httpapi.CacheAsk, staticFile{}
		if kind == "" {
			kind = "text/plain; charset=utf-8"
		}
		if strings.Contains(name, "/") { // a folder is named after the version of what is in it
			cache = httpapi.CacheForever
		}
		if zipped && err == nil {
			f.zipped = contentOf(raw, kind, cache, string(edge.Gzip))
			var r *gzip.Reader
			if r, err = gzip.NewReader(bytes.NewReader(raw)); err == nil {
				raw, err = io.ReadAll(r)
			}
		}
		f.plain = contentOf(raw, kind, cache, "")
		out[name] = f
		return err
	})
	if err != nil {
		panic(err)
	}
	return out
}

// getStatic serves GET /edge/static/*file.
func (h handlers) getStatic(c *httpapi.Request) error {
	f, ok := h.static[c.Param(paramFile)]
	if !ok {
		return edge.ErrNotFound
	}
	c.Header().Add("Vary", "Accept-Encoding")
	x := f.plain
	if f.zipped.bytes != nil && accepts(c.HTTP())(edge.Gzip) {
		x = f.zipped
	}
	if c.Query().Get("v") == f.version() {
		x.cache = httpapi.CacheForever
	}
	return send(c, c.HTTP(), x)
}

// getPreview serves GET /edge/preview/:pack: a page that draws the pack, and asks for nothing but the pack and embedded files.
func (h handlers) getPreview(c *httpapi.Request) error {
	p, err := h.packs.Info(c.Param(paramPack))
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := h.page.Execute(&page, struct {
		edge.PackInfo
		Style, Script string // versions of the files
	}{p, h.static["preview.css"].version(), h.static["preview.js"].version()}); err != nil {
		return err
	}
	return send(c, c.HTTP(), contentOf(page.Bytes(), typePage, httpapi.CacheAsk, ""))
}
