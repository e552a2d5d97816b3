package edge

import (
	"errors"
	"fmt"
	"net/http"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/site"
)

// A manifest that gives an object of another site a smaller size makes only its own file fail, not
// the file of the other site.
func TestSizeOfLiarHarmsNoOtherSite(t *testing.T) {
	t.Parallel()
	a := newStation(t, "a")
	body := "a file of an honest site"
	honest := a.adds(t, body)
	liar := a.lists(t, site.File{Path: "f000.txt", Digest: b3.Sum([]byte(body)), Size: 1, Type: "text/plain"})
	index := newFleetNames()
	index.set("liar.example", Named{Manifest: liar, Owner: a.ID})
	index.set("honest.example", Named{Manifest: honest, Owner: a.ID})
	r := newRig(t, inFleet(func(r *rig) { r.names = index })).start()
	r.setFleet(view(1, a))
	ask := func(name string) error {
		f, err := r.e.Site(t.Context(), SiteRequest{Name: name, Path: "f000.txt"})
		if err == nil {
			f.Close()
		}
		return err
	}
	for range 2 { // the second is answered out of memory
		if err := ask("liar.example"); !errorsAsFill(err, asset.ObjectCap) {
			t.Errorf("the liar: %v", err)
		}
	}
	asked := a.asked.Load()
	if err := ask("honest.example"); err != nil {
		t.Errorf("the honest site: %v", err)
	}
	if n := a.asked.Load() - asked; n != 2 {
		t.Errorf("%d requests for a manifest and a file", n)
	}
	r.sound()
}

// errorsAsFill reports whether err is the failure of a fill for a reason.
func errorsAsFill(err error, want asset.Reason) bool {
	f, ok := errors.AsType[*asset.FillError](err)
	return ok && f.Reason == want
}

// A fetch that may have more bytes does not fail with a running one that may have fewer.
func TestFetchJoinsNoSmallerOne(t *testing.T) {
	t.Parallel()
	a := newStation(t, "a")
	body := "a file of an honest site"
	d := b3.Sum([]byte(body))
	a.set(d, body)
	begun, going := make(chan struct{}, 9), make(chan struct{})
	a.answer = func(w http.ResponseWriter, q *http.Request) {
		begun <- struct{}{}
		<-going
		a.serve(w, q)
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, a))
	small := make(chan error, 1)
	go func() { small <- r.e.Fetch(t.Context(), d, Near{Owner: a.ID, Most: 1}) }()
	<-begun
	large := make(chan error, 1)
	go func() { large <- r.e.Fetch(t.Context(), d, Near{Owner: a.ID, Most: int64(len(body))}) }()
	until(t, "both wait", func() bool { return r.e.seeks.Len() == 2 })
	close(going)
	if err := <-small; !errorsAsFill(err, asset.ObjectCap) {
		t.Errorf("the small one: %v", err)
	}
	if err := <-large; err != nil {
		t.Errorf("the large one: %v", err)
	}
	r.sound()
}

// The node that sent an object is counted, and not the owner of another manifest whose search has
// joined the fetch.
func TestJoinedFetchCountsSender(t *testing.T) {
	t.Parallel()
	a, b := newStation(t, "a"), newStation(t, "b")
	body := "a file of both"
	d := b3.Sum([]byte(body))
	a.set(d, body)
	begun, going := make(chan struct{}, 9), make(chan struct{})
	a.answer = func(w http.ResponseWriter, q *http.Request) {
		begun <- struct{}{}
		<-going
		a.serve(w, q)
	}
	r := newRig(t, inFleet()).start()
	sub := r.e.events.Subscribe("test")
	defer sub.Close()
	r.setFleet(view(1, a, b))
	done := make(chan error, 2)
	go func() { done <- r.e.Fetch(t.Context(), d, Near{Owner: a.ID, Most: 100}) }()
	<-begun
	go func() { done <- r.e.Fetch(t.Context(), d, Near{Owner: b.ID, Most: 200}) }()
	until(t, "both wait", func() bool { return r.e.seeks.Len() == 2 })
	close(going)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	var from []string
	for event, _, more := sub.Next(); more; event, _, more = sub.Next() {
		if event.Kind == "fleet_fetch" {
			from = append(from, event.Result)
		}
	}
	if len(from) != 1 || from[0] != a.ID {
		t.Errorf("counted for %q", from)
	}
	r.sound()
}

// A liar that sends wrong bytes and breaks off does not spoil the fetch from the only node that has
// the object.
func TestFetchAfterPartOfLiar(t *testing.T) {
	t.Parallel()
	body := loud("body", 200_000)
	liar, good := newStation(t, "a"), newStation(t, "b", body)
	liar.answer = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("ETag", `"`+b3.Sum([]byte(body)).String()+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write([]byte(loud("lies", 150_000)))
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	r := newRig(t, inFleet()).start()
	r.setFleet(view(1, liar, good))
	if got, err := r.fetch(b3.Sum([]byte(body)), Near{Owner: liar.ID}); got != body || err != nil {
		t.Errorf("%.10q, %v", got, err)
	}
	if r.e.neighbors().byName[good.ID].fails() {
		t.Error("the good node is blamed")
	}
	r.sound()
}

// What a name stands for is fetched only as far as a manifest may be long.
func TestManifestTooLong(t *testing.T) {
	t.Parallel()
	a := newStation(t, "a")
	root := b3.Sum([]byte("never sent"))
	a.answer = func(w http.ResponseWriter, q *http.Request) {
		w.Header().Set("ETag", `"`+root.String()+`"`)
		w.Header().Set("Content-Length", fmt.Sprint(site.MaxBytes+1))
		w.WriteHeader(http.StatusOK)
		if q.Method == http.MethodGet {
			_, _ = w.Write(make([]byte, site.MaxBytes+1))
		}
	}
	index := newFleetNames()
	index.set("long.example", Named{Manifest: root, Owner: a.ID})
	r := newRig(t, inFleet(func(r *rig) {
		r.names = index
		r.cfg.CAS.MaxBytes, r.cfg.Fill.MaxObjectBytes = 256<<20, 128<<20
	})).start()
	r.setFleet(view(1, a))
	_, err := r.e.Site(t.Context(), SiteRequest{Name: "long.example", Path: ""})
	if !errorsAsFill(err, asset.ObjectCap) {
		t.Errorf("%v", err)
	}
	r.sound()
}
