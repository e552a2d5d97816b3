package edge_test

import (
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/site"
	"ronbox/engines/edge/sites"
)

// placed waits until the placements have states, and returns them.
func (r *rig) placed(states ...string) (all []placed.Placement) {
	r.t.Helper()
	until(r.t, fmt.Sprint("placements are ", states), func() bool {
		all = r.e.Placements()
		if len(all) != len(states) {
			return false
		}
		for i, p := range all {
			if p.State != states[i] {
				return false
			}
		}
		return true
	})
	return all
}

// pinnedURLs returns the pinned URLs.
func (r *rig) pinnedURLs() map[string]bool {
	r.t.Helper()
	page, _, err := r.e.Keys(r.t.Context(), content.KeyQuery{Limit: asset.MaxKeys, Pinned: true})
	if err != nil {
		r.t.Fatal(err)
	}
	out := map[string]bool{}
	for _, k := range page {
		out[k.URL] = true
	}
	return out
}

// A placed site is fetched in full, pinned and announced. After a restart nothing is fetched again.
// When it is placed no more, its pins end, but not those of a put.
func TestPlacement(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	bodies := edgetest.Numbered("file", 70)
	root := a.Adds(t, bodies...)
	index := edgetest.NewIndex()
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	put := r.stores(bodies[0])
	if _, err := r.e.Keep(t.Context(), asset.Pin, []string{put.String()}); err != nil {
		t.Fatal(err)
	}
	r.setFleet(edgetest.Places(edgetest.View(1, a), root.String()))
	p := r.placed(placed.Complete)[0]
	if p.Objects != 71 || p.Missing != 0 || p.Bytes != p.Wanted || p.Manifest != root || p.Reason != "" {
		t.Errorf("%+v", p)
	}
	if n := a.Asked.Load(); n != 70 {
		t.Errorf("the node was asked for %d objects; one was here", n)
	}
	until(t, "the manifest is announced", func() bool { return index.Count(root) == 1 })
	if index.Count(put) != 0 || len(r.pinnedURLs()) != 72 {
		t.Errorf("%d pins", len(r.pinnedURLs()))
	}
	r.written()
	r.sound()
	r.reboot()
	r.setFleet(edgetest.Places(edgetest.View(2, a), root.String()))
	r.placed(placed.Complete)
	if n := a.Asked.Load(); n != 70 {
		t.Errorf("after a restart the node was asked for %d objects", n)
	}
	r.setFleet(edgetest.View(3, a))
	until(t, "the pins and the announcement have ended", func() bool {
		return len(r.pinnedURLs()) == 1 && index.Count(root) == 0
	})
	if !r.pinnedURLs()[put.String()] || len(r.e.Placements()) != 0 {
		t.Error("the pin of a put has ended, or the placement stays")
	}
	r.written()
	r.sound()
}

// A placed site is served from its old edition until all of the new one is there.
func TestPlacedSiteSwitches(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	index := edgetest.NewIndex()
	first := a.Adds(t, "old one", "both")
	index.Set("docs.example", sites.Named{Manifest: first, Owner: a.Identity})
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	r.setFleet(edgetest.Places(edgetest.View(1, a), "name:docs.example"))
	r.placed(placed.Complete)
	reads := func(path, want string) {
		t.Helper()
		f, err := r.e.Site(t.Context(), sites.Request{Name: "docs.example", Path: path})
		if err != nil || string(f.Bytes) != want {
			t.Fatalf("%s: %v, want %q", path, err, want)
		}
		f.Close()
	}
	reads("f000.txt", "old one")
	second := a.Adds(t, "new one", "both", "late")
	late := b3.Sum([]byte("late"))
	a.Unset(late)
	index.Set("docs.example", sites.Named{Manifest: second, Owner: a.Identity})
	r.setFleet(edgetest.Places(edgetest.View(2, a), "name:docs.example"))
	until(t, "one object is missing", func() bool {
		p := r.e.Placements()
		return p[0].Manifest == second && p[0].Missing == 1 && p[0].Reason != ""
	})
	reads("f000.txt", "old one")
	if !r.pinnedURLs()[placed.Prefix+b3.Sum([]byte("old one")).String()] {
		t.Error("the old edition is not pinned while it is served")
	}
	a.Set(late, "late")
	r.setFleet(edgetest.Places(edgetest.View(3, a), "name:docs.example"))
	r.placed(placed.Complete)
	reads("f000.txt", "new one")
	reads("f002.txt", "late")
	until(t, "the old edition is unpinned", func() bool {
		return !r.pinnedURLs()[placed.Prefix+b3.Sum([]byte("old one")).String()]
	})
	index.Fail() // the owner of the name is gone
	reads("f001.txt", "both")
	r.written()
	r.sound()
}

// What does not fit is refused before its first byte.
func TestPlacementTooLarge(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	fits := a.Adds(t, "fits")
	huge := a.Lists(t, site.File{Path: "a", Digest: b3.Sum([]byte("a")), Size: 1 << 40, Type: "text/plain"},
		site.File{Path: "b", Digest: b3.Sum([]byte("b")), Size: 1, Type: "text/plain"})
	long := edgetest.Loud("long", 100_000)
	a.Set(b3.Sum([]byte(long)), long)
	pins := newRig(t, inFleet(func(r *rig) { r.cfg.CAS.MaxPinned = 10 })).start()
	pins.setFleet(edgetest.Places(edgetest.View(1, a), fits.String()))
	if p := pins.placed(placed.Refused)[0]; p.Reason == "" || a.Asked.Load() != 1 {
		t.Errorf("beyond max_pinned: %+v", p)
	}
	r := newRig(t, inFleet(func(r *rig) { r.fleet.MaxPlaced = 50_000 })).start()
	r.setFleet(edgetest.Places(edgetest.View(1, a), huge.String(), fits.String(), b3.Sum([]byte(long)).String()))
	all := r.placed(placed.Refused, placed.Complete, placed.Refused)
	if all[0].Wanted < 1<<40 || all[0].Bytes != 0 || all[0].Reason == "" || all[2].Reason == "" {
		t.Errorf("%+v", all)
	}
	if r.pinnedURLs()[placed.Prefix+huge.String()] {
		t.Error("the manifest of a refused placement is pinned")
	}
	r.written()
	r.sound()
}

// A manifest that lies about a size ends its placement: a longer object is not stored, and one with
// another size is not pinned.
func TestPlacementOfLies(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	long, short := edgetest.Loud("long", 1000), "short"
	a.Set(b3.Sum([]byte(long)), long)
	a.Set(b3.Sum([]byte(short)), short)
	lie := func(body string, size int64) string {
		return a.Lists(t, site.File{Path: "a", Digest: b3.Sum([]byte(body)), Size: size, Type: "text/plain"}).String()
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(edgetest.Places(edgetest.View(1, a), lie(long, 10), lie(short, 10_000)))
	all := r.placed(placed.Fetching, placed.Refused)
	until(t, "a reason is told", func() bool { return r.e.Placements()[0].Reason != "" })
	if has, _ := r.e.Content().Has(t.Context(), b3.Sum([]byte(long))); has || all[1].Reason == "" {
		t.Errorf("%t, %+v", has, r.e.Placements())
	}
	if r.count("circuit_open_total", "svc", "node") != 0 {
		t.Error("the node is blamed for the manifest")
	}
	r.written()
	r.sound()
}

// A node that is offline while a placement arrives is asked when it is back.
func TestPlacementWhileOffline(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	var down atomic.Bool
	down.Store(true)
	root := a.Adds(t, "one", "two")
	a.Answer = func(w http.ResponseWriter, q *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler)
		}
		a.Serve(w, q)
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(edgetest.Places(edgetest.View(1, a), root.String()))
	if p := r.placed(placed.Waiting)[0]; p.Reason == "" {
		t.Errorf("%+v", p)
	}
	down.Store(false)
	r.setFleet(edgetest.Places(edgetest.View(2, a), root.String()))
	r.placed(placed.Complete)
	far := edgetest.Places(edgetest.View(3, a), root.String())
	far.Placements[0].Region = "elsewhere"
	r.setFleet(far)
	until(t, "it is placed elsewhere", func() bool { return len(r.e.Placements()) == 0 && len(r.pinnedURLs()) == 0 })
	r.written()
	r.sound()
}
