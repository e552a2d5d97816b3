package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

	"ronbox/httpapi"
	"ronbox/httpapi/front"
)

// edgePath returns a path of a public read of the edge that has an answer.
func edgePath(pattern string) string {
	return strings.NewReplacer(
		"assets/b3/:object", "assets/"+fakeNear, "assets/*path", "assets/"+fakeAsset, ":pack/:z/:x/:y", fakePack+"/1/0/0.png",
		":tilejson", fakePack+".json", ":style", fakePack+".json", ":pack", fakePack, ":epoch", "1", "*file", "preview.js", "*site", "docs.example/a",
	).Replace(pattern)
}

// publicEdge returns the public reads of the edge.
func publicEdge(r *rig) (out []*httpapi.Route) {
	table := r.Table()
	for i := range table {
		if strings.HasPrefix(table[i].Pattern, "/edge/") && table[i].Method == http.MethodGet && table[i].Scope == "" {
			out = append(out, &table[i])
		}
	}
	return out
}

// Pages of any origin may read every answer of the public reads of the edge, and ask whether they may.
// None of the other routes is shared.
func TestPagesReadTheEdge(t *testing.T) {
	r := newRig(t)
	page := map[string]string{"Origin": "null", "Access-Control-Request-Method": "GET"}
	shared := publicEdge(r)
	for _, route := range shared {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "POST"} {
			w := r.do(method, edgePath(route.Pattern), "", page)
			h := w.Header()
			want := map[string]int{"GET": 200, "HEAD": 200, "OPTIONS": 204, "POST": 405}[method]
			if w.Code != want || h.Get("Access-Control-Allow-Origin") != "*" || h.Get("Vary") == "Origin" ||
				h.Get("Cross-Origin-Resource-Policy") != "cross-origin" || h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s %s: %d %v %s", method, edgePath(route.Pattern), w.Code, h, w.Body)
			}
			if method == "OPTIONS" && (h.Get("Access-Control-Allow-Methods") != "GET, HEAD" ||
				h.Get("Access-Control-Allow-Headers") != "*") {
				t.Errorf("OPTIONS %s: %v", route.Pattern, h)
			}
		}
	}
	if len(shared) < 8 {
		t.Errorf("the edge has %d public reads", len(shared))
	}
	for _, route := range r.Table() {
		if route.Shared != nil && (route.Scope != "" || route.Method != http.MethodGet) {
			t.Errorf("%s %s is shared", route.Method, route.Pattern)
		}
	}
	for _, path := range []string{"/edge/keys", "/edge/store", "/registry/head", "/edge/nothing"} {
		if w := r.do("GET", path, "", page); w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %v", path, w.Header())
		}
	}
}

// Refusals of a shared route are read by pages, whichever stage refuses.
func TestPagesReadRefusalsOfTheEdge(t *testing.T) {
	r := newRig(t, limits(httpapi.Limits{Inflight: 1}))
	page := map[string]string{"Origin": "https://page.example"}
	refused := func(doc, path string, status int, h map[string]string) {
		t.Helper()
		w := r.do("GET", path, "", mapsWith(h, "Origin", page["Origin"]))
		if w.Code != status || w.Header().Get("Access-Control-Allow-Origin") != "*" ||
			w.Header().Get("Cross-Origin-Resource-Policy") != "cross-origin" {
			t.Errorf("%s: %d %v %s", doc, w.Code, w.Header(), w.Body)
		}
	}
	refused("no such pack", "/edge/tiles/none.json", 404, nil)
	refused("a malformed tile", "/edge/tiles/"+fakePack+"/00/0/0.png", 400, nil)
	refused("a range", "/edge/sites/docs.example/a", 416, map[string]string{"Range": "bytes=99-"})
	refused("another tag", "/edge/sites/docs.example/a", 412, map[string]string{"If-Match": `"x"`})
	refused("a long path", "/edge/sites/docs.example/"+strings.Repeat("x", httpapi.MaxTarget), 414, nil)
	r.SetGate(httpapi.GateClosed)
	refused("on its way down", "/edge/catalog", 503, nil)
}

// With edge.cors off, only pages of listed origins read the edge. With it on, such a page may also
// send the headers of its list.
func TestSharingIsAChoice(t *testing.T) {
	listed := func(c *httpapi.Settings, _ *deps) {
		c.Server.CORS = front.CORS{
			AllowOrigins: []string{"https://console.example"}, AllowMethods: []string{"POST"},
			AllowHeaders: []string{"Authorization"},
		}
	}
	r := newRig(t, listed)
	for _, tt := range []struct {
		off             bool
		origin          string
		get, preflight  string // Access-Control-Allow-Origin
		methods, header string
	}{
		{false, "https://console.example", "*", "*", "GET, HEAD, POST", "*, Authorization"},
		{false, "https://evil.example", "*", "*", "GET, HEAD", "*"},
		{true, "https://console.example", "https://console.example", "https://console.example", "POST", "Authorization"},
		{true, "https://evil.example", "", "", "", ""},
	} {
		r.edge.noCORS = tt.off
		h := map[string]string{"Origin": tt.origin, "Access-Control-Request-Method": "GET"}
		for _, route := range publicEdge(r) {
			get, asked := r.do("GET", edgePath(route.Pattern), "", h).Header(), r.do("OPTIONS", edgePath(route.Pattern), "", h).Header()
			if get.Get("Access-Control-Allow-Origin") != tt.get || asked.Get("Access-Control-Allow-Origin") != tt.preflight ||
				asked.Get("Access-Control-Allow-Methods") != tt.methods || asked.Get("Access-Control-Allow-Headers") != tt.header {
				t.Errorf("%s, off %t, of %s: %v, %v", route.Pattern, tt.off, tt.origin, get, asked)
			}
		}
	}
}
