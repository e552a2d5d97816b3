package asset_test

import (
	"errors"
	"net/url"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
)

func TestParsePath(t *testing.T) {
	t.Parallel()
	d := b3.Sum([]byte("x"))
	for path, want := range map[string]asset.Target{
		"b3/" + d.String()[3:]:     {Digest: d},
		"world.pmtiles":            {Pack: "world"},
		"example.com/a":            {URL: "https://example.com/a", Host: "example.com"},
		"example.com:8443/a/b.css": {URL: "https://example.com:8443/a/b.css", Host: "example.com:8443"},
		"localhost:1/a":            {URL: "https://localhost:1/a", Host: "localhost:1"},
		"localhost/a":              {URL: "https://localhost/a", Host: "localhost"},
		"example.com/":             {URL: "https://example.com/", Host: "example.com"},
		"a.pmtiles/":               {URL: "https://a.pmtiles/", Host: "a.pmtiles"},
		"example.com/a/b/":         {URL: "https://example.com/a/b/", Host: "example.com"},
		"xn--bcher-kva.example/ü/ä b%c": {
			URL: "https://xn--bcher-kva.example/%C3%BC/%C3%A4%20b%25c", Host: "xn--bcher-kva.example",
		},
	} {
		want.Name = path
		if want.Pack != "" {
			want.Name = ""
		}
		if got, err := asset.ParsePath(path, ""); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", path, got, err, want)
		}
	}
	for _, path := range []string{
		"x", "x.mbtiles", ".pmtiles", "b3/x", "b3/" + strings.ToUpper(d.String()[3:]), "b3/" + d.String()[3:] + "/x",
		"example/a", "EXAMPLE.com/a", "example.com",
		"example.com:443/a", "example.com:0/a", "example.com:08443/a", "example.com:99999/a", "example.com:/a",
		"example.com./a", "-a.com/a", "a_b.com/a",
		strings.Repeat("a", 64) + ".com/a",
	} {
		if got, err := asset.ParsePath(path, ""); !errors.Is(err, asset.ErrNotFound) {
			t.Errorf("%s: %+v, %v", path, got, err)
		}
	}
	var bad *asset.PathError
	for _, path := range []string{
		"", "/", "a//b.c", "example.com//", "example.com/a//", "example.com/../a", "example.com/..", "example.com/../",
		"/a", "example.com/./a", "example.com/a/..", "example.com/a\\b", "example.com/a\x00b", "example.com/a\nb",
		"example.com/\x7f", "example.com/\u0085", "example.com/\xff", "example.com/" + strings.Repeat("a", 256),
		"example.com" + strings.Repeat("/a", 1020),
	} {
		if got, err := asset.ParsePath(path, ""); !errors.As(err, &bad) {
			t.Errorf("%q: %+v, %v", path, got, err)
		}
	}
}

// The undecoded query is part of the key of an asset of a host, and of no other asset. An escaped ?
// in the path does not begin a query.
func TestParseQuery(t *testing.T) {
	t.Parallel()
	const host = "example.com"
	for _, tt := range []struct{ path, query, url string }{
		{"example.com/a", "x=1&y=2", "https://example.com/a?x=1&y=2"},
		{"example.com/a", "y=2&x=1", "https://example.com/a?y=2&x=1"},
		{"example.com/css2", "family=Roboto:wght@400;700", "https://example.com/css2?family=Roboto:wght@400;700"},
		{"example.com/a", "%zz?/|\"'<>\\^{}", "https://example.com/a?%zz?/|\"'<>\\^{}"},
		{"example.com/", "x", "https://example.com/?x"},
		{"example.com/a?x=1", "", "https://example.com/a%3Fx=1"},
		{"example.com/a?x", "y", "https://example.com/a%3Fx?y"},
	} {
		got, err := asset.ParsePath(tt.path, tt.query)
		if err != nil || got.URL != tt.url || got.Host != host || got.Name != asset.NameOf(tt.path, tt.query) {
			t.Errorf("%s ? %s: %+v, %v", tt.path, tt.query, got, err)
		}
		if again, _, err := asset.ParseURL(got.URL); err != nil || again != got {
			t.Errorf("%s: %+v, %v", got.URL, again, err)
		}
	}
	d := "b3/" + b3.Sum(nil).String()[3:]
	for _, path := range []string{d, "world.pmtiles"} {
		with, err := asset.ParsePath(path, "x=1")
		without, bad := asset.ParsePath(path, "")
		if with != without || err != nil || bad != nil || asset.NameOf(d, "x") != d {
			t.Errorf("%s: %+v, %v, without a query %+v, %v", path, with, err, without, bad)
		}
	}
	for _, query := range []string{
		" ", "a b", "a\n", "\x00", "ü", "a#b", "\x7f", "\xff", strings.Repeat("x", asset.MaxPath),
	} {
		if got, err := asset.ParsePath("example.com/a", query); !errors.As(err, new(*asset.PathError)) {
			t.Errorf("%q: %+v, %v", query, got, err)
		}
	}
}

// A path is refused, or it has one meaning and its spelling can be derived from that.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"b3/" + b3.Sum(nil).String()[3:], "a.pmtiles", "example.com/a b/c", "example.com/%2e%2e/a", "a.b/..",
		"localhost:1//x", "10.0.0.1", "0x7f000001", "[::1]:443", "user@example.com", "example.com.", "EXAMPLE.com",
	} {
		f.Add(seed, "")
		f.Add(seed+"/x", "a=b;c")
		f.Add(seed+"/", "?")
	}
	f.Fuzz(func(t *testing.T, path, query string) {
		got, err := asset.ParsePath(path, query)
		var bad *asset.PathError
		switch {
		case errors.Is(err, asset.ErrNotFound) || errors.As(err, &bad):
			if got != (asset.Target{}) {
				t.Errorf("%q: refused, and %+v", path, got)
			}
			return
		case err != nil:
			t.Fatalf("%q: %v", path, err)
		case got.URL == "":
			if back := got.Pack + ".pmtiles"; back != path && "b3/"+got.Digest.String()[3:] != path {
				t.Errorf("%q: %+v", path, got)
			}
			return
		}
		u, err := url.Parse(got.URL)
		if err != nil || u.Scheme != "https" || u.Host != got.Host || u.Host+u.Path != path || u.RawQuery != query ||
			u.User != nil ||
			asset.CheckHost(u.Host) != nil {
			t.Fatalf("%q: %+v is %+v, %v", path, got, u, err)
		}
		if again, back, err := asset.ParseURL(got.URL); err != nil || again != got || back != asset.ShownPath(path, query) {
			t.Errorf("%q: its URL leads to %+v, %q, %v", path, again, back, err)
		}
	})
}
