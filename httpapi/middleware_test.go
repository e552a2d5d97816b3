package httpapi

import (
	"bytes"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/obs"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

func TestStagesStandInTheirOrder(t *testing.T) {
	var names []string
	for _, st := range stages() {
		names = append(names, st.name)
	}
	want := []string{
		"corr_id", "headers", "cors", "access", "recover", "shape", "bypass", "deprecated", "gate", "deadline", "inflight", "auth", "rate", "caller",
		"content", "body", "query",
	}
	if !slices.Equal(names, want) {
		t.Errorf("stages %v, want %v", names, want)
	}
}

func TestCorrelationIsKeptOrMade(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		given string
		kept  bool
	}{
		{"01ARZ3NDEKTSV4RRFFQ69G5FAV", true}, {"7fffffff-ffff-4fff-bfff-ffffffffffff", true}, {"7FFFFFFF-FFFF-4FFF-BFFF-FFFFFFFFFFFF", true},
		{"", false}, {"x", false}, {"81ARZ3NDEKTSV4RRFFQ69G5FAV", false}, {"01arz3ndektsv4rrffq69g5fav", false},
		{"01ARZ3NDEKTSV4RRFFQ69G5FAI", false}, {"7fffffff-ffff-4fff-bfff-fffffffffff", false}, {"7fffffffffff-4fff-bfff-ffff-ffffffffff", false},
	} {
		for _, path := range []string{"/registry/head", "/nowhere"} {
			got := r.do("GET", path, "", header{"X-Corr-ID": tt.given}).Header().Get("X-Corr-ID")
			if tt.kept != (got == tt.given) || !isULID(got) && !isUUID(got) {
				t.Errorf("X-Corr-ID %q on %s: echoed %q", tt.given, path, got)
			}
		}
	}
}

func TestAPanicIsToldCountedAndLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, func(_ *Settings, d *Deps) {
		d.Log = hclog.New(&hclog.LoggerOptions{Output: &out, Level: hclog.Info})
	})
	r.node.profile = func(io.Writer) error { panic("nil dereference") }
	w := r.socket("GET", "/admin/v1/debug/profile/heap", "", nil)
	p := problemIn(t, w.Body.String())
	if w.Code != http.StatusInternalServerError || p.Reason != "internal" || strings.Contains(p.Detail, "nil") {
		t.Errorf("%d %+v", w.Code, p)
	}
	if got := strings.Count(out.String(), "stack="); got != 1 || !strings.Contains(out.String(), "goroutine") {
		t.Errorf("%d stacks in the log: %s", got, out.String())
	}
	if got := sum(t, r.metrics, "rejected_total", "reason", "internal"); got != 1 {
		t.Errorf("rejected_total{internal} = %v", got)
	}
	if got := r.services[serviceNode].inflight.n.Load(); got != 0 {
		t.Errorf("%d places not given back", got)
	}
}

// Half an answer must not look whole: the connection is cut.
func TestAPanicAfterTheHeaderCutsTheConnection(t *testing.T) {
	r := newRig(t).listening(t)
	b, _ := r.router.all[http.MethodGet].match("/registry/head")
	b.run = r.fit(&bound{route: &Route{Pattern: "/x", Service: serviceNode, Class: ClassBypass, Deadline: bypassDeadline, handle: func(c *call) error {
		c.Header().Set("Content-Length", "10")
		_, _ = c.Write([]byte("half"))
		panic("boom")
	}}, latency: b.latency, byStatus: statusCounter{resolve: b.byStatus.resolve}})
	resp, err := r.client.Get(r.url + "/registry/head")
	if err == nil {
		_, err = resp.Body.Read(make([]byte, 100))
		_ = resp.Body.Close()
	}
	if err == nil {
		t.Error("half an answer was taken for a whole one")
	}
}

func TestLabelsNeverComeFromARequest(t *testing.T) {
	r := newRig(t)
	series := func() int {
		all, err := r.metrics.Registry().Gather()
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for _, f := range all {
			n += len(f.GetMetric())
		}
		return n
	}
	touch := func(i uint64) {
		r.do("GET", "/registry/"+formatUint(i+1), "", nil)
		r.do("GET", "/nowhere/"+formatUint(i), "", nil)
		r.do("METHOD"+formatUint(i), "/registry/head", "", nil)
		r.do("GET", "/registry/head?q="+formatUint(i), "", nil)
		r.do("GET", "/schema/s"+formatUint(i), "", header{"X-Corr-ID": "id" + formatUint(i), "Origin": "https://o" + formatUint(i)})
		ip := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		r.as(&front.Peer{Addr: ip}, "GET", "http://h"+formatUint(i)+"/registry/head", "", header{"User-Agent": "a" + formatUint(i)})
		r.as(&front.Peer{Socket: true, UID: uint32(i) + 100, GID: uint32(i) + 100}, "POST", "/admin/v1/drain", "", nil)
		r.do("POST", "/registry/commit/p_"+formatUint(i), "", header{"Authorization": "Bearer good u" + formatUint(i) + "@t" + formatUint(i)})
		r.socket("POST", "/admin/v1/keys/k"+formatUint(i)+"/retire", "", nil)
	}
	touch(0)
	before := series()
	for i := range uint64(1000) {
		touch(i)
	}
	if after := series(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestEveryRouteIsWhole(t *testing.T) {
	r := newRig(t)
	seen := map[string]bool{}
	for _, route := range r.routes {
		key := route.Method + " " + route.Pattern
		switch {
		case seen[key]:
			t.Errorf("%s is there twice", key)
		case route.handle == nil || route.Service == "":
			t.Errorf("%s lacks a handler or a service", key)
		case route.Class != ClassStream && route.Deadline <= 0:
			t.Errorf("%s has no deadline", key)
		case route.Class == ClassWrite && (!protected(&route) || route.Endpoint == ""):
			t.Errorf("%s writes without a scope or an endpoint", key)
		case route.Scope != "" && len(route.AnyOf) > 0:
			t.Errorf("%s asks for a scope and for one of several", key)
		case guarded(&route) && route.Endpoint == "":
			t.Errorf("%s can be full and has no endpoint to count it under", key)
		case route.Admin != strings.HasPrefix(route.Pattern, "/admin/v1/") || route.Class == ClassAdmin && !route.Admin:
			t.Errorf("%s is half for the operator", key)
		case route.Admin && route.Service == serviceNode && !slices.Contains([]string{auth.ScopeAdmin, scopeDrain, scopeToken}, route.Scope):
			t.Errorf("%s is for the operator and asks for %q", key, route.Scope)
		case (route.Class == ClassRead || route.Class == ClassStream) && route.Method != http.MethodGet:
			t.Errorf("%s reads", key)
		case route.Summary == "" || len(route.Answers) == 0 || (route.In == nil) != (route.Body == NoBody):
			t.Errorf("%s does not say what it does, takes and answers", key)
		case r.services[route.Service] == nil:
			t.Errorf("%s: service %s has no in-flight limit", key, route.Service)
		}
		seen[key] = true
	}
}

// A line says whose route was called, and what is nobody's is the node's.
func TestLinesNameTheirService(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, func(_ *Settings, d *Deps) { d.Log = obs.NewLogger(obs.DefaultLogConfig(), &out) })
	r.do("POST", "/registry/commit/"+proposal, "", writer)
	r.socket("POST", "/admin/v1/drain", "", nil)
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(got) != 2 || !strings.Contains(got[0], `"service":"registry"`) || !strings.Contains(got[1], `"service":"node"`) {
		t.Errorf("lines %q", got)
	}
}

// The log of a refused call tells why, and never holds the token.
func TestTokensAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, func(_ *Settings, d *Deps) {
		d.Log = obs.NewLogger(obs.LogConfig{Format: "json", Level: "trace"}, &out)
		d.Auth = auth.New(auth.DefaultConfig(), nil)
	})
	for _, token := range []string{"c2VjcmV0LXRva2Vu", strings.Repeat("c2VjcmV0LXRva2Vu", 400), "c2VjcmV0LXRva2Vu=", "c2VjcmV0LXRva2Vu\x00"} {
		for _, scheme := range []string{"Bearer ", "bearer ", "Bearer  ", "Basic ", ""} {
			r.do("POST", "/registry/commit/"+proposal, "", header{"Authorization": scheme + token})
		}
		r.do("GET", "/registry/head?token="+url.QueryEscape(token), "", nil)
	}
	if strings.Count(out.String(), `"status":401`) < 10 || strings.Contains(out.String(), "c2VjcmV0") {
		t.Errorf("lines %s", out.String())
	}
}
