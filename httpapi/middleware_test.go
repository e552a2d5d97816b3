package httpapi_test

import (
	"bytes"
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/obs"
	"ronbox/httpapi"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/wire"
)

func TestStagesStandInTheirOrder(t *testing.T) {
	names := httpapi.AllStages()
	want := []string{
		"corr_id",
		"headers",
		"cors",
		"access",
		"recover",
		"shape",
		"bypass",
		"gate",
		"deadline",
		"inflight",
		"forward",
		"confirm",
		"auth",
		"rate",
		"caller",
		"refuse",
		"content",
		"body",
		"stream",
		"query",
		"copy",
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
			if tt.kept != (got == tt.given) || !httpapi.IsULID(got) && !httpapi.IsUUID(got) {
				t.Errorf("X-Corr-ID %q on %s: echoed %q", tt.given, path, got)
			}
		}
	}
}

func TestAPanicIsToldCountedAndLoggedOnce(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, func(_ *httpapi.Settings, d *deps) {
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
	if got := r.Inflight(serviceNode).Taken(); got != 0 {
		t.Errorf("%d places not given back", got)
	}
}

// Half an answer must not look whole: the connection is cut.
func TestAPanicAfterTheHeaderCutsTheConnection(t *testing.T) {
	r := newRig(t).listening(t)
	r.Override(
		"/registry/head",
		&httpapi.Route{
			Method:   http.MethodGet,
			Pattern:  "/x",
			Service:  serviceNode,
			Class:    httpapi.ClassBypass,
			Deadline: httpapi.DefaultDeadline,
			Handle: func(c *httpapi.Request) error {
				c.Header().Set("Content-Length", "10")
				_, _ = c.Write([]byte("half"))
				panic("boom")
			},
		},
	)
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
	t.Parallel()
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
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
		r.do("GET", "/schema/s"+formatUint(i), "",
			header{"X-Corr-ID": "id" + formatUint(i), "Origin": "https://o" + formatUint(i)})
		ip := netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)})
		r.as(&front.Peer{Addr: ip}, "GET", "http://h"+formatUint(i)+"/registry/head", "",
			header{"User-Agent": "a" + formatUint(i)})
		r.as(&front.Peer{Socket: true, UID: uint32(i) + 100, GID: uint32(i) + 100}, "POST", "/admin/v1/drain", "", nil)
		r.do("POST", "/registry/commit/p_"+formatUint(i), "",
			header{"Authorization": "Bearer good u" + formatUint(i) + "@t" + formatUint(i)})
		r.socket("POST", "/admin/v1/keys/k"+formatUint(i)+"/retire", "", nil)
	}
	touch(0)
	before := series()
	draws := uint64(1000)
	if testing.Short() {
		draws = 100
	}
	for i := range draws {
		touch(i)
	}
	if after := series(); after != before {
		t.Errorf("%d series became %d", before, after)
	}
}

func TestEveryRouteIsWhole(t *testing.T) {
	r := newRig(t)
	seen := map[string]bool{}
	for _, route := range r.Table() {
		key := route.Method + " " + route.Pattern
		switch {
		case seen[key]:
			t.Errorf("%s is there twice", key)
		case route.Handle == nil || route.Service == "":
			t.Errorf("%s lacks a handler or a service", key)
		case route.Class != httpapi.ClassStream && route.Deadline <= 0:
			t.Errorf("%s has no deadline", key)
		case route.Class == httpapi.ClassWrite && (!httpapi.Protected(&route) || route.Endpoint == ""):
			t.Errorf("%s writes without a scope or an endpoint", key)
		case route.Scope != "" && len(route.AnyOf) > 0:
			t.Errorf("%s asks for a scope and for one of several", key)
		case httpapi.Guarded(&route) && route.Endpoint == "":
			t.Errorf("%s can be full and has no endpoint to count it under", key)
		case route.Admin != strings.HasPrefix(route.Pattern, "/admin/v1/") || route.Class == httpapi.ClassAdmin && !route.Admin:
			t.Errorf("%s is half for the operator", key)
		case route.Admin && route.Service == serviceNode && len(route.AnyOf) == 0 &&
			!slices.Contains([]string{auth.ScopeAdmin, scopeDrain, scopeToken}, route.Scope):
			t.Errorf("%s is for the operator and asks for %q", key, route.Scope)
		case (route.Class == httpapi.ClassRead || route.Class == httpapi.ClassStream) && route.Method != http.MethodGet:
			t.Errorf("%s reads", key)
		case route.Summary == "" || len(route.Answers) == 0 || (route.In == nil) != (route.Body == httpapi.NoBody):
			t.Errorf("%s does not say what it does, takes and answers", key)
		case route.Copy != httpapi.CopyNone && (httpapi.Protected(&route) || route.Class != httpapi.ClassRead):
			t.Errorf("%s is answered by nodes that judge no token", key)
		case !r.Served(route.Service):
			t.Errorf("%s: service %s has no in-flight limit", key, route.Service)
		}
		seen[key] = true
	}
}

// A log line names the service of the route, or the node if there is none.
func TestLinesNameTheirService(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, func(_ *httpapi.Settings, d *deps) { d.Log = obs.NewControl(obs.DefaultLogConfig(), &out).Logger() })
	r.do("POST", "/registry/commit/"+proposal, "", writer)
	r.socket("POST", "/admin/v1/drain", "", nil)
	got := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(got) != 2 || !strings.Contains(got[0], `"service":"registry"`) ||
		!strings.Contains(got[1], `"service":"node"`) {
		t.Errorf("lines %q", got)
	}
}

// The log of a refused call tells why, and never holds the token.
func TestTokensAreNotLogged(t *testing.T) {
	var out bytes.Buffer
	r := newRig(t, func(_ *httpapi.Settings, d *deps) {
		d.Log = obs.NewControl(obs.LogConfig{Format: "json", Level: "trace"}, &out).Logger()
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

// Every answer tells browsers to do nothing with it, refusals of every stage too.
func TestEveryAnswerIsHardened(t *testing.T) {
	r := newRig(t, limits(httpapi.Limits{RPS: 1, Burst: 1, ReadRPS: 1000}))
	for _, w := range []*httptest.ResponseRecorder{
		r.do("GET", "/healthz", "", nil), r.do("GET", "/registry/head", "", nil), r.do("GET", "/nowhere", "", nil), r.do("BREW", "/healthz", "", nil),
		r.do("POST", "/registry/commit/"+proposal, "", nil), r.do("POST", "/registry/commit/"+proposal, "", nil),
		r.socket("GET", "/admin/v1/status", "", nil), r.do("GET", "/registry/head?x=1", "", nil),
	} {
		h := w.Header()
		if h.Get("X-Content-Type-Options") != "nosniff" || h.Get("X-Frame-Options") != "DENY" ||
			h.Get("Referrer-Policy") != "no-referrer" ||
			!strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") ||
			h.Get("Strict-Transport-Security") != "" {
			t.Errorf("%d: headers %v", w.Code, h)
		}
	}
}

func TestTransportSecurityIsForTLSOnly(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := newRig(t, func(c *httpapi.Settings, _ *deps) { c.Server.HSTS = on })
		req := httptest.NewRequest("GET", "/registry/head", nil)
		req.TLS = &tls.ConnectionState{}
		w := httptest.NewRecorder()
		r.Router().ServeHTTP(w, req)
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
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		c.Server.CORS = front.CORS{
			AllowOrigins: []string{"https://console.example"},
			AllowMethods: []string{"GET", "POST"},
			AllowHeaders: []string{"Authorization"},
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
		if tt.status == 204 &&
			(w.Header().Get("Access-Control-Allow-Methods") != "GET, POST" || w.Header().Get("Access-Control-Allow-Headers") != "Authorization") {
			t.Errorf("preflight: %v", w.Header())
		}
	}
}

func TestVersionListsDeprecations(t *testing.T) {
	if body := newRig(t).do("GET", "/version", "", nil).
		Body.String(); !strings.Contains(
		body,
		`"deprecations":["old"]`,
	) {
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
		{"a long query", "/registry/head?" + strings.Repeat("x", httpapi.MaxTarget), nil, 414, "malformed"},
		{"a long path", "/" + strings.Repeat("x", httpapi.MaxTarget), nil, 414, "malformed"},
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

// Over the network every answer has a length, told by the handler or by net/http, and HEAD tells
// that of GET.
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

const console = "https://console.example"

// console lets pages of one origin in.
func withConsole(c *httpapi.Settings, _ *deps) {
	c.Server.CORS = front.CORS{
		AllowOrigins: []string{console},
		AllowMethods: []string{"GET", "POST"},
		AllowHeaders: []string{"Authorization"},
	}
}

// A page of the list may read why it is refused, and when to come back; other pages may read
// nothing.
func TestPagesOfTheListMayReadRefusals(t *testing.T) { synctest.Test(t, pagesOfTheListMayReadRefusals) }

func pagesOfTheListMayReadRefusals(t *testing.T) {
	r := newRig(t, withConsole, limits(httpapi.Limits{RPS: 1, Burst: 1}))
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
			if w.Code != tt.status || h.Get("Access-Control-Allow-Origin") != want || len(h["Vary"]) != 1 ||
				h.Get("Access-Control-Allow-Credentials") != "" {
				t.Errorf("%s of %s: %d %v", tt.doc, origin, w.Code, h)
			}
		}
	}
	r.SetGate(httpapi.GateClosed)
	if w := r.do("GET", "/registry/head", "", header{"Origin": console}); w.Code != 503 ||
		w.Header().Get("Access-Control-Allow-Origin") != console {
		t.Errorf("on its way down: %d %v", w.Code, w.Header())
	}
}

// The metrics are open by the place that asks. A page that a browser in that place shows is of
// another.
func TestNoPageReadsTheMetrics(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, d *deps) { c.Server.CORS.AllowOrigins = []string{"*"} })
	for origin := range map[string]bool{console: true, "null": true} {
		if w := r.socket("GET", "/metrics", "", header{"Origin": origin}); w.Code != 200 ||
			w.Header().Get("Access-Control-Allow-Origin") != "" {
			t.Errorf("%s: %d %v", origin, w.Code, w.Header())
		}
	}
}

// The preflight request of a browser has the whole target of the request that follows.
func TestPreflightOfAQuery(t *testing.T) {
	r := newRig(t, withConsole)
	for _, path := range []string{"/registry/diff?from=1&to=2", "/registry/proposals?limit=5", "/registry/2?items=0"} {
		w := r.do(http.MethodOptions, path, "", header{"Origin": console, "Access-Control-Request-Method": "GET"})
		if w.Code != http.StatusNoContent || w.Header().Get("Access-Control-Allow-Origin") != console ||
			len(w.Header()["Vary"]) != 1 {
			t.Errorf("%s: %d %v", path, w.Code, w.Header())
		}
	}
}

// collected returns the spans that a collector received.
func collected(t *testing.T, do func(*rig)) string {
	t.Helper()
	var mu sync.Mutex
	var got bytes.Buffer
	collector := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&got, r.Body)
	}))
	defer collector.Close()
	cfg := obs.DefaultOTelConfig()
	cfg.Exporter, cfg.Endpoint, cfg.SampleReads = "otlp", collector.URL, 0
	tracer, err := obs.NewTracer(cfg, obs.TracerID{Version: "v0"})
	if err != nil {
		t.Fatal(err)
	}
	do(newRig(t, func(_ *httpapi.Settings, d *deps) { d.Tracer = tracer }))
	if err := tracer.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	return got.String()
}

func TestRequestsAreTraced(t *testing.T) {
	const traceID = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"
	parent := header{"traceparent": "00-0102030405060708090a0b0c0d0e0f10-0102030405060708-01", "X-Corr-ID": someULID}
	for _, tt := range []struct {
		doc  string
		do   func(*rig)
		want []string // nil: no span is sent
	}{
		{"a write", func(r *rig) {
			r.do("POST", "/registry/commit/"+proposal, "", header{"Authorization": "Bearer good", "X-Corr-ID": someULID})
		}, []string{"http.request", "/registry/commit/:id", someULID}},
		{"a read that is not chosen", func(r *rig) { r.do("GET", "/registry/head", "", nil) }, nil},
		{"a read of a traced caller", func(r *rig) { r.do("GET", "/registry/head", "", parent) }, []string{traceID, "/registry/head", someULID}},
		{"a read that fails", func(r *rig) {
			r.reg.set(io.ErrUnexpectedEOF)
			r.do("GET", "/registry/2/payload", "", nil)
		}, []string{"/registry/:v/payload", "unexpected EOF"}},
	} {
		got := collected(t, tt.do)
		if tt.want == nil && got != "" {
			t.Errorf("%s: %d bytes were sent", tt.doc, len(got))
		}
		for _, w := range tt.want {
			if !strings.Contains(got, w) {
				t.Errorf("%s: %q lacks %q", tt.doc, got, w)
			}
		}
	}
}

func TestTracingThatIsOffAllocatesNothing(t *testing.T) {
	r := newRig(t)
	req, c := newRequest(t), r.NewRequest(nil, newRequest(t), &httpapi.Route{Service: serviceRegistry}, nil)
	if n := testing.AllocsPerRun(100, func() {
		_, span := r.Deps().Tracer.StartRequest(req.Context(), req, serviceRegistry)
		httpapi.EndSpan(c, span, http.StatusOK, nil)
	}); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestDeadlineHeaders(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		name, value string
		status      int
	}{
		{"Request-Timeout", "1", 201}, {"Request-Timeout", "0.5", 201}, {"Request-Timeout", "86400", 201},
		{"Request-Timeout", "0", 400}, {"Request-Timeout", "-1", 400}, {"Request-Timeout", "1e3", 400}, {"Request-Timeout", "Inf", 400},
		{"Request-Timeout", "0x1p2", 400}, {"Request-Timeout", "", 400}, {"Request-Timeout", "86401", 400}, {"Request-Timeout", "1 s", 400},
		{"Deadline", "2999-01-01T00:00:00Z", 201}, {"Deadline", "2999-01-01", 400}, {"Deadline", "soon", 400},
	} {
		w := r.do(http.MethodPost, "/registry/commit/"+proposal, "",
			header{"Authorization": "Bearer good", tt.name: tt.value})
		if w.Code != tt.status {
			t.Errorf("%s: %s: %d, want %d", tt.name, tt.value, w.Code, tt.status)
		}
		if tt.status == 400 && problemIn(t, w.Body.String()).Reason != "bad_header" {
			t.Errorf("%s: %s: %s", tt.name, tt.value, w.Body)
		}
	}
}

func TestHeaderGivenTwiceSaysNothing(t *testing.T) {
	req, _ := http.NewRequest(http.MethodGet, "/", nil)
	req.Header["Request-Timeout"] = []string{"1", "2"}
	c := newRig(t).NewRequest(nil, req, &httpapi.Route{Service: serviceNode}, nil)
	if _, _, err := c.Single("Request-Timeout"); err == nil {
		t.Error("two values were taken")
	}
}

// A call waits until the least of the route's budget, Request-Timeout and Deadline, to the
// millisecond.
func TestDeadlineIsTheLeast(t *testing.T) {
	for _, tt := range []struct {
		doc  string
		h    func(now time.Time) header
		want time.Duration
	}{
		{"the route's", func(time.Time) header { return header{} }, 5 * time.Second},
		{"Request-Timeout", func(time.Time) header { return header{"Request-Timeout": "1.5"} }, 1500 * time.Millisecond},
		{"no more than the route's", func(time.Time) header { return header{"Request-Timeout": "60"} }, 5 * time.Second},
		{"Deadline", func(now time.Time) header {
			return header{"Deadline": now.Add(2 * time.Second).Format(time.RFC3339Nano)}
		}, 2 * time.Second},
		{"both", func(now time.Time) header {
			return header{"Request-Timeout": "1", "Deadline": now.Add(2 * time.Second).Format(time.RFC3339Nano)}
		}, time.Second},
		{"past", func(now time.Time) header { return header{"Deadline": now.Add(-time.Second).Format(time.RFC3339)} }, 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.reg.wait = true
			h := tt.h(time.Now())
			h["Authorization"] = "Bearer good"
			began := time.Now()
			w := r.do(http.MethodPost, "/registry/commit/"+proposal, "", h)
			if w.Code != http.StatusGatewayTimeout || time.Since(began) != tt.want {
				t.Errorf("%s: %d after %s, want 504 after %s", tt.doc, w.Code, time.Since(began), tt.want)
			}
		})
	}
}

func formatUint(v uint64) string { return strconv.FormatUint(v, 10) }

// problemIn reads the problem of an answer.
func problemIn(t testing.TB, body string) wire.Problem {
	t.Helper()
	var p wire.Problem
	if err := json.Unmarshal([]byte(body), &p); err != nil {
		t.Fatalf("not a problem: %v: %q", err, body)
	}
	return p
}

// sum adds the series of a counter or gauge that have all the labels.
func sum(t testing.TB, m *obs.Metrics, family string, pairs ...string) float64 {
	t.Helper()
	all, err := m.Registry().Gather()
	if err != nil {
		t.Fatal(err)
	}
	total := 0.0
	for _, f := range all {
		if f.GetName() != family {
			continue
		}
		for _, s := range f.GetMetric() {
			var labels strings.Builder
			for _, l := range s.GetLabel() {
				labels.WriteString("|" + l.GetName() + "=" + l.GetValue() + "|")
			}
			hit := true
			for i := 0; i < len(pairs); i += 2 {
				hit = hit && strings.Contains(labels.String(), "|"+pairs[i]+"="+pairs[i+1]+"|")
			}
			if hit {
				total += s.GetCounter().GetValue() + s.GetGauge().GetValue()
			}
		}
	}
	return total
}
