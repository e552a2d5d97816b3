package httpapi_test

import (
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	nodehttp "ronbox/httpapi/node"
	"ronbox/httpapi/wire"
)

// reload puts settings in force.
func (r *rig) reload(t *testing.T, cfg httpapi.Settings) {
	t.Helper()
	swap, _, err := r.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	swap()
}

// The changes of a reload apply to the next request, and other settings stay.
func TestReloadIsInForceAtOnce(t *testing.T) { synctest.Test(t, reloadIsInForceAtOnce) }

func reloadIsInForceAtOnce(t *testing.T) {
	far := &front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}
	other := &front.Peer{Socket: true, UID: 8}
	for _, tt := range []struct {
		doc           string
		change        func(*httpapi.Settings)
		ask           func(*rig) int
		before, after int
	}{
		{"admin_on_tcp", func(c *httpapi.Settings) { c.Server.AdminOnTCP = true },
			func(r *rig) int { return r.do("GET", "/admin/v1/status", "", writer).Code }, 404, 200},
		{"metrics_allow", func(c *httpapi.Settings) { c.Server.MetricsAllow = []string{"192.0.2.0/24"} },
			func(r *rig) int { return r.as(far, "GET", "/metrics", "", nil).Code }, 401, 200},
		{"max_body_bytes", func(c *httpapi.Settings) { c.Server.MaxBody = 1 << 10 },
			func(r *rig) int { return r.do("POST", "/registry/proposals", proposeBody(2<<10), writer).Code }, 202, 413},
		{"decompress_ratio_cap", func(c *httpapi.Settings) { c.Server.RatioCap = 1 }, func(r *rig) int {
			h := header{"Authorization": "Bearer good", "Content-Encoding": "gzip"}
			return r.do("POST", "/registry/proposals", gzipped(t, proposeBody(200)), h).Code
		}, 202, 400},
		{"uds.map", func(c *httpapi.Settings) { c.UDS.Map = map[string][]string{"uid:8": {"node.drain"}} },
			func(r *rig) int { return r.as(other, "POST", "/admin/v1/drain", "", nil).Code }, 403, 202},
		{"rps", func(c *httpapi.Settings) { c.Limits[serviceRegistry] = httpapi.Limits{Inflight: 8, RPS: 1, Burst: 1} }, func(r *rig) int {
			r.do("POST", "/registry/commit/"+proposal, "", writer)
			return r.do("POST", "/registry/commit/"+proposal, "", writer).Code
		}, 201, 429},
		{"inflight", func(c *httpapi.Settings) { c.Limits[serviceRegistry] = httpapi.Limits{} },
			func(r *rig) int { return r.do("GET", "/registry/head", "", nil).Code }, 200, 429},
		{"max_clients", func(c *httpapi.Settings) { l := someStreams(); l.Max = 0; setStreams(c, l) },
			func(r *rig) int { return r.do("HEAD", "/registry/stream", "", nil).Code }, 200, 429},
	} {
		r, cfg := newRig(t), testSettings()
		if got := tt.ask(r); got != tt.before {
			t.Errorf("%s: %d before, want %d", tt.doc, got, tt.before)
		}
		tt.change(&cfg)
		r.reload(t, cfg)
		if got := tt.ask(r); got != tt.after {
			t.Errorf("%s: %d after, want %d", tt.doc, got, tt.after)
		}
		r.reload(t, testSettings())
		if got := tt.ask(r); got != tt.before {
			t.Errorf("%s: %d once taken back, want %d", tt.doc, got, tt.before)
		}
		select {
		case <-r.node.drained:
		default:
		}
	}
}

// A reload that fails or is undone changes nothing.
func TestReloadThatFailsChangesNothing(t *testing.T) {
	r := newRig(t)
	was := r.Current()
	for doc, change := range map[string]func(*httpapi.Settings){
		"networks": func(c *httpapi.Settings) { c.Server.MetricsAllow = []string{"nowhere"} },
		"uid map":  func(c *httpapi.Settings) { c.UDS.Map = map[string][]string{"nobody": {"node.admin"}} },
		"tls": func(c *httpapi.Settings) {
			c.TLS.Enabled, c.TLS.CertPath, c.TLS.KeyPath = true, "/nowhere/cert", "/nowhere/key"
		},
	} {
		cfg := testSettings()
		change(&cfg)
		if _, _, err := r.Prepare(t.Context(), cfg); err == nil {
			t.Errorf("%s: taken", doc)
		}
	}
	cfg := testSettings()
	cfg.Server.AdminOnTCP = true
	_, undo, err := r.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	undo()
	if r.Current() != was {
		t.Error("settings moved")
	}
}

func TestServerRefusesSettingsThatCannotBe(t *testing.T) {
	cfg := testSettings()
	cfg.UDS.Map = map[string][]string{"uid:x": {auth.ScopeAdmin}}
	r := newRig(t)
	if _, err := httpapi.New(cfg, *r.Deps(), nodehttp.New(r.node)); err == nil {
		t.Error("taken")
	}
}

// A reload of connection timeouts applies to new connections. Open ones are not cut.
func TestReloadWhileServing(t *testing.T) {
	r := newRig(t).listening(t)
	get := func() int {
		resp, err := r.client.Get(r.url + "/registry/head")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }() // unread, so that the client closes the connection
		if r.Conns() == 0 {
			t.Error("no connection is counted")
		}
		return resp.StatusCode
	}
	for i := range 5 {
		if get() != 200 {
			t.Fatal("not served")
		}
		cfg := testSettings()
		cfg.Server.Bind = r.Addr()
		cfg.Server.IdleTimeout = unit.Duration(time.Duration(i+1) * time.Minute)
		r.reload(t, cfg)
	}
	if get() != 200 {
		t.Error("not served")
	}
}

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
	r.Deps().Board.Add(obs.Probe{Service: "registry", Key: "commit_ready", Hard: true, Plane: obs.WritePlane},
		obs.Probe{Service: "node", Key: "storage_ready", Hard: true, Plane: obs.ReadPlane},
		obs.Probe{Service: "registry", Key: "bus_attached", Hard: false})
	r.Deps().Board.Set("node", "storage_ready", nil)
	r.Deps().Board.Set("registry", "bus_attached", errors.New("not attached"))
	r.Deps().Board.Set("registry", "commit_ready", nil)
	for _, tt := range []struct {
		query  string
		status int
	}{{"", 200}, {"?service=registry", 503}, {"?service=node", 200}, {"?plane=read", 200}, {"?service=none", 400}, {"?plane=x", 400}} {
		if w := r.do("GET", "/readyz"+tt.query, "", nil); w.Code != tt.status {
			t.Errorf("readyz%s: %d %s, want %d", tt.query, w.Code, w.Body, tt.status)
		}
	}
	r.Deps().Board.Set("registry", "commit_ready", errors.New("no genesis"))
	w := r.do("GET", "/readyz", "", nil)
	var body wire.Ready
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		t.Fatal(err)
	}
	if w.Code != 503 || body.Ready || body.WriteReady || !body.Degraded || strings.Join(body.Missing, " ") != "registry.bus_attached registry.commit_ready" ||
		body.Incarnation != "01INCARNATION" || body.Version != 3 ||
		w.Header().Get("Retry-After") == "" {
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
	far, near := &front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}, &front.Peer{
		Addr: netip.MustParseAddr("127.0.0.1"),
	}
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
	for range httpapi.BypassInflight {
		r.Bypass().Acquire()
	}
	if w := r.do("GET", "/healthz", "", nil); w.Code != http.StatusTooManyRequests {
		t.Errorf("%d with 64 probes inside", w.Code)
	}
	if w := r.do("GET", "/registry/head", "", nil); w.Code != 200 {
		t.Errorf("%d: probes must not stand in the way of reads", w.Code)
	}
}

func TestInflightIsBounded(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		c.Limits[serviceRegistry] = httpapi.Limits{Inflight: 1, Streams: someStreams()}
	})
	r.Inflight(serviceRegistry).Acquire()
	w := r.do("POST", "/registry/commit/"+proposal, "", writer)
	if p := problemIn(t, w.Body.String()); w.Code != 429 || p.Reason != "inflight" {
		t.Errorf("%d %+v", w.Code, p)
	}
	if w := r.do("HEAD", "/registry/stream", "", nil); w.Code != 200 {
		t.Errorf("a stream takes no place, got %d", w.Code)
	}
	r.Inflight(serviceRegistry).Release()
	if w := r.do("POST", "/registry/commit/"+proposal, "", writer); w.Code != 201 {
		t.Errorf("%d after the place came free", w.Code)
	}
	if got := r.Inflight(serviceRegistry).Taken(); got != 0 {
		t.Errorf("%d left inside", got)
	}
}

func TestScrapesAreBounded(t *testing.T) {
	r := newRig(t)
	for range httpapi.MaxScrapes {
		r.Scrapes().Acquire()
	}
	w := r.socket("GET", "/metrics", "", nil)
	if p := problemIn(t, w.Body.String()); w.Code != http.StatusTooManyRequests || p.Reason != "inflight" {
		t.Errorf("one scrape more: %d %+v", w.Code, p)
	}
	if w := r.do("GET", "/healthz", "", nil); w.Code != http.StatusOK {
		t.Errorf("scrapes must not stand in the way of probes: %d", w.Code)
	}
	r.Scrapes().Release()
	if w := r.socket("GET", "/metrics", "", nil); w.Code != http.StatusOK {
		t.Errorf("once a place is free: %d", w.Code)
	}
}
