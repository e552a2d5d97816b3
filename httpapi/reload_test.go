package httpapi

import (
	"net/netip"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

// reload puts settings in force.
func (r *rig) reload(t *testing.T, cfg Settings) {
	t.Helper()
	swap, _, err := r.Prepare(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	swap()
}

// What a reload changes is in force for the next request, and what it leaves is as it was.
func TestReloadIsInForceAtOnce(t *testing.T) {
	far := &front.Peer{Addr: netip.MustParseAddr("192.0.2.1")}
	other := &front.Peer{Socket: true, UID: 8}
	for _, tt := range []struct {
		doc           string
		change        func(*Settings)
		ask           func(*rig) int
		before, after int
	}{
		{"admin_on_tcp", func(c *Settings) { c.Server.AdminOnTCP = true },
			func(r *rig) int { return r.do("GET", "/admin/v1/status", "", writer).Code }, 404, 200},
		{"metrics_allow", func(c *Settings) { c.Server.MetricsAllow = []string{"192.0.2.0/24"} },
			func(r *rig) int { return r.as(far, "GET", "/metrics", "", nil).Code }, 401, 200},
		{"max_body_bytes", func(c *Settings) { c.Server.MaxBody = 1 << 10 },
			func(r *rig) int { return r.do("POST", "/registry/proposals", proposeBody(2<<10), writer).Code }, 202, 413},
		{"decompress_ratio_cap", func(c *Settings) { c.Server.RatioCap = 1 }, func(r *rig) int {
			h := header{"Authorization": "Bearer good", "Content-Encoding": "gzip"}
			return r.do("POST", "/registry/proposals", gzipped(t, proposeBody(200)), h).Code
		}, 202, 400},
		{"uds.map", func(c *Settings) { c.UDS.Map = map[string][]string{"uid:8": {"node.drain"}} },
			func(r *rig) int { return r.as(other, "POST", "/admin/v1/drain", "", nil).Code }, 403, 202},
		{"rps", func(c *Settings) { c.Limits[serviceRegistry] = Limits{Inflight: 8, RPS: 1, Burst: 1} }, func(r *rig) int {
			r.do("POST", "/registry/commit/"+proposal, "", writer)
			return r.do("POST", "/registry/commit/"+proposal, "", writer).Code
		}, 201, 429},
		{"inflight", func(c *Settings) { c.Limits[serviceRegistry] = Limits{} },
			func(r *rig) int { return r.do("GET", "/registry/head", "", nil).Code }, 200, 429},
		{"max_clients", func(c *Settings) { c.SSE.MaxClients = 0 },
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

// What cannot be leaves everything as it was, and so does what is undone.
func TestReloadThatFailsChangesNothing(t *testing.T) {
	r := newRig(t)
	was := r.live.Load()
	for doc, change := range map[string]func(*Settings){
		"networks": func(c *Settings) { c.Server.MetricsAllow = []string{"nowhere"} },
		"uid map":  func(c *Settings) { c.UDS.Map = map[string][]string{"nobody": {"node.admin"}} },
		"tls": func(c *Settings) {
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
	if r.live.Load() != was {
		t.Error("settings moved")
	}
}

func TestServerRefusesSettingsThatCannotBe(t *testing.T) {
	cfg := testSettings()
	cfg.UDS.Map = map[string][]string{"uid:x": {auth.ScopeAdmin}}
	r := newRig(t)
	if _, err := New(cfg, r.d); err == nil {
		t.Error("taken")
	}
}

// A reload that moves the timeouts of the connections is served by new ones; who is connected is not cut.
func TestReloadWhileServing(t *testing.T) {
	r := newRig(t).listening(t)
	get := func() int {
		resp, err := r.client.Get(r.url + "/registry/head")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for i := range 5 {
		if get() != 200 {
			t.Fatal("not served")
		}
		cfg := testSettings()
		cfg.Server.Bind = r.Addr()
		cfg.Server.IdleTimeout = unit.Duration(time.Duration(i+1) * time.Second)
		r.reload(t, cfg)
	}
	if get() != 200 || r.Conns() == 0 {
		t.Errorf("%d connections", r.Conns())
	}
}
