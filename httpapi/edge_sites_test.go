package httpapi_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/pack"
	"ronbox/engines/edge/site"
)

// siteSandbox is the policy of a site. With allow-same-origin its pages would read the console.
const siteSandbox = "sandbox allow-scripts allow-forms allow-popups allow-popups-to-escape-sandbox " +
	"allow-downloads allow-modals"

// A file of a site is served with its tag, in parts, as fresh as its name, and apart from the
// origin of the node.
func TestSiteAnswers(t *testing.T) {
	r := newRig(t)
	tag := `"` + b3.Sum(fakeBytes).String() + `"`
	for _, tt := range []struct {
		method, target string
		header         map[string]string
		status         int
		body           string
	}{
		{"GET", "/edge/sites/docs.example/", nil, 200, "0123456789"},
		{"GET", "/edge/sites/docs.example/a%20b/c?x=%zz;y", nil, 200, "0123456789"},
		{"HEAD", "/edge/sites/docs.example@1.2.0/a", nil, 200, ""},
		{"GET", "/edge/sites/docs.example/a", map[string]string{"If-None-Match": tag}, 304, ""},
		{"GET", "/edge/sites/docs.example/a", map[string]string{"Range": "bytes=2-4"}, 206, "234"},
		{"GET", "/edge/sites/docs.example/a", map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Dest": "script"}, 200, "0123456789"},
		{"GET", "/edge/sites/docs.example/a", map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": "document"}, 200, "0123456789"},
	} {
		w := r.do(tt.method, tt.target, "", tt.header)
		h := w.Header()
		if w.Code != tt.status || w.Body.String() != tt.body || h.Get("Etag") != tag || h.Get("Age") != "90" ||
			h.Get("Cache-Control") != "no-cache" || h.Get("Content-Security-Policy") != siteSandbox ||
			h.Get("X-Content-Type-Options") != "nosniff" || h.Get("Access-Control-Allow-Origin") != "*" ||
			h.Get("Set-Cookie")+h.Get("Service-Worker-Allowed")+h.Get("X-Frame-Options") != "" {
			t.Errorf("%s %s: %d %q %v", tt.method, tt.target, w.Code, w.Body, h)
		}
		if kind := h.Get("Content-Type"); tt.status != 304 && kind != "text/html; charset=utf-8" {
			t.Errorf("%s: %s", tt.target, kind)
		}
	}
	if r.edge.site.Name != "docs.example" || r.edge.site.Path != "a" {
		t.Errorf("%+v", r.edge.site)
	}
}

// A file that stands in for a missing one is sent whole and with 404, whatever the request says of
// tags and ranges. A compressed one is sent with its coding, and with the headers on which it depends.
func TestChosenFilesOfSites(t *testing.T) {
	r := newRig(t)
	tag := `"` + b3.Sum(fakeBytes).String() + `"`
	r.edge.found = site.Found{Missing: true, Coding: "br", Vary: []string{"Accept", "Accept-Encoding"}}
	for _, header := range []map[string]string{
		{}, {"Range": "bytes=2-4"}, {"Range": "bytes=99-"}, {"If-None-Match": tag}, {"If-Match": `"x"`},
	} {
		for method, body := range map[string]string{"GET": string(fakeBytes), "HEAD": ""} {
			w := r.do(method, "/edge/sites/docs.example/none", "", header)
			h := w.Header()
			if w.Code != 404 || w.Body.String() != body || h.Get("Content-Type") != "text/html; charset=utf-8" ||
				h.Get("Content-Security-Policy") != siteSandbox || h.Get("Etag")+h.Get("Content-Range") != "" ||
				h.Get("Content-Length") != "10" || h.Get("Content-Encoding") != "br" || len(h["Vary"]) != 2 {
				t.Errorf("%s with %v: %d %s %v", method, header, w.Code, w.Body, h)
			}
		}
	}
	r.edge.found.Missing = false
	for range_, status := range map[string]int{"bytes=2-4": 206, "bytes=2-4,5-6": 200, "bytes=9-2": 416, "bytes=x,2-4": 416} {
		w := r.do("GET", "/edge/sites/docs.example/a.js", "", map[string]string{"Range": range_})
		if w.Code != status || (w.Header().Get("Content-Encoding") == "br") != (status < 400) || w.Header().Get("Etag") != tag {
			t.Errorf("%s: %d %v", range_, w.Code, w.Header())
		}
	}
	for accept, page := range map[string]bool{
		"": false, "*/*": false, "image/webp,*/*;q=0.8": false, "text/html;q=0": false, "text/html": true,
		"application/xhtml+xml, Text/HTML;q=0.1": true,
	} {
		r.do("GET", "/edge/sites/docs.example/a", "", map[string]string{"Accept": accept, "Accept-Encoding": "br;q=0.5"})
		if q := r.edge.site; q.Page != page || q.Weight("br") != 0.5 || q.Weight("gzip") != 0 {
			t.Errorf("%q: asked for a page %t, %v", accept, q.Page, q.Weight("br"))
		}
	}
}

// A directory is redirected to its path with a slash, relative to where it was asked for.
func TestDirectoriesOfSites(t *testing.T) {
	r := newRig(t)
	for target, want := range map[string]string{
		"docs.example":                "./docs.example/",
		"docs.example@1.2.0?a=1":      "./docs.example@1.2.0/?a=1",
		"docs.example/a/dir":          "./dir/",
		"docs.example/a:%20%3Fdir?%7": "./a:%20%3Fdir/?%7",
	} {
		w := r.do(http.MethodGet, "/edge/sites/"+target, "", nil)
		if w.Code != http.StatusPermanentRedirect || w.Header().Get("Location") != want || w.Body.Len() > 0 {
			t.Errorf("%s: %d to %q, want %q", target, w.Code, w.Header().Get("Location"), want)
		}
	}
}

// A page of the node's own origin does not run a file of a site or an asset, and no page makes one a
// service worker. A path that means another one when it is decoded is refused.
func TestRefusedRequestsForSites(t *testing.T) {
	r := newRig(t)
	same := func(dest string) map[string]string {
		return map[string]string{"Sec-Fetch-Site": "same-origin", "Sec-Fetch-Dest": dest}
	}
	for _, path := range []string{"/edge/sites/docs.example/a", "/edge/assets/" + fakeAsset} {
		for _, h := range []map[string]string{
			same("script"), same("style"), same("worker"), same("sharedworker"), same("serviceworker"),
			{"Service-Worker": "script"}, {"Service-Worker": "script", "Sec-Fetch-Site": "cross-site"},
		} {
			if w := r.do(http.MethodGet, path, "", h); w.Code != http.StatusForbidden {
				t.Errorf("%s, %v: %d", path, h, w.Code)
			}
		}
	}
	r.undescribed = true
	for target, status := range map[string]int{
		"docs.example/a%2fb": 400, "docs.example/..%5cb": 400, "docs.example/%00": 400, "docs.example/%ff": 400,
		"docs.example/../x": 400, "docs.example//x": 400, "docs.example/./x": 400, "docs.example/%2e%2e/x": 400, "": 404,
	} {
		if w := r.do(http.MethodGet, "/edge/sites/"+target, "", nil); w.Code != status {
			t.Errorf("%s: %d, want %d: %s", target, w.Code, status, w.Body)
		}
	}
}

// A put answers 201 for a new object and 200 for one that was there, with the path of the object. It
// needs its scope, and its parameters are checked before the body is read.
func TestPutObject(t *testing.T) {
	r := newRig(t)
	header := map[string]string{"Content-Type": "application/octet-stream"}
	maps.Copy(header, writer)
	digest := b3.Sum([]byte("hello")).String()
	for _, tt := range []struct {
		query, body string
		status      int
	}{
		{"", "hello", 201},
		{"", string(fakeBytes), 200},
		{"", "", 201},
		{"?b3=" + digest + "&type=image/png&announce=0", "hello", 201},
		{"?type=text/html;%20charset=utf-8&announce=1", "hello", 400}, // a semicolon in a query
		{"?type=text/html%3B%20charset=utf-8&announce=1", "hello", 201},
		{"?type=text/cache-manifest", "hello", 400},
		{"?b3=hello", "hello", 400},
		{"?announce=yes", "hello", 400},
		{"?pin=1", "hello", 400},
	} {
		r.edge.put = content.PutRequest{}
		w := r.do(http.MethodPut, "/edge/objects"+tt.query, tt.body, header)
		if w.Code != tt.status {
			t.Errorf("%s: %d, want %d: %s", tt.query, w.Code, tt.status, w.Body)
		}
		if at := w.Header().Get("Location"); w.Code < 300 &&
			(at != "/edge/assets/b3/"+b3.Sum([]byte(tt.body)).String()[3:] || r.edge.put.Size != int64(len(tt.body))) {
			t.Errorf("%s: %s, %+v", tt.query, at, r.edge.put)
		}
		if w.Code >= 300 && r.edge.put.Body != nil {
			t.Errorf("%s: the engine was asked", tt.query)
		}
	}
	if r.do(http.MethodPut, "/edge/objects", "x", map[string]string{"Content-Type": "application/octet-stream"}).Code != 401 {
		t.Error("a caller without a token may put")
	}
	header["Content-Type"] = "application/json"
	if w := r.do(http.MethodPut, "/edge/objects", "{}", header); w.Code != 415 {
		t.Errorf("JSON: %d", w.Code)
	}
	header["Content-Type"] = "application/octet-stream"
	r.edge.err = &asset.PinsError{Bytes: 2, MaxBytes: 1}
	if w := r.do(http.MethodPut, "/edge/objects", "x", header); w.Code != 409 ||
		!strings.Contains(w.Body.String(), "edge.cas.max_pinned") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A put of a pack answers 201 if it is new and 200 if it replaces one, and its removal 204. They need
// their scope, and a refusal names every fault.
func TestPutPack(t *testing.T) {
	r := newRig(t)
	header := map[string]string{"Content-Type": "application/octet-stream"}
	if w := r.do(http.MethodPut, "/edge/packs/new.pmtiles", "hello", header); w.Code != 401 {
		t.Errorf("without a token: %d", w.Code)
	}
	maps.Copy(header, writer)
	digest := b3.Sum([]byte("hello"))
	for _, tt := range []struct {
		method, target string
		status         int
	}{
		{"PUT", "new.pmtiles", 201},
		{"PUT", "world.pmtiles?b3=" + digest.String(), 200},
		{"PUT", "world.pmtiles?b3=hello", 400},
		{"PUT", "world.pmtiles?pin=1", 400},
		{"DELETE", "world.pmtiles", 204},
		{"DELETE", "none.pmtiles", 404},
	} {
		r.edge.upload = pack.Upload{}
		body, h := "hello", header
		if tt.method == "DELETE" {
			body, h = "", writer
		}
		w := r.do(tt.method, "/edge/packs/"+tt.target, body, h)
		if w.Code != tt.status || tt.status < 202 && !strings.Contains(w.Body.String(), digest.String()) {
			t.Errorf("%s %s: %d %s, want %d", tt.method, tt.target, w.Code, w.Body, tt.status)
		}
		if u := r.edge.upload; tt.status < 202 && (u.Size != 5 || !u.Expect.IsZero() != strings.Contains(tt.target, "?")) {
			t.Errorf("%s: %+v", tt.target, u)
		}
	}
	header["Content-Type"] = "" // as curl -T
	if w := r.do(http.MethodPut, "/edge/packs/new.pmtiles", "hello", header); w.Code != 201 {
		t.Errorf("without a media type: %d %s", w.Code, w.Body)
	}
	r.edge.err = &pack.RefusedError{Faults: []string{"cut", "odd"}}
	if w := r.do(http.MethodPut, "/edge/packs/new.pmtiles", "hello", header); w.Code != 422 ||
		!strings.Contains(w.Body.String(), `"faults":["cut","odd"]`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// Extracts are listed, begun and removed with the scope of packs.
func TestExtractRoutes(t *testing.T) {
	r := newRig(t)
	if w := r.do(http.MethodGet, "/edge/extracts", "", nil); w.Code != 401 {
		t.Errorf("without a token: %d", w.Code)
	}
	const listed = `{"pack":"world","url":"https://cdn.example/a.txt?redacted","bbox":[1,2,3,4],"min_zoom":0,` +
		`"max_zoom":9,"state":"reading","tiles":7,"bytes":1000,"done_bytes":500,"requests":3,"left_s":3,"etag":"\"1\""}`
	header := map[string]string{"Content-Type": "application/json"}
	maps.Copy(header, writer)
	for _, tt := range []struct {
		method, target, body string
		status               int
		want                 string
	}{
		{"GET", "", "", 200, `{"extracts":[` + listed + `]}`},
		{"POST", "", `{"url":"https://a.example/b","pack":"world"}`, 202, listed},
		{"POST", "", `{"url":"https://a.example/b","pack":"p","bbox":[1,2,3,4],"max_zoom":0,"dry_run":true}`, 200, listed},
		{"POST", "", `{"url":"https://a.example/b","pack":"p","region":{"type":"Polygon","coordinates":[]}}`, 202, listed},
		{"POST", "", `{"url":"https://a.example/b","pack":"p","bbox":[1,2,3]}`, 400, "bbox"},
		{"POST", "", `{"url":"https://a.example/b","pack":"p","max_zoom":-1}`, 400, "max_zoom"},
		{"POST", "", `{"url":"https://a.example/b","pack":"p","depth":1}`, 400, "depth"},
		{"DELETE", "/world", "", 204, ""},
		{"DELETE", "/none", "", 404, "not_found"},
	} {
		h := writer
		if tt.body != "" {
			h = header
		}
		w := r.do(tt.method, "/edge/extracts"+tt.target, tt.body, h)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.want) {
			t.Errorf("%s %s %s: %d %s, want %d %s", tt.method, tt.target, tt.body, w.Code, w.Body, tt.status, tt.want)
		}
		q := r.edge.extract
		if strings.Contains(tt.body, "dry_run") && (!q.DryRun || q.BBox == nil || q.MaxZoom == nil || *q.MaxZoom != 0) ||
			strings.Contains(tt.body, "region") && (q.BBox != nil || q.MaxZoom != nil || len(q.Region) == 0) {
			t.Errorf("%s: %+v", tt.body, q)
		}
	}
	region := `{"url":"https://a.example/b","pack":"p","region":{"a":"` + strings.Repeat("x", 1<<20) + `"}}`
	if w := r.do(http.MethodPost, "/edge/extracts", region, header); w.Code != 202 {
		t.Errorf("the largest region: %d %.200s", w.Code, w.Body)
	}
}
