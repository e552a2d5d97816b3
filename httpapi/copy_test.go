package httpapi_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/edge/asset"
	"ronbox/httpapi"
)

const (
	exactPath  = "/edge/assets/" + fakeNear
	outagePath = "/edge/catalog"
	ageHeader  = "Ronbox-Age"
)

// newCopies is a pair whose follower has a copy. It counts the requests that reach the leader.
func newCopies(t *testing.T) (p *pair, hits *atomic.Int64) {
	t.Helper()
	hits = &atomic.Int64{}
	p = newPair(t, func(h http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits.Add(1); h.ServeHTTP(w, r) })
	})
	p.inB.copies = true
	return p, hits
}

// The routes that nodes answer from their copies.
func TestCopiedRoutes(t *testing.T) {
	want := map[httpapi.Copy][]string{
		httpapi.CopyExact: {
			"/edge/assets/b3/:object", "/edge/static/*file", "/edge/styles/:style", "/edge/tiles/:pack/:z/:x/:y", "/edge/tiles/:tilejson",
			"/registry/:v/entry", "/registry/:v/payload", "/registry/tile/*path",
		},
		httpapi.CopyOutage: {"/edge/catalog", "/edge/sites/*site"},
	}
	got := map[httpapi.Copy][]string{}
	for _, route := range newRig(t, func(_ *httpapi.Settings, d *deps) { d.rest = true }).Table() {
		if route.Copy != httpapi.CopyNone {
			got[route.Copy] = append(got[route.Copy], route.Pattern)
		}
	}
	for kind, patterns := range want {
		if slices.Sort(got[kind]); !slices.Equal(got[kind], patterns) {
			t.Errorf("kind %d: %q, want %q", kind, got[kind], patterns)
		}
	}
}

// Content that cannot change is answered by a follower, and by a leader that does not ask a quorum.
func TestExactContentIsCopied(t *testing.T) {
	p, hits := newCopies(t)
	for name, r := range map[string]*rig{"follower": p.b, "leader": p.a} {
		w := r.do("GET", exactPath, "", nil)
		if w.Code != 200 || w.Body.String() != string(fakeBytes) || w.Header().Get(ageHeader) != "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	p.inB.leader = ""
	if w := p.b.do("GET", "/registry/1/payload", "", nil); w.Code != 200 {
		t.Errorf("no leader: %d %s", w.Code, w.Body)
	}
	if hits.Load() != 0 || p.inA.asked.Load() != 0 {
		t.Errorf("%d requests reached the leader, which asked a quorum %d times", hits.Load(), p.inA.asked.Load())
	}
	if w := p.a.do("GET", "/edge/assets/"+fakeFar, "", nil); w.Code != 404 || p.inA.asked.Load() != 1 {
		t.Errorf("a leader refuses with %d after %d confirmations", w.Code, p.inA.asked.Load())
	}
}

// A follower asks the leader for what its copy lacks, and refuses a wrong request itself.
func TestAbsentContentIsForwarded(t *testing.T) {
	p, hits := newCopies(t)
	get := func(path string, h header) int { return p.b.do("GET", path, "", h).Code }
	if code := get(exactPath, header{"Range": "bytes=99-"}); code != 416 || hits.Load() != 0 {
		t.Errorf("a wrong range: %d, %d requests reached the leader", code, hits.Load())
	}
	p.b.edge.err = asset.ErrNotFound
	w := p.b.do("GET", exactPath, "", nil)
	if len(p.b.edge.sought) > 0 {
		t.Error("a follower searches the fleet")
	}
	if w.Code != 200 || hits.Load() != 1 || len(w.Header().Values("Cache-Status")) != 1 {
		t.Errorf("absent: %d %v, %d requests reached the leader", w.Code, w.Header(), hits.Load())
	}
	p.b.edge.err = asset.ErrDisk
	if code := get(exactPath, nil); code != 200 || hits.Load() != 2 {
		t.Errorf("a bad disk: %d, %d requests reached the leader", code, hits.Load())
	}
	p.inB.leader = ""
	w = p.b.do("GET", exactPath, "", nil)
	if got := problemIn(t, w.Body.String()); w.Code != 503 || got.Reason != "not_leader" {
		t.Errorf("no leader: %d %+v", w.Code, got)
	}
	p.b.edge.err = nil
	p.inB.copies = false
	if code := get(exactPath, nil); code != 503 {
		t.Errorf("no copy: %d", code)
	}
	p.inB.copies, p.inB.gone = true, true
	if code := get(exactPath, nil); code != 503 {
		t.Errorf("a removed node: %d", code)
	}
}

// Content that may have changed is answered while no node leads, with the age of the copy.
func TestOutageReads(t *testing.T) {
	p, hits := newCopies(t)
	for name, r := range map[string]*rig{"follower": p.b, "leader": p.a} {
		if w := r.do("GET", outagePath, "", nil); w.Code != 200 || w.Header().Get(ageHeader) != "" {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	if hits.Load() != 1 || p.inA.asked.Load() != 2 {
		t.Errorf("%d requests reached the leader, which asked a quorum %d times", hits.Load(), p.inA.asked.Load())
	}
	p.inB.leader, p.inB.silent = "", 1250*time.Millisecond
	w := p.b.do("GET", outagePath, "", nil)
	if w.Code != 200 || w.Header().Get(ageHeader) != "1.250" {
		t.Errorf("no leader: %d %v", w.Code, w.Header())
	}
	p.b.edge.err = asset.ErrNotFound
	w = p.b.do("GET", "/edge/sites/docs.example/", "", nil)
	if w.Code != 503 || w.Header().Get(ageHeader) != "" {
		t.Errorf("an absent site: %d %v", w.Code, w.Header())
	}
	for _, path := range []string{"/registry/head", "/registry/1/status", "/edge/usage/1", "/edge/keys"} {
		if w := p.b.do("GET", path, "", writer); w.Code != 503 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
	p.inB.silent = 0
	if w := p.b.do("GET", outagePath, "", nil); w.Code != 503 {
		t.Errorf("not yet, or not wanted: %d", w.Code)
	}
	doc := p.b.do("GET", "/openapi.json", "", nil).Body.String()
	if strings.Count(doc, `"`+ageHeader+`"`) < 2 {
		t.Errorf("the document lacks %s", ageHeader)
	}
}
