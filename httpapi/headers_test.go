package httpapi

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ronbox/httpapi/front"
)

// Every answer tells browsers to do nothing with it, refusals of every stage too.
func TestEveryAnswerIsHardened(t *testing.T) {
	r := newRig(t, limits(Limits{RPS: 1, Burst: 1, ReadRPS: 1000}))
	for _, w := range []*httptest.ResponseRecorder{
		r.do("GET", "/healthz", "", nil), r.do("GET", "/registry/head", "", nil), r.do("GET", "/nowhere", "", nil), r.do("BREW", "/healthz", "", nil),
		r.do("POST", "/registry/commit/"+proposal, "", nil), r.do("POST", "/registry/commit/"+proposal, "", nil),
		r.socket("GET", "/admin/v1/status", "", nil), r.do("GET", "/registry/head?x=1", "", nil),
	} {
		h := w.Header()
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" || h.Get("Referrer-Policy") != "no-referrer" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") || h.Get("Strict-Transport-Security") != "" {
			t.Errorf("%d: headers %v", w.Code, h)
		}
	}
}

func TestTransportSecurityIsForTLSOnly(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := newRig(t, func(c *Settings, _ *Deps) { c.Server.HSTS = on })
		req := httptest.NewRequest("GET", "/registry/head", nil)
		req.TLS = &tls.ConnectionState{}
		w := httptest.NewRecorder()
		r.router.ServeHTTP(w, req)
		if got := w.Header().Get("Strict-Transport-Security"); (got != "") != on {
			t.Errorf("hsts %v: %q", on, got)
		}
	}
}

// Without an allow list no page of another origin learns anything.
func TestPagesAreDeniedByDefault(t *testing.T) {
	r := newRig(t)
	h := header{"Origin": "https://evil.example", "Access-Control-Request-Method": "POST"}
	for _, w := range []*httptest.ResponseRecorder{r.do("GET", "/registry/head", "", h), r.do("OPTIONS", "/registry/proposals", "", h)} {
		for name := range w.Header() {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%d tells %s", w.Code, name)
			}
		}
	}
}

func TestPagesOfTheListMayRead(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) {
		c.Server.CORS = front.CORS{
			AllowOrigins: []string{"https://console.example"}, AllowMethods: []string{"GET", "POST"}, AllowHeaders: []string{"Authorization"},
		}
	})
	for _, tt := range []struct {
		method, path, origin, ask string
		status                    int
		allowed                   string
	}{
		{"GET", "/registry/head", "https://console.example", "", 200, "https://console.example"},
		{"GET", "/registry/head", "https://evil.example", "", 200, ""},
		{"GET", "/registry/head", "https://console.example.evil.example", "", 200, ""},
		{"GET", "/registry/head", "null", "", 200, ""},
		{"GET", "/registry/head", "", "", 200, ""},
		{"OPTIONS", "/registry/proposals", "https://console.example", "POST", 204, "https://console.example"},
		{"OPTIONS", "/registry/proposals", "https://evil.example", "POST", 405, ""},
		{"OPTIONS", "/registry/proposals", "https://console.example", "", 405, "https://console.example"},
		{"OPTIONS", "/nowhere", "https://console.example", "POST", 404, "https://console.example"},
		{"OPTIONS", "/admin/v1/status", "https://console.example", "GET", 404, "https://console.example"},
	} {
		h := header{}
		if tt.origin != "" {
			h["Origin"] = tt.origin
		}
		if tt.ask != "" {
			h["Access-Control-Request-Method"] = tt.ask
		}
		w := r.do(tt.method, tt.path, "", h)
		if w.Code != tt.status || w.Header().Get("Access-Control-Allow-Origin") != tt.allowed {
			t.Errorf("%s %s of %q: %d %v", tt.method, tt.path, tt.origin, w.Code, w.Header())
		}
		if tt.method == "GET" && w.Header().Get("Vary") != "Origin" {
			t.Errorf("%s %s of %q: Vary %q", tt.method, tt.path, tt.origin, w.Header().Get("Vary"))
		}
		if tt.status == 204 && (w.Header().Get("Access-Control-Allow-Methods") != "GET, POST" || w.Header().Get("Access-Control-Allow-Headers") != "Authorization") {
			t.Errorf("preflight: %v", w.Header())
		}
	}
}

func TestWhatWillGoSaysSo(t *testing.T) {
	r := newRig(t)
	since, sunset := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	old := Route{
		Method: "GET", Pattern: "/old", Service: serviceRegistry, Class: ClassRead, Deadline: defaultDeadline, Endpoint: endpointRead,
		Deprecated: &Deprecation{Since: since, Sunset: sunset, Link: "https://example.org/new"}, handle: getHealthz,
	}
	w := httptest.NewRecorder()
	r.serve(w, httptest.NewRequest("GET", "/old", nil), r.bind(&old, "GET"), nil)
	h := w.Header()
	if w.Code != 200 || h.Get("Deprecation") != "@1767323045" || h.Get("Sunset") != "Fri, 01 Jan 2027 00:00:00 GMT" ||
		h.Get("Link") != `<https://example.org/new>; rel="deprecation"` {
		t.Errorf("%d %v", w.Code, h)
	}
	want := "GET /old: deprecated since 2026-01-02, gone after 2027-01-01, see https://example.org/new"
	if got := deprecations([]Route{old}); len(got) != 1 || got[0] != want {
		t.Errorf("%q, want %q", got, want)
	}
	if d := describe(&old); !d.Deprecated || len(describe(&r.routes[0]).Headers) != 0 {
		t.Error("the document does not say what will go")
	}
	if body := r.do("GET", "/version", "", nil).Body.String(); !strings.Contains(body, `"deprecations":["old"]`) {
		t.Errorf("version %s lacks what the node says itself", body)
	}
}

func TestShapesThatNoClientHas(t *testing.T) {
	r := newRig(t)
	many := header{}
	for i := range 65 {
		many["X-H"+formatUint(uint64(i))] = "x"
	}
	for _, tt := range []struct {
		doc, target string
		h           header
		status      int
		reason      string
	}{
		{"a long query", "/registry/head?" + strings.Repeat("x", maxTarget), nil, 414, "malformed"},
		{"a long path", "/" + strings.Repeat("x", maxTarget), nil, 414, "malformed"},
		{"many headers", "/registry/head", many, 431, "bad_header"},
	} {
		w := r.do("GET", tt.target, "", tt.h)
		if p := problemIn(t, w.Body.String()); w.Code != tt.status || p.Reason != tt.reason {
			t.Errorf("%s: %d %+v", tt.doc, w.Code, p)
		}
		if got := sum(t, r.metrics, "rejected_total", "reason", tt.reason); got == 0 {
			t.Errorf("%s is not counted", tt.doc)
		}
	}
	delete(many, "X-H0")
	if w := r.do("GET", "/registry/head", "", many); w.Code != http.StatusOK {
		t.Errorf("64 headers: %d", w.Code)
	}
}

// Over the network every answer has a length, told by the handler or by net/http, and HEAD tells that of GET.
func TestAnswersHaveALength(t *testing.T) {
	r := newRig(t).listening(t)
	for _, path := range []string{"/registry/head", "/healthz", "/openapi.json", "/nowhere", "/registry/2"} {
		lengths := map[string]int64{}
		for _, method := range []string{http.MethodGet, http.MethodHead} {
			req, _ := http.NewRequestWithContext(t.Context(), method, r.url+path, nil)
			resp, err := r.client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_ = resp.Body.Close()
			lengths[method] = resp.ContentLength
		}
		if lengths[http.MethodGet] <= 0 || lengths[http.MethodGet] != lengths[http.MethodHead] {
			t.Errorf("%s: lengths %v", path, lengths)
		}
	}
}
