package placed_test

import (
	"testing"

	"github.com/hashicorp/go-hclog"

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
