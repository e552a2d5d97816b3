package httpapi

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/httpapi/front"
	"ronbox/store"
)

func TestOperatorsRoutesAnswer(t *testing.T) {
	r := newRig(t)
	r.node.note(false)
	for _, tt := range []struct {
		method, path, body string
		status             int
		answer             string
	}{
		{"GET", "config", "", 200, `"key":"log.level"`},
		{"POST", "config/reload", "", 200, `"version":2`},
		{"GET", "tokens?limit=5&cursor=abc", "", 200, `"next":"abc"`},
		{"POST", "tokens/revoke", `{"tid":"x","reason":"lost"}`, 200, `"what":"tid"`},
		{"POST", "tokens/revoke", `{}`, 400, `exactly one`},
		{"POST", "tokens/revoke", `{"tid":"x","all":true}`, 400, `exactly one`},
		{"POST", "tokens/verify", `{"token":"good"}`, 200, `"authentic":true`},
		{"POST", "tokens/verify", `{}`, 400, `"field":"token"`},
		{"GET", "keys", "", 200, `"active":"k1"`},
		{"POST", "keys/rotate", "", 201, `"kid":"k2"`},
		{"POST", "keys/k1/retire", "", 200, `"state":"retired"`},
		{"POST", "keys/..%2f/retire", "", 400, `malformed`}, {"POST", "keys/.k/retire", "", 404, ``},
		{"GET", "db/stats", "", 200, `"page_size":4096`},
		{"GET", "audit", "", 200, `"seq":1`},
		{"GET", "audit?from=2&limit=1", "", 200, `"rows":[]`},
		{"GET", "tasks", "", 200, `"name":"http"`},
		{"GET", "queues", "", 200, `"name":"q"`},
		{"GET", "log-level", "", 200, `"level":"info"`},
		{"PUT", "log-level", `{"level":"debug","service":"registry"}`, 200, `"level":"debug"`},
		{"PUT", "log-level", `{"level":"loud"}`, 400, `"field":"level"`},
		{"POST", "log-level", `{"level":"debug"}`, 405, `method`},
		{"GET", "debug/profile/heap", "", 200, `heap 10s`},
		{"GET", "debug/profile/profile?seconds=3", "", 200, `profile 3s`},
		{"GET", "debug/profile/passwords", "", 404, `not_found`},
	} {
		w := r.socket(tt.method, "/admin/v1/"+tt.path, tt.body, nil)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.answer) {
			t.Errorf("%s %s: %d %s, want %d %s", tt.method, tt.path, w.Code, w.Body, tt.status, tt.answer)
		}
	}
	if r.node.retired != "k1" {
		t.Errorf("retired %q", r.node.retired)
	}
}

// Whatever fails in the node is told by its row, on every route that can fail.
func TestOperatorsRoutesTellWhatFails(t *testing.T) {
	bodies := map[string]string{
		"tokens": `{"scopes":["a.b"]}`, "tokens/revoke": `{"all":true}`, "tokens/verify": `{"token":"x"}`, "db/snapshot": `{"dir":"/d"}`,
		"log-level": `{"level":"info"}`,
	}
	cannot := map[string]bool{"status": true, "drain": true, "tasks": true, "queues": true, "registry/genesis": true}
	r := newRig(t)
	r.undescribed = true
	for _, route := range r.adminRoutes() {
		name := strings.TrimPrefix(route.Pattern, adminPrefix)
		if cannot[name] || name == "log-level" && route.Method == http.MethodGet || route.Class == ClassStream {
			continue
		}
		body := ""
		if route.In != nil {
			body = bodies[name]
		}
		for _, tt := range []struct {
			err    error
			status int
			reason string
		}{
			{store.ErrPoisoned, 503, "store_failed"}, {&ConflictError{"one is running"}, 409, "conflict"}, {ErrNoSuch, 404, "not_found"},
			{store.ErrFull, 507, "store_full"}, {store.ErrAmnesia, 503, "amnesia"}, {errors.New("odd"), 500, "internal"},
			{&ReloadError{Reason: "restart", Keys: []string{"node.data_dir"}}, 422, "reload_refused"},
		} {
			before := sum(t, r.metrics, "rejected_total", "service", "node")
			r.node.err = tt.err
			w := r.socket(route.Method, route.target(), body, nil)
			p := problemIn(t, w.Body.String())
			if w.Code != tt.status || p.Reason != tt.reason || p.Service != serviceNode {
				t.Errorf("%s %s: %v: %d %+v", route.Method, name, tt.err, w.Code, p)
			}
			if got := sum(t, r.metrics, "rejected_total", "service", "node") - before; got != 1 {
				t.Errorf("%s %s: %v: counted %v times", route.Method, name, tt.err, got)
			}
		}
	}
}

func TestReloadRefusalNamesTheKeys(t *testing.T) {
	r := newRig(t)
	r.node.err = &ReloadError{Reason: "restart", Keys: []string{"node.data_dir"}, Detail: "node.data_dir needs a restart"}
	w := r.socket("POST", "/admin/v1/config/reload", "", nil)
	if w.Code != 422 || !strings.Contains(w.Body.String(), `"keys":["node.data_dir"]`) || !strings.Contains(w.Body.String(), `"cause":"restart"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestCheckTellsProgressThenTheVerdict(t *testing.T) {
	r := newRig(t)
	r.node.steps = 3
	if got := r.socket("POST", "/admin/v1/db/check", "", nil).Body.String(); got != `{"stage":"pages","done":1,"total":3}`+"\n"+`{"stage":"end","ok":true}`+"\n" {
		t.Errorf("told %q", got)
	}
	r.node.err = store.ErrCorrupt
	if w := r.socket("POST", "/admin/v1/db/check", "", nil); w.Code != 200 || !strings.Contains(w.Body.String(), `"problem":{`) {
		t.Errorf("a failure midway: %d %s", w.Code, w.Body)
	}
	r.node.steps = 0
	if w := r.socket("POST", "/admin/v1/db/check", "", nil); w.Code != 500 {
		t.Errorf("a failure at once: %d", w.Code)
	}
}

// Profiles are on the socket only, whatever the configuration and the token say; HEAD takes none.
func TestProfilesAreOnTheSocketOnly(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Server.AdminOnTCP = true })
	for _, name := range profileNames() {
		path := "/admin/v1/debug/profile/" + name
		if w := r.do("GET", path, "", writer); w.Code != 404 {
			t.Errorf("%s on TCP: %d", name, w.Code)
		}
		if w := r.socket("GET", path, "", nil); w.Code != 200 || w.Header().Get("Content-Type") != typeBytes {
			t.Errorf("%s: %d %v", name, w.Code, w.Header())
		}
	}
	r.node.profile = func(io.Writer) error { t.Error("HEAD took a profile"); return nil }
	if w := r.socket("HEAD", "/admin/v1/debug/profile/heap", "", nil); w.Code != 200 {
		t.Errorf("HEAD: %d", w.Code)
	}
	r.node.profile = func(io.Writer) error { return obs.ErrNotRecording }
	if w := r.socket("GET", "/admin/v1/debug/profile/flight", "", nil); w.Code != 409 {
		t.Errorf("flight recorder off: %d", w.Code)
	}
}

// A long answer has a deadline for each chunk: who stops reading is cut, and half a profile does not look whole.
func TestALongAnswerIsCutWhenItsReaderStalls(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Server.WriteTimeout = unit.Duration(100 * time.Millisecond) })
	ended := make(chan error, 1)
	r.node.profile = func(w io.Writer) error {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := w.Write(chunk); err != nil {
				ended <- err
				return err
			}
		}
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.router.ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{Socket: true, UID: 7})))
	}))
	defer srv.Close()
	c, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = io.WriteString(c, "GET /admin/v1/debug/profile/trace HTTP/1.1\r\nHost: x\r\n\r\n")
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("a stalled reader holds the profile")
	}
}

// The document and the schemas are there from the first moment to the last, and hold no place.
func TestTheDocumentIsAlwaysThere(t *testing.T) {
	r := newRig(t)
	for _, g := range []Gate{GateStarting, GateDraining, GateClosed} {
		r.gate = newGate()
		r.SetGate(g)
		if w := r.do("GET", "/openapi.json", "", nil); w.Code != 200 || !strings.Contains(w.Body.String(), `"openapi":"3.1`) {
			t.Errorf("%v: %d", g, w.Code)
		}
	}
	tag := r.do("GET", "/openapi.json", "", nil).Header().Get("ETag")
	if w := r.do("GET", "/openapi.json", "", header{"If-None-Match": tag}); w.Code != 304 {
		t.Errorf("again: %d", w.Code)
	}
	names := r.doc.SchemaNames()
	if len(names) < 20 {
		t.Errorf("schemas %v", names)
	}
	for _, name := range names {
		if w := r.do("GET", "/schema/"+name, "", nil); w.Code != 200 || !strings.Contains(w.Body.String(), `"$schema"`) {
			t.Errorf("schema %s: %d", name, w.Code)
		}
	}
	for _, name := range []string{"head", "Nothing", "..", "Head.json"} {
		if w := r.do("GET", "/schema/"+name, "", nil); w.Code != 404 {
			t.Errorf("schema %s: %d", name, w.Code)
		}
	}
}
