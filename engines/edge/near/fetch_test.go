package near_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/upstream"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/content"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/near"
	"ronbox/engines/fleet"
)

// Without a fleet, and without nodes, nothing is fetched.
func TestFetchWithoutFleet(t *testing.T) {
	d := b3.Sum([]byte("x"))
	var off *near.Searcher
	off.Set(nil)
	if err := off.Fetch(t.Context(), d, near.Hint{}); !errors.Is(err, asset.ErrNotFound) || off.Len() != 0 {
		t.Errorf("the fleet is off: %v", err)
	}
	r := edgetest.New(t)
	if _, err := r.Fetch(d, near.Hint{}); !errors.Is(err, asset.ErrNotFound) {
		t.Errorf("no version: %v", err)
	}
	r.SetFleet(edgetest.View(1))
	if _, err := r.Fetch(d, near.Hint{}); !errors.Is(err, asset.ErrNotFound) {
		t.Errorf("no other node: %v", err)
	}
	r.SetFleet(nil)
	if v, _ := r.Near.View(); v != nil {
		t.Error("the nodes stay")
	}
}

// An object is fetched from the owner first, and from any node in the end; each is asked for its
// own store alone. It is then stored under its digest, unpinned.
func TestFetch(t *testing.T) {
	a, b := edgetest.NewStation(t, "a", "one"), edgetest.NewStation(t, "b", "one", "two")
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, a, b))
	one, two := b3.Sum([]byte("one")), b3.Sum([]byte("two"))
	if got, err := r.Fetch(one, near.Hint{Owner: "id-b"}); got != "one" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if a.Heads.Load()+a.Asked.Load() != 0 || b.Heads.Load() != 0 || b.Asked.Load() != 1 {
		t.Error("the owner is not asked first, or others are asked too")
	}
	if got, err := r.Fetch(two, near.Hint{Owner: "node/a"}); got != "two" || err != nil {
		t.Fatalf("%q, %v", got, err)
	}
	if _, err := r.Fetch(two, near.Hint{}); err != nil || b.Asked.Load() != 2 {
		t.Errorf("what is stored is fetched again: %v", err)
	}
	page, _, err := r.Content.Keys(t.Context(), content.KeyQuery{Prefix: "b3:", Limit: 10})
	if err != nil || len(page) != 2 || page[0].Pinned || page[0].URL != page[0].Digest.String() {
		t.Errorf("%+v, %v", page, err)
	}
	r.Sound()
}

// An object that no node has is remembered, until another version of the registry.
func TestFetchAbsent(t *testing.T) {
	a, b := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b", "late")
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, a))
	d := b3.Sum([]byte("late"))
	if _, err := r.Fetch(d, near.Hint{}); !errors.Is(err, asset.ErrNotFound) || a.Heads.Load() != 1 {
		t.Fatalf("%v, asked %d times", err, a.Heads.Load())
	}
	edgetest.Until(t, "the search is remembered", func() bool {
		return r.Near.Absent(d)
	})
	for range 5 {
		if _, err := r.Fetch(d, near.Hint{}); !errors.Is(err, asset.ErrNotFound) || a.Heads.Load() != 1 {
			t.Fatalf("%v, asked %d times", err, a.Heads.Load())
		}
	}
	r.SetFleet(edgetest.View(2, a, b))
	if got, err := r.Fetch(d, near.Hint{}); got != "late" || err != nil {
		t.Errorf("a node that has just signed in: %q, %v", got, err)
	}
}

// A node that does not answer the search may have the object: the search has failed, and is not
// remembered as one that found nothing.
func TestFetchWhileNodeRestarts(t *testing.T) {
	t.Parallel()
	for doc, down := range map[string]http.HandlerFunc{
		"breaks off": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"refuses":    func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) },
	} {
		other, holder := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b", "one")
		var restarts atomic.Bool
		holder.Answer = func(w http.ResponseWriter, q *http.Request) {
			if restarts.Load() {
				down(w, q)
				return
			}
			holder.Serve(w, q)
		}
		r := edgetest.New(t)
		r.SetFleet(edgetest.View(1, other, holder))
		restarts.Store(true)
		for range 2 {
			if _, err := r.Fetch(b3.Sum([]byte("one")), near.Hint{}); !errorsAsFill(err, asset.UpstreamUnavailable) {
				t.Errorf("%s: %v", doc, err)
			}
		}
		restarts.Store(false)
		r.Pass(10 * time.Second) // a failure is remembered for less
		if got, err := r.Fetch(b3.Sum([]byte("one")), near.Hint{}); got != "one" || err != nil {
			t.Errorf("%s: %q, %v", doc, got, err)
		}
	}
}

// A node whose address must not be called is no reason to search again.
func TestFetchBesideForbiddenNode(t *testing.T) {
	a, forbidden := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b")
	r := edgetest.New(t, func(r *edgetest.Rig) {
		r.Own = []netip.AddrPort{netip.MustParseAddrPort(forbidden.Endpoint[len("http://"):])}
	})
	r.SetFleet(edgetest.View(1, a, forbidden))
	if _, err := r.Fetch(b3.Sum([]byte("one")), near.Hint{}); !errors.Is(err, asset.ErrNotFound) || r.Near.Len() != 2 {
		t.Errorf("%v, %d nodes", err, r.Near.Len())
	}
}

// A provider that lies is not believed, the next one is; a liar is soon asked no more.
func TestFetchFromLiar(t *testing.T) {
	bodies := edgetest.Numbered("body", 5)
	liar, b := edgetest.NewStation(t, "a", bodies...), edgetest.NewStation(t, "b", bodies...)
	liar.Answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"x"`)
		_, _ = io.WriteString(w, "a lie of "+q.URL.Path)
	}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, liar, b))
	for _, body := range bodies {
		if got, err := r.Fetch(b3.Sum([]byte(body)), near.Hint{Owner: "node/a"}); got != body || err != nil {
			t.Errorf("%q, %v", got, err)
		}
	}
	if n := liar.Asked.Load(); n != 1 || !r.Near.Fails("node/a") {
		t.Errorf("the liar was believed %d times", n)
	}
	if r.Near.Fails("node/b") {
		t.Error("the honest node is blamed")
	}
	r.Sound()
}

// The breaker and the client of a node last as long as its endpoint and keys.
func TestSetFleetKeepsLines(t *testing.T) {
	a, b := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b")
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, a, b))
	lineA, lineB := r.Near.Line("node/a"), r.Near.Line("node/b")
	a.Names = []string{"docs.example"}
	b.SPKI = []string{"sha256:" + fmt.Sprintf("%064x", 1)}
	r.SetFleet(edgetest.View(2, a, b))
	if r.Near.Line("node/a") != lineA || len(r.Near.Names("node/a")) != 1 {
		t.Error("a node that stayed has lost its breaker, or keeps its old item")
	}
	if r.Near.Line("node/b") == lineB {
		t.Error("a node with another key keeps its breaker and its line")
	}
	bad := edgetest.NewStation(t, "c")
	bad.Endpoint = "http://example.com"
	r.SetFleet(edgetest.View(4, b, bad))
	if n := r.Near.Len(); n != 1 {
		t.Errorf("%d nodes; one has an endpoint that may not be called", n)
	}
}

// Forty nodes have an object each; all are found, most by the waves.
func TestFetchAmongForty(t *testing.T) {
	var all []*edgetest.Station
	for _, name := range edgetest.Numbered("n", 40) {
		all = append(all, edgetest.NewStation(t, name, "of "+name))
	}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, all...))
	var wg sync.WaitGroup
	for _, s := range all {
		wg.Go(func() {
			body := "of " + s.ID[len("node/"):]
			if got, err := r.Fetch(b3.Sum([]byte(body)), near.Hint{}); got != body || err != nil {
				t.Errorf("%s: %q, %v", body, got, err)
			}
		})
	}
	wg.Wait()
	for _, s := range all {
		if s.Asked.Load() != 1 {
			t.Errorf("%s was asked for %d bodies", s.ID, s.Asked.Load())
		}
	}
	r.Sound()
}

// Nodes of a placement are asked before others, and providers before them by their item.
func TestSourcesInOrder(t *testing.T) {
	d := b3.Sum([]byte("x"))
	owner, placed, provider := edgetest.NewStation(t, "a", "x"), edgetest.NewStation(t, "b", "x"), edgetest.NewStation(t, "c", "x")
	other := edgetest.NewStation(t, "d", "x")
	placed.Region = "far"
	r := edgetest.New(t, func(r *edgetest.Rig) { r.Names = edgetest.NewIndex("id-c", "id-none", "id-a") })
	v := edgetest.View(1, owner, placed, provider, other)
	v.Placements = []fleet.Placement{{ID: "placement/x", Region: "far", Content: d.String()}}
	r.SetFleet(v)
	got := r.Near.Sources(t.Context(), d, near.Hint{Owner: "node/a"})
	if want := "[node/a node/b node/c node/d]"; fmt.Sprint(got) != want {
		t.Errorf("%v, want %s", got, want)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := r.Near.Sources(ended, d, near.Hint{Owner: "node/a"}); got != nil {
		t.Errorf("%s after the deadline", got)
	}
}

// A node with a pinned key is asked over TLS although no CA knows it, and not after its key changed.
func TestFetchOverPinnedTLS(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a", "one", "two")
	secure := httptest.NewTLSServer(a)
	t.Cleanup(func() { secure.CloseClientConnections(); secure.Close() })
	a.Endpoint = secure.URL
	a.SPKI = []string{upstream.PinOf(secure.Certificate().RawSubjectPublicKeyInfo).String()}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, a))
	if got, err := r.Fetch(b3.Sum([]byte("one")), near.Hint{Owner: a.ID}); got != "one" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	version := uint64(1)
	for doc, keys := range map[string][]string{
		"another key": {upstream.Pin{1}.String()}, "no key": nil, "not a key": {"sha256:x"},
	} {
		a.SPKI = keys
		version++ // so that a failed search is not remembered
		r.SetFleet(edgetest.View(version, a))
		before := a.Asked.Load() + a.Heads.Load()
		_, err := r.Fetch(b3.Sum([]byte("two")), near.Hint{Owner: a.ID})
		if err == nil || a.Asked.Load()+a.Heads.Load() != before {
			t.Errorf("%s: %v", doc, err)
		}
	}
}

// errorsAsFill reports whether err is the failure of a fill for a reason.
func errorsAsFill(err error, want asset.Reason) bool {
	f, ok := errors.AsType[*asset.FillError](err)
	return ok && f.Reason == want
}

// A fetch that may have more bytes does not fail with a running one that may have fewer.
func TestFetchJoinsNoSmallerOne(t *testing.T) {
	t.Parallel()
	a := edgetest.NewStation(t, "a")
	body := "a file of an honest site"
	d := b3.Sum([]byte(body))
	a.Set(d, body)
	begun, going := make(chan struct{}, 9), make(chan struct{})
	a.Answer = func(w http.ResponseWriter, q *http.Request) {
		begun <- struct{}{}
		<-going
		a.Serve(w, q)
	}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, a))
	small := make(chan error, 1)
	go func() { small <- r.Near.Fetch(t.Context(), d, near.Hint{Owner: a.ID, Most: 1}) }()
	<-begun
	large := make(chan error, 1)
	go func() { large <- r.Near.Fetch(t.Context(), d, near.Hint{Owner: a.ID, Most: int64(len(body))}) }()
	edgetest.Until(t, "both wait", func() bool { return r.Near.Searches() == 2 })
	close(going)
	if err := <-small; !errorsAsFill(err, asset.ObjectCap) {
		t.Errorf("the small one: %v", err)
	}
	if err := <-large; err != nil {
		t.Errorf("the large one: %v", err)
	}
	r.Sound()
}

// The node that sent an object is counted, and not the owner of another manifest whose search has
// joined the fetch.
func TestJoinedFetchCountsSender(t *testing.T) {
	t.Parallel()
	a, b := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b")
	body := "a file of both"
	d := b3.Sum([]byte(body))
	a.Set(d, body)
	begun, going := make(chan struct{}, 9), make(chan struct{})
	a.Answer = func(w http.ResponseWriter, q *http.Request) {
		begun <- struct{}{}
		<-going
		a.Serve(w, q)
	}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, a, b))
	done := make(chan error, 2)
	go func() { done <- r.Near.Fetch(t.Context(), d, near.Hint{Owner: a.ID, Most: 100}) }()
	<-begun
	go func() { done <- r.Near.Fetch(t.Context(), d, near.Hint{Owner: b.ID, Most: 200}) }()
	edgetest.Until(t, "both wait", func() bool { return r.Near.Searches() == 2 })
	close(going)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if sent := r.Events("fleet_fetch"); len(sent) != 1 || sent[0].Result != a.ID {
		t.Errorf("counted for %+v", sent)
	}
	r.Sound()
}

// A liar that sends wrong bytes and breaks off does not spoil the fetch from the only node that has
// the object.
func TestFetchAfterPartOfLiar(t *testing.T) {
	t.Parallel()
	body := edgetest.Loud("body", 200_000)
	liar, good := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b", body)
	liar.Answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"`+b3.Sum([]byte(body)).String()+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write([]byte(edgetest.Loud("lies", 150_000)))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	r := edgetest.New(t)
	r.SetFleet(edgetest.View(1, liar, good))
	if got, err := r.Fetch(b3.Sum([]byte(body)), near.Hint{Owner: liar.ID}); got != body || err != nil {
		t.Errorf("%.10q, %v", got, err)
	}
	if r.Near.Fails(good.ID) {
		t.Error("the good node is blamed")
	}
	r.Sound()
}
