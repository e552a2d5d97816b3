package httpapi

import (
	"net/http"
	"strings"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/engines/registry"
)

const approvalBody = `{"signer_id":"org:a#1","algo":"ed25519","sig":"x","signed_at":"2026-01-01T00:00:00Z"}`

func TestRegistryReads(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct{ path, body, cache, etag string }{
		{"/registry/head", headJSON(3), cacheAsk, `"b3:3"`},
		{"/registry/2", versionJSON(2, `"items":[],`), cacheForever, `"v2"`},
		{"/registry/2?items=0", versionJSON(2, ""), cacheForever, `"v2"`},
		{"/registry/2/payload", `{"payload":2}`, cacheForever, tagOf([]byte(`{"payload":2}`))},
		{"/registry/2/entry", `{"entry":2}`, cacheForever, tagOf([]byte(`{"entry":2}`))},
		{"/registry/2/status", `{"pruned":false,"covered_by":2}`, cacheAsk, ""},
		{"/registry/diff?from=1&to=2", `{"put":[{"id":"a"}],"remove":["b"]}`, cacheAsk, ""},
		{"/registry/proposals/" + proposal + "/payload", `{"type":"x"}`, cacheAsk, tagOf([]byte(`{"type":"x"}`))},
	} {
		w := r.do(http.MethodGet, tt.path, "", nil)
		h := w.Header()
		if w.Code != 200 || strings.TrimSuffix(w.Body.String(), "\n") != tt.body || h.Get("Cache-Control") != tt.cache || h.Get("ETag") != tt.etag {
			t.Errorf("GET %s: %d %s %v", tt.path, w.Code, w.Body, h)
		}
		if tt.etag == "" {
			continue
		}
		for _, match := range []string{tt.etag, `"x", W/` + tt.etag, "*"} {
			w := r.do(http.MethodGet, tt.path, "", header{"If-None-Match": match})
			if w.Code != http.StatusNotModified || w.Body.Len() != 0 || w.Header().Get("ETag") != tt.etag {
				t.Errorf("GET %s with If-None-Match %s: %d %s", tt.path, match, w.Code, w.Body)
			}
		}
		if w := r.do(http.MethodGet, tt.path, "", header{"If-None-Match": `"other"`}); w.Code != 200 {
			t.Errorf("GET %s with another tag: %d", tt.path, w.Code)
		}
	}
}

func TestRegistryProposals(t *testing.T) {
	r := newRig(t)
	list := r.do(http.MethodGet, "/registry/proposals?limit=7&cursor="+proposal, "", nil).Body.String()
	for _, want := range []string{`"proposal_id":"` + proposal, `"version":7`, `"next":"` + proposal, `"payload_url":"/registry/proposals/`} {
		if !strings.Contains(list, want) {
			t.Errorf("list %s lacks %s", list, want)
		}
	}
	one := r.do(http.MethodGet, "/registry/proposals/"+proposal, "", nil).Body.String()
	if !strings.Contains(one, `"state":"pending"`) {
		t.Errorf("proposal %s", one)
	}
}

func TestRegistryWrites(t *testing.T) {
	for _, tt := range []struct {
		method, path, body string
		replay             bool
		status             int
		answer             string
	}{
		{"POST", "/registry/proposals", proposeBody(1), false, 202, `"payload_url":"/registry/proposals/` + proposal + `/payload"`},
		{"POST", "/registry/proposals", proposeBody(1), true, 202, `"proposal_id":"` + proposal},
		{"POST", "/registry/approvals/" + proposal, approvalBody, false, 200, `{"status":"accepted","approvals":1,"quorum":{"m":1,"n":2}}`},
		{"POST", "/registry/commit/" + proposal, "", false, 201, `"version":2`},
		{"POST", "/registry/commit/" + proposal, "", true, 200, `"version":2`},
		{"DELETE", "/registry/proposals/" + proposal, "", false, 204, ""},
	} {
		r := newRig(t)
		r.reg.replay = tt.replay
		w := r.do(tt.method, tt.path, tt.body, writer)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.answer) || w.Header().Get("Cache-Control") != "no-store" {
			t.Errorf("%s %s: %d %s %v", tt.method, tt.path, w.Code, w.Body, w.Header())
		}
		if (w.Header().Get("Idempotent-Replayed") == "true") != tt.replay {
			t.Errorf("%s %s: Idempotent-Replayed %q", tt.method, tt.path, w.Header().Get("Idempotent-Replayed"))
		}
		if r.reg.actor.CapID != "tid" || r.reg.calls != 1 {
			t.Errorf("%s %s: %d calls by %+v", tt.method, tt.path, r.reg.calls, r.reg.actor)
		}
	}
}

func TestRegistryWritesNeedAToken(t *testing.T) {
	r := newRig(t)
	for _, route := range r.registryWrites() {
		path := strings.Replace(route.Pattern, ":id", proposal, 1)
		for _, tt := range []struct {
			auth   string
			status int
		}{{"", 401}, {"Bearer forged", 401}, {"Basic good", 401}, {"Bearer", 401}, {"Bearer bad", 403}} {
			w := r.do(route.Method, path, "", header{"Authorization": tt.auth})
			if d := problemIn(t, w.Body.String()).Detail; w.Code != tt.status || !strings.Contains(d, "ronbox token") {
				t.Errorf("%s %s as %q: %d %s, want %d, saying what to do", route.Method, path, tt.auth, w.Code, w.Body, tt.status)
			}
		}
	}
	if r.reg.calls != 0 {
		t.Errorf("the engine was called %d times", r.reg.calls)
	}
}

func TestRegistryBodiesNameTheirFault(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct{ path, body, field string }{
		{"/registry/proposals", `{"payload":{}}`, "schema_version"},
		{"/registry/proposals", `{"schema_version":"2.0.0","payload":{}}`, "schema_version"},
		{"/registry/proposals", `{"schema_version":"1.0.0"}`, "payload"},
		{"/registry/proposals", `{"schema_version":"1.0.0","payload":{},"payload":{}}`, "payload"},
		{"/registry/proposals", `{"schema_version":"1.0.0","payload":{},"extra":1}`, "extra"},
		{"/registry/proposals", `{"schema_version":1,"payload":{}}`, "schema_version"},
		{"/registry/approvals/" + proposal, `{"signer_id":["a"]}`, "signer_id"},
		{"/registry/approvals/" + proposal, `{"received_at":"2026-01-01T00:00:00Z"}`, "received_at"},
	} {
		w := r.do(http.MethodPost, tt.path, tt.body, writer)
		p := problemIn(t, w.Body.String())
		if w.Code != 400 || p.Details["field"] != tt.field || !strings.Contains(p.Detail, tt.field) {
			t.Errorf("%s %s: %d %+v, want 400 naming %s", tt.path, tt.body, w.Code, p, tt.field)
		}
	}
	if r.reg.calls != 0 {
		t.Errorf("the engine was called %d times", r.reg.calls)
	}
}

func TestProposalIDsThatCannotBe(t *testing.T) {
	r := newRig(t)
	for _, path := range []string{"/registry/commit/x", "/registry/commit/p_", "/registry/approvals/" + strings.ToLower(proposal)} {
		if w := r.do(http.MethodPost, path, approvalBodyFor(path), writer); w.Code != http.StatusNotFound {
			t.Errorf("POST %s: %d, want 404", path, w.Code)
		}
	}
}

func approvalBodyFor(path string) string {
	if strings.Contains(path, "approvals") {
		return approvalBody
	}
	return ""
}

func TestBusyIsCountedExactly(t *testing.T) {
	r := newRig(t)
	r.reg.set(flow.ErrBusy)
	for range 3 {
		w := r.do(http.MethodPost, "/registry/proposals", proposeBody(1), writer)
		if w.Code != http.StatusTooManyRequests || w.Header().Get("Retry-After") == "" {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
	w := r.do(http.MethodPost, "/registry/approvals/"+proposal, approvalBody, writer)
	if w.Code != http.StatusTooManyRequests {
		t.Fatal(w.Code)
	}
	for _, tt := range []struct {
		family, label, value string
		want                 float64
	}{
		{"busy_rejections_total", "endpoint", "propose", 3}, {"busy_rejections_total", "endpoint", "approve", 1},
		{"busy_rejections_total", "service", "registry", 4}, {"rejected_total", "reason", "busy", 4},
		{"http_requests_total", "status", "429", 4},
	} {
		if got := sum(t, r.metrics, tt.family, tt.label, tt.value); got != tt.want {
			t.Errorf("%s{%s=%q} = %v, want %v", tt.family, tt.label, tt.value, got, tt.want)
		}
	}
}

var _ Registry = (*registry.Engine)(nil)
