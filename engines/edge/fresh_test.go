package edge_test

import (
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
)

// changing is a host whose object has a version, and whose answers have a header.
type changing struct {
	*host
	version atomic.Int64
	status  atomic.Int64 // of each answer; 0: that of the object
	control atomic.Value // Cache-Control
	tag     string       // before the version: `"v` or `W/"v`
	matched atomic.Int64 // requests with If-None-Match
	held    sync.Mutex   // no answer while it is locked
}

func newChanging(t testing.TB, control string) *changing {
	c := &changing{tag: `"v`}
	c.control.Store(control)
	c.host = newHost(t, func(w http.ResponseWriter, q *http.Request) {
		c.held.Lock()
		defer c.held.Unlock()
		if status := int(c.status.Load()); status != 0 {
			w.WriteHeader(status)
			return
		}
		tag := c.tag + fmt.Sprint(c.version.Load()) + `"`
		w.Header().Set("ETag", tag)
		if control := c.control.Load().(string); control != "" {
			w.Header().Set("Cache-Control", control)
		}
		if match := q.Header.Get("If-None-Match"); match != "" {
			c.matched.Add(1)
			if match == tag {
				w.WriteHeader(http.StatusNotModified)
				return
			}
		}
		_, _ = fmt.Fprintf(w, "version %d", c.version.Load())
	})
	return c
}

// freeze stops the clock of a rig that has not started: only pass moves it.
func (r *rig) freeze() *rig {
	began := time.Now()
	*r.e.Now() = func() time.Time { return began.Add(time.Duration(r.clock.Load())) }
	return r
}

func (r *rig) pass(d time.Duration) { r.clock.Add(int64(d)) }

// A request for an object whose host demands to be asked asks it, once in edge.cache.interval, and
// gets the stored object while the host is silent.
func TestDemandedRevalidation(t *testing.T) {
	t.Parallel()
	for _, control := range []string{
		"no-cache", "max-age=0, must-revalidate", "s-maxage=0", "max-age=0, proxy-revalidate",
	} {
		h := newChanging(t, control)
		r := newRig(t, on(h.host, func(c *config.Config) { c.Cache.Wait = c.DrainDeadline * 10 })).freeze().start()
		path := h.name + "/x"
		if o := r.want(path, "version 0"); !o.Filled || !o.Demand {
			t.Errorf("%s: %+v", control, o)
		}
		if o := r.want(path, "version 0"); o.Asked != http.StatusNotModified || h.matched.Load() != 1 {
			t.Errorf("%s: %+v, %d conditional requests", control, o, h.matched.Load())
		}
		if o := r.want(path, "version 0"); o.Asked != 0 || o.Silent || h.asked.Load() != 2 {
			t.Errorf("%s, at once: %+v, asked %d times", control, o, h.asked.Load())
		}
		r.pass(2 * time.Second)
		h.version.Store(1)
		if o := r.want(path, "version 1"); o.Asked != http.StatusOK {
			t.Errorf("%s, changed: %+v", control, o)
		}
		r.pass(2 * time.Second)
		h.status.Store(http.StatusBadGateway)
		if o := r.want(path, "version 1"); !o.Silent || o.Asked != 0 {
			t.Errorf("%s, the host fails: %+v", control, o)
		}
		asked := h.asked.Load()
		r.pass(fill.SparedFor - time.Second)
		if o := r.want(path, "version 1"); !o.Silent || h.asked.Load() != asked {
			t.Errorf("%s, soon after: %+v, asked %d times more", control, o, h.asked.Load()-asked)
		}
		r.pass(2 * time.Second)
		h.status.Store(0)
		if o := r.want(path, "version 1"); o.Asked != http.StatusNotModified {
			t.Errorf("%s, the host is back: %+v", control, o)
		}
		for result, n := range map[string]float64{fill.Unchanged: 2, fill.Changed: 1, fill.Silent: 1, fill.Gone: 0} {
			if got := r.count("edge_revalidations_total", "result", result); got != n {
				t.Errorf("%s: %v revalidations are %s, want %v", control, got, result, n)
			}
		}
		r.sound()
	}
}

// A stale object whose host demands nothing is returned at once, and its host is asked later.
func TestStaleWhileRevalidate(t *testing.T) {
	t.Parallel()
	h := newChanging(t, "max-age=60")
	r := newRig(t, on(h.host)).freeze().start()
	path := h.name + "/x"
	r.want(path, "version 0")
	r.pass(59 * time.Second)
	h.version.Store(1)
	if o := r.want(path, "version 0"); o.Fresh <= o.At || h.asked.Load() != 1 {
		t.Errorf("%+v, asked %d times", o, h.asked.Load())
	}
	r.pass(2 * time.Second)
	h.held.Lock()
	release := sync.OnceFunc(h.held.Unlock)
	t.Cleanup(release)
	if o := r.want(path, "version 0"); o.Fresh > o.At || o.Silent {
		t.Errorf("%+v", o)
	}
	release()
	until(t, "the host has answered", func() bool { got, _, _ := r.read(path); return got == "version 1" })
	if n := h.asked.Load(); n != 2 || r.count("edge_stale_hits_total") == 0 {
		t.Errorf("asked %d times", n)
	}
	if o := r.want(path, "version 1"); o.Fresh <= o.At || o.Asked != 0 {
		t.Errorf("%+v", o)
	}
}

// A URL that its host no longer has is removed, unless it is pinned.
func TestGoneAtTheHost(t *testing.T) {
	t.Parallel()
	for _, pinned := range []bool{false, true} {
		for _, status := range []int{http.StatusNotFound, http.StatusGone} {
			h := newChanging(t, "no-cache")
			r := newRig(t, on(h.host, func(c *config.Config) { c.Cache.Wait = c.DrainDeadline * 10 })).freeze().start()
			if _, err := r.e.Fill(t.Context(), fill.Request{URL: "https://" + h.name + "/x", Pin: pinned}); err != nil {
				t.Fatal(err)
			}
			h.status.Store(int64(status))
			got, o, err := r.read(h.name + "/x")
			if pinned && (err != nil || got != "version 0" || o.Asked != http.StatusNotFound) {
				t.Errorf("%d, pinned: %q, %+v, %v", status, got, o, err)
			}
			if has, _ := r.e.Content().Held(); !pinned && (reason(err) != asset.UpstreamNotFound || has.URLs != 0) {
				t.Errorf("%d: %q, %v, %d URLs", status, got, err, has.URLs)
			}
			r.sound()
		}
	}
}

// A node that is offline asks nobody, and serves what it has.
func TestStaleOffline(t *testing.T) {
	t.Parallel()
	h := newChanging(t, "no-cache")
	r := newRig(t, on(h.host)).freeze().start()
	r.want(h.name+"/x", "version 0")
	r.stop()
	r.cfg.Mode = config.ModeOffline
	r.reboot()
	r.pass(time.Hour)
	if o := r.want(h.name+"/x", "version 0"); o.Silent || o.Fresh > o.At || h.asked.Load() != 1 {
		t.Errorf("%+v, asked %d times", o, h.asked.Load())
	}
}

// With edge.cache.strict a stale object is refused if its host demands to be asked and is silent.
func TestStrict(t *testing.T) {
	t.Parallel()
	h := newChanging(t, "max-age=60, must-revalidate")
	loose := newChanging(t, "max-age=60")
	r := newRig(t, on(h.host), on(loose.host), func(r *rig) {
		r.cfg.Cache.Strict, r.cfg.Cache.Wait = true, r.cfg.DrainDeadline*10
	}).start()
	r.want(h.name+"/x", "version 0")
	r.want(loose.name+"/x", "version 0")
	r.pass(2 * time.Minute)
	h.status.Store(http.StatusServiceUnavailable)
	loose.status.Store(http.StatusServiceUnavailable)
	if _, _, err := r.read(h.name + "/x"); !errors.Is(err, asset.ErrStale) {
		t.Error(err)
	}
	r.want(loose.name+"/x", "version 0")
	r.pass(fill.SparedFor + time.Second) // asked again, and then within the interval of that
	for range 2 {
		if _, _, err := r.read(h.name + "/x"); !errors.Is(err, asset.ErrStale) {
			t.Error(err)
		}
	}
}

// A row of an earlier schema is removed too if its host no longer has the URL.
func TestOldRowIsGoneAtTheHost(t *testing.T) {
	t.Parallel()
	h := newChanging(t, "")
	h.status.Store(http.StatusGone)
	r := newRig(t, on(h.host))
	r.burst(newItem("https://"+h.name+"/Foo_%28bar%29", "old"))
	again := fill.Request{URL: "https://" + h.name + "/Foo_(bar)", Refresh: true}
	if _, err := r.e.Fill(t.Context(), again); reason(err) != asset.UpstreamNotFound {
		t.Error(err)
	}
	if has, _ := r.e.Content().Held(); has.URLs != 0 {
		t.Errorf("%d URLs", has.URLs)
	}
}

// A refresh of a POST is conditional too, and reports that nothing was fetched.
func TestRefreshIsConditional(t *testing.T) {
	t.Parallel()
	h := newChanging(t, "")
	r := newRig(t, on(h.host)).freeze().start()
	q := fill.Request{URL: "https://" + h.name + "/x", Refresh: true, Pin: true}
	for i, want := range []struct{ fetched, same bool }{{true, false}, {false, true}} {
		f, err := r.e.Fill(t.Context(), q)
		if err != nil || f.New != want.fetched || f.Same != want.same || !f.Pinned || f.Checked == 0 ||
			f.Fresh-f.Checked != int64(24*time.Hour) {
			t.Errorf("refresh %d: %+v, %v", i, f, err)
		}
	}
	h.version.Store(1)
	if f, err := r.e.Fill(t.Context(), q); err != nil || !f.New || h.matched.Load() != 2 {
		t.Errorf("%+v, %v", f, err)
	}
	r.want(h.name+"/x", "version 1")
}

// With edge.fill.etag = "weak" an object with a weak tag is stored, and asked about by it.
func TestWeakTags(t *testing.T) {
	t.Parallel()
	h := newChanging(t, "no-cache")
	h.tag = `W/"v`
	if _, _, err := newRig(t, on(h.host)).freeze().start().read(h.name + "/x"); reason(err) != asset.ETagInvalid {
		t.Errorf("strong: %v", err)
	}
	r := newRig(t, on(h.host, func(c *config.Config) {
		c.Fill.ETag, c.Cache.Wait = config.ETagWeak, c.DrainDeadline*10
	})).start()
	r.want(h.name+"/x", "version 0")
	if o := r.want(h.name+"/x", "version 0"); o.Asked != http.StatusNotModified {
		t.Errorf("%+v", o)
	}
}
