package httpapi

import (
	"net/url"
	"strings"
	"testing"
)

// A query is read as package url reads it, and refused where that refuses it.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		"", "&", strings.Repeat("&", 20_000), strings.Repeat("b&", maxParams+1), "a=1&b=2", "a", "a=", "=1", "a=%41&%62=+", "a=1&&b", "a;b=1", "a=%", "a=%zz", "a=1=2&a=3", "%00=%ff", "a=%3B", "a+b=c%26d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		want, bad := url.ParseQuery(raw)
		got, err := parseQuery(raw)
		if cap(got) > maxParams {
			t.Fatalf("room for %d", cap(got))
		}
		if strings.Count(raw, "&") >= maxParams {
			return // package url reads more, and refuses ten thousand empty ones
		}
		if (err != nil) != (bad != nil) {
			t.Fatalf("%v, want %v", err, bad)
		}
		if err != nil {
			return
		}
		n := 0
		for name, values := range want {
			n += len(values)
			if got.Get(name) != values[0] || !got.Has(name) {
				t.Errorf("%q is %q, want %q", name, got.Get(name), values[0])
			}
		}
		if len(got) != n || got.Has("\x00 none") != want.Has("\x00 none") {
			t.Errorf("%d parameters, want %d", len(got), n)
		}
	})
}

// A header full of parameters is refused with no more room than a few take; empty ones are none.
func TestQueryIsBounded(t *testing.T) {
	for _, raw := range []string{strings.Repeat("a&", 8192), strings.Repeat("&", 16384) + "a=1"} {
		if got, err := parseQuery(raw); cap(got) > maxParams || (err == errQueryLong) != (raw[0] == 'a') {
			t.Errorf("%.8q…: room for %d, %v", raw, cap(got), err)
		}
	}
}
