package site_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/engines/edge/site"
)

// looked returns what a request gets: the path, "slash", or "" for nothing. A file that is sent with
// 404 has a ! before it.
func looked(m *site.Manifest, r site.Request) string {
	f, ok, err := m.Look(r)
	switch {
	case errors.Is(err, site.ErrDirectory):
		return "slash"
	case !ok:
		return ""
	case f.Missing:
		return "!" + f.Path
	}
	return f.Path
}

// A path leads to its file, to a page whose extension it leaves out, or to the index of a directory,
// after a redirect if it has no slash.
func TestLook(t *testing.T) {
	m := parsed(t, files("index.html", "a", "a.html", "b/index.html", "b/c.html", "d/e/index.html", "f/index.html", "f",
		"g.html", "g/index.html", "h.x", "h.x.html"))
	for path, want := range map[string]string{
		"": "index.html", "index.html": "index.html", "index": "index.html", "a": "a", "a.html": "a.html",
		"b/": "b/index.html", "b": "slash", "b/c.html": "b/c.html", "b/c": "b/c.html", "b/index": "b/index.html",
		"d": "", "d/": "", "d/e": "slash", "d/e/": "d/e/index.html", "f": "f", "f/": "f/index.html",
		"g": "g.html", "g/": "g/index.html", "h": "", "h.x": "h.x", "/": "", "a/": "", "../a": "", "b/../a": "", "B/": "",
		"b//": "", "index.html/": "", "404.html": "", ".html": "", "b/.html": "",
	} {
		for _, page := range []bool{false, true} {
			if got := looked(m, site.Request{Path: path, Page: page}); got != want {
				t.Errorf("%q: %q, want %q", path, got, want)
			}
		}
	}
}

// A path without a file gets 200.html if a browser opens it as a page, and otherwise 404.html.
func TestLookInstead(t *testing.T) {
	all := files("index.html", "200.html", "404.html", "d/e/index.html")
	for _, tt := range []struct {
		without     string
		page, other string
	}{
		{"", "200.html", "!404.html"}, {"200.html", "!404.html", "!404.html"}, {"404.html", "200.html", ""},
	} {
		m := parsed(t, slices.DeleteFunc(slices.Clone(all), func(f site.File) bool { return f.Path == tt.without }))
		for _, path := range []string{"x", "x/", "d", "d/", "d/e/x", "x.js", "../x"} {
			page, other := looked(m, site.Request{Path: path, Page: true}), looked(m, site.Request{Path: path})
			if page != tt.page || other != tt.other {
				t.Errorf("without %q, %s: %q, %q, want %q, %q", tt.without, path, page, other, tt.page, tt.other)
			}
		}
		if got := looked(m, site.Request{Path: "d/e", Page: true}); got != "slash" {
			t.Errorf("without %q: %q", tt.without, got)
		}
		f, _, _ := m.Look(site.Request{Path: "x"})
		if varies := slices.Equal(f.Vary, []string{"Accept"}); varies != (tt.without == "") && tt.without != "404.html" {
			t.Errorf("without %q: varies by %q", tt.without, f.Vary)
		}
	}
	if f, _, _ := parsed(t, all).Look(site.Request{Path: "404.html"}); f.Missing || f.Vary != nil {
		t.Errorf("404.html by its name: %+v", f)
	}
}

// weights returns the function of an Accept-Encoding with these weights.
func weights(w map[string]float64) func(string) float64 {
	return func(c string) float64 { return w[c] }
}

// Beside a file, its best accepted form is sent, under the type of the file and with its own digest.
func TestLookCompressed(t *testing.T) {
	sized := func(path string, size int64) site.File {
		f := file(path)
		f.Size = size
		return f
	}
	m := parsed(t, []site.File{
		sized("app.js", 100), sized("app.js.br", 30), sized("app.js.gz", 40), sized("app.js.zst", 20), file("plain.js"),
		file("lone.css.br"), file("p.html"), file("p.html.gz"), file("404.html"), file("404.html.br"),
	})
	for _, tt := range []struct {
		path   string
		accept map[string]float64
		want   string
		coding string
	}{
		{"app.js", nil, "app.js", ""},
		{"app.js", map[string]float64{"gzip": 1}, "app.js.gz", "gzip"},
		{"app.js", map[string]float64{"gzip": 1, "br": 1}, "app.js.br", "br"},
		{"app.js", map[string]float64{"gzip": 1, "br": 1, "zstd": 1}, "app.js.zst", "zstd"},
		{"app.js", map[string]float64{"gzip": 0.9, "br": 0.1, "zstd": 0.1}, "app.js.gz", "gzip"},
		{"app.js.gz", map[string]float64{"gzip": 1}, "app.js.gz", ""},
		{"plain.js", map[string]float64{"br": 1}, "plain.js", ""},
		{"lone.css", map[string]float64{"br": 1}, "404.html.br", "br"},
		{"p", map[string]float64{"gzip": 1}, "p.html.gz", "gzip"},
		{"none", map[string]float64{"br": 1}, "404.html.br", "br"},
	} {
		f, ok, err := m.Look(site.Request{Path: tt.path, Weight: weights(tt.accept)})
		kind := site.TypeOf(tt.want)
		if tt.coding != "" {
			kind = site.TypeOf(tt.want[:strings.LastIndexByte(tt.want, '.')])
		}
		if !ok || err != nil || f.Path != tt.want || f.Coding != tt.coding || f.Type != kind ||
			f.Digest != file(tt.want).Digest {
			t.Errorf("%s for %v: %+v, %v", tt.path, tt.accept, f, err)
		}
		if varies := slices.Contains(f.Vary, "Accept-Encoding"); varies == (tt.path == "plain.js" || tt.path == "app.js.gz") {
			t.Errorf("%s: varies by %q", tt.path, f.Vary)
		}
	}
	if f, _, _ := m.Look(site.Request{Path: "app.js"}); f.Path != "app.js" || !slices.Contains(f.Vary, "Accept-Encoding") {
		t.Errorf("without codings: %+v", f)
	}
}

// Whatever is asked for, the answer is a file of the manifest, and one that the rules derive from the
// path.
func TestLookStaysInTheManifest(t *testing.T) {
	names := []string{"a", "a.html", "a/index.html", "a.br", "a.html.gz", "200.html", "200.html.zst", "404.html", "index.html"}
	rapid.Check(t, func(t *rapid.T) {
		has := rapid.SliceOfNDistinct(rapid.SampledFrom(names), 1, len(names), rapid.ID).Draw(t, "files")
		raw, err := site.Encode(files(has...))
		if err != nil {
			t.Fatal(err)
		}
		m, err := site.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		r := site.Request{
			Path:   rapid.SampledFrom([]string{"", "a", "a/", "a.html", "b", "200", "index"}).Draw(t, "path"),
			Page:   rapid.Bool().Draw(t, "page"),
			Weight: weights(map[string]float64{"br": 1, "gzip": 1, "zstd": 1}),
		}
		f, ok, err := m.Look(r)
		switch {
		case err != nil || !ok:
			if slices.Contains(has, "404.html") && err == nil {
				t.Fatalf("%+v: nothing, although there is 404.html", r)
			}
		case !slices.Contains(has, f.Path):
			t.Fatalf("%+v: %s is no file", r, f.Path)
		case (f.Coding != "") != (strings.HasSuffix(f.Path, ".br") || strings.HasSuffix(f.Path, ".gz") ||
			strings.HasSuffix(f.Path, ".zst")):
			t.Fatalf("%+v: %+v", r, f)
		}
	})
}
