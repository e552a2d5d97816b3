package edge

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/site"
)

// Without a fleet there is no task of one, and nothing is fetched.
func TestNoFleet(t *testing.T) {
	r := newRig(t).start()
	r.setFleet(edgetest.View(1))
	if _, err := r.fetch(b3.Sum([]byte("x")), near.Hint{}); !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	for _, task := range r.e.Tasks() {
		if task.Name == taskPlacer || task.Name == announce.TaskName {
			t.Errorf("there is a task %s", task.Name)
		}
	}
}

// A manifest that gives an object of another site a smaller size makes only its own file fail, not
// the file of the other site.
func TestSizeOfLiarHarmsNoOtherSite(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	body := "a file of an honest site"
	honest := a.Adds(t, body)
	liar := a.Lists(t, site.File{Path: "f000.txt", Digest: b3.Sum([]byte(body)), Size: 1, Type: "text/plain"})
	index := newFleetNames()
	index.set("liar.example", Named{Manifest: liar, Owner: a.ID})
	index.set("honest.example", Named{Manifest: honest, Owner: a.ID})
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	r.setFleet(edgetest.View(1, a))
	ask := func(name string) error {
		f, err := r.e.Site(t.Context(), SiteRequest{Name: name, Path: "f000.txt"})
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
	r.sound()
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
	index := newFleetNames()
	index.set("long.example", Named{Manifest: root, Owner: a.ID})
	r := newRig(t, inFleet(func(r *rig) {
		r.names = index
		r.cfg.CAS.MaxBytes, r.cfg.Fill.MaxObjectBytes = 256<<20, 128<<20
	})).start()
	r.setFleet(edgetest.View(1, a))
	_, err := r.e.Site(t.Context(), SiteRequest{Name: "long.example", Path: ""})
	if !errorsAsFill(err, asset.ObjectCap) {
		t.Errorf("%v", err)
	}
	r.sound()
}

// mirror makes a station answer as a node does, from a rig.
func mirror(s *edgetest.Station, r *rig) {
	s.Answer = func(w http.ResponseWriter, q *http.Request) {
		path := strings.TrimPrefix(q.URL.Path, "/edge/assets/")
		o, err := r.e.Asset(q.Context(), path, "")
		if errors.Is(err, asset.ErrNotFound) && q.Header[near.HopHeader] == nil {
			o, err = r.e.FetchAsset(q.Context(), path, netip.Addr{}, func() bool { return true })
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		defer o.Close()
		w.Header().Set("ETag", o.ETag())
		http.ServeContent(w, q, "", time.Time{}, strings.NewReader(string(o.Bytes)))
	}
}

// Two nodes that miss an object ask each other once, not in a loop.
func TestFetchDoesNotLoop(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b")
	ra, rb := newRig(t, inFleet()).start(), newRig(t, inFleet()).start()
	mirror(a, ra)
	mirror(b, rb)
	ra.setFleet(edgetest.View(1, b))
	rb.setFleet(edgetest.View(1, a))
	if err := ra.e.Fetch(t.Context(), b3.Sum([]byte("x")), near.Hint{}); !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	if a.Heads.Load()+a.Asked.Load() != 0 || b.Heads.Load() != 1 || b.Asked.Load() != 0 {
		t.Errorf("a was asked %d times, b %d", a.Heads.Load()+a.Asked.Load(), b.Heads.Load()+b.Asked.Load())
	}
	d := rb.stores("there")
	if got, err := ra.fetch(d, near.Hint{}); got != "there" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A stranger causes nothing to be fetched but objects of a manifest that was opened here.
func TestStrangersFetchListedObjects(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a", "unlisted")
	root := a.Adds(t, "listed")
	index := newFleetNames()
	index.set("docs.example", Named{Manifest: root, Owner: a.Identity})
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	r.setFleet(edgetest.View(1, a))
	asks := func(body string, may bool) error {
		d := b3.Sum([]byte(body))
		o, err := r.e.FetchAsset(t.Context(), asset.PathOf(d), netip.Addr{}, func() bool { return may })
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
	_, err := r.e.Site(t.Context(), SiteRequest{Name: "docs.example", Path: "none"})
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
	index := newFleetNames()
	index.set("docs.example", Named{Manifest: a.Adds(t, "one"), Owner: a.ID})
	hostile, honest := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	left := map[netip.Addr]int{hostile: 3, honest: 3}
	r := newRig(t, inFleet(func(r *rig) {
		r.names, r.cfg.Ingress.RPSLimit = index, 10
		r.fleet.Share = func(network netip.Addr, rps int) (bool, time.Duration) {
			if rps != 10 {
				t.Errorf("a share of %d", rps)
			}
			left[network]--
			return left[network] >= 0, time.Minute
		}
	})).start()
	r.setFleet(edgetest.View(1, a))
	refused := 0
	for i := range 10 {
		path := asset.PathOf(b3.Sum(fmt.Append(nil, "absent ", i)))
		_, err := r.e.FetchAsset(t.Context(), path, hostile, func() bool { return true })
		if rate, ok := errors.AsType[*asset.RateError](err); ok && rate.Wait == time.Minute {
			refused++
		} else if !errors.Is(err, asset.ErrNotFound) {
			t.Errorf("absent object %d: %v", i, err)
		}
	}
	if refused != 7 {
		t.Errorf("%d of 10 are refused", refused)
	}
	o, err := r.e.FetchAsset(t.Context(), asset.PathOf(b3.Sum([]byte("x"))), honest, func() bool { return true })
	if err != nil {
		t.Fatalf("another network: %v", err)
	}
	o.Close()
	site := func(from netip.Addr) error {
		f, err := r.e.Site(t.Context(), SiteRequest{Name: "docs.example", Path: "f000.txt", From: from})
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
