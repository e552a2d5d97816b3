package httpapi_test

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/host/hosttest"
	"ronbox/engines"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

func TestPathsAreExact(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		path   string
		status int
	}{
		{"/registry/head", 200}, {"/registry/head/", 404}, {"/registry/HEAD", 404}, {"/registry//head", 400},
		{"//registry/head", 400}, {"/registry/./head", 400}, {"/registry/x/../head", 400}, {"/registry/%2e%2e/head", 400},
		{"/registry/..%2fhead", 400}, {"/registry/..", 400}, {"/registry/..%5chead", 400}, {"/registry/a..b", 404}, {"/admin/v1/../v1/status", 400},
		{"/registry", 404}, {"/registry/", 404}, {"/registry/1", 200}, {"/registry/01", 404}, {"/registry/0", 404},
		{"/registry/+1", 404}, {"/registry/-1", 404}, {"/registry/1e3", 404}, {"/registry/٣", 404},
		{"/registry/9999999999999999", 200}, {"/registry/10000000000000000", 404}, {"/registry/1/", 404},
		{"/registry/1/payload", 200}, {"/registry/1%2Fpayload", 200}, {"/registry/1/entry", 200}, {"/registry/1/status", 200},
		{"/registry/1/nothing", 404}, {"/registry/1/payload/x", 404},
		{"/registry/proposals", 200}, {"/registry/proposals/" + proposal, 200}, {"/registry/proposals/" + proposal + "/payload", 200},
		{"/registry/proposals/p_x", 404}, {"/registry/proposals/" + strings.ToLower(proposal), 404}, {"/registry/proposals/..", 400},
		{"/registry/diff?from=1&to=2", 200}, {"/registry/diff?from=01&to=2", 400}, {"/registry/diff?from=1", 400},
		{"/registry/diff?from=1&to=2&x=1", 400}, {"/registry/diff?from=1&from=1&to=2", 400}, {"/registry/diff?from=1;to=2", 400},
		{"/registry/head?x=1", 400}, {"/registry/1?items=0", 200}, {"/registry/1?items=2", 400}, {"/registry/1?items=", 400},
		{"/registry/proposals?limit=100", 200}, {"/registry/proposals?limit=101", 400}, {"/registry/proposals?cursor=x", 400},
		{"/registry/versions?before=1", 200}, {"/registry/versions?before=0", 400}, {"/registry/versions?limit=101", 400},
		{"/healthz", 200}, {"/healthz/", 404}, {"/Healthz", 404}, {"/healthz?x=1", 400}, {"/", 404}, {"/registry/\x00", 400},
		{"/admin/v1/status", 404},
	} {
		req := strings.ReplaceAll(tt.path, "\x00", "%00")
		w := r.do(http.MethodGet, req, "", nil)
		if w.Code != tt.status {
			t.Errorf("GET %s: %d, want %d", tt.path, w.Code, tt.status)
		}
		if tt.status == 400 && problemIn(t, w.Body.String()).Reason != "malformed" {
			t.Errorf("GET %s: %s", tt.path, w.Body)
		}
		if l := w.Header().Get("Location"); l != "" {
			t.Errorf("GET %s redirects to %s", tt.path, l)
		}
	}
}

func TestWrongMethodNamesTheRightOnes(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct{ method, path, allow string }{
		{"POST", "/registry/head", "GET, HEAD"}, {"PUT", "/registry/proposals", "GET, HEAD, POST"},
		{"GET", "/registry/commit/" + proposal, "POST"}, {"DELETE", "/healthz", "GET, HEAD"}, {"OPTIONS", "/healthz", "GET, HEAD"},
		{"PATCH", "/registry/proposals/" + proposal, "DELETE, GET, HEAD"}, {"BREW", "/registry/3/payload", "GET, HEAD"},
	} {
		w := r.do(tt.method, tt.path, "", nil)
		if w.Code != http.StatusMethodNotAllowed || w.Header().Get("Allow") != tt.allow {
			t.Errorf("%s %s: %d Allow %q, want 405 %q", tt.method, tt.path, w.Code, w.Header().Get("Allow"), tt.allow)
		}
	}
	if got := sum(t, r.metrics, "http_requests_total", "method", "other"); got != 1 {
		t.Errorf("unknown methods counted %v times as other, want 1", got)
	}
}

func TestHeadComesWithEveryGet(t *testing.T) {
	r := newRig(t)
	for _, route := range r.Table() {
		if route.Method != http.MethodGet || route.Class == httpapi.ClassStream || route.Pattern == "/metrics" {
			continue
		}
		path := strings.NewReplacer(":v", "3", ":id", proposal, ":epoch", "1").Replace(route.Pattern)
		if strings.Contains(route.Pattern, "signers") {
			continue // the fake has no signer set
		}
		if path == "/registry/diff" {
			path += "?from=1&to=2"
		}
		get, head := r.socket(http.MethodGet, path, "", nil), r.socket(http.MethodHead, path, "", nil)
		if get.Code != head.Code || get.Header().Get("Content-Length") != head.Header().Get("Content-Length") ||
			get.Header().Get("ETag") != head.Header().Get("ETag") {
			t.Errorf("HEAD %s: %d %v, GET says %d %v", path, head.Code, head.Header(), get.Code, get.Header())
		}
	}
}

// What net/http lets through without a path has no row, and no panic.
func TestTargetsWithoutAPath(t *testing.T) {
	r := newRig(t).listening(t)
	for _, line := range []string{
		"CONNECT example.org:80 HTTP/1.1", "GET http://example.org HTTP/1.1", "OPTIONS * HTTP/1.1", "GET http://example.org/registry/head HTTP/1.1",
	} {
		c := r.dial(t)
		if _, err := c.Write([]byte(line + "\r\nHost: example.org\r\n\r\n")); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		_ = resp.Body.Close()
		if resp.StatusCode >= 500 {
			t.Errorf("%s: %d", line, resp.StatusCode)
		}
	}
}

// A path matches at most one route, and its pattern with the parameters is the path again.
func FuzzDispatch(f *testing.F) {
	for _, s := range []string{
		"/registry/head", "/registry/1", "/registry/01/payload", "/registry/proposals/" + proposal + "/payload", "/registry/../x",
		"//", "/registry/signers/1", "", "/registry/stream", "/registry/9999999999999999",
	} {
		f.Add(s)
	}
	set := newRig(f).Templates(http.MethodGet)
	f.Fuzz(func(t *testing.T, path string) {
		route, params, hits := set.Hits(path)
		if route == nil {
			return
		}
		back := route.Pattern
		for _, p := range params {
			back = strings.Replace(back, ":"+p.Key, p.Value, 1)
		}
		if back != path {
			t.Fatalf("%q is taken as %s with %v", path, route.Pattern, params)
		}
		if hits > 1 {
			t.Fatalf("%q has %d rows", path, hits)
		}
	})
}

// Every row, and every path without one, is of a service that is served: whatever counts or limits
// by service finds it.
func TestEveryRowIsOfAServedService(t *testing.T) {
	for doc, change := range map[string]func(*httpapi.Settings, *deps){
		"all":         func(*httpapi.Settings, *deps) {},
		"no registry": func(_ *httpapi.Settings, d *deps) { d.Registry = nil },
		"no wallet":   func(_ *httpapi.Settings, d *deps) { d.Wallet = nil },
		"neither":     func(_ *httpapi.Settings, d *deps) { d.Registry, d.Wallet = nil, nil },
	} {
		r := newRig(t, change)
		for _, route := range r.Table() {
			if !r.Served(route.Service) {
				t.Errorf("%s: %s %s is of %q, which is not served", doc, route.Method, route.Pattern, route.Service)
			}
		}
		for _, b := range r.Missing() {
			if !r.Served(b.Service) {
				t.Errorf("%s: what has no row is of %q, which is not served", doc, b.Service)
			}
		}
		for _, path := range []string{"/registry/", walletPrefix, adminPrefix, "/"} {
			if service := r.ServiceOf(path + "none"); !r.Served(service) {
				t.Errorf("%s: %snone is of %q, which is not served", doc, path, service)
			}
		}
	}
}

// A peer of the socket has exactly the scopes in the map for its uid or gid.
func TestSocketPeersHaveTheScopesOfTheMap(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		c.UDS.Map = map[string][]string{
			"uid:7": {
				auth.ScopeAdmin,
			},
			"uid:8":  {"node.token"},
			"uid:9":  {"node.drain", "node.metrics"},
			"gid:50": {"registry.commit"},
		}
	})
	for _, tt := range []struct {
		uid, gid                             uint32
		status, mint, drain, metrics, commit int
	}{
		{7, 7, 200, 201, 202, 200, 201}, {0, 0, 200, 201, 202, 200, 201}, {8, 8, 403, 201, 403, 403, 403},
		{9, 9, 403, 403, 202, 200, 403}, {10, 50, 403, 403, 403, 403, 201}, {11, 11, 403, 403, 403, 403, 403},
	} {
		as := func(method, path, body string) int {
			return r.as(&front.Peer{Socket: true, UID: tt.uid, GID: tt.gid}, method, path, body, nil).Code
		}
		got := []int{
			as("GET", "/admin/v1/status", ""),
			as("POST", "/admin/v1/tokens", `{"scopes":["a.b"]}`),
			as("POST", "/admin/v1/drain", ""),
			as("GET", "/metrics", ""),
			as("POST", "/registry/commit/"+proposal, ""),
		}
		if want := []int{tt.status, tt.mint, tt.drain, tt.metrics, tt.commit}; !slices.Equal(got, want) {
			t.Errorf("uid %d gid %d: %v, want %v", tt.uid, tt.gid, got, want)
		}
		select {
		case <-r.node.drained:
		default:
		}
	}
	if got := sum(t, r.metrics, "auth_failures_total", "stage", "peer", "surface", "uds"); got != 16 {
		t.Errorf("auth_failures_total{stage=peer} = %v, want 16", got)
	}
	if w := r.as(&front.Peer{Socket: true, UID: 11}, "GET", "/registry/head", "", nil); w.Code != http.StatusOK {
		t.Errorf("what is public is public on the socket too: %d", w.Code)
	}
}

// asker is an authority that records its requests.
type asker struct{ asked []auth.Request }

func (a *asker) Check(_ string, r auth.Request) (engines.Actor, error) {
	a.asked = append(a.asked, r)
	return engines.Actor{CapID: "tid", Principal: "p", Admin: true}, nil
}

// Each row asks for its own scope, before its body is looked at.
func TestEveryRouteAsksForItsScope(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	for _, route := range newRig(t).Table() {
		if !httpapi.Protected(&route) || route.Socket {
			continue
		}
		a := &asker{}
		r := newRig(t, func(c *httpapi.Settings, d *deps) { c.Server.AdminOnTCP, d.Auth = true, a })
		path := strings.NewReplacer(":id", proposal, ":kid", "k1", ":txid", txid, ":period", "1", ":session", "a").
			Replace(route.Pattern)
		method := route.Method
		if route.Class == httpapi.ClassStream {
			method = http.MethodHead
		}
		r.do(method, path, "not json", header{"Authorization": "Bearer x"})
		if len(a.asked) != 1 {
			t.Errorf("%s %s: asked %d times", method, path, len(a.asked))
			continue
		}
		if q := a.asked[0]; q.Scope != route.Scope || q.Service != route.Service || q.Path != path ||
			q.Method != route.Method ||
			q.Bytes != 8 {
			t.Errorf("%s %s: asked for %+v", method, path, q)
		}
	}
}

// A token on the socket restricts the scopes in the map: only both together make an admin.
func TestAnActorIsAdminByBoth(t *testing.T) {
	a := &asker{}
	r := newRig(t, func(c *httpapi.Settings, d *deps) {
		d.Auth = a
		c.UDS.Map = map[string][]string{"uid:7": {auth.ScopeAdmin}, "uid:8": {"registry.commit"}}
	})
	for uid, want := range map[uint32]bool{7: true, 8: false} {
		r.as(&front.Peer{Socket: true, UID: uid}, "POST", "/registry/commit/"+proposal, "",
			header{"Authorization": "Bearer x"})
		if got := r.reg.actor; got.Admin != want || got.UID == nil || *got.UID != uid || got.CapID != "tid" {
			t.Errorf("uid %d: actor %+v, want admin %v", uid, got, want)
		}
	}
}

// No answer repeats a token, a body or what else was not judged.
func TestAnswersRepeatNothing(t *testing.T) {
	const mark = "s3cretmark"
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Auth = auth.New(auth.DefaultConfig(), nil) })
	for _, tt := range []struct {
		method, path, body string
		h                  header
	}{
		{"POST", "/registry/commit/" + proposal, "", header{"Authorization": "Bearer " + mark}},
		{"POST", "/registry/commit/" + mark, "", header{"Authorization": mark}},
		{"GET", "/registry/" + mark, "", nil}, {"GET", "/" + mark, "", nil}, {mark, "/registry/head", "", nil},
		{"GET", "/registry/diff?from=" + mark + "&to=1", "", nil}, {"GET", "/registry/proposals?cursor=" + mark, "", nil},
		{"GET", "/readyz?service=" + mark, "", nil}, {"GET", "/readyz?plane=" + mark, "", nil},
		{"GET", "/registry/head", "", header{"Deadline": mark}}, {"GET", "/registry/head", "", header{"Request-Timeout": mark}},
		{"GET", "/registry/stream", "", header{"Last-Event-ID": mark}}, {"GET", "/registry/head", "", header{"X-Corr-ID": mark}},
		{"GET", "/schema/" + mark, "", nil},
	} {
		if w := r.do(tt.method, tt.path, tt.body, tt.h); strings.Contains(w.Body.String(), mark) || w.Code >= 500 {
			t.Errorf("%s %s %v: %d %s", tt.method, tt.path, tt.h, w.Code, w.Body)
		}
	}
	for _, body := range []string{`{"reason":1,"x":"` + mark + `"}`, `{"reason":{"` + "reason" + `":"` + mark + `"}}`, mark, `["` + mark + `"]`, `{"reason":"` + mark} {
		if w := r.socket("POST", "/admin/v1/drain", body, nil); w.Code != 400 ||
			strings.Contains(w.Body.String(), mark) {
			t.Errorf("body %s: %d %s", body, w.Code, w.Body)
		}
	}
}

// A query is read as package url reads it, and refused where that refuses it.
func FuzzQuery(f *testing.F) {
	for _, s := range []string{
		"", "&", strings.Repeat("&", 20_000), strings.Repeat("b&", httpapi.MaxParams+1), "a=1&b=2", "a", "a=", "=1", "a=%41&%62=+", "a=1&&b", "a;b=1", "a=%", "a=%zz", "a=1=2&a=3", "%00=%ff", "a=%3B", "a+b=c%26d",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		want, bad := url.ParseQuery(raw)
		got, err := httpapi.ParseQuery(raw)
		if cap(got) > httpapi.MaxParams {
			t.Fatalf("room for %d", cap(got))
		}
		if strings.Count(raw, "&") >= httpapi.MaxParams {
			return // package url reads more, and refuses ten thousand empty ones
		}
		if (err != nil) != (bad != nil) {
			t.Fatalf("%v, want %v", err, bad)
		}
		if err != nil {
			return
		}
		n := 0
		for name, values := range want {
			n += len(values)
			if v, given := got.Find(name); v != values[0] || !given {
				t.Errorf("%q is %q, want %q", name, v, values[0])
			}
		}
		if _, given := got.Find("\x00 none"); len(got) != n || given != want.Has("\x00 none") {
			t.Errorf("%d parameters, want %d", len(got), n)
		}
	})
}

// A header full of parameters is refused with no more room than a few take; empty ones are none.
func TestQueryIsBounded(t *testing.T) {
	for _, raw := range []string{strings.Repeat("a&", 8192), strings.Repeat("&", 16384) + "a=1"} {
		if got, err := httpapi.ParseQuery(raw); cap(got) > httpapi.MaxParams ||
			(err == httpapi.ErrQueryLong) != (raw[0] == 'a') {
			t.Errorf("%.8q…: room for %d, %v", raw, cap(got), err)
		}
	}
}

// Whatever stands in the headers that the stages read, a call is answered by a success or a
// refusal, never by a fault.
func FuzzHeaders(f *testing.F) {
	for _, s := range []string{
		"", "Bearer good", "Bearer  x", "gzip", "gzip, gzip", "zstd", "1.5", "1e9", "-1", "2999-01-01T00:00:00Z", someULID, "*", "W/\"x\"",
		"application/json; charset=", "application/json;;", "https://a.example", "\x00", "99999999999999999999", "text/event-stream",
	} {
		for _, name := range []string{"Authorization", "Content-Encoding", "Request-Timeout", "Deadline", "X-Corr-Id", "If-None-Match", "Content-Type",
			"Origin", "Last-Event-Id", "Traceparent"} {
			f.Add(name, s)
		}
	}
	r := newRig(f, func(c *httpapi.Settings, _ *deps) { c.Server.CORS.AllowOrigins = []string{"https://a.example"} })
	f.Fuzz(func(t *testing.T, name, value string) {
		for _, target := range [][2]string{{"POST", "/registry/proposals"}, {"GET", "/registry/head"}, {"HEAD", "/registry/stream"}, {"OPTIONS", "/registry/head"}} {
			req := httptest.NewRequest(target[0], target[1], nil)
			req.Header = http.Header{"Authorization": {"Bearer good"}, http.CanonicalHeaderKey(name): {value}}
			w := httptest.NewRecorder()
			r.Router().ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{})))
			if w.Code >= http.StatusInternalServerError && w.Code != http.StatusGatewayTimeout {
				t.Errorf("%s %s with %s: %q: %d %s", target[0], target[1], name, value, w.Code, w.Body)
			}
		}
	})
}

// A request without a route is told of the document and of the public route that is nearest; one
// below the operator's paths is not, because they are hidden.
func TestNoRouteNamesTheNearest(t *testing.T) {
	r := newRig(t)
	for path, want := range map[string]string{
		"/v1/balances":              "did you mean /v1/balance?",
		"/v1/txs/" + txid:           "did you mean /v1/tx/:txid?",
		"/registri/head":            "did you mean /registry/head?",
		"/something/else/that/none": "no such route",
		"/admin/v1/statuss":         "no such route",
	} {
		w := r.do("GET", path, "", nil)
		if p := problemIn(t, w.Body.String()); w.Code != 404 || !strings.Contains(p.Detail, want) ||
			!strings.Contains(p.Detail, "/openapi.json") {
			t.Errorf("%s: %d %q, want %q", path, w.Code, p.Detail, want)
		}
	}
}

// A preflight request to a node that permits no page is told of the key.
func TestPreflightWithoutCORS(t *testing.T) {
	r := newRig(t)
	h := header{"Origin": "https://console.example", "Access-Control-Request-Method": "POST"}
	w := r.do("OPTIONS", "/v1/transfer", "", h)
	if p := problemIn(t, w.Body.String()); w.Code != 403 || p.Reason != "cors_off" ||
		p.Details["key"] != "server.cors.allow_origins" || !strings.Contains(p.Detail, "server.cors.allow_origins") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := r.do("OPTIONS", "/v1/transfer", "", nil); w.Code != 405 {
		t.Errorf("without the headers of a browser: %d", w.Code)
	}
}
