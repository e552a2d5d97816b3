package placed_test

import (
	"testing"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/unit"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/sites"
)

// newPlacer returns a placer whose task does not run.
func newPlacer(r *edgetest.Rig, index *edgetest.Index) *placed.Placer {
	return placed.New(placed.Config{Edge: func() *config.Config { return &r.Cfg }}, placed.Deps{
		Catalog: r.Catalog,
		Store:   r.DB,
		Log:     hclog.NewNullLogger(),
		Content: r.Content,
		Near:    r.Near,
		Sites:   r.Sites,
		Names:   index,
		Announcer: announce.New(announce.Deps{
			Catalog: r.Catalog,
			Store:   r.DB,
			Content: r.Content,
			Log:     hclog.NewNullLogger(),
			Now:     r.Now,
			Names:   index,
			Fleet:   true,
		}),
	})
}

// A look at complete placements ends early, until a name or a row changes.
func TestPlacerRests(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	index := edgetest.NewIndex()
	first, second := a.Adds(t, "one"), a.Adds(t, "two")
	index.Set("docs.example", sites.Named{Manifest: first})
	r := edgetest.New(t, func(r *edgetest.Rig) { r.Names = index })
	r.SetFleet(edgetest.Places(edgetest.View(1, a), "name:docs.example"))
	p := newPlacer(r, index)
	look := func(want bool) {
		t.Helper()
		if got, err := p.Look(t.Context()); got != want || err != nil {
			t.Fatalf("settled %t, %v", got, err)
		}
	}
	look(false)
	look(true)
	index.Set("docs.example", sites.Named{Manifest: second})
	look(false) // which switches the name: a row has changed
	look(false)
	look(true)
	if got := p.List()[0]; got.State != placed.Complete || got.Manifest != second {
		t.Errorf("%+v", got)
	}
}

// A site whose name has no room is refused with the reason, and is switched once there is room.
func TestNameWithoutRoom(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	index := edgetest.NewIndex()
	index.Set("docs.example", sites.Named{Manifest: a.Adds(t, "one", "two")})
	open := func(most unit.Size) (*edgetest.Rig, *placed.Placer) {
		r := edgetest.New(t, func(r *edgetest.Rig) { r.Names, r.Cfg.CAS.MaxPinned = index, most })
		r.SetFleet(edgetest.Places(edgetest.View(1, a), "name:docs.example"))
		p := newPlacer(r, index)
		if _, err := p.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
		return r, p
	}
	r, _ := open(unit.Size(1 << 20))
	has, _ := r.Content.Held()
	r, p := open(unit.Size(has.Pinned - 1))
	for range 2 {
		if got := p.List()[0]; got.State != placed.Refused || got.Reason == "" {
			t.Fatalf("%+v", got)
		}
		if _, err := p.Look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	r.Cfg.CAS.MaxPinned = unit.Size(has.Pinned)
	if _, err := p.Look(t.Context()); err != nil || p.List()[0].State != placed.Complete {
		t.Errorf("%+v, %v", p.List()[0], err)
	}
}
