package server

import (
	"fmt"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/placed"
	"ronbox/engines/edge/site"
	edgeapi "ronbox/httpapi/wire/edge"
)

// edgeItem is the item of a node that offers its edge as well.
func (r *rig) edgeItem(names ...string) string {
	return strings.Replace(r.fleetItem(r, names...), `["index"]`, `["edge","index"]`, 1)
}

func (r *rig) edgeClient() edgeapi.Client { return edgeapi.NewClient(r.socket().Client) }

// putSite puts the files of a site and its manifest, and returns the manifest.
func (r *rig) putSite(name string, bodies ...string) string {
	r.t.Helper()
	var files []site.File
	put := func(body string) b3.Digest {
		o, err := r.edgeClient().PutObject(r.t.Context(), edgeapi.ObjectPut{
			Body: strings.NewReader(body), Size: int64(len(body)), Announce: false,
		})
		if err != nil {
			r.t.Fatal(err)
		}
		d, err := b3.Parse(o.B3)
		if err != nil {
			r.t.Fatal(err)
		}
		return d
	}
	for i, body := range bodies {
		files = append(files, site.File{
			Path: fmt.Sprintf("%d.txt", i), Digest: put(body), Size: int64(len(body)), Type: "text/plain; charset=utf-8",
		})
	}
	raw, err := site.Encode(files)
	if err != nil {
		r.t.Fatal(err)
	}
	manifest := put(string(raw)).String()
	if _, err := r.index().Put(r.t.Context(), "name:"+name, manifest); err != nil {
		r.t.Fatal(err)
	}
	return manifest
}

// A site that one node has is read at another by its name and by its hashes, and a placement keeps
// it there after the first node has gone.
func TestFleetServesWhatAnotherNodeHas(t *testing.T) {
	t.Parallel()
	a, b := fleetNode(t, "a"), fleetNode(t, "b")
	items := []string{a.edgeItem("a.example"), b.edgeItem("b.example")}
	for _, r := range []*rig{a, b} {
		r.list(2, items...)
	}
	manifest := a.putSite("docs.a.example", "zero", "one", "two")
	reads := func(path, want string) {
		t.Helper()
		if got, err := b.edgeClient().EdgeBytes(t.Context(), path); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v", path, got, err)
		}
	}
	reads("sites/docs.a.example/0.txt", "zero")
	reads("assets/b3/"+b3.Sum([]byte("one")).String()[3:], "one")
	placement := `{"id":"placement/docs","kind":"placement","meta":{"content":"name:docs.a.example"}}`
	b.list(3, append(items, placement)...)
	var last edgeapi.PlacementList
	b.await("the placement is complete", func() bool {
		var err error
		last, err = b.edgeClient().EdgePlacements(t.Context())
		return err == nil && len(last.Placements) == 1 && last.Placements[0].State == placed.Complete
	})
	if p := last.Placements[0]; p.Manifest != manifest || p.Objects != 4 || p.Missing != 0 || p.Reason != "" {
		t.Errorf("%+v", p)
	}
	a.halt()
	for i, want := range []string{"zero", "one", "two"} {
		reads(fmt.Sprintf("sites/docs.a.example/%d.txt", i), want)
	}
	if _, err := b.edgeClient().EdgeBytes(t.Context(), "assets/b3/"+b3.Sum([]byte("none")).String()[3:]); err == nil {
		t.Error("an object of no node is served")
	}
	b.halt()
}
