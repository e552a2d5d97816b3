package edge_test

import (
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/sites"
)

// What placements keep counts against fleet.max_placed while the name of their site cannot be
// looked up.
func TestPlacementBesideUnknownName(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	index := edgetest.NewIndex()
	index.Set("docs.example", sites.Named{Manifest: a.Adds(t, edgetest.Loud("site", 30_000)), Owner: a.Identity})
	other := edgetest.Loud("other", 30_000)
	a.Set(b3.Sum([]byte(other)), other)
	r := newRig(t, inFleet(func(r *rig) { r.names, r.fleet.MaxPlaced = index, 50_000 })).start()
	r.setFleet(edgetest.Places(edgetest.View(1, a), "name:docs.example"))
	r.placed(placed.Complete)
	r.reboot()
	index.Fail()
	r.setFleet(edgetest.Places(edgetest.View(2, a), "name:docs.example", b3.Sum([]byte(other)).String()))
	r.placed(placed.Waiting, placed.Refused)
	if r.pinnedURLs()[placed.Prefix+b3.Sum([]byte(other)).String()] {
		t.Error("more is placed here than fleet.max_placed allows")
	}
	r.written()
	r.sound()
}

// The pins of placements can be removed after the node has left the fleet.
func TestPlacementsOfFormerNode(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	index := edgetest.NewIndex()
	root := a.Adds(t, "one", "two")
	index.Set("docs.example", sites.Named{Manifest: root, Owner: a.Identity})
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	r.setFleet(edgetest.Places(edgetest.View(1, a), "name:docs.example"))
	r.placed(placed.Complete)
	r.fleet = nil
	r.reboot()
	var keys []string
	for url := range r.pinnedURLs() {
		keys = append(keys, url)
	}
	if len(keys) != 4 {
		t.Fatalf("pins: %q", keys)
	}
	for _, do := range []asset.Action{asset.Pin, asset.Unpin} {
		if _, err := r.e.Keep(t.Context(), do, keys); err == nil {
			t.Errorf("%s of a URL of a placement is accepted", do)
		}
	}
	done, err := r.e.Keep(t.Context(), asset.Remove, append(keys, "placed:none"))
	if err != nil || len(done.Changed) != 4 || len(done.Missing) != 1 || len(r.pinnedURLs()) != 0 {
		t.Errorf("%+v, %v", done, err)
	}
	r.written()
	r.sound()
}
