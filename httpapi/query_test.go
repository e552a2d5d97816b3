package httpapi

import (
	"net/url"
	"testing"
)

// A query is read as package url reads it, and refused where that refuses it.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		"", "&", "a=1&b=2", "a", "a=", "=1", "a=%41&%62=+", "a=1&&b", "a;b=1", "a=%", "a=%zz", "a=1=2&a=3", "%00=%ff", "a=%3B", "a+b=c%26d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		want, bad := url.ParseQuery(raw)
		got, err := parseQuery(raw)
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
