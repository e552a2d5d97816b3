package edge_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
)

// At the quota the least recently used objects are evicted.
func TestEviction(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000, func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 10_500, 10_500 })
	for i := range 10 {
		r.want(fmt.Sprintf("%s/%d", h.name, i), body(fmt.Sprint(i)))
		r.clock.Add(int64(2 * time.Minute))
	}
	r.e.Purge()
	r.want(h.name+"/0", body("0")) // used again
	r.want(h.name+"/new", body("new"))
	r.cfg.Mode = config.ModeOffline
	r.e.Reload(r.cfg)
	for path, there := range map[string]bool{
		"/0": true, "/1": false, "/2": false, "/3": true, "/9": true, "/new": true,
	} {
		if _, _, err := r.read(h.name + path); (err == nil) != there {
			t.Errorf("%s: %v", path, err)
		}
	}
	if has, _ := r.e.Content().Held(); has.Objects != 9 {
		t.Errorf("%d objects, not nine tenths", has.Objects)
	}
	for name, want := range map[string]float64{"edge_cas_objects": 9, "edge_cas_bytes": 9000, "edge_cas_urls": 9} {
		if n := r.count(name); n != want {
			t.Errorf("%s %v, want %v", name, n, want)
		}
	}
	r.sound()
}

// Objects are evicted as soon as other files make the disk short of space, before it has less than
// min_free. No object is evicted if that would not help.
func TestEvictionForOthers(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 30)
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, sized(1000)(q.URL.Path[1:])) })
	r := newRig(t, on(h, func(c *config.Config) { c.CAS.MinFree = 4000 }))
	r.free = func() (int64, error) {
		has, _ := r.e.Content().Held()
		return free.Load() - has.Bytes, nil
	}
	r.start()
	for i := range 10 {
		r.want(fmt.Sprint(h.name, "/", i), sized(1000)(fmt.Sprint(i)))
		r.clock.Add(int64(time.Minute))
	}
	objects := func() int64 { has, _ := r.e.Content().Held(); return has.Objects }
	free.Store(4000 + 1000 + 9500) // the objects have 10,000, and the headroom is 1000
	until(t, "two leave", func() bool { return objects() == 8 })
	free.Store(100)
	r.e.Content().EvictForDisk()
	if err := r.barrier(); err != nil { // after the job of evictForDisk
		t.Fatal(err)
	}
	if n := objects(); n != 8 {
		t.Errorf("%d objects where eviction does not help", n)
	}
	u, err := r.e.Usage()
	if err != nil || u.Bytes != 8000 || u.Objects != 8 || u.URLs != 8 || u.Evicted != 2 || u.Free != 0 {
		t.Errorf("%+v, %v", u, err)
	}
	r.sound()
}

// A host that answers any path with the same bytes takes at most max_urls rows and displaces no
// other object.
func TestManyURLsOfOneObject(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		if strings.HasPrefix(q.URL.Path, "/any/") {
			serve(w, "the same")
			return
		}
		echo(w, q)
	})
	r := newRig(t, on(h, func(c *config.Config) { c.CAS.MaxURLs = config.WriteBurst })).start()
	for i := range 20 {
		r.want(fmt.Sprint(h.name, "/own/", i), fmt.Sprint("of own/", i))
	}
	for i := range 2 * config.WriteBurst {
		r.want(fmt.Sprint(h.name, "/any/", i), "the same")
		if has, _ := r.e.Content().Held(); has.URLs > config.WriteBurst {
			t.Fatalf("%d URLs", has.URLs)
		}
	}
	r.reboot()
	r.sound()
	for i := range 20 {
		if o := r.want(fmt.Sprint(h.name, "/own/", i), fmt.Sprint("of own/", i)); o.Filled {
			t.Errorf("/own/%d had been evicted", i)
		}
	}
	r.cfg.CAS.MaxURLs = 1 // fewer than stored, with one URL per object
	r.e.Reload(r.cfg)
	r.want(h.name+"/own/new", "of own/new")
	if has, _ := r.e.Content().Held(); has.URLs != 1 {
		t.Errorf("%d URLs", has.URLs)
	}
	r.sound()
}

// A full store refuses an object without room, evicts nothing for it, and keeps serving.
func TestFullStore(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000, func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 2500, 2500 })
	r.want(h.name+"/x", body("x"))
	quota := r.cfg
	quota.CAS.MaxBytes = 900
	r.e.Reload(quota)
	r.refused(h.name+"/y", asset.ErrFull)
	r.want(h.name+"/x", body("x"))
	floor := r.cfg
	floor.CAS.MinFree = 1 << 50
	r.e.Reload(floor)
	r.refused(h.name+"/y", asset.ErrFull)
	r.want(h.name+"/x", body("x"))
	r.e.Reload(r.cfg)
	r.want(h.name+"/y", body("y"))
	r.sound()
}

// When other files fill the disk, only unpinned objects are evicted, and then fills are refused.
func TestPinnedStayWhenTheDiskFills(t *testing.T) {
	t.Parallel()
	var free atomic.Int64
	free.Store(1 << 30)
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, sized(1000)(q.URL.Path[1:])) })
	r := newRig(t, on(h, func(c *config.Config) { c.CAS.MinFree = 4000 }))
	r.free = func() (int64, error) {
		has, _ := r.e.Content().Held()
		return free.Load() - has.Bytes, nil
	}
	r.start()
	for i := range 5 {
		r.filled(h, fmt.Sprint("/pinned/", i))
		r.want(fmt.Sprint(h.name, "/", i), sized(1000)(fmt.Sprint(i)))
		r.clock.Add(int64(time.Minute))
	}
	free.Store(4000 + 1000 + 6000) // the objects have 10,000, and the eviction adds a headroom
	until(t, "the others leave", func() bool { has, _ := r.e.Content().Held(); return has.Objects == 5 })
	free.Store(4000 + 1000 + 4000)
	r.refused(h.name+"/new", asset.ErrFull)
	for i := range 5 {
		if o := r.want(fmt.Sprint(h.name, "/pinned/", i), sized(1000)(fmt.Sprint("pinned/", i))); o.Filled {
			t.Errorf("%d was evicted", i)
		}
	}
	r.sound()
}
