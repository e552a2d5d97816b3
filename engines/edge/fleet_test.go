package edge_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/edge/announce"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/edgetest"
	"ronbox/engines/edge/near"
	"ronbox/engines/edge/placed"
)

// Without a fleet there is no task of one, and nothing is fetched.
func TestNoFleet(t *testing.T) {
	r := newRig(t).start()
	r.setFleet(edgetest.View(1))
	if _, err := r.fetch(b3.Sum([]byte("x")), near.Hint{}); !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	for _, task := range r.e.Tasks() {
		if task.Name == placed.TaskName || task.Name == announce.TaskName {
			t.Errorf("there is a task %s", task.Name)
		}
	}
}

// mirror makes a station answer as a node does, from a rig.
func mirror(s *edgetest.Station, r *rig) {
	s.Answer = func(w http.ResponseWriter, q *http.Request) {
		path := strings.TrimPrefix(q.URL.Path, "/edge/assets/")
		o, err := r.e.Asset(q.Context(), path, "")
		if errors.Is(err, asset.ErrNotFound) && q.Header[near.HopHeader] == nil {
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
	a, b := edgetest.NewStation(t, "a"), edgetest.NewStation(t, "b")
	ra, rb := newRig(t, inFleet()).start(), newRig(t, inFleet()).start()
	mirror(a, ra)
	mirror(b, rb)
	ra.setFleet(edgetest.View(1, b))
	rb.setFleet(edgetest.View(1, a))
	if err := ra.e.Fetch(t.Context(), b3.Sum([]byte("x")), near.Hint{}); !errors.Is(err, asset.ErrNotFound) {
		t.Error(err)
	}
	if a.Heads.Load()+a.Asked.Load() != 0 || b.Heads.Load() != 1 || b.Asked.Load() != 0 {
		t.Errorf("a was asked %d times, b %d", a.Heads.Load()+a.Asked.Load(), b.Heads.Load()+b.Asked.Load())
	}
	d := rb.stores("there")
	if got, err := ra.fetch(d, near.Hint{}); got != "there" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
}
