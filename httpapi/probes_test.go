package httpapi

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/obs"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

func TestProbesAnswer(t *testing.T) {
	r := newRig(t)
	if w := r.do("GET", "/healthz", "", nil); w.Code != 200 || w.Body.String() != "ok\n" {
		t.Errorf("healthz: %d %q", w.Code, w.Body)
	}
	if w := r.do("GET", "/version", "", nil); w.Code != 200 || !strings.Contains(w.Body.String(), `"version":"v0"`) {
		t.Errorf("version: %d %s", w.Code, w.Body)
	}
}

func TestReadyzSaysWhatIsMissing(t *testing.T) {
	r := newRig(t)
	r.d.Board.Add(
		obs.Probe{Service: "registry", Key: "commit_ready", Hard: true, Plane: obs.WritePlane},
		obs.Probe{Service: "node", Key: "storage_ready", Hard: true, Plane: obs.ReadPlane},
		obs.Probe{Service: "registry", Key: "bus_attached", Hard: false},
	)
	r.d.Board.Set("node", "storage_ready", nil)
	r.d.Board.Set("registry", "bus_attached", errors.New("not attached"))
	r.d.Board.Set("registry", "commit_ready", nil)
	for _, tt := range []struct {
		query  string
		status int
	}{{"", 200}, {"?service=registry", 503}, {"?service=node", 200}, {"?plane=read", 200}, {"?service=none", 400}, {"?plane=x", 400}} {
		if w := r.do("GET", "/readyz"+tt.query, "", nil); w.Code != tt.status {
			t.Errorf("readyz%s: %d %s, want %d", tt.query, w.Code, w.Body, tt.status)
		}
	}
	r.d.Board.Set("registry", "commit_ready", errors.New("no genesis"))
	w := r.do("GET", "/readyz", "", nil)
	var body wire.Ready
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if w.Code != 503 || body.Ready || body.WriteReady || !body.Degraded || strings.Join(body.Missing, " ") != "registry.bus_attached registry.commit_ready" ||
		body.Incarnation != "01INCARNATION" || body.Version != 3 || w.Header().Get("Retry-After") == "" {
		t.Errorf("readyz: %d %+v", w.Code, body)
	}
	if got := sum(t, r.metrics, "rejected_total", "reason", "degraded"); got != 2 {
		t.Errorf("rejected_total{degraded} = %v, want one for each 503", got)
	}
	if w := r.do("GET", "/readyz?plane=read", "", nil); w.Code != 200 {
		t.Errorf("reads: %d, want them served", w.Code)
	}
}

func TestMetricsAreForLoopbackOrAScope(t *testing.T) {
	r := newRig(t)
	far, near := &front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, &front.Peer{Addr: netip.MustParseAddr("127.0.0.1")}
	for _, tt := range []struct {
		p      *front.Peer
		h      header
		status int
	}{
		{near, nil, 200}, {far, nil, 401}, {far, writer, 200}, {far, header{"Authorization": "Bearer bad"}, 403}, {&front.Peer{Socket: true}, nil, 200},
	} {
		w := r.as(tt.p, "GET", "/metrics", "", tt.h)
		if w.Code != tt.status {
			t.Errorf("%v %v: %d, want %d", tt.p, tt.h, w.Code, tt.status)
		}
		if tt.status == 200 && !strings.Contains(w.Body.String(), "go_goroutines") {
			t.Error("no metrics in the answer")
		}
	}
}

func TestBypassHasItsOwnLimit(t *testing.T) {
	r := newRig(t)
	for range bypassInflight {
		r.bypass.enter()
	}
	if w := r.do("GET", "/healthz", "", nil); w.Code != http.StatusTooManyRequests {
		t.Errorf("%d with 64 probes inside", w.Code)
	}
	if w := r.do("GET", "/registry/head", "", nil); w.Code != 200 {
		t.Errorf("%d: probes must not stand in the way of reads", w.Code)
	}
}

func TestInflightIsBounded(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Limits[serviceRegistry] = Limits{Inflight: 1} })
	r.services[serviceRegistry].inflight.enter()
	w := r.do("POST", "/registry/commit/"+proposal, "", writer)
	if p := problemIn(t, w.Body.String()); w.Code != 429 || p.Reason != "inflight" {
		t.Errorf("%d %+v", w.Code, p)
	}
	if w := r.do("HEAD", "/registry/stream", "", nil); w.Code != 200 {
		t.Errorf("a stream takes no place, got %d", w.Code)
	}
	r.services[serviceRegistry].inflight.leave()
	if w := r.do("POST", "/registry/commit/"+proposal, "", writer); w.Code != 201 {
		t.Errorf("%d after the place came free", w.Code)
	}
	if got := r.services[serviceRegistry].inflight.n.Load(); got != 0 {
		t.Errorf("%d left inside", got)
	}
}

func TestScrapesAreBounded(t *testing.T) {
	r := newRig(t)
	for range maxScrapes {
		r.scrapes.enter()
	}
	w := r.socket("GET", "/metrics", "", nil)
	if p := problemIn(t, w.Body.String()); w.Code != http.StatusTooManyRequests || p.Reason != "inflight" {
		t.Errorf("one scrape more: %d %+v", w.Code, p)
	}
	if w := r.do("GET", "/healthz", "", nil); w.Code != http.StatusOK {
		t.Errorf("scrapes must not stand in the way of probes: %d", w.Code)
	}
	r.scrapes.leave()
	if w := r.socket("GET", "/metrics", "", nil); w.Code != http.StatusOK {
		t.Errorf("once a place is free: %d", w.Code)
	}
}
