package edge

import (
	"bytes"
	"compress/gzip"
	"embed"
	"io"
	"io/fs"
	"path"
	"strings"
	"sync"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/pack"
	"ronbox/httpapi"
)

// policy is the content security policy of the page that draws a pack. Everything comes from the
// node; blob is for pictures that are made from the bytes of tiles.
const policy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self'; " +
	"img-src 'self' data: blob:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

//go:embed static
var embedded embed.FS

// static holds the embedded files by their paths below /edge/static/. A file named *.gz
// is served under the name without it.
type static map[string]staticFile

// staticFile is a file and, if it is stored so, its gzip form.
type staticFile struct{ plain, zipped content }

// version returns the v of the URL under which the file may be cached for ever.
func (f staticFile) version() string { return f.plain.etag[len(`"b3:`):][:16] }

const typePage = "text/html; charset=utf-8"

var staticKinds = map[string]string{
	".mjs": "text/javascript; charset=utf-8",
	".js":  "text/javascript; charset=utf-8",
	".css": "text/css; charset=utf-8",
}

// contentOf returns content of bytes that is served without ranges.
func contentOf(body []byte, kind, cache, coding string) content {
	return content{
		etag:   httpapi.TagOf(body),
		kind:   kind,
		cache:  cache,
		coding: coding,
		bytes:  body,
		size:   int64(len(body)),
		whole:  true,
	}
}

// staticFiles returns the embedded files, which all nodes of the process share.
var staticFiles = sync.OnceValue(newStatic)

// newStatic reads the embedded files. It panics on an error, which only a faulty build can cause.
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
		if strings.Contains(name, "/") { // the name of a folder contains the version of its files
			cache = httpapi.CacheForever
		}
		if zipped && err == nil {
			f.zipped = contentOf(raw, kind, cache, string(pack.Gzip))
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
		return asset.ErrNotFound
	}
	c.Header().Add("Vary", "Accept-Encoding")
	x := f.plain
	if f.zipped.bytes != nil && accepts(c.HTTP())(pack.Gzip) {
		x = f.zipped
	}
	version, err := contentVersion.Of(c)
	if err != nil {
		return err
	}
	if version == f.version() {
		x.cache = httpapi.CacheForever
	}
	return send(c, c.HTTP(), x)
}

// getPreview serves GET /edge/preview/:pack: a page that draws the pack. It requests only the pack
// and embedded files.
func (h handlers) getPreview(c *httpapi.Request) error {
	p, err := h.packs.Info(c.Param(paramPack))
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := h.page.Execute(&page, struct {
		pack.Info
		Style, Script string // versions of the files
	}{p, h.static["preview.css"].version(), h.static["preview.js"].version()}); err != nil {
		return err
	}
	return send(c, c.HTTP(), contentOf(page.Bytes(), typePage, httpapi.CacheAsk, ""))
}
