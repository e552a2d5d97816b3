package httpapi

import (
	"net/http"
	"testing"

	"ronbox/httpapi/front"
)

const console = "https://console.example"

// console lets pages of one origin in.
func withConsole(c *Settings, _ *Deps) {
	c.Server.CORS = front.CORS{AllowOrigins: []string{console}, AllowMethods: []string{"GET", "POST"}, AllowHeaders: []string{"Authorization"}}
}

// A page of the list may read why it is refused, and when to come back; other pages may read nothing.
func TestPagesOfTheListMayReadRefusals(t *testing.T) {
	r := newRig(t, withConsole, limits(Limits{RPS: 1, Burst: 1}))
	r.do("POST", "/registry/commit/"+proposal, "", writer)
	for _, tt := range []struct {
		doc, method, path string
		h                 header
		status            int
	}{
		{"an empty bucket", "POST", "/registry/commit/" + proposal, writer, 429}, {"no token", "POST", "/registry/commit/" + proposal, nil, 401},
		{"no such path", "GET", "/nowhere", nil, 404}, {"another method", "PUT", "/registry/head", nil, 405},
		{"a bad query", "GET", "/registry/head?x=1", nil, 400}, {"a probe", "GET", "/healthz", nil, 200}, {"the document", "GET", "/openapi.json", nil, 200},
	} {
		for origin, want := range map[string]string{console: console, "https://evil.example": ""} {
			w := r.do(tt.method, tt.path, "", mapsWith(tt.h, "Origin", origin))
			h := w.Header()
			if w.Code != tt.status || h.Get("Access-Control-Allow-Origin") != want || len(h["Vary"]) != 1 || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s of %s: %d %v", tt.doc, origin, w.Code, h)
			}
		}
	}
	r.SetGate(GateClosed)
	if w := r.do("GET", "/registry/head", "", header{"Origin": console}); w.Code != 503 || w.Header().Get("Access-Control-Allow-Origin") != console {
		t.Errorf("on its way down: %d %v", w.Code, w.Header())
	}
}

// The metrics are open by the place that asks. A page that a browser in that place shows is of another.
func TestNoPageReadsTheMetrics(t *testing.T) {
	r := newRig(t, func(c *Settings, d *Deps) { c.Server.CORS.AllowOrigins = []string{"*"} })
	for origin := range map[string]bool{console: true, "null": true} {
		if w := r.socket("GET", "/metrics", "", header{"Origin": origin}); w.Code != 200 || w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", origin, w.Code, w.Header())
		}
	}
}

// A browser asks ahead with the whole target of what it is about to send.
func TestPreflightOfAQuery(t *testing.T) {
	r := newRig(t, withConsole)
	for _, path := range []string{"/registry/diff?from=1&to=2", "/registry/proposals?limit=5", "/registry/2?items=0"} {
		w := r.do(http.MethodOptions, path, "", header{"Origin": console, "Access-Control-Request-Method": "GET"})
		if w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != console || len(w.Header()["Vary"]) != 1 {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}
