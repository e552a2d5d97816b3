package edge_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/fill"
)

// filled fills a path of h by a POST with a pin.
func (r *rig) filled(h *host, path string) fill.Filled {
	r.t.Helper()
	f, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + path, Pin: true})
	if err != nil {
		r.t.Fatalf("%s: %v", path, err)
	}
	return f
}

// do calls Keep for paths of h.
func (r *rig) do(action asset.Action, h *host, paths ...string) asset.KeepResult {
	r.t.Helper()
	var urls []string
	for _, path := range paths {
		urls = append(urls, "https://"+h.name+path)
	}
	k, err := r.e.Keep(context.Background(), action, urls)
	if err != nil {
		r.t.Fatalf("%s %v: %v", action, paths, err)
	}
	return k
}

// listed returns all URLs of a query, read in pages of two.
func (r *rig) listed(q content.KeyQuery) (all []content.KeyInfo) {
	r.t.Helper()
	for q.Limit = 2; ; {
		page, next, err := r.e.Keys(context.Background(), q)
		if err != nil || len(page) > q.Limit || next != "" && (next <= q.After || len(all) > 10_000) {
			r.t.Fatalf("after %q: %d, next %q, %v", q.After, len(page), next, err)
		}
		if all = append(all, page...); next == "" {
			return all
		}
		q.After = next
	}
}

// Pinned URLs stay while other objects are fetched and evicted, also over restarts, until rm.
func TestPinnedStay(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000, func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 10_500, 10_500 })
	for _, path := range []string{"/a", "/b", "/c"} {
		if f := r.filled(h, path); !f.Pinned || f.Unpinned != "" {
			t.Errorf("%s: %+v", path, f)
		}
		r.clock.Add(int64(time.Minute))
	}
	flood := func(n int) {
		t.Helper()
		for i := range n {
			r.clock.Add(int64(time.Minute))
			path := fmt.Sprintf("/flood/%d/%d", n, i)
			r.want(h.name+path, body(path[1:]))
		}
	}
	flood(30)
	r.reboot()
	flood(31)
	r.sound()
	for _, path := range []string{"/a", "/b", "/c"} {
		if o := r.want(h.name+path, body(path[1:])); o.Filled {
			t.Errorf("%s was evicted", path)
		}
	}
	if n := r.count("edge_cas_pins"); n != 3 {
		t.Errorf("%v pins", n)
	}
	if n := r.count("edge_cas_pinned_bytes"); n != 3000 {
		t.Errorf("%v bytes are pinned", n)
	}
	if k := r.do(asset.Unpin, h, "/a"); len(k.Changed) != 1 {
		t.Errorf("%+v", k)
	}
	k := r.do(asset.Remove, h, "/b", "/none")
	if k.Freed != 1000 || !slices.Equal(k.Changed, []string{"https://" + h.name + "/b"}) ||
		!slices.Equal(k.Missing, []string{"https://" + h.name + "/none"}) {
		t.Errorf("%+v", k)
	}
	flood(32)
	r.cfg.Mode = config.ModeOffline
	r.e.Reload(r.cfg)
	r.refused(h.name+"/a", asset.ErrNotFound)
	r.refused(h.name+"/b", asset.ErrNotFound)
	r.want(h.name+"/c", body("c"))
	r.sound()
	r.reboot()
	r.sound()
}

// Pins end at edge.cas.max_pinned: a fill beyond it stores the object without a pin, and a pin is
// refused without an effect. GETs use the rest of the room.
func TestPinsHaveACap(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000,
		func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes, c.CAS.MaxPinned = 10_500, 10_500, 9000 })
	for i := range 9 {
		if f := r.filled(h, fmt.Sprint("/", i)); !f.Pinned {
			t.Errorf("%d: %+v", i, f)
		}
	}
	over := r.filled(h, "/over")
	if over.Pinned || !over.New || !strings.Contains(over.Unpinned, "edge.cas.max_pinned") {
		t.Errorf("%+v", over)
	}
	r.want(h.name+"/over", body("over"))
	var full *asset.PinsError
	if _, err := r.e.Keep(t.Context(), asset.Pin, []string{over.URL}); !errors.As(err, &full) || full.Bytes != 10_000 ||
		full.MaxBytes != 9000 {
		t.Errorf("%v", err)
	}
	for i := range 5 { // with little room left by the pins
		r.want(fmt.Sprint(h.name, "/get/", i), body(fmt.Sprint("get/", i)))
	}
	if k := r.do(asset.Pin, h, "/0"); len(k.Changed) != 1 { // it is pinned already
		t.Errorf("%+v", k)
	}
	r.do(asset.Unpin, h, "/0")
	if f := r.filled(h, "/0"); !f.Pinned || f.New {
		t.Errorf("%+v", f)
	}
	few := r.cfg
	few.CAS.MaxPinned, few.CAS.MaxURLs = 0, 2*9
	r.e.Reload(few) // below the pinned bytes: pins stay, and no pin is added
	if f := r.filled(h, "/more"); f.Pinned {
		t.Errorf("%+v", f)
	}
	r.sound()
	few.CAS.MaxBytes, few.CAS.MaxPinned = 1<<20, 1<<19
	r.e.Reload(few)
	if f := r.filled(h, "/more"); f.Pinned || !strings.Contains(f.Unpinned, "edge.cas.max_urls") {
		t.Errorf("%+v", f)
	}
	r.sound()
}

// A refresh stores the new object, and removes the pin if it would exceed edge.cas.max_pinned, even
// if one burst of the writer installs several refreshes.
func TestRefreshKeepsToTheCapOfPins(t *testing.T) {
	t.Parallel()
	var size atomic.Int64
	size.Store(1000)
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, sized(int(size.Load()))(q.URL.Path[1:])) })
	r := newRig(t, on(h, func(c *config.Config) { c.CAS.MaxPinned = 5000 })).start()
	refresh := func(path string, pin bool) fill.Filled {
		t.Helper()
		f, err := r.e.Fill(t.Context(), fill.Request{URL: "https://" + h.name + path, Refresh: true, Pin: pin})
		if err != nil || f.Size != size.Load() {
			t.Fatalf("%s: %+v, %v", path, f, err)
		}
		return f
	}
	pinned := func(want int64) {
		t.Helper()
		if has, _ := r.e.Content().Held(); has.Pinned != want {
			t.Errorf("%d bytes are pinned, want %d", has.Pinned, want)
		}
		r.sound()
	}
	for i := range 3 {
		r.filled(h, fmt.Sprint("/", i))
	}
	size.Store(2000)
	for _, path := range []string{"/0", "/1"} {
		if f := refresh(path, false); !f.Pinned || f.Unpinned != "" {
			t.Errorf("%s: %+v", path, f)
		}
	}
	pinned(5000)
	for _, pin := range []bool{false, true} {
		if f := refresh("/2", pin); f.Pinned || !strings.Contains(f.Unpinned, "edge.cas.max_pinned") {
			t.Errorf("pin %v: %+v", pin, f)
		}
		pinned(4000)
	}
	r.do(asset.Unpin, h, "/0")
	r.do(asset.Pin, h, "/2")
	pinned(4000)
	size.Store(3000)
	r.stop()
	r.open() // without its tasks
	r.burst(
		newItem("https://"+h.name+"/1", sized(3000)("burst/0")),
		newItem("https://"+h.name+"/2", sized(3000)("burst/1")))
	pinned(3000) // one has grown, and the other has lost its pin
	few := r.cfg
	few.CAS.MaxPinned = 1000
	r.e.Reload(few)
	size.Store(3000)
	for i := range 3 {
		refresh(fmt.Sprint("/", i), false)
	}
	pinned(3000) // a lower cap removes no pin of a URL that does not grow
}

// A pin of a lost object holds no URL: the other URLs count as unpinned.
func TestLostPinHoldsNoURL(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000)
	f := r.filled(h, "/x")
	r.want(h.name+"/y", body("y"))
	flip(t, r.file(f.Digest), 7)
	if _, found := r.verified(true); len(found) != 1 {
		t.Errorf("%+v", found)
	}
	loose := func() int64 { has, _ := r.e.Content().Held(); _, urls := has.Loose(); return urls }
	if n := loose(); n != 1 {
		t.Errorf("%d URLs are loose with a pin of another", n)
	}
	r.cfg.Mode = config.ModeOffline
	r.e.Reload(r.cfg)
	flip(t, r.file(f.Digest), 7)
	r.verified(true)
	if n := loose(); n != 1 {
		t.Errorf("%d URLs are loose with a lost pin", n)
	}
	r.sound()
}

// An object with two URLs is removed with the last one, and stays while one of them is pinned.
func TestSharedObjectIsHeldByAPin(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		if q.URL.Path == "/x" || q.URL.Path == "/y" {
			serve(w, strings.Repeat("s", 1000))
			return
		}
		serve(w, sized(1000)(q.URL.Path[1:]))
	})
	r := newRig(t, on(h, func(c *config.Config) { c.CAS.MaxBytes, c.Fill.MaxObjectBytes = 5500, 5500 })).start()
	x := r.filled(h, "/x")
	r.want(h.name+"/y", strings.Repeat("s", 1000))
	for i := range 20 {
		r.clock.Add(int64(time.Minute))
		r.want(fmt.Sprint(h.name, "/", i), sized(1000)(fmt.Sprint(i)))
	}
	r.sound()
	if k := r.do(asset.Remove, h, "/x"); k.Freed != 0 {
		t.Errorf("%+v: another URL leads to it", k)
	}
	r.want("b3/"+x.Digest.String()[3:], strings.Repeat("s", 1000))
	if k := r.do(asset.Remove, h, "/y"); k.Freed != 1000 {
		t.Errorf("%+v", k)
	}
	r.refused("b3/"+x.Digest.String()[3:], asset.ErrNotFound)
	if _, err := os.Stat(r.file(x.Digest)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("its file: %v", err)
	}
	r.sound()
}

// A pin outlives its object: after damage the URL is pinned again as soon as it is fetched.
func TestPinOutlivesDamage(t *testing.T) {
	t.Parallel()
	r, h, body := newSizedRig(t, 1000)
	f := r.filled(h, "/x")
	r.cfg.Mode = config.ModeOffline
	r.e.Reload(r.cfg)
	r.e.Purge()
	flip(t, r.file(f.Digest), 7)
	r.refused(h.name+"/x", asset.ErrCorrupt)
	until(t, "it is set aside", func() bool { has, _ := r.e.Content().Held(); return has.Objects == 0 })
	r.sound()
	r.reboot()
	r.sound()
	if all := r.listed(content.KeyQuery{}); len(all) != 1 || all[0].URL != f.URL || !all[0].Pinned || !all[0].Digest.IsZero() ||
		all[0].Fetched.IsZero() {
		t.Errorf("%+v", all)
	}
	r.cfg.Mode = config.ModeLive
	r.e.Reload(r.cfg)
	r.want(h.name+"/x", body("x"))
	if all := r.listed(content.KeyQuery{}); len(all) != 1 || !all[0].Pinned || all[0].Digest != f.Digest {
		t.Errorf("%+v", all)
	}
	r.sound()
	if err := os.Remove(r.file(f.Digest)); err != nil { // as after a restore
		t.Fatal(err)
	}
	r.reboot()
	if all := r.listed(content.KeyQuery{}); len(all) != 1 || !all[0].Pinned || !all[0].Used.IsZero() {
		t.Errorf("without its file: %+v", all)
	}
	r.want(h.name+"/x", body("x"))
	r.sound()
}

// Keys lists URLs in order, by prefix, in pages, only pinned ones, and long ones with a common
// prefix.
func TestKeys(t *testing.T) {
	t.Parallel()
	r, h, _ := newSizedRig(t, 1500)
	long := "/long/" + strings.Repeat(strings.Repeat("x", 200)+"/", 3)
	var want, pinned []string
	for i, path := range []string{"/b/2", "/b/1", "/a", long + "1", long + "2", long + "3", "/b/10", "/c"} {
		url := "https://" + h.name + path
		if i%2 == 0 {
			r.filled(h, path)
			pinned = append(pinned, url)
		} else if f, err := r.e.Fill(t.Context(), fill.Request{URL: url}); err != nil || f.Pinned {
			t.Fatalf("%s: %+v, %v", url, f, err)
		}
		want = append(want, url)
	}
	for doc, tt := range map[string]struct {
		q    content.KeyQuery
		want func(url string) bool
	}{
		"all": {content.KeyQuery{}, func(string) bool { return true }},
		"prefix": {
			content.KeyQuery{Prefix: "https://" + h.name + "/b/1"}, func(u string) bool { return strings.Contains(u, "/b/1") },
		},
		"pinned": {content.KeyQuery{Pinned: true}, func(u string) bool { return slices.Contains(pinned, u) }},
		"long prefix": {
			content.KeyQuery{Prefix: "https://" + h.name + long + "2"},
			func(u string) bool { return strings.HasSuffix(u, "x/2") },
		},
		"none": {content.KeyQuery{Prefix: "https://nowhere"}, func(string) bool { return false }},
	} {
		var got, all []string
		for _, k := range r.listed(tt.q) {
			got = append(got, k.URL)
			if k.Size != 1500 || k.Digest.IsZero() || k.Pinned != slices.Contains(pinned, k.URL) ||
				time.Since(k.Fetched) > time.Hour ||
				k.Used.IsZero() {
				t.Errorf("%s: %+v", doc, k)
			}
		}
		for _, url := range want {
			if tt.want(url) {
				all = append(all, url)
			}
		}
		if doc == "all" &&
			!slices.IsSortedFunc(got,
				func(a, b string) int { return strings.Compare(a[:min(400, len(a))], b[:min(400, len(b))]) }) {
			t.Errorf("not in order: %q", got)
		}
		slices.Sort(got)
		slices.Sort(all)
		if !slices.Equal(got, all) {
			t.Errorf("%s: %q, want %q", doc, got, all)
		}
	}
	if _, err := r.e.Keep(t.Context(), asset.Pin, []string{"ftp://x/y"}); err == nil {
		t.Error("a URL of another scheme is accepted")
	}
}
