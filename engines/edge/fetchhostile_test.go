package edge

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
)

// quick shortens the wait of requests, so that a bad node is left soon.
func quick(r *rig) { r.cfg.Ingress.TimeoutSecs = 2 }

// A node that never ends its body, or sends it too slowly, is left in time for the next one. It is
// soon asked no more.
func TestFetchFromSlowNode(t *testing.T) {
	t.Parallel()
	for doc, answer := range map[string]func(w http.ResponseWriter, q *http.Request){
		"silent after the header": func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Length", "1000")
			w.WriteHeader(http.StatusOK)
			_ = http.NewResponseController(w).Flush()
			<-q.Context().Done()
		},
		"silent before it": func(_ http.ResponseWriter, q *http.Request) { <-q.Context().Done() },
		"breaks off": func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Length", "1000")
			_, _ = w.Write([]byte("half"))
			panic(http.ErrAbortHandler)
		},
		"drips": func(w http.ResponseWriter, q *http.Request) {
			w.Header().Set("ETag", `"x"`)
			w.Header().Set("Content-Length", "1000")
			for q.Context().Err() == nil {
				_, _ = w.Write([]byte("."))
				_ = http.NewResponseController(w).Flush()
				select {
				case <-q.Context().Done():
				case <-time.After(50 * time.Millisecond):
				}
			}
		},
	} {
		t.Run(doc, func(t *testing.T) {
			t.Parallel()
			body := loud("body", 1000)
			slow, good := newStation(t, "a", body), newStation(t, "b", body)
			slow.answer = answer
			r := newRig(t, inFleet(quick)).start()
			r.setFleet(view(1, slow, good))
			if got, err := r.fetch(b3.Sum([]byte(body)), Near{Owner: slow.ID}); got != body || err != nil {
				t.Errorf("%.10q, %v", got, err)
			}
			if r.e.neighbors().byName[good.ID].fails() {
				t.Error("the good node is blamed")
			}
			for i := 0; !r.e.neighbors().byName[slow.ID].fails(); i++ {
				if i == 10 {
					t.Fatal("the slow node is asked for ever")
				}
				_, _ = r.fetch(b3.Sum(fmt.Append(nil, i)), Near{Owner: slow.ID})
			}
			until(t, "the fills have ended", func() bool { return r.e.fills.Load().Running == 0 })
			r.sound()
		})
	}
}

// A partial of one node is completed by another.
func TestFetchResumesAtAnotherNode(t *testing.T) {
	t.Parallel()
	body := loud("body", 200_000)
	first, second := newStation(t, "a", body), newStation(t, "b", body)
	first.answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"`+b3.Sum([]byte(body)).String()+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write([]byte(body[:150_000]))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	var asked string
	second.answer = func(w http.ResponseWriter, q *http.Request) {
		if q.Method == http.MethodGet {
			asked = q.Header.Get("Range")
		}
		second.serve(w, q)
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, first, second))
	if got, err := r.fetch(b3.Sum([]byte(body)), Near{Owner: first.ID}); got != body || err != nil {
		t.Fatalf("%.10q, %v", got, err)
	}
	if asked == "" || r.e.neighbors().byName[second.ID].fails() {
		t.Errorf("the second node was asked for %q", asked)
	}
	r.sound()
}

// A liar that claims a long body displaces nothing before it has sent it.
func TestFetchReservesAsBytesArrive(t *testing.T) {
	t.Parallel()
	liar := newStation(t, "a")
	liar.answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"x"`)
		w.Header().Set("Content-Length", fmt.Sprint(64<<20))
		w.WriteHeader(http.StatusOK)
		if q.Method == http.MethodGet {
			_, _ = w.Write([]byte("a few bytes"))
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}
	}
	r := newRig(t, inFleet(quick, func(r *rig) {
		r.cfg.CAS.MaxBytes, r.cfg.Fill.MaxObjectBytes = 64<<20, 64<<20
	})).start()
	d := r.stores(loud("kept", 2<<20))
	r.setFleet(view(1, liar))
	if err := r.e.Fetch(t.Context(), b3.Sum([]byte("x")), Near{Owner: liar.ID}); err == nil {
		t.Fatal("a lie is believed")
	}
	if has, err := r.e.content.Has(t.Context(), d); !has || err != nil {
		t.Errorf("the claim of a liar has displaced an object: %v", err)
	}
	r.sound()
}

// mirror makes a station answer as a node does, from a rig.
func (s *station) mirror(r *rig) {
	s.answer = func(w http.ResponseWriter, q *http.Request) {
		path := strings.TrimPrefix(q.URL.Path, "/edge/assets/")
		o, err := r.e.Asset(q.Context(), path, "")
		if errors.Is(err, asset.ErrNotFound) && q.Header[HopHeader] == nil {
			o, err = r.e.FetchAsset(q.Context(), path, netip.Addr{}, func() bool { return true })
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusNotFound)
			return
		}
		defer o.Close()
		w.Header().Set("ETag", o.ETag())
		http.ServeContent(w, q, "", time.Time{}, strings.NewReader(string(o.Bytes)))
	}
}

// Two nodes that miss an object ask each other once, not in a loop.
func TestFetchDoesNotLoop(t *testing.T) {
	t.Parallel()
	a, b := newStation(t, "a"), newStation(t, "b")
	ra, rb := newRig(t, inFleet()).start(), newRig(t, inFleet()).start()
	a.mirror(ra)
	b.mirror(rb)
	ra.setFleet(view(1, b))
	rb.setFleet(view(1, a))
	if err := ra.e.Fetch(t.Context(), b3.Sum([]byte("x")), Near{}); !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	if a.heads.Load()+a.asked.Load() != 0 || b.heads.Load() != 1 || b.asked.Load() != 0 {
		t.Errorf("a was asked %d times, b %d", a.heads.Load()+a.asked.Load(), b.heads.Load()+b.asked.Load())
	}
	d := rb.stores("there")
	if got, err := ra.fetch(d, Near{}); got != "there" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}

// A stranger causes nothing to be fetched but objects of a manifest that was opened here.
func TestStrangersFetchListedObjects(t *testing.T) {
	t.Parallel()
	a := newStation(t, "a", "unlisted")
	root := a.adds(t, "listed")
	index := newFleetNames()
	index.set("docs.example", Named{Manifest: root, Owner: a.Identity})
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	r.setFleet(view(1, a))
	asks := func(body string, may bool) error {
		d := b3.Sum([]byte(body))
		o, err := r.e.FetchAsset(t.Context(), asset.PathOf(d), netip.Addr{}, func() bool { return may })
		if err == nil {
			o.Close()
		}
		return err
	}
	for i := range 200 {
		if err := asks(fmt.Sprint("random ", i), false); !errors.Is(err, asset.ErrNotFound) {
			t.Fatal(err)
		}
	}
	if err := asks("listed", false); !errors.Is(err, asset.ErrNotFound) || a.asked.Load()+a.heads.Load() != 0 {
		t.Errorf("before the manifest is opened: %v, %d requests", err, a.asked.Load()+a.heads.Load())
	}
	_, err := r.e.Site(t.Context(), SiteRequest{Name: "docs.example", Path: "none"})
	if !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	if err := asks("listed", false); err != nil {
		t.Error(err)
	}
	if err := asks("unlisted", false); !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	if err := asks("unlisted", true); err != nil {
		t.Error(err)
	}
}

// Objects that displace each other are fetched again and again, at most as often as
// edge.ingress.rps_limit allows, and the content store stays sound.
func TestEvictAndFetchAgain(t *testing.T) {
	t.Parallel()
	bodies := []string{loud("one", 600_000), loud("two", 600_000)}
	a := newStation(t, "a", bodies...)
	r := newRig(t, inFleet(func(r *rig) {
		r.cfg.CAS.MaxBytes, r.cfg.Fill.MaxObjectBytes = 1_000_000, 1_000_000
		r.cfg.Ingress.RPSLimit = 1
	})).start()
	r.setFleet(view(1, a))
	refused := 0
	for i := range 30 {
		body := bodies[i%2]
		_, err := r.fetch(b3.Sum([]byte(body)), Near{Owner: a.ID, Most: int64(len(body))})
		if rate, ok := errors.AsType[*asset.RateError](err); ok {
			refused++
			r.clock.Add(int64(rate.Wait) / 2)
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if n := int(a.asked.Load()); refused == 0 || n == 0 || n+refused > 30 {
		t.Errorf("%d fetches, %d refused", n, refused)
	}
	r.sound()
}

// A network that asks for absent objects of a manifest uses up its own share, for objects by hash as
// for those of sites, and another network is served.
func TestSearchesHaveAShareForEachNetwork(t *testing.T) {
	t.Parallel()
	a := newStation(t, "a", "x")
	index := newFleetNames()
	index.set("docs.example", Named{Manifest: a.adds(t, "one"), Owner: a.ID})
	hostile, honest := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.2")
	left := map[netip.Addr]int{hostile: 3, honest: 3}
	r := newRig(t, inFleet(func(r *rig) {
		r.names, r.cfg.Ingress.RPSLimit = index, 10
		r.fleet.Share = func(network netip.Addr, rps int) (bool, time.Duration) {
			if rps != 10 {
				t.Errorf("a share of %d", rps)
			}
			left[network]--
			return left[network] >= 0, time.Minute
		}
	})).start()
	r.setFleet(view(1, a))
	refused := 0
	for i := range 10 {
		path := asset.PathOf(b3.Sum(fmt.Append(nil, "absent ", i)))
		_, err := r.e.FetchAsset(t.Context(), path, hostile, func() bool { return true })
		if rate, ok := errors.AsType[*asset.RateError](err); ok && rate.Wait == time.Minute {
			refused++
		} else if !errors.Is(err, asset.ErrNotFound) {
			t.Errorf("absent object %d: %v", i, err)
		}
	}
	if refused != 7 {
		t.Errorf("%d of 10 are refused", refused)
	}
	o, err := r.e.FetchAsset(t.Context(), asset.PathOf(b3.Sum([]byte("x"))), honest, func() bool { return true })
	if err != nil {
		t.Fatalf("another network: %v", err)
	}
	o.Close()
	site := func(from netip.Addr) error {
		f, err := r.e.Site(t.Context(), SiteRequest{Name: "docs.example", Path: "f000.txt", From: from})
		if err == nil {
			f.Close()
		}
		return err
	}
	if _, limited := errors.AsType[*asset.RateError](site(hostile)); !limited {
		t.Error("the network has a share of its own for sites")
	}
	if err := site(honest); err != nil {
		t.Errorf("a site for another network: %v", err)
	}
}

// A caller that leaves does not end the fetch for others, and a shutdown ends it for all.
func TestFetchAndShutdown(t *testing.T) {
	t.Parallel()
	a := newStation(t, "a")
	begun := make(chan struct{})
	var once sync.Once
	a.answer = func(_ http.ResponseWriter, q *http.Request) {
		once.Do(func() { close(begun) })
		<-q.Context().Done()
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, a))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 2)
	fetch := func(ctx context.Context) { done <- r.e.Fetch(ctx, b3.Sum([]byte("x")), Near{Owner: a.ID}) }
	go fetch(ctx)
	<-begun
	go fetch(t.Context())
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("the caller that left: %v", err)
	}
	r.drain(100 * time.Millisecond)
	if err := <-done; err == nil {
		t.Error("an aborted fetch has succeeded")
	}
}

// A node that sends a large object steadily, but not in time, is not blamed: the next requests go
// on where the last one ended.
func TestFetchLargeObjectInParts(t *testing.T) {
	t.Parallel()
	body := loud("large", 3<<20)
	a := newStation(t, "a", body)
	a.answer = func(w http.ResponseWriter, q *http.Request) {
		a.serve(&slowWriter{w, q.Context()}, q)
	}
	r := newRig(t, inFleet(quick)).start()
	r.setFleet(view(1, a))
	var err error
	for range 40 {
		if err = r.e.Fetch(t.Context(), b3.Sum([]byte(body)), Near{Owner: a.ID, Most: 3 << 20}); err == nil {
			break
		}
		r.clock.Add(int64(time.Minute)) // so that the failure is forgotten
	}
	if err != nil || a.asked.Load() < 2 || r.e.neighbors().byName[a.ID].fails() {
		t.Errorf("%v after %d requests", err, a.asked.Load())
	}
	r.sound()
}

// slowWriter writes about a megabyte a second.
type slowWriter struct {
	http.ResponseWriter
	ctx context.Context
}

func (w *slowWriter) Write(b []byte) (n int, err error) {
	for len(b) > 0 && err == nil {
		var m int
		m, err = w.ResponseWriter.Write(b[:min(len(b), 32<<10)])
		_ = http.NewResponseController(w.ResponseWriter).Flush()
		n += m
		b = b[m:]
		select {
		case <-w.ctx.Done():
			return n, w.ctx.Err()
		case <-time.After(30 * time.Millisecond):
		}
	}
	return n, err
}
