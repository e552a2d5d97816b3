package edge_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/config"
	"ronbox/engines/edge/fill"
)

// A fetched object is served from memory and from the disk, after a restart, and without its host.
func TestFetchedOnce(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo)
	r := newRig(t, on(h)).start()
	path := h.name + "/fonts/a b.ttf"
	o := r.want(path, "of fonts/a b.ttf")
	if !o.Filled || o.Type != "text/plain" || o.Immutable ||
		o.ETag() != `"`+b3.Sum([]byte("of fonts/a b.ttf")).String()+`"` {
		t.Errorf("%+v", o)
	}
	h.Close()
	until(t, "it is in memory", func() bool {
		o := r.want(path, "of fonts/a b.ttf")
		return o.From == asset.FromHot && !o.Filled
	})
	r.e.Purge()
	if o := r.want(path, "of fonts/a b.ttf"); o.From != asset.FromCAS {
		t.Errorf("%+v", o)
	}
	r.cfg.Mode = config.ModeOffline
	r.reboot()
	r.want(path, "of fonts/a b.ttf")
	if o := r.want("b3/"+o.Digest.String()[3:], "of fonts/a b.ttf"); !o.Immutable || o.Type != "text/plain" {
		t.Errorf("%+v", o)
	}
	if h.asked.Load() != 1 {
		t.Errorf("asked %d times", h.asked.Load())
	}
	r.sound()
}

// A query is part of the URL that is fetched and found. The root of a host and a path that ends
// with a slash can be fetched. All are found by a GET and after a restart, without the host.
func TestQueriesAndSlashes(t *testing.T) {
	t.Parallel()
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) { serve(w, "of "+q.URL.RequestURI()) })
	r := newRig(t, on(h)).start()
	forms := []string{
		"/", "/?", "/?a=1", "/?a=2", "/dir/", "/dir", "/dir/?a=1", "/css2?family=A:wght@400;700", "/a%3Fa=1", "/a?a=1",
		"/a",
	}
	for i, form := range forms {
		want, path := "of "+strings.TrimSuffix(form, "?"), strings.Replace(h.name+form, "%3F", "\x01", 1)
		if i%2 == 0 && form != "/?" {
			f, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + form})
			if err != nil || f.URL != "https://"+h.name+form {
				t.Fatalf("%s: %+v, %v", form, f, err)
			}
		}
		if got := r.at(path); got != want {
			t.Errorf("%s: %q", form, got)
		}
	}
	if n := h.asked.Load(); n != int64(len(forms)-1) { // /? is /
		t.Errorf("asked %d times", n)
	}
	h.Close()
	for range 2 {
		for _, form := range forms {
			if got := r.at(strings.Replace(h.name+form, "%3F", "\x01", 1)); got != "of "+strings.TrimSuffix(form, "?") {
				t.Errorf("%s without the host: %q", form, got)
			}
		}
		r.cfg.Mode = config.ModeOffline
		r.reboot()
	}
	r.sound()
}

// at reads an asset. \x01 stands for a ? in the path. It returns the bytes or the error.
func (r *rig) at(path string) string {
	path, query, _ := strings.Cut(path, "?")
	o, err := r.e.Asset(context.Background(), strings.Replace(path, "\x01", "?", 1), query)
	if err != nil {
		return err.Error()
	}
	defer o.Close()
	return string(o.Bytes)
}

// A thousand requests for the same missing object are served by one call of the host.
func TestManyMissOne(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		<-gate
		echo(w, q)
	})
	r := newRig(t, on(h, func(c *config.Config) { c.Ingress.RPSLimit = 5000 })).start()
	const n = 1000
	var all sync.WaitGroup
	var began atomic.Int64
	for range n {
		all.Go(func() {
			began.Add(1)
			if body, _, err := r.read(h.name + "/x"); err != nil || body != "of x" {
				t.Errorf("%q, %v", body, err)
			}
		})
	}
	until(t, "the host is asked", func() bool { return h.asked.Load() > 0 && began.Load() == n })
	close(gate)
	all.Wait()
	if h.asked.Load() != 1 {
		t.Errorf("asked %d times", h.asked.Load())
	}
	r.sound()
}

// In offline mode the edge fetches nothing. In amnesia it does not search the disk either.
func TestModes(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo)
	r := newRig(t, on(h, func(c *config.Config) { c.Mode = config.ModeOffline })).start()
	r.refused(h.name+"/x", asset.ErrNotFound)
	if _, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + "/x"}); !errors.Is(
		err,
		asset.ErrOffline,
	) {
		t.Error(err)
	}
	forgets := newRig(t, on(h), func(r *rig) { r.amnesia = true }).start()
	forgets.refused(h.name+"/x", asset.ErrAmnesia)
	if _, err := forgets.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + "/x"}); !errors.Is(
		err,
		asset.ErrAmnesia,
	) {
		t.Error(err)
	}
	if _, err := os.Stat(forgets.dir + "/edge"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("amnesia has made a folder: %v", err)
	}
	if h.asked.Load() != 0 {
		t.Errorf("asked %d times", h.asked.Load())
	}
}

// A 404 of a host is remembered for a minute, but a POST fill asks again.
func TestAbsence(t *testing.T) {
	t.Parallel()
	var there atomic.Bool
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		if !there.Load() {
			http.NotFound(w, q)
			return
		}
		echo(w, q)
	})
	r := newRig(t, on(h))
	var at atomic.Int64
	at.Store(time.Now().UnixNano())
	*r.e.Now() = func() time.Time { return time.Unix(0, at.Load()) }
	r.start()
	for range 3 {
		if _, _, err := r.read(h.name + "/x"); reason(err) != asset.UpstreamNotFound {
			t.Fatal(err)
		}
		r.e.Absent().Settle()
	}
	if h.asked.Load() != 1 {
		t.Errorf("asked %d times", h.asked.Load())
	}
	there.Store(true)
	at.Add(int64(negativeFor - time.Second))
	if _, _, err := r.read(h.name + "/x"); reason(err) != asset.UpstreamNotFound {
		t.Error(err)
	}
	at.Add(int64(time.Second))
	r.want(h.name+"/x", "of x")
}

// A POST fill reports a stored object, refuses unexpected bytes, and replaces a changed object.
func TestFill(t *testing.T) {
	t.Parallel()
	var body atomic.Value
	body.Store("one")
	h := newHost(t, func(w http.ResponseWriter, _ *http.Request) { serve(w, body.Load().(string)) })
	r := newRig(t, on(h)).start()
	url := "https://" + h.name + "/x"
	one, two := b3.Sum([]byte("one")), b3.Sum([]byte("two"))
	for _, step := range []struct {
		doc     string
		r       fill.Request
		digest  b3.Digest
		stored  bool
		reason  asset.Reason
		objects int64
	}{
		{"not what is expected", fill.Request{URL: url, Expect: two}, one, false, asset.DigestMismatch, 0},
		{"new", fill.Request{URL: url, Expect: one}, one, true, "", 1},
		{"there", fill.Request{URL: url}, one, false, "", 1},
		{"there, and not what is expected", fill.Request{URL: url, Expect: two}, one, false, asset.DigestMismatch, 1},
		{"unchanged", fill.Request{URL: url, Refresh: true}, one, true, "", 1},
		{"changed", fill.Request{URL: url, Refresh: true}, two, true, "", 1},
		{"the same under another name", fill.Request{URL: url + "y"}, two, true, "", 1},
		{"not allowed", fill.Request{URL: "https://example.com/x"}, two, false, asset.NotAllowed, 1},
	} {
		if step.doc == "changed" {
			body.Store("two")
		}
		f, err := r.e.Fill(context.Background(), step.r)
		if reason(err) != step.reason ||
			step.reason == "" && (err != nil || f.Digest != step.digest || f.New != step.stored) {
			t.Errorf("%s: %+v, %v", step.doc, f, err)
		}
		if has, _ := r.e.Content().Held(); has.Objects != step.objects {
			t.Errorf("%s: %d objects", step.doc, has.Objects)
		}
		r.sound()
	}
	r.refused("b3/"+one.String()[3:], asset.ErrNotFound)
	if got := r.want(h.name+"/xy", "two"); got.Digest != two {
		t.Errorf("%+v", got)
	}
	var bad *asset.PathError
	for _, url := range []string{
		"http://" + h.name + "/x", url + "?", url + "#a", url + "?a b", "https://u@" + h.name + "/x",
		"https://" + h.name + "/a%5cb", "::",
	} {
		if _, err := r.e.Fill(context.Background(), fill.Request{URL: url}); !errors.As(err, &bad) {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// Requests that need a fill are limited to the rate; hits are not counted.
func TestRate(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo)
	r := newRig(t, on(h, func(c *config.Config) { c.Ingress.RPSLimit = 3 }))
	var at atomic.Int64
	at.Store(time.Now().UnixNano())
	*r.e.Now() = func() time.Time { return time.Unix(0, at.Load()) }
	r.start()
	for _, path := range []string{"/a", "/b", "/c"} {
		r.want(h.name+path, "of "+path[1:])
	}
	for range 10 {
		r.want(h.name+"/a", "of a")
	}
	var rate *asset.RateError
	if _, _, err := r.read(h.name + "/d"); !errors.As(err, &rate) || rate.Wait <= 0 ||
		rate.Wait > 334*time.Millisecond {
		t.Errorf("%v", err)
	}
	at.Add(int64(rate.Wait + time.Millisecond))
	r.want(h.name+"/d", "of d")
}

// A POST fill is counted against the limit even if it fetches nothing. A request that is refused
// for another reason is not counted.
func TestRateOfPosts(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo)
	r := newRig(t, on(h, func(c *config.Config) { c.Ingress.RPSLimit = 4 }))
	at := time.Now()
	*r.e.Now() = func() time.Time { return at }
	r.start()
	ask := func() error {
		_, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + "/x"})
		return err
	}
	for i := range 4 {
		if err := ask(); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	var rate *asset.RateError
	if err := ask(); !errors.As(err, &rate) || rate.Wait <= 0 || rate.Wait > 250*time.Millisecond {
		t.Errorf("a fifth: %v", err)
	}
	r.want(h.name+"/x", "of x")
	if _, _, err := r.read("elsewhere.example/x"); reason(err) != asset.NotAllowed {
		t.Errorf("a host that is not listed: %v", err)
	}
	if h.asked.Load() != 1 {
		t.Errorf("asked %d times", h.asked.Load())
	}
}

// A full queue refuses at once and counts the refusal. The accepted fills are executed.
func TestBackpressure(t *testing.T) {
	t.Parallel()
	gate := make(chan struct{})
	h := newHost(t, func(w http.ResponseWriter, q *http.Request) {
		<-gate
		echo(w, q)
	})
	r := newRig(t, on(h, func(c *config.Config) { c.Fill.Workers, c.Queues.WorkTX = 1, 2 })).start()
	var all sync.WaitGroup
	ask := func(path string) {
		all.Go(func() {
			if body, _, err := r.read(h.name + "/" + path); err != nil || body != "of "+path {
				t.Errorf("%s: %q, %v", path, body, err)
			}
		})
	}
	ask("a")
	until(t, "the worker works", func() bool { return h.asked.Load() == 1 })
	ask("b")
	ask("c")
	until(t, "the queue is full", func() bool { return r.e.Fills().Load().Waiting == 2 })
	r.refused(h.name+"/d", flow.ErrBusy)
	if _, err := r.e.Fill(context.Background(), fill.Request{URL: "https://" + h.name + "/e"}); !errors.Is(
		err,
		flow.ErrBusy,
	) {
		t.Error(err)
	}
	if n := r.count("queue_dropped_total", "queue", "work"); n != 2 {
		t.Errorf("%v dropped", n)
	}
	if n := r.count("queue_depth", "queue", "work"); n != 2 {
		t.Errorf("depth %v", n)
	}
	until(t, "the refused are forgotten, and one fill is in hand",
		func() bool { return r.count("worker_inflight") == 1 })
	close(gate)
	all.Wait()
	if h.asked.Load() != 3 {
		t.Errorf("asked %d times", h.asked.Load())
	}
}

// After a reload fills use the new list of hosts.
func TestReload(t *testing.T) {
	t.Parallel()
	h := newHost(t, echo)
	r := newRig(t, on(h)).start()
	r.want(h.name+"/x", "of x")
	cfg := r.cfg
	cfg.Allow = []string{"example.com"}
	r.e.Reload(cfg)
	if _, _, err := r.read(h.name + "/y"); reason(err) != asset.NotAllowed {
		t.Error(err)
	}
	r.want(h.name+"/x", "of x")
	cfg.Allow, cfg.CAFile = r.cfg.Allow, "/nowhere"
	r.e.Reload(cfg) // the file cannot be read: the old hosts stay
	if _, _, err := r.read(h.name + "/y"); reason(err) != asset.NotAllowed {
		t.Error(err)
	}
	r.e.Reload(r.cfg)
	r.want(h.name+"/y", "of y")
}

// A reload reads the certificate file again. If it cannot be read, the old hosts stay.
func TestCertificatesAreReadAgain(t *testing.T) {
	t.Parallel()
	cert, ca := certificate(t, time.Now().Add(time.Hour))
	h := newHostWith(t, cert, ca, echo)
	other, _ := shared()
	put := func(pem []byte) {
		t.Helper()
		if err := os.WriteFile(h.ca, pem, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(other.pem)
	r := newRig(t, on(h)).start()
	if _, _, err := r.read(h.name + "/x"); reason(err) != asset.UpstreamConnect {
		t.Fatalf("under another certificate: %v", err)
	}
	put(ca)
	r.e.Reload(r.cfg)
	r.want(h.name+"/x", "of x")
	put([]byte("none"))
	before := r.e.Origins()
	r.e.Reload(r.cfg)
	r.want(h.name+"/y", "of y")
	put(ca)
	r.e.Reload(r.cfg)
	r.want(h.name+"/z", "of z")
	if r.e.Origins() != before {
		t.Error("the same certificates were taken for others: what is known of the hosts is lost")
	}
}

// TestReloadVerifiesPacks reloads the engine: a new pack is verified, even if the certificates
// cannot be read and the old hosts stay.
func TestReloadVerifiesPacks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	r := newRig(t, func(r *rig) { r.cfg.PacksDir = dir }).start()
	file, err := os.ReadFile("../../testdata/packs/stamen_toner_z3.pmtiles")
	if err != nil {
		t.Fatal(err)
	}
	for id, ca := range map[string]string{"good": "", "bad": filepath.Join(dir, "none.pem")} {
		if err := os.WriteFile(filepath.Join(dir, id+".pmtiles"), file, 0o600); err != nil {
			t.Fatal(err)
		}
		cfg := r.cfg
		cfg.CAFile = ca
		r.e.Reload(cfg)
		until(t, id+" is verified", func() bool {
			i, err := r.e.Packs().Info(id)
			return err == nil && i.State == asset.PackVerified
		})
	}
}
