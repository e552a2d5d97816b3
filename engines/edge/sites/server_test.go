package sites_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/sites"
)

// A manifest that gives an object of another site a smaller size makes only its own file fail, not
// the file of the other site.
func TestSizeOfLiarHarmsNoOtherSite(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	body := "a file of an honest site"
	honest := a.Adds(t, body)
	liar := a.Lists(t, site.File{Path: "f000.txt", Digest: b3.Sum([]byte(body)), Size: 1, Type: "text/plain"})
	index := edgetest.NewIndex()
	index.Set("liar.example", sites.Named{Manifest: liar, Owner: a.ID})
	index.Set("honest.example", sites.Named{Manifest: honest, Owner: a.ID})
	r := edgetest.New(t, func(r *edgetest.Rig) { r.Names = index })
	r.SetFleet(edgetest.View(1, a))
	ask := func(name string) error {
		f, err := r.Sites.File(t.Context(), sites.Request{Name: name, Path: "f000.txt"})
		if err == nil {
			f.Close()
		}
		return err
	}
	for range 2 { // the second is answered out of memory
		if err := ask("liar.example"); !errorsAsFill(err, asset.ObjectCap) {
			t.Errorf("the liar: %v", err)
		}
	}
	asked := a.Asked.Load()
	if err := ask("honest.example"); err != nil {
		t.Errorf("the honest site: %v", err)
	}
	if n := a.Asked.Load() - asked; n != 2 {
		t.Errorf("%d requests for a manifest and a file", n)
	}
	r.Sound()
}

// errorsAsFill reports whether err is the failure of a fill for a reason.
func errorsAsFill(err error, want asset.Reason) bool {
	f, ok := errors.AsType[*asset.FillError](err)
	return ok && f.Reason == want
}

// What a name stands for is fetched only as far as a manifest may be long.
func TestManifestTooLong(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	root := b3.Sum([]byte("never sent"))
	a.Answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"`+root.String()+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(site.MaxBytes+1))
		w.WriteHeader(http.StatusOK)
		if q.Method == http.MethodGet {
			_, _ = w.Write(make([]byte, site.MaxBytes+1))
		}
	}
	index := edgetest.NewIndex()
	index.Set("long.example", sites.Named{Manifest: root, Owner: a.ID})
	r := edgetest.New(t, func(r *edgetest.Rig) {
		r.Names = index
		r.Cfg.CAS.MaxBytes, r.Cfg.Fill.MaxObjectBytes = 256<<20, 128<<20
	})
	r.SetFleet(edgetest.View(1, a))
	_, err := r.Sites.File(t.Context(), sites.Request{Name: "long.example", Path: ""})
	if !errorsAsFill(err, asset.ObjectCap) {
		t.Errorf("%v", err)
	}
	r.Sound()
}

// A stranger causes nothing to be fetched but objects of a manifest that was opened here.
func TestStrangersFetchListedObjects(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a", "unlisted")
	root := a.Adds(t, "listed")
	index := edgetest.NewIndex()
	index.Set("docs.example", sites.Named{Manifest: root, Owner: a.Identity})
	r := edgetest.New(t, func(r *edgetest.Rig) { r.Names = index })
	r.SetFleet(edgetest.View(1, a))
	asks := func(body string, may bool) error {
		d := b3.Sum([]byte(body))
		o, err := r.Sites.Fetch(t.Context(), asset.PathOf(d), netip.Addr{}, func() bool { return may })
		if err == nil {
			o.Close()
		}
		return err
	}
	for i := range 200 {
		if err := asks(fmt.Sprint("random ", i), false); !errors.Is(err, asset.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if err := asks("listed", false); !errors.Is(err, asset.ErrNotFound) || a.Asked.Load()+a.Heads.Load() != 0 {
		t.Errorf("before the manifest is opened: %v, %d requests", err, a.Asked.Load()+a.Heads.Load())
	}
	_, err := r.Sites.File(t.Context(), sites.Request{Name: "docs.example", Path: "none"})
	if !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	if err := asks("listed", false); err != nil {
		t.Error(err)
	}
	if err := asks("unlisted", false); !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	if err := asks("unlisted", true); err != nil {
		t.Error(err)
	}
}

// A network that asks for absent objects of a manifest uses up its own share, for objects by hash as
// for those of sites, and another network is served.
func TestSearchesHaveAShareForEachNetwork(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a", "x")
	index := edgetest.NewIndex()
	index.Set("docs.example", sites.Named{Manifest: a.Adds(t, "one"), Owner: a.ID})
	hostile, honest := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	left := map[netip.Addr]int{hostile: 3, honest: 3}
	r := edgetest.New(t, func(r *edgetest.Rig) {
		r.Names, r.Cfg.Ingress.RPSLimit = index, 10
		r.Fleet.Share = func(network netip.Addr, rps int) (bool, time.Duration) {
			if rps != 10 {
				t.Errorf("a share of %d", rps)
			}
			left[network]--
			return left[network] >= 0, time.Minute
		}
	})
	r.SetFleet(edgetest.View(1, a))
	refused := 0
	for i := range 10 {
		path := asset.PathOf(b3.Sum(fmt.Append(nil, "absent ", i)))
		_, err := r.Sites.Fetch(t.Context(), path, hostile, func() bool { return true })
		if rate, ok := errors.AsType[*asset.RateError](err); ok && rate.Wait == time.Minute {
			refused++
		} else if !errors.Is(err, asset.ErrNotFound) {
			t.Errorf("absent object %d: %v", i, err)
		}
	}
	if refused != 7 {
		t.Errorf("%d of 10 are refused", refused)
	}
	o, err := r.Sites.Fetch(t.Context(), asset.PathOf(b3.Sum([]byte("x"))), honest, func() bool { return true })
	if err != nil {
		t.Fatalf("another network: %v", err)
	}
	o.Close()
	site := func(from netip.Addr) error {
		f, err := r.Sites.File(t.Context(), sites.Request{Name: "docs.example", Path: "f000.txt", From: from})
		if err == nil {
			f.Close()
		}
		return err
	}
	if _, limited := errors.AsType[*asset.RateError](site(hostile)); !limited {
		t.Error("the network has a share of its own for sites")
	}
	if err := site(honest); err != nil {
		t.Errorf("a site for another network: %v", err)
	}
}

// Manifests that nobody has opened yet are parsed a few at a time, and listed once.
func TestManifestsAreParsedInTurn(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	root := a.Adds(t, "one")
	index := edgetest.NewIndex()
	index.Set("docs.example", sites.Named{Manifest: root, Owner: a.ID})
	r := edgetest.New(t, func(r *edgetest.Rig) { r.Names = index })
	r.SetFleet(edgetest.View(1, a))
	for range sites.ParseSlots {
		if !r.Sites.TakeSlot() {
			t.Fatal("a slot is not free")
		}
	}
	got := make(chan error, 4)
	for range cap(got) {
		go func() {
			f, err := r.Sites.File(t.Context(), sites.Request{Name: "docs.example", Path: "f000.txt"})
			if err == nil {
				f.Close()
			}
			got <- err
		}()
	}
	edgetest.Until(t, "one waits", func() bool { return r.Sites.Parsing() == 1 })
	select {
	case err := <-got:
		t.Errorf("it was not waited for: %v", err)
	default:
	}
	r.Sites.Release()
	for range cap(got) {
		if err := <-got; err != nil {
			t.Error(err)
		}
	}
	m, err := r.Sites.Manifest(t.Context(), sites.Named{Manifest: root}, netip.Addr{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 { // as two callers do that both found it missing
		r.Sites.Add(near.Hint{Manifest: b3.Sum([]byte("x")), Name: fmt.Sprint(i)}, m)
	}
	if n, files := r.Sites.Listed(); n != 2 || files != 2 {
		t.Errorf("%d manifests with %d files are listed", n, files)
	}
	r.Sound()
}

// A site of 100,000 files is served, and the memory for manifests stays within its bound.
func TestLargeSites(t *testing.T) {
	t.Parallel()
	index := edgetest.NewIndex()
	r := edgetest.New(t, func(r *edgetest.Rig) { r.Names = index })
	r.Store("x")
	all := make([]site.File, site.MaxFiles)
	for i := range all {
		all[i] = site.File{
			Path: fmt.Sprintf("%06d.html", i), Digest: b3.Sum([]byte("x")), Size: 1, Type: site.TypeOf("a.html"),
		}
	}
	var put []b3.Digest
	for i := range 6 {
		all[0].Path = fmt.Sprintf("%06d.html", 0) + strings.Repeat("x", i)
		raw, err := site.Encode(all)
		if err != nil {
			t.Fatal(err)
		}
		put = append(put, r.Store(string(raw)))
		index.Set("docs.example", sites.Named{Manifest: put[i]})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				f, err := r.Sites.File(t.Context(), sites.Request{Name: "docs.example", Path: "031337.html"})
				if err != nil || string(f.Bytes) != "x" {
					t.Error(err)
					return
				}
				f.Close()
			})
		}
		wg.Wait()
	}
	n, sum := r.Sites.Parsed(put...)
	if n == 0 || n == len(put) || sum > sites.ManifestBytes {
		t.Errorf("%d of %d manifests are kept, of %d bytes", n, len(put), sum)
	}
	r.Sites.Purge()
	if n, _ := r.Sites.Parsed(put...); n != 0 {
		t.Error("a purge keeps a manifest")
	}
}
