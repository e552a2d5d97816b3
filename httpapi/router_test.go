package httpapi

import (
	"bufio"
	"net/http"
	"strings"
	"testing"
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
	for _, route := range r.routes {
		if route.Method != http.MethodGet || route.Class == ClassStream || route.Pattern == "/metrics" {
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

// A path matches one row at most, and what the row took gives the path back.
func FuzzDispatch(f *testing.F) {
	for _, s := range []string{
		"/registry/head", "/registry/1", "/registry/01/payload", "/registry/proposals/" + proposal + "/payload", "/registry/../x",
		"//", "/registry/signers/1", "", "/registry/stream", "/registry/9999999999999999",
	} {
		f.Add(s)
	}
	set := newRig(f).router.all[http.MethodGet]
	f.Fuzz(func(t *testing.T, path string) {
		b, params := set.match(path)
		if b == nil {
			return
		}
		back := b.route.Pattern
		for _, p := range params {
			back = strings.Replace(back, ":"+p.Key, p.Value, 1)
		}
		if back != path {
			t.Fatalf("%q is taken as %s with %v", path, b.route.Pattern, params)
		}
		hits := 0
		for _, row := range set.rows {
			if _, ok := row.take(strings.Split(path, "/")); ok {
				hits++
			}
		}
		if _, fixed := set.fixed[path]; hits > 1 || fixed && hits > 0 {
			t.Fatalf("%q has %d rows", path, hits)
		}
	})
}
