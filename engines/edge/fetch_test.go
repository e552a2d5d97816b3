package edge

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/fleet"
)

// Without a fleet, and without nodes, nothing is fetched.
func TestFetchWithoutFleet(t *testing.T) {
	d := b3.Sum([]byte("x"))
	r := newRig(t).start()
	r.setFleet(view(1))
	if _, err := r.fetch(d, Near{}); !errors.Is(err, asset.ErrNotFound) || r.e.fleet != nil || r.e.seeks != nil {
		t.Errorf("the fleet is off: %v", err)
	}
	for _, task := range r.e.Tasks() {
		if task.Name == taskPlacer || task.Name == announce.TaskName {
			t.Errorf("the fleet is off, and there is a task %s", task.Name)
		}
	}
	r = newRig(t, inFleet()).start()
	if _, err := r.fetch(d, Near{}); !errors.Is(err, asset.ErrNotFound) {
		t.Errorf("no version: %v", err)
	}
	r.setFleet(view(1))
	if _, err := r.fetch(d, Near{}); !errors.Is(err, asset.ErrNotFound) {
		t.Errorf("no other node: %v", err)
	}
	r.setFleet(nil)
	if r.e.neighbors() != nil {
		t.Error("the nodes stay")
	}
}

// An object is fetched from the owner first, and from any node in the end; each is asked for its
// own store alone. It is then stored under its digest, unpinned.
func TestFetch(t *testing.T) {
	a, b := newStation(t, "a", "one"), newStation(t, "b", "one", "two")
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, a, b))
	one, two := b3.Sum([]byte("one")), b3.Sum([]byte("two"))
	if got, err := r.fetch(one, Near{Owner: "id-b"}); got != "one" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if a.heads.Load()+a.asked.Load() != 0 || b.heads.Load() != 0 || b.asked.Load() != 1 {
		t.Error("the owner is not asked first, or others are asked too")
	}
	if got, err := r.fetch(two, Near{Owner: "node/a"}); got != "two" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := r.fetch(two, Near{}); err != nil || b.asked.Load() != 2 {
		t.Errorf("what is stored is fetched again: %v", err)
	}
	page, _, err := r.e.Keys(t.Context(), content.KeyQuery{Prefix: "b3:", Limit: 10})
	if err != nil || len(page) != 2 || page[0].Pinned || page[0].URL != page[0].Digest.String() {
		t.Errorf("%+v, %v", page, err)
	}
	r.sound()
}

// An object that no node has is remembered, until another version of the registry.
func TestFetchAbsent(t *testing.T) {
	a, b := newStation(t, "a"), newStation(t, "b", "late")
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, a))
	d := b3.Sum([]byte("late"))
	if _, err := r.fetch(d, Near{}); !errors.Is(err, asset.ErrNotFound) || a.heads.Load() != 1 {
		t.Fatalf("%v, asked %d times", err, a.heads.Load())
	}
	until(t, "the search is remembered", func() bool {
		_, known := r.e.fills.Past(r.e.neighbors().absentKey(d))
		return known
	})
	for range 5 {
		if _, err := r.fetch(d, Near{}); !errors.Is(err, asset.ErrNotFound) || a.heads.Load() != 1 {
			t.Fatalf("%v, asked %d times", err, a.heads.Load())
		}
	}
	r.setFleet(view(2, a, b))
	if got, err := r.fetch(d, Near{}); got != "late" || err != nil {
		t.Errorf("a node that has just signed in: %q, %v", got, err)
	}
}

// A provider that lies is not believed, the next one is; a liar is soon asked no more.
func TestFetchFromLiar(t *testing.T) {
	bodies := names("body", 5)
	liar, b := newStation(t, "a", bodies...), newStation(t, "b", bodies...)
	liar.answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"x"`)
		_, _ = io.WriteString(w, "a lie of "+q.URL.Path)
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, liar, b))
	for _, body := range bodies {
		if got, err := r.fetch(b3.Sum([]byte(body)), Near{Owner: "node/a"}); got != body || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := liar.asked.Load(); n != 1 || r.e.neighbors().byName["node/a"].breaker.State() != flow.BreakerOpen {
		t.Errorf("the liar was believed %d times", n)
	}
	if r.e.neighbors().byName["node/b"].breaker.State() != flow.BreakerClosed {
		t.Error("the honest node is blamed")
	}
	r.sound()
}

// The breaker and the client of a node last as long as its endpoint and keys.
func TestSetFleetKeepsLines(t *testing.T) {
	a, b := newStation(t, "a"), newStation(t, "b")
	r := newRig(t, inFleet())
	r.setFleet(view(1, a, b))
	before := r.e.neighbors()
	a.Names = []string{"docs.example"}
	b.SPKI = []string{"sha256:" + fmt.Sprintf("%064x", 1)}
	r.setFleet(view(2, a, b))
	after := r.e.neighbors()
	if after.byName["node/a"].line != before.byName["node/a"].line || len(after.byName["node/a"].Names) != 1 {
		t.Error("a node that stayed has lost its breaker, or keeps its old item")
	}
	if after.byName["node/b"].line == before.byName["node/b"].line {
		t.Error("a node with another key keeps its breaker and its line")
	}
	bad := newStation(t, "c")
	bad.Endpoint = "http://example.com"
	r.setFleet(view(4, b, bad))
	if n := r.e.neighbors(); len(n.nodes) != 1 {
		t.Errorf("%d nodes; one has an endpoint that may not be called", len(n.nodes))
	}
}

// Forty nodes have an object each; all are found, most by the waves.
func TestFetchAmongForty(t *testing.T) {
	var all []*station
	for _, name := range names("n", 40) {
		all = append(all, newStation(t, name, "of "+name))
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, all...))
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			body := "of " + s.ID[len("node/"):]
			if got, err := r.fetch(b3.Sum([]byte(body)), Near{}); got != body || err != nil {
				t.Errorf("%s: %q, %v", body, got, err)
			}
		})
	}
	wg.Wait()
	for _, s := range all {
		if s.asked.Load() != 1 {
			t.Errorf("%s was asked for %d bodies", s.ID, s.asked.Load())
		}
	}
	r.sound()
}

// Nodes of a placement are asked before others, and providers before them by their item.
func TestSourcesInOrder(t *testing.T) {
	d := b3.Sum([]byte("x"))
	owner, placed, provider := newStation(t, "a", "x"), newStation(t, "b", "x"), newStation(t, "c", "x")
	other := newStation(t, "d", "x")
	placed.Region = "far"
	r := newRig(t, inFleet(func(r *rig) { r.names = newFleetNames("id-c", "id-none", "id-a") }))
	v := view(1, owner, placed, provider, other)
	v.Placements = []fleet.Placement{{ID: "placement/x", Region: "far", Content: d.String()}}
	r.setFleet(v)
	var got []string
	for n := range r.e.sources(t.Context(), r.e.neighbors(), d, Near{Owner: "node/a"}) {
		got = append(got, n.ID)
	}
	if want := "[node/a node/b node/c node/d]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for n := range r.e.sources(ended, r.e.neighbors(), d, Near{Owner: "node/a"}) {
		t.Errorf("%s after the deadline", n.ID)
	}
}

// A node with a pinned key is asked over TLS although no CA knows it, and not after its key changed.
func TestFetchOverPinnedTLS(t *testing.T) {
	t.Parallel()
	a := newStation(t, "a", "one", "two")
	secure := httptest.NewTLSServer(a)
	t.Cleanup(func() { secure.CloseClientConnections(); secure.Close() })
	a.Endpoint = secure.URL
	a.SPKI = []string{upstream.PinOf(secure.Certificate().RawSubjectPublicKeyInfo).String()}
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, a))
	if got, err := r.fetch(b3.Sum([]byte("one")), Near{Owner: a.ID}); got != "one" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	version := uint64(1)
	for doc, keys := range map[string][]string{
		"another key": {upstream.Pin{1}.String()}, "no key": nil, "not a key": {"sha256:x"},
	} {
		a.SPKI = keys
		version++ // so that a failed search is not remembered
		r.setFleet(view(version, a))
		before := a.asked.Load() + a.heads.Load()
		_, err := r.fetch(b3.Sum([]byte("two")), Near{Owner: a.ID})
		if err == nil || a.asked.Load()+a.heads.Load() != before {
			t.Errorf("%s: %v", doc, err)
		}
	}
}
