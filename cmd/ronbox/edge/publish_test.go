package edge

import (
	"fmt"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/site"
)

// A publish unpins the files that only the last edition had, and no file of another name.
func TestPublishReleases(t *testing.T) {
	n := newFakeNode(t)
	n.publish("name:other", "shared")
	if out := n.publish("name:docs", "old", "kept", "shared"); out.New != 2 || out.Released != 0 {
		t.Errorf("the first edition: %+v", out)
	}
	if out := n.publish("name:docs", "new", "kept"); out.New != 1 || out.Released != 2 {
		t.Errorf("the next edition: %+v", out) // "old" and the manifest go
	}
	n.sound()
}

// A publish leaves the files of an edition that another one has published meanwhile, under the same
// name or another, whatever step it interrupts.
func TestPublishesAtOnce(t *testing.T) {
	for _, step := range []string{
		"GET /edge/keys", "POST /edge/keys/pin", "PUT /edge/objects", "PUT /index/names/name:docs", "GET /index/names",
		"POST /edge/keys/unpin",
	} {
		for _, other := range []string{"name:docs", "name:other"} {
			t.Run(step+" "+other, func(t *testing.T) {
				n := newFakeNode(t)
				n.publish("name:docs", "old", "kept")
				n.publish("name:other", "new", "also")
				reached := n.once(step, func() {
					n.publish(other, "old", "later")
					n.evict()
				})
				n.publish("name:docs", "new", "kept")
				if !reached.Load() {
					t.Error("the step was not reached")
				}
				n.live()
			})
		}
	}
}

// A publish whose unpin fails after it was carried out pins again what another one needs.
func TestPublishAfterFailedUnpin(t *testing.T) {
	n := newFakeNode(t)
	n.publish("name:docs", "old")
	failed := false
	n.before = func(request string) int {
		if request != "POST /edge/keys/unpin" || failed {
			return 0
		}
		failed = true
		n.publish("name:other", "old")
		delete(n.pinned, b3.Sum([]byte("old")).String())
		return http.StatusBadRequest
	}
	p := n.publisher("name:docs", "new")
	if err := p.publish(t.Context()); err == nil || p.out.Released != 0 {
		t.Errorf("%v, %d released", err, p.out.Released)
	}
	n.live()
}

// What the second look has found is pinned again, though the look ends with an error.
func TestPublishAfterFailedSecondLook(t *testing.T) {
	n := newFakeNode(t)
	n.publish("name:docs", "old")
	late := ""
	n.before = func(request string) int {
		if request == "POST /edge/keys/unpin" && late == "" {
			late = "GET /edge/assets/b3/" + b3.Sum(nil).String()[len("b3:"):]
			n.publish("name:other", "old")
			n.names["name:z"] = b3.Sum(nil).String()
		}
		if request == late {
			return http.StatusBadRequest
		}
		return 0
	}
	if err := n.publisher("name:docs", "new").publish(t.Context()); err == nil {
		t.Error("no error")
	}
	delete(n.names, "name:z")
	n.live()
}

// A publish that cannot pin its edition again unpins the old one.
func TestPublishAfterFailedSecondStore(t *testing.T) {
	n := newFakeNode(t)
	n.publish("name:docs", "old")
	named := false
	n.before = func(request string) int {
		named = named || request == "PUT /index/names/name:docs"
		if named && request == "PUT /edge/objects" {
			return http.StatusBadRequest
		}
		return 0
	}
	p := n.publisher("name:docs", "new")
	if err := p.publish(t.Context()); err == nil || p.out.Released != 2 {
		t.Errorf("%v, %d released", err, p.out.Released)
	}
	n.sound()
}

// A manifest that is stored only while a publish unpins is read then.
func TestPublishBesideLateManifest(t *testing.T) {
	n := newFakeNode(t)
	n.publish("name:docs", "old")
	n.publish("name:other", "old", "also")
	late := n.names["name:other"]
	manifest := n.objects[late]
	delete(n.objects, late)
	n.once("POST /edge/keys/unpin", func() { n.objects[late] = manifest })
	n.publish("name:docs", "new")
	n.live()
}

// A publish repeats each request that the node refuses for a while, until the old edition is
// unpinned: a repeated command would not find that edition.
func TestPublishOnBusyNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.publish("name:docs", "old", "kept")
		n.publish("name:other", "kept")
		var refused sync.Map
		n.before = func(request string) int {
			if _, again := refused.LoadOrStore(request, true); again {
				return 0
			}
			return http.StatusServiceUnavailable
		}
		if out := n.publish("name:docs", "new", "kept"); out.Released != 2 {
			t.Errorf("%+v", out)
		}
		n.sound()
	})
}

// A site whose manifest is damaged keeps its files: nothing is unpinned unless the fleet has it.
func TestPublishBesideDamagedManifest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.publish("name:docs", "old", "shared")
		n.publish("name:other", "shared")
		damaged := n.names["name:other"]
		manifest := n.objects[damaged]
		n.objects[damaged] = nil
		pinned := maps.Clone(n.pinned)
		p := n.publisher("name:docs", "old")
		if err := p.publish(t.Context()); !strings.Contains(fmt.Sprint(err), damaged) {
			t.Errorf("err = %v, want one that names the manifest", err)
		}
		for d := range pinned {
			if !n.pinned[d] {
				t.Errorf("%.20q is unpinned", n.objects[d])
			}
		}
		n.objects[damaged] = nil
		n.fleet = map[string][]byte{damaged: manifest}
		n.publish("name:docs", "new")
		n.objects[damaged] = manifest
		n.live()
	})
}

// A name whose object is not stored on the node, while other nodes are down, or is no manifest holds
// up no publish.
func TestPublishAsksOneNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeNode(t)
		n.publish("name:docs", "old")
		n.names["name:elsewhere"] = b3.Sum(nil).String()
		large := make([]byte, site.MaxBytes+1) // a name may stand for any object
		n.names["name:video"] = b3.Sum(large).String()
		n.objects[n.names["name:video"]] = large
		if out := n.publish("name:docs", "new"); out.Released != 2 {
			t.Errorf("%+v", out)
		}
	})
}
