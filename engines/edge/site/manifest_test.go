package site_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines/canon"
	"ronbox/engines/edge/site"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func file(path string) site.File {
	return site.File{Path: path, Digest: b3.Sum([]byte(path)), Size: int64(len(path)), Type: site.TypeOf(path)}
}

func files(paths ...string) (out []site.File) {
	for _, path := range paths {
		out = append(out, file(path))
	}
	return out
}

func parsed(t testing.TB, all []site.File) *site.Manifest {
	t.Helper()
	raw, err := site.Encode(all)
	if err != nil {
		t.Fatal(err)
	}
	m, err := site.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const golden = `{"files":{"a.css":{"b3":"b3:d1b0ed4ee1e7a1b4d1ce4e7d8b4bf7a17e6d4b5d3b1f7e7d9dbe0c2b9d0c7f11","size":"7",` +
	`"type":"text/css; charset=utf-8"},"index.html":{"b3":"b3:` +
	`e1b0ed4ee1e7a1b4d1ce4e7d8b4bf7a17e6d4b5d3b1f7e7d9dbe0c2b9d0c7f11","size":"0","type":"text/html; charset=utf-8"}},` +
	`"schema":"ronbox.site/1"}`

// A manifest is read and written back unchanged.
func TestGolden(t *testing.T) {
	m, err := site.Parse([]byte(golden))
	if err != nil || m.Len() != 2 || m.Sum() != 7 {
		t.Fatalf("%+v, %v", m, err)
	}
	again, err := site.Encode([]site.File{m.File(1), m.File(0)})
	if err != nil || string(again) != golden {
		t.Errorf("%s, %v", again, err)
	}
}

// Whatever the files and their order, the manifest is that of package canon, and each file is found
// by its path and no other path is.
func TestEncodeAndFind(t *testing.T) {
	part := rapid.StringMatching(`[a-zé. %?#&'-]{0,4}[a-zé]`)
	rapid.Check(t, func(t *rapid.T) {
		paths := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) string {
			return strings.Join(rapid.SliceOfN(part, 1, 3).Draw(t, "parts"), "/")
		}), 1, 20, rapid.ID).Draw(t, "paths")
		all, doc, sum := files(paths...), canon.Object{}, int64(0)
		for _, f := range all {
			sum += f.Size
			doc[f.Path] = canon.Object{"b3": f.Digest, "size": f.Size, "type": f.Type}
		}
		raw, err := site.Encode(all)
		if err != nil {
			t.Fatal(err)
		}
		if want := canon.Append(nil, canon.Object{"schema": site.Schema, "files": doc}); string(raw) != string(want) {
			t.Fatalf("%s\nwant %s", raw, want)
		}
		m, err := site.Parse(raw)
		if err != nil || m.Len() != len(all) || m.Sum() != sum {
			t.Fatalf("%+v, %v", m, err)
		}
		for _, f := range all {
			if got, ok := m.Find(f.Path); !ok || got != f {
				t.Fatalf("%q: %+v, %t", f.Path, got, ok)
			}
		}
		other := rapid.String().Draw(t, "other")
		if _, ok := m.Find(other); ok != slices.Contains(paths, other) {
			t.Fatalf("%q: %t", other, ok)
		}
	})
}

// Only the canonical spelling of a valid manifest is accepted.
func TestHostileManifests(t *testing.T) {
	swap := func(old, new string) string {
		out := strings.Replace(golden, old, new, 1)
		if out == golden {
			t.Fatalf("%q is not in the manifest", old)
		}
		return out
	}
	for doc, raw := range map[string]string{
		"empty":               "",
		"not JSON":            "<html>",
		"no files":            `{"files":{},"schema":"ronbox.site/1"}`,
		"another schema":      swap("site/1", "site/2"),
		"white space":         swap(`,"schema"`, `, "schema"`),
		"a line feed":         golden + "\n",
		"cut short":           golden[:len(golden)-1],
		"cut in a file":       golden[:100],
		"a number":            swap(`"size":"7"`, `"size":7`),
		"a leading zero":      swap(`"size":"7"`, `"size":"07"`),
		"a negative size":     swap(`"size":"7"`, `"size":"-7"`),
		"a size beyond":       swap(`"size":"7"`, `"size":"70368744177665"`),
		"a huge size":         swap(`"size":"7"`, `"size":"99999999999999999999"`),
		"no size":             swap(`"size":"7",`, ""),
		"a short digest":      swap("b3:d1b0", "b3:d1b"),
		"digest in capitals":  swap("b3:d1b0", "b3:D1B0"),
		"another hash":        swap("b3:d1b0", "sha256:d1b0"),
		"no type":             swap(`"text/css; charset=utf-8"`, `""`),
		"a header in a type":  swap("text/css", `text/css\r\nSet-Cookie: a=b`),
		"a long type":         swap("text/css", strings.Repeat("x", 101)),
		"more members":        swap(`"size":"7"`, `"mode":"x","size":"7"`),
		"unsorted":            swap("a.css", "z.css"),
		"twice":               swap("a.css", "index.html"),
		"up":                  swap("a.css", "../a.css"),
		"up inside":           swap("a.css", "a/../../b"),
		"absolute":            swap("a.css", "/a.css"),
		"a dot":               swap("a.css", "./a.css"),
		"an empty segment":    swap("a.css", "a//b"),
		"a directory":         swap("a.css", "a/"),
		"no path":             swap("a.css", ""),
		"a backslash":         swap("a.css", `..\\a.css`),
		"an escape":           swap("a.css", `\u0061.css`),
		"a quote":             swap("a.css", `a\".css`),
		"a control character": swap("a.css", "a\x01.css"),
		"NUL":                 swap("a.css", "a\x00.css"),
		"a C1 character":      swap("a.css", "a\u0085.css"),
		"not UTF-8":           swap("a.css", "a\xff.css"),
		"a long path":         swap("a.css", strings.Repeat("a/", 600)+"b"),
		"a long segment":      swap("a.css", strings.Repeat("a", 256)),
	} {
		m, err := site.Parse([]byte(raw))
		bad, ok := errors.AsType[*site.Error](err)
		if !ok {
			t.Errorf("%s: %+v, %v", doc, m, err)
			continue
		}
		if len(bad.Error()) > 5000 {
			t.Errorf("%s: an error of %d bytes", doc, len(bad.Error()))
		}
	}
}

// A manifest has at most 100,000 files and 32 MiB.
func TestBounds(t *testing.T) {
	all := make([]site.File, site.MaxFiles+1)
	for i := range all {
		all[i] = site.File{Path: fmt.Sprintf("%06d", i), Digest: b3.Sum(nil), Size: site.MaxSize, Type: site.Bytes}
	}
	m := parsed(t, all[1:])
	if m.Len() != site.MaxFiles || m.Sum() != site.MaxFiles*site.MaxSize || m.Cost() > site.MaxBytes+4*site.MaxFiles {
		t.Errorf("%d files of %d bytes, %d in memory", m.Len(), m.Sum(), m.Cost())
	}
	if f, ok := m.Find("031337"); !ok || f != all[31337] {
		t.Errorf("%+v, %t", f, ok)
	}
	_, err := site.Encode(all)
	if _, ok := errors.AsType[*site.Error](err); !ok {
		t.Errorf("one file too many: %v", err)
	}
	raw, _ := site.Encode(all[1:])
	more := strings.TrimSuffix(string(raw), site.Tail) + `,"1":` + strings.TrimPrefix(string(raw[len(site.Head):]), `"000001":`)
	if _, err = site.Parse([]byte(more)); err == nil {
		t.Error("too many files are parsed")
	}
	for i := range all {
		all[i].Path = strings.Repeat(fmt.Sprintf("%0255d/", i), 2) + "x"
	}
	if _, err = site.Encode(all[1:]); err == nil || !strings.Contains(err.Error(), "at most 33554432") {
		t.Errorf("a manifest beyond 32 MiB: %v", err)
	}
	if _, err = site.Parse(make([]byte, 33<<20)); err == nil || !strings.Contains(err.Error(), "34603008 bytes") {
		t.Errorf("33 MiB: %v", err)
	}
}

// The types that are served are those of the list.
func TestTypes(t *testing.T) {
	for name, want := range map[string]string{
		"a.html": "text/html; charset=utf-8", "A.HTML": "text/html; charset=utf-8", "a.tar.gz": "application/gzip",
		"README": site.Bytes, "a.exe": site.Bytes, "a.swf": site.Bytes, "a.appcache": site.Bytes, ".html/a": site.Bytes,
	} {
		if got := site.TypeOf(name); got != want || !site.Allowed(got) {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
	for kind, want := range map[string]string{
		"image/png": "image/png", "text/html": site.Bytes, "TEXT/HTML; charset=utf-8": site.Bytes, "": site.Bytes,
		"multipart/x-mixed-replace": site.Bytes, site.MediaType: site.MediaType,
	} {
		if got := site.Served(kind); got != want {
			t.Errorf("%s is served as %s, want %s", kind, got, want)
		}
	}
}

// Find allocates nothing.
func TestFindAllocatesNothing(t *testing.T) {
	m := parsed(t, files("a", "b/c", "d/index.html"))
	if n := testing.AllocsPerRun(100, func() { _, _, _ = m.Look(site.Request{Path: "d/"}) }); n > 1 { // the path of the index
		t.Errorf("%v allocations", n)
	}
	if n := testing.AllocsPerRun(100, func() { _, _ = m.Find("b/c") }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// An accepted document is the canonical spelling of its files.
func FuzzParse(f *testing.F) {
	f.Add([]byte(golden))
	f.Add([]byte(strings.Replace(golden, "a.css", "../x", 1)))
	f.Add([]byte(`{"files":{"`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		m, err := site.Parse(raw)
		if err != nil {
			return
		}
		var all []site.File
		for i := range m.Len() {
			one := m.File(i)
			if got, ok := m.Find(one.Path); !ok || got != one {
				t.Fatalf("%q is not found", one.Path)
			}
			all = append(all, one)
		}
		if again, err := site.Encode(all); err != nil || string(again) != string(raw) {
			t.Fatalf("%q is written as %q, %v", raw, again, err)
		}
	})
}

func BenchmarkFind(b *testing.B) {
	all := make([]site.File, site.MaxFiles)
	for i := range all {
		all[i] = file(fmt.Sprintf("docs/%03d/page-%06d.html", i%500, i))
	}
	m := parsed(b, all)
	for i := 0; b.Loop(); i = (i + 7919) % site.MaxFiles {
		if _, ok := m.Find(all[i].Path); !ok {
			b.Fatal(all[i].Path)
		}
	}
}

func BenchmarkParse(b *testing.B) {
	all := make([]site.File, site.MaxFiles)
	for i := range all {
		all[i] = file(fmt.Sprintf("docs/%03d/page-%06d.html", i%500, i))
	}
	raw, err := site.Encode(all)
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(raw)))
	for b.Loop() {
		if _, err := site.Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
}
