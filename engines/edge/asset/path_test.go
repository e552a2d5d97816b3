package asset_test

import (
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"pgregory.net/rapid"

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
		"xn--bcher-kva.example/ü/ä b%25c": {
			URL: "https://xn--bcher-kva.example/%C3%BC/%C3%A4%20b%25c", Host: "xn--bcher-kva.example",
		},
		"EXAMPLE.com:443/a": {URL: "https://example.com/a", Host: "example.com"},
		"example.com/Foo_(bar)!'*": {
			URL: "https://example.com/Foo_(bar)!'*", Old: "https://example.com/Foo_%28bar%29%21%27%2A", Host: "example.com",
		},
		"example.com/a%2bb%40": {
			URL: "https://example.com/a%2Bb%40", Old: "https://example.com/a+b@", Host: "example.com",
		},
		"example.com/a%2fb": {URL: "https://example.com/a%2Fb", Host: "example.com"},
		"example.com/%e9":   {URL: "https://example.com/%E9", Host: "example.com"},
	} {
		want.Name = strings.TrimPrefix(want.URL, "https://")
		if want.URL == "" && want.Pack == "" {
			want.Name = path
		}
		if got, err := asset.ParsePath(path, ""); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", path, got, err, want)
		}
	}
	for _, path := range []string{
		"x", "x.mbtiles", ".pmtiles", "b3/x", "b3/" + strings.ToUpper(d.String()[3:]), "b3/" + d.String()[3:] + "/x",
		"example/a", "example.com", "example.com:0/a", "example.com:08443/a", "example.com:99999/a", "example.com:/a",
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
		"example.com/\x7f", "example.com/\u0085", "example.com/%5c", "example.com/%", "example.com/%zz", "example.com/%2",
		"example.com/%2E%2e/a", "example.com/%0a", "example.com/" + strings.Repeat("a", 256),
		"example.com" + strings.Repeat("/a", 1020),
	} {
		if got, err := asset.ParsePath(path, ""); !errors.As(err, &bad) {
			t.Errorf("%q: %+v, %v", path, got, err)
		}
	}
}

// The query is part of the key of an asset of a host, and of no other asset. An encoded ? in the
// path does not begin a query.
func TestParseQuery(t *testing.T) {
	t.Parallel()
	const host = "example.com"
	for _, tt := range []struct{ path, query, url string }{
		{"example.com/a", "x=1&y=2", "https://example.com/a?x=1&y=2"},
		{"example.com/a", "y=2&x=1", "https://example.com/a?y=2&x=1"},
		{"example.com/css2", "family=Roboto:wght@400;700", "https://example.com/css2?family=Roboto:wght@400;700"},
		{"example.com/a", "%zz?/|\"'<>\\^{}", "https://example.com/a?%zz?/|\"'<>\\^{}"},
		{"example.com/a", "x=%2fy%41", "https://example.com/a?x=%2FyA"},
		{"example.com/", "x", "https://example.com/?x"},
		{"example.com/a%3Fx=1", "", "https://example.com/a%3Fx=1"},
		{"example.com/a%3fx", "y", "https://example.com/a%3Fx?y"},
	} {
		got, err := asset.ParsePath(tt.path, tt.query)
		if err != nil || got.URL != tt.url || got.Host != host {
			t.Errorf("%s ? %s: %+v, %v", tt.path, tt.query, got, err)
		}
		if again, _, err := asset.ParseURL(got.URL); err != nil || again.URL != got.URL || again.Name != got.Name {
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

// The URL of a fill and the path of a request lead to one target, however they are spelled.
func TestParseURL(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://upload.example.org/wiki/Foo_(bar).jpg": "https://upload.example.org/wiki/Foo_(bar).jpg",
		"HTTPS://Example.COM:443/%7Ea/%2f":              "https://example.com/~a/%2F",
		"https://example.com":                           "https://example.com/",
		"https://example.com?x=1":                       "https://example.com/?x=1",
		"https://example.com/a b/ü(":                    "https://example.com/a%20b/%C3%BC(",
	} {
		got, path, err := asset.ParseURL(text)
		if err != nil || got.URL != want || "https://"+path != want {
			t.Errorf("%s: %+v, %q, %v", text, got, path, err)
		}
	}
	for _, text := range []string{
		"", "a", "http://example.com/a", "https://u@example.com/a", "https://example.com/a#b", "https://example.com/a#",
		"https://example.com/a?", "https://10.0.0.1/a", "https://[::1]/a", "https://example.com/%zz", "https:example.com/a",
		"https:///a", "https://example.com/../a", "https://example.com/%2e%2e/a", "https://bücher.example/a",
	} {
		if got, path, err := asset.ParseURL(text); !errors.As(err, new(*asset.PathError)) {
			t.Errorf("%s: %+v, %q, %v", text, got, path, err)
		}
	}
}

// Two URLs lead to one object if and only if RFC 3986 calls them equivalent (6.2.2).
func TestEquivalentURLs(t *testing.T) {
	t.Parallel()
	const host, reserved = "example.com", "!$&'()*+,;=:@"
	spellings := func(t *rapid.T, c byte, label string) (a, b string) { // of one character
		code := fmt.Sprintf("%%%02X", c)
		plain := string(c)
		free := strings.IndexByte("abZ09-_~", c) >= 0
		all := []string{code, strings.ToLower(code)}
		switch {
		case free:
			all = append(all, plain)
		case strings.IndexByte(reserved, c) >= 0 && rapid.Bool().Draw(t, label+" plain"):
			return plain, plain
		}
		return rapid.SampledFrom(all).Draw(t, label+" a"), rapid.SampledFrom(all).Draw(t, label+" b")
	}
	chars := rapid.SampledFrom([]byte("abZ09-_~" + reserved + "/?#[]%\" <>|\xe9"))
	rapid.Check(t, func(t *rapid.T) {
		one, two := "https://"+host+"/x", "https://EXAMPLE.com:443/%78"
		for i, c := range rapid.SliceOfN(chars, 0, 12).Draw(t, "characters") {
			a, b := spellings(t, c, fmt.Sprint("spelling ", i))
			one, two = one+a, two+b
		}
		a, _, err := asset.ParseURL(one)
		b, _, bad := asset.ParseURL(two)
		if err != nil || bad != nil || a.URL != b.URL || a.Name != b.Name {
			t.Fatalf("%s is %+v, %v\n%s is %+v, %v", one, a, err, two, b, bad)
		}
		c := rapid.SampledFrom([]byte(reserved)).Draw(t, "reserved")
		plain, _, err := asset.ParseURL(one + string(c))
		coded, _, bad := asset.ParseURL(one + fmt.Sprintf("%%%02X", c))
		if err != nil || bad != nil || plain.URL == coded.URL || plain.Name == coded.Name {
			t.Fatalf("%s and its encoded %c: %q, %v, %q, %v", one, c, plain.URL, err, coded.URL, bad)
		}
	})
}

// A path is refused, or it has a canonical spelling, which leads to the same target and is the path
// of the target's URL.
func FuzzPath(f *testing.F) {
	for _, seed := range []string{
		"b3/" + b3.Sum(nil).String()[3:], "a.pmtiles", "example.com/a b/c", "example.com/%2e%2e/a", "a.b/..",
		"localhost:1//x", "10.0.0.1", "0x7f000001", "[::1]:443", "user@example.com", "example.com.", "EXAMPLE.com",
		"example.com/(%28%2f%e9", "example.com/%",
	} {
		f.Add(seed, "")
		f.Add(seed+"/x", "a=b;c")
		f.Add(seed+"/", "?%2f")
		f.Add(seed+"/", "%%341")
		f.Add(seed+"/", "%4%31")
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
			return
		}
		u, err := url.Parse(got.URL)
		if err != nil || u.Scheme != "https" || u.Host != got.Host || u.User != nil || asset.CheckHost(u.Host) != nil ||
			u.EscapedPath() != asset.EscapedPath(u) { // it is sent as it is
			t.Fatalf("%q: %+v is %+v, %v", path, got, u, err)
		}
		if given, err := url.PathUnescape(path[strings.IndexByte(path, '/'):]); err != nil || u.Path != given {
			t.Fatalf("%q: its URL has the path %q, %v", path, u.Path, err)
		}
		got.Old = "" // an unequal spelling has another one
		again, err := asset.ParsePath(u.Host+u.EscapedPath(), u.RawQuery)
		if again.Old = ""; err != nil || again != got {
			t.Errorf("%q: its canonical spelling leads to %+v, %v, not to %+v", path, again, err, got)
		}
	})
}
