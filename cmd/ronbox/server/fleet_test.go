package server

import (
	"crypto/ed25519"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/fleet"
	"ronbox/engines/index/name"
	indexapi "ronbox/httpapi/wire/index"
)

// fleetNode launches a node of a fleet, with a registry of its own.
func fleetNode(t *testing.T, name string) *rig {
	t.Helper()
	cfg, _ := freshDev(t)
	cfg.Fleet.Enabled, cfg.Fleet.Node = true, "node/"+name
	return launch(t, cfg).begin()
}

// fleetItem is the node's item. Its key is that of the node by, which is r in a sound item.
func (r *rig) fleetItem(by *rig, names ...string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = fmt.Sprintf("%q", n)
	}
	return fmt.Sprintf(`{"id":%q,"kind":"node","endpoint":"http://%s","meta":{"identity":%q,"services":["index"],`+
		`"names":[%s]}}`, r.cfg.Fleet.Node, r.Addr(), by.identity(), strings.Join(quoted, ","))
}

// identity returns the identity of the node in its fleet.
func (r *rig) identity() string {
	seed := r.Derive("ronbox index identity v1")
	return string(name.PeerIDOf(ed25519.NewKeyFromSeed(seed[:]).Public().(ed25519.PublicKey)))
}

// fleetViewer hands a view of the fleet to the engines, and fleetIndex asks the nodes of a view.
type (
	fleetViewer interface{ HandOut(*fleet.View) }
	fleetIndex  interface{ Peers() []name.PeerStatus }
)

// list commits a full set of items as a version of the node's registry, and waits for the view.
func (r *rig) list(version uint64, items ...string) {
	r.t.Helper()
	draft := fmt.Appendf(nil, `{"schema_version":"1.0.0","version":%d,"items":[%s]}`, version, strings.Join(items, ","))
	if _, err := putDraft(r.t.Context(), r.socket(), signer(r.t, r.cfg), draft); err != nil {
		r.t.Fatal(err)
	}
	r.await("the view", func() bool {
		s := r.Status()
		return s.Fleet != nil && s.Fleet.Version == version
	})
}

func (r *rig) index() indexapi.Client { return indexapi.NewClient(r.socket().Client) }

// Nodes find each other by the items of their registries alone: a name of one is resolved at the
// others, none may put a name of another, and a node that is signed in later is asked.
func TestFleetOfThree(t *testing.T) {
	t.Parallel()
	a, b, c := fleetNode(t, "a"), fleetNode(t, "b"), fleetNode(t, "c")
	if err := a.Catalog().Check(); err != nil {
		t.Error(err)
	}
	manifest := b3.Sum([]byte("site")).String()
	items := []string{a.fleetItem(a, "a.example"), b.fleetItem(b, "b.example")}
	for _, r := range []*rig{a, b, c} {
		r.list(2, items...)
	}
	if _, err := a.index().Put(t.Context(), "name:docs.a.example", manifest); err != nil {
		t.Fatal(err)
	}
	got, err := b.index().Resolve(t.Context(), "name:docs.a.example", false)
	if err != nil || got.Manifest != manifest || got.Source != "peer" {
		t.Errorf("at node/b: %+v, %v", got, err)
	}
	if got, err := c.index().Resolve(t.Context(), "name:docs.a.example", false); err == nil {
		t.Errorf("without an own item no http endpoint is called: %+v", got)
	}
	_, err = b.index().Put(t.Context(), "name:docs.a.example", manifest)
	p := problem(t, err)
	if p.Status != http.StatusForbidden || p.Reason != "foreign_name" || p.Details["node"] != "node/a" {
		t.Errorf("%+v", p)
	}
	if _, err := c.index().Put(t.Context(), "name:c.example", manifest); err != nil {
		t.Errorf("a name of no node: %v", err)
	}
	if _, err := a.index().Resolve(t.Context(), "name:c.example", false); err == nil {
		t.Error("a name of a node that is not signed in is resolved")
	}
	a.list(3, append(items, c.fleetItem(c, "c.example"))...)
	if got, err := a.index().Resolve(t.Context(), "name:c.example", false); err != nil || got.Manifest != manifest {
		t.Errorf("signed in: %+v, %v", got, err)
	}
	peers, err := a.index().Peers(t.Context())
	if err != nil || len(peers.Peers) != 2 || peers.Peers[1].Node != "node/c" || peers.Peers[1].Asked == 0 {
		t.Errorf("%+v, %v", peers, err)
	}
	a.list(4, items[0])
	if peers, err := a.index().Peers(t.Context()); err != nil || len(peers.Peers) != 0 {
		t.Errorf("signed out: %+v, %v", peers, err)
	}
	for _, r := range []*rig{a, b, c} {
		r.halt()
	}
}

// A node is sound until HEAD has an item of it. An item with the identity of another node, or one
// that is ignored, degrades it and is told.
func TestFleetSelf(t *testing.T) {
	t.Parallel()
	a, b := fleetNode(t, "a"), fleetNode(t, "b")
	a.sound()
	check := func(when, state, cause string) {
		t.Helper()
		s := a.Status()
		if s.Degraded != (cause != "") || !strings.Contains(s.Causes["fleet.identity"], cause) || !s.WriteReady {
			t.Errorf("%s: %+v", when, s)
		}
		if f := a.finding("fleet"); f.State != state || !strings.Contains(f.Message, cause) {
			t.Errorf("%s: %+v", when, f)
		}
	}
	check("without an item", "ok", "")
	a.list(2, a.fleetItem(b))
	check("another identity", "warn", "is the item of 12D3KooW")
	a.list(3, a.fleetItem(a, "x.example"), b.fleetItem(b, "x.example"))
	check("a name of two", "warn", "is claimed by node/b too")
	a.list(4, a.fleetItem(a, "x.example"), strings.Replace(b.fleetItem(b), `"index"`, `"Index"`, 1))
	if f := a.finding("fleet"); f.State != "warn" || !strings.Contains(f.Message, "node/b: meta.services.0") {
		t.Errorf("another item is ignored: %+v", f)
	}
	a.list(5, a.fleetItem(a, "x.example"))
	check("sound", "ok", "")
	a.halt()
	b.halt()
}

// The view follows HEAD although the registry publishes no events, and a start begins with the view
// of HEAD.
func TestFleetWithoutEvents(t *testing.T) {
	t.Parallel()
	cfg, _ := freshDev(t)
	cfg.Fleet.Enabled, cfg.Fleet.Node, cfg.Registry.Bus.EmitUpdates = true, "node/a", false
	r := launch(t, cfg).begin()
	r.list(2, r.fleetItem(r))
	r.halt()
	r = launch(t, cfg)
	r.serving()
	if s := r.Status(); s.Fleet.Version != 2 || s.Fleet.Nodes != 1 {
		t.Errorf("%+v", s.Fleet)
	}
	r.halt()
}

// Of the nodes of a view, the index asks those that it may call: http only if this node's own item
// is http, and never this node.
func TestFleetPeersThatMayBeCalled(t *testing.T) {
	t.Parallel()
	r := fleetNode(t, "a")
	nodes := []fleet.Node{
		{ID: "node/a", Endpoint: "http://" + r.Addr(), Identity: "self", Services: []string{"index"}},
		{ID: "node/b", Endpoint: "http://127.0.0.1:1", Identity: "b", Services: []string{"index"}},
		{ID: "node/c", Endpoint: "https://c.example", Identity: "c", Services: []string{"index"}},
		{ID: "node/d", Endpoint: "https://d.example", Identity: "d", Services: []string{"edge"}},
		{ID: "node/e", Endpoint: "https://c.example", Identity: "e", Services: []string{"index"}},
		{
			ID: "node/f", Endpoint: "https://f.example", Identity: r.identity(),
			Services: []string{"index"},
		},
	}
	var idx fleetIndex
	var viewer fleetViewer
	for _, one := range r.services.Engines() {
		if found, ok := one.Engine.(fleetIndex); ok {
			idx = found
		}
		if found, ok := one.Engine.(fleetViewer); ok {
			viewer = found
		}
	}
	asked := func(v *fleet.View) (targets []string) {
		viewer.HandOut(v)
		for _, p := range idx.Peers() {
			targets = append(targets, p.Target)
		}
		return targets
	}
	v := &fleet.View{Version: 1, Self: "node/a", Nodes: nodes}
	if got := asked(v); !slices.Equal(got, []string{"127.0.0.1:1", "c.example"}) {
		t.Errorf("own item is http: %q", got)
	}
	tls := &fleet.View{Version: 2, Self: "node/a", Nodes: slices.Clone(nodes)}
	tls.Nodes[0].Endpoint = "https://a.example"
	if got := asked(tls); !slices.Equal(got, []string{"c.example"}) {
		t.Errorf("own item is https: %q", got)
	}
	if got := asked(&fleet.View{Version: 3, Nodes: nodes}); !slices.Equal(got, []string{"c.example"}) {
		t.Errorf("without an own item: %q", got)
	}
	if got := asked(nil); len(got) != 0 {
		t.Errorf("without a view: %q", got)
	}
	r.halt()
}
