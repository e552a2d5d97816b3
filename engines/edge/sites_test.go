package edge_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/sites"
)

const docs = "docs.example"

func (f *fakeNames) Manifest(_ context.Context, name string, _ netip.Addr) (sites.Named, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.named[name]
	if !ok {
		return n, asset.ErrNotFound
	}
	return n, f.err
}

func (f *fakeNames) name(name string, manifest b3.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.named[name] = sites.Named{Manifest: manifest, Owner: "owner"}
}

// siteRig is a rig with names.
func siteRig(t testing.TB, change ...func(*rig)) (*rig, *fakeNames) {
	names := newNames()
	change = append(change, func(r *rig) { r.names = names })
	return newRig(t, change...).start(), names
}

// manifestOf returns a manifest of files with their bytes.
func manifestOf(t testing.TB, files map[string]string) string {
	t.Helper()
	var all []site.File
	for path, body := range files {
		all = append(all, site.File{
			Path: path, Digest: b3.Sum([]byte(body)), Size: int64(len(body)), Type: site.TypeOf(path),
		})
	}
	raw, err := site.Encode(all)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// publish puts files and their manifest, and names it.
func (r *rig) publish(names *fakeNames, name string, files map[string]string) b3.Digest {
	r.t.Helper()
	for _, body := range files {
		r.mustPut(body)
	}
	p := r.mustPut(manifestOf(r.t, files), typed(site.MediaType))
	names.name(name, p.Digest)
	return p.Digest
}

// visit returns the bytes of a file of a site.
func (r *rig) visit(name, path string) (string, sites.File, error) {
	f, err := r.e.Site(context.Background(), sites.Request{Name: name, Path: path})
	if err != nil {
		return "", f, err
	}
	defer f.Close()
	b := f.Bytes
	if f.File != nil {
		b, err = io.ReadAll(f.File)
	}
	return string(b), f, err
}

func (r *rig) mustVisit(name, path, want string) sites.File {
	r.t.Helper()
	got, f, err := r.visit(name, path)
	if err != nil || got != want {
		r.t.Fatalf("%s/%s: %.40q, %v, want %.40q", name, path, got, err, want)
	}
	return f
}

// A page is found without its extension, a missing path gets the page for it, and an accepted
// compressed form has the type of its file and its own tag.
func TestChosenFiles(t *testing.T) {
	t.Parallel()
	r, names := siteRig(t)
	r.publish(names, docs, map[string]string{
		"about.html": "about", "200.html": "app", "404.html": "none", "app.js": "plain", "app.js.br": "short",
	})
	br := func(coding string) float64 { return map[string]float64{"br": 1}[coding] }
	for _, tt := range []struct {
		path, want, coding string
		page, missing      bool
	}{
		{"about", "about", "", false, false}, {"x", "app", "", true, false}, {"x", "none", "", false, true},
		{"app.js", "short", "br", false, false},
	} {
		f, err := r.e.Site(t.Context(), sites.Request{Name: docs, Path: tt.path, Page: tt.page, Weight: br})
		if err != nil {
			t.Fatal(tt.path, err)
		}
		f.Close()
		if string(f.Bytes) != tt.want || f.Found.Coding != tt.coding || f.Found.Missing != tt.missing ||
			f.Type == site.Bytes || f.ETag() != `"`+b3.Sum([]byte(tt.want)).String()+`"` {
			t.Errorf("%+v: %q, %+v, %s", tt, f.Bytes, f.Found, f.Type)
		}
	}
}

// A site serves its files by their paths, with the types of its manifest, after a restart and after
// it was published again.
func TestSite(t *testing.T) {
	t.Parallel()
	r, names := siteRig(t)
	big := strings.Repeat("x", 2<<20)
	files := map[string]string{
		"index.html": "<h1>", "a.css": "css", "b/index.html": "b", "b/c d.txt": "c", "copy.txt": "css", "big.bin": big,
	}
	r.publish(names, docs, files)
	r.publish(names, docs+"@1.0.0", map[string]string{"index.html": "old"})
	for range 2 {
		for path, body := range files {
			f := r.mustVisit(docs, path, body)
			if f.Type != site.TypeOf(path) || f.Immutable || f.Filled || f.ETag() != `"`+b3.Sum([]byte(body)).String()+`"` {
				t.Errorf("%s: %+v", path, f.Object)
			}
		}
		r.mustVisit(docs, "", "<h1>")
		r.mustVisit(docs, "b/", "b")
		r.mustVisit(docs+"@1.0.0", "", "old")
		for path, want := range map[string]error{
			"b": site.ErrDirectory, "none": asset.ErrNotFound, "B/": asset.ErrNotFound,
			"../" + docs + "/a.css": asset.ErrNotFound, "b/../a.css": asset.ErrNotFound,
			"b//": asset.ErrNotFound, "a.css/": asset.ErrNotFound, "/": asset.ErrNotFound, "b/\x00": asset.ErrNotFound,
		} {
			if _, _, err := r.visit(docs, path); !errors.Is(err, want) {
				t.Errorf("%q: %v, want %v", path, err, want)
			}
		}
		if _, _, err := r.visit("none.example", ""); !errors.Is(err, asset.ErrNotFound) {
			t.Error(err)
		}
		r.reboot()
	}
	r.publish(names, docs, map[string]string{"index.html": "new", "a.css": "css"})
	r.mustVisit(docs, "", "new")
	if _, _, err := r.visit(docs, "b/"); !errors.Is(err, asset.ErrNotFound) {
		t.Errorf("a file of the last edition: %v", err)
	}
	r.sound()
}

// A path never gets the bytes of another edition: without the new bytes it is refused.
func TestMissingBytesOfASite(t *testing.T) {
	t.Parallel()
	r, names := siteRig(t)
	r.publish(names, docs, map[string]string{"index.html": "old", "same": "same"})
	r.mustVisit(docs, "", "old")
	next := r.mustPut(manifestOf(t, map[string]string{"index.html": "new", "same": "same"}))
	names.name(docs, next.Digest)
	var missing *asset.MissingError
	if _, _, err := r.visit(docs, ""); !errors.As(err, &missing) || missing.Object != b3.Sum([]byte("new")) {
		t.Errorf("%v", err)
	}
	r.mustVisit(docs, "same", "same")
	r.mustPut("new")
	r.mustVisit(docs, "", "new")
	nowhere := b3.Sum([]byte("a manifest that is nowhere"))
	names.name(docs, nowhere)
	if _, _, err := r.visit(docs, "same"); !errors.As(err, &missing) || missing.Object != nowhere {
		t.Errorf("%v", err)
	}
	names.fail(errors.New("no index"))
	if _, _, err := r.visit(docs, "same"); err == nil || errors.As(err, &missing) && missing.Object == nowhere {
		t.Errorf("%v", err)
	}
}

// A manifest that lies about a size or is not a manifest is refused, and good objects stay.
func TestHostileSites(t *testing.T) {
	t.Parallel()
	r, names := siteRig(t)
	small, big := "12345", strings.Repeat("x", 2<<20)
	for _, body := range []string{small, big} {
		r.mustPut(body)
	}
	honest := manifestOf(t, map[string]string{"a": small, "b": big})
	for doc, manifest := range map[string]string{
		"shorter":       strings.Replace(honest, `"size":"5"`, `"size":"4"`, 1),
		"longer":        strings.Replace(honest, `"size":"5"`, `"size":"6"`, 1),
		"another big":   strings.Replace(honest, `"size":"2097152"`, `"size":"2097151"`, 1),
		"not canonical": honest + " ",
		"not JSON":      small,
		"up":            strings.Replace(honest, `"a":`, `"../a":`, 1),
		"too long":      strings.Repeat("{", 33<<20),
	} {
		p := r.mustPut(manifest)
		names.name(docs, p.Digest)
		for range 2 { // the second answer is from memory
			var bad *asset.SiteError
			errs := [2]error{}
			for i, path := range []string{"a", "b"} {
				_, _, errs[i] = r.visit(docs, path)
			}
			if !errors.As(errors.Join(errs[:]...), &bad) || bad.Manifest != p.Digest || len(bad.Error()) > 2000 {
				t.Errorf("%s: %v", doc, errs)
			}
		}
	}
	other := strings.Replace(honest, b3.Sum([]byte(small)).String(), b3.Sum([]byte("none")).String(), 1)
	names.name(docs, r.mustPut(other).Digest)
	var missing *asset.MissingError
	if _, _, err := r.visit(docs, "a"); !errors.As(err, &missing) {
		t.Errorf("another digest: %v", err)
	}
	for _, body := range []string{small, big} {
		r.want(asset.PathOf(b3.Sum([]byte(body))), body)
	}
	if r.count("edge_damaged_total") > 0 {
		t.Error("a good object counts as damaged")
	}
	r.sound()
}

// A type outside of the list is served as bytes.
func TestTypeOutsideOfTheList(t *testing.T) {
	t.Parallel()
	r, names := siteRig(t)
	r.mustPut("x")
	raw, err := site.Encode([]site.File{{Path: "a", Digest: b3.Sum([]byte("x")), Size: 1, Type: "text/cache-manifest"}})
	if err != nil {
		t.Fatal(err)
	}
	names.name(docs, r.mustPut(string(raw)).Digest)
	if f := r.mustVisit(docs, "a", "x"); f.Type != site.Bytes {
		t.Errorf("%+v", f.Object)
	}
}

// Objects and manifests that were damaged or lost are refused until they are put again.
func TestDamagedSite(t *testing.T) {
	t.Parallel()
	r, names := siteRig(t)
	d := r.publish(names, docs, map[string]string{"index.html": "page"})
	if err := os.Remove(r.file(b3.Sum([]byte("page")))); err != nil {
		t.Fatal(err)
	}
	var missing *asset.MissingError
	if _, _, err := r.visit(docs, ""); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
	r.mustPut("page")
	r.mustVisit(docs, "", "page")
	r.e.Purge()
	if err := os.Remove(r.file(d)); err != nil {
		t.Fatal(err)
	}
	if _, _, err := r.visit(docs, ""); !errors.As(err, &missing) || missing.Object != d {
		t.Errorf("%v", err)
	}
}

// A warm file of a site, against the same object by its hash.
func BenchmarkSite(b *testing.B) {
	r, names := siteRig(b)
	files := map[string]string{}
	for i := range 500 {
		files[fmt.Sprintf("docs/page-%03d.html", i)] = strings.Repeat(fmt.Sprint(i), 1000)
	}
	r.publish(names, docs, files)
	path := "docs/page-250.html"
	f := r.mustVisit(docs, path, files[path])
	until(b, "it is in memory", func() bool { return r.mustVisit(docs, path, files[path]).From == asset.FromHot })
	ctx := context.Background()
	b.Run("site", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			f, err := r.e.Site(ctx, sites.Request{Name: docs, Path: path})
			if err != nil || f.From != asset.FromHot {
				b.Fatal(f.From, err)
			}
			f.Close()
		}
	})
	b.Run("hash", func(b *testing.B) {
		b.ReportAllocs()
		path := asset.PathOf(f.Digest)
		for b.Loop() {
			o, err := r.e.Asset(ctx, path, "")
			if err != nil || o.From != asset.FromHot {
				b.Fatal(o.From, err)
			}
			o.Close()
		}
	})
}
