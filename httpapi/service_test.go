package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/obs"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
	"ronbox/httpapi/openapi"
	"ronbox/httpapi/refusal"
	"ronbox/httpapi/wire"
)

// The frame imports no engine, only their common package.
func TestTheFrameImportsNoEngine(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("go list: %v", err)
	}
	for dep := range strings.Lines(string(out)) {
		if dep = strings.TrimSpace(dep); strings.HasPrefix(dep, "ronbox/engines/") {
			t.Errorf("httpapi depends on %s", dep)
		}
	}
}

var digit = Number("n", 7, 0, 9, "a digit")

var errTile = errors.New("no such tile")

// tiles is a service with one route per feature of Route. Its parameter epoch differs from that of
// other services.
func tiles(dir string, gotQuery, gotBody *string) Service {
	route := func(pattern string, h Handler, more ...func(*Route)) Route {
		r := Route{
			Method:   http.MethodGet,
			Pattern:  "/tiles/" + pattern,
			Class:    ClassRead,
			Deadline: DefaultDeadline,
			Handle:   h,
			ID:       strings.NewReplacer("/", "", ":", "", "*", "").Replace(pattern),
			Summary:  pattern,
			Answers:  AnswersRaw(TypeBytes, "bytes"),
		}
		for _, f := range more {
			f(&r)
		}
		return r
	}
	echo := func(name string) Handler {
		return func(c *Request) error {
			if c.query != nil {
				z, _ := c.query.Find("z")
				other, _ := c.query.Find("other")
				*gotQuery = z + "," + other
			}
			return c.Respond(http.StatusOK, map[string]string{name: c.Param(name)})
		}
	}
	return Service{
		Name: "tiles", Prefix: "/tiles/", RetryAfter: 9, TimeoutStatus: http.StatusServiceUnavailable,
		Errors: []Map{{Is: Is(errTile), Reason: "no_tile", Details: Told(Details{"z": 1}), Text: Said}},
		Refusals: refusal.Table{{
			Reason: "no_tile", Title: "No such tile", Status: http.StatusNotFound,
			Wait:  refusal.WaitDegraded,
			Means: "There is no such tile.", Changed: "Nothing.", Next: "Ask for another one.",
		}},
		Params: []PathParam{
			{
				Param: openapi.Param{Name: "path", Doc: "of a file"},
				Check: func(v string) bool { return !strings.HasSuffix(v, ".secret") },
			},
			{Param: openapi.Param{Name: "epoch", Doc: "a word"}, Check: IsName, Wrong: "must be a word"},
			NumberParam("z", 0, "zoom"),
		},
		Routes: []Route{
			route("assets/*path", func(c *Request) error {
				f, err := os.Open(filepath.Join(dir, filepath.FromSlash(c.Param("path"))))
				if err != nil {
					return errTile
				}
				defer func() { _ = f.Close() }()
				c.Set("Etag", `"v1"`)
				c.Set("Cache-Control", CacheForever)
				return c.ServeContent("x.bin", time.Time{}, f)
			}, func(r *Route) {
				r.Long, r.CSP, r.Expose = true, "default-src 'self'", []string{
					"Content-Range",
					"Accept-Ranges",
					"Content-Length",
				}
				r.Answers = append(r.Answers, openapi.Answer{Status: http.StatusPartialContent, Type: TypeBytes})
				r.Problems = []int{http.StatusPreconditionFailed, http.StatusRequestedRangeNotSatisfiable}
			}),
			route("epochs/:epoch", echo("epoch")),
			route("zoom/:z", echo("z"),
				func(r *Route) { r.Query, r.Others = []openapi.Param{{Name: "z"}}, QueryIgnore }),
			route("raw/:z", func(c *Request) error {
				*gotQuery = c.HTTP().URL.RawQuery
				return c.Respond(http.StatusOK, nil)
			}, func(r *Route) { r.Others = QueryRaw }),
			route("number", func(c *Request) error {
				n, err := digit.Of(c)
				if err != nil {
					return err
				}
				return c.Respond(http.StatusOK, n)
			}, func(r *Route) { r.Query = Params(digit) }),
			route("lines", func(c *Request) error {
				all := bufio.NewScanner(c.Stream())
				for all.Scan() {
					*gotBody += all.Text() + ";"
				}
				if err := all.Err(); err != nil {
					return err
				}
				return c.Empty()
			}, func(r *Route) {
				r.Method, r.Class, r.Body, r.Media, r.MaxBody = http.MethodPost, ClassWrite, StreamBody, TypeLines, 64
				r.Answers = AnswersNothing("taken")
			}),
			route("late", func(c *Request) error { <-c.Context().Done(); return context.Cause(c.Context()) },
				func(r *Route) { r.Deadline = time.Millisecond }),
			route("big", func(c *Request) error { _, err := c.Write(make([]byte, 3<<20)); return err },
				func(r *Route) { r.Long = true }),
		},
		Ready: func(r *wire.Ready) { r.Version = 77 },
	}
}

type anyone struct{}

func (anyone) Check(string, auth.Request) (engines.Actor, error) { return engines.Actor{}, nil }

// tileServer makes a server of that service alone.
func tileServer(t *testing.T, l Limits) (s *Server, dir string, query, body *string) {
	t.Helper()
	dir, query, body = t.TempDir(), new(string), new(string)
	return serverOf(t, l, tiles(dir, query, body)), dir, query, body
}

// serverOf makes a server of one service, named tiles.
func serverOf(t *testing.T, l Limits, def Service) *Server {
	t.Helper()
	cat := flow.NewCatalog(nil, nil)
	phase := flow.NewWatch(cat, flow.Spec{
		Service:   "node",
		Name:      "lifecycle",
		Cap:       1,
		Policy:    flow.LastWins,
		Producers: []string{"supervisor"},
		Consumers: []string{"http"},
	}, flow.Running)
	cfg := Settings{
		Server: front.DefaultConfig(),
		TLS:    front.DefaultTLSConfig(),
		UDS:    front.DefaultUDSConfig(),
		Limits: map[string]Limits{"tiles": l},
	}
	cfg.Server.CORS.AllowOrigins = []string{"https://page.example"}
	cfg.Server.ReadTimeout = unit.Duration(time.Second)
	m := obs.NewMetrics()
	s, err := New(cfg, Deps{
		Version: "v0", Catalog: cat, Metrics: m, Board: obs.NewBoard(m), Auth: anyone{}, Lifecycle: phase,
		Info: func() wire.VersionInfo { return wire.VersionInfo{Incarnation: "i"} },
	}, def)
	if err != nil {
		t.Fatal(err)
	}
	s.SetGate(GateOpen)
	return s
}

func ask(s *Server, method, target, body string, h map[string]string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(method, target, strings.NewReader(body))
	if body == "" {
		req.Body, req.ContentLength = http.NoBody, 0
	}
	for k, v := range h {
		req.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	s.router.ServeHTTP(w, req)
	return w
}

func TestParametersOfAService(t *testing.T) {
	s, dir, query, _ := tileServer(t, Limits{Inflight: 8})
	if err := os.MkdirAll(filepath.Join(dir, "a"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "a", "b.bin"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		target string
		status int
		has    string
	}{
		{"/tiles/assets/a/b.bin", 200, "0123456789"},
		{"/tiles/assets/a/none", 404, `"reason":"no_tile"`},
		{"/tiles/assets/", 404, `"reason":"not_found"`},
		{"/tiles/assets", 404, `"reason":"not_found"`},
		{"/tiles/assets/a/x.secret", 404, `"reason":"not_found"`},
		{"/tiles/assets/a//b.bin", 400, "empty or a dotted segment"},
		{"/tiles/assets/../a/b.bin", 400, "empty or a dotted segment"},
		{"/tiles/assets/a/%2e%2e/b.bin", 400, "empty or a dotted segment"},
		{"/tiles/epochs/spring-1", 200, `"epoch":"spring-1"`},
		{"/tiles/epochs/-", 400, `"field":"epoch"`},
		{"/tiles/zoom/0", 200, `"z":"0"`},
		{"/tiles/zoom/12", 200, `"z":"12"`},
		{"/tiles/zoom/00", 404, ""},
		{"/tiles/zoom/-1", 404, ""},
		{"/tiles/number", 200, "7"},
		{"/tiles/number?n=0", 200, "0"},
		{"/tiles/number?n=10", 400, "must be at most 9"},
		{"/tiles/number?n=00", 400, "must be a whole number from 0"},
		{"/tiles/number?m=1", 400, "is not known here"},
		{"/tiles/zoom/1?z=a&z=b&other=c", 400, "given more than once"},
		{"/readyz", 200, `"version":77`},
		{"/tiles/late", 503, `"reason":"timeout"`},
	} {
		if w := ask(s, "GET", tt.target, "", nil); w.Code != tt.status || !strings.Contains(w.Body.String(), tt.has) {
			t.Errorf("%s: %d %s, want %d with %s", tt.target, w.Code, w.Body, tt.status, tt.has)
		}
	}
	for target, want := range map[string]string{"/tiles/zoom/1?other=c&z=a&other=d": "a,", "/tiles/raw/1?z=%zz;a&z": "z=%zz;a&z"} {
		if w := ask(s, "GET", target, "", nil); w.Code != 200 || *query != want {
			t.Errorf("%s: %d, query %q, want %q", target, w.Code, *query, want)
		}
	}
	if got := ask(s, "GET", "/tiles/late", "", nil).Header().Get("Retry-After"); got != "9" {
		t.Errorf("Retry-After %q of a service that says 9", got)
	}
	if !strings.Contains(string(s.Document().JSON()), `"/tiles/assets/{path}"`) ||
		!strings.Contains(string(s.Document().JSON()), `"application/x-ndjson"`) {
		t.Error("the document lacks the catch-all route, or the lines that a body has")
	}
}

// A route's content is served in ranges and by validators, its policy and its exposed headers are
// its own, and what cannot be served is a problem like any other.
func TestContentOfARoute(t *testing.T) {
	s, dir, _, _ := tileServer(t, Limits{Inflight: 8})
	if err := os.WriteFile(filepath.Join(dir, "x"), []byte("0123456789"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		doc    string
		header map[string]string
		status int
		body   string
		name   string // of a header
		value  string
	}{
		{"whole", nil, 200, "0123456789", "Accept-Ranges", "bytes"},
		{"its policy", nil, 200, "0123456789", "Content-Security-Policy", "default-src 'self'"},
		{"a page", map[string]string{"Origin": "https://page.example"}, 200, "0123456789", "Access-Control-Expose-Headers", corsExpose + ", Content-Range, Accept-Ranges, Content-Length"},
		{"a range", map[string]string{"Range": "bytes=2-4"}, 206, "234", "Content-Range", "bytes 2-4/10"},
		{"If-Range holds", map[string]string{"Range": "bytes=2-4", "If-Range": `"v1"`}, 206, "234", "Etag", `"v1"`},
		{"If-Range does not", map[string]string{"Range": "bytes=2-4", "If-Range": `"v0"`}, 200, "0123456789", "Etag", `"v1"`},
		{"known", map[string]string{"If-None-Match": `"v1"`}, 304, "", "Etag", `"v1"`},
		{"beyond", map[string]string{"Range": "bytes=20-"}, 416, `"reason":"range"`, "Content-Range", "bytes */10"},
		{"another expected", map[string]string{"If-Match": `"v0"`}, 412, `"reason":"precondition"`, "Content-Type", wire.ProblemType},
	} {
		w := ask(s, "GET", "/tiles/assets/x", "", tt.header)
		if w.Code != tt.status || !strings.Contains(w.Body.String(), tt.body) || w.Header().Get(tt.name) != tt.value {
			t.Errorf("%s: %d %s %v", tt.doc, w.Code, w.Body, w.Header())
		}
	}
	if got := ask(s, "GET", "/tiles/zoom/1", "", nil).Header().
		Get("Content-Security-Policy"); got != hardHeaders("")[3].value[0] {
		t.Errorf("another route: %q", got)
	}
}

// sink is a connection that checks writes.
type sink struct {
	*httptest.ResponseRecorder
	files atomic.Int64
}

func (s *sink) SetWriteDeadline(time.Time) error { return nil }
func (s *sink) SetReadDeadline(time.Time) error  { return nil }
func (s *sink) ReadFrom(r io.Reader) (int64, error) {
	if lr, ok := r.(*io.LimitedReader); ok {
		if _, ok := lr.R.(*os.File); ok {
			s.files.Add(1) // which net sends without a copy
		}
	}
	return io.Copy(s.ResponseRecorder, r)
}

// A long answer comes whole, and a file reaches the connection as one.
func TestLongAnswers(t *testing.T) {
	s, dir, _, _ := tileServer(t, Limits{Inflight: 8})
	if err := os.WriteFile(filepath.Join(dir, "x"), bytes.Repeat([]byte("0123456789abcdef"), 3<<20/16),
		0o600); err != nil {
		t.Fatal(err)
	}
	for target, files := range map[string]int64{"/tiles/big": 0, "/tiles/assets/x": 1} {
		w := &sink{ResponseRecorder: httptest.NewRecorder()}
		s.router.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		if w.Body.Len() != 3<<20 || w.files.Load() != files {
			t.Errorf("%s: %d bytes, %d files", target, w.Body.Len(), w.files.Load())
		}
	}
}

func TestBodiesAsTheyCome(t *testing.T) {
	s, _, _, body := tileServer(t, Limits{Inflight: 8})
	lines := map[string]string{"Content-Type": TypeLines}
	for _, tt := range []struct {
		doc, body string
		header    map[string]string
		status    int
		got       string
	}{
		{"lines", "{}\n{\"a\":1}\n", lines, 204, `{};{"a":1};`},
		{"JSON", "{}", map[string]string{"Content-Type": TypeJSON}, 415, ""},
		{"encoded", "{}", map[string]string{"Content-Type": TypeLines, "Content-Encoding": "gzip"}, 415, ""},
		{"beyond the route's cap", strings.Repeat("x", 65), lines, 413, ""},
	} {
		*body = ""
		if w := ask(s, "POST", "/tiles/lines", tt.body, tt.header); w.Code != tt.status || *body != tt.got {
			t.Errorf("%s: %d %s, read %q", tt.doc, w.Code, w.Body, *body)
		}
	}
	req := httptest.NewRequest("POST", "/tiles/lines",
		io.MultiReader(strings.NewReader("{}\n"), strings.NewReader(strings.Repeat("x", 64))))
	req.ContentLength = -1
	req.Header.Set("Content-Type", TypeLines)
	w := httptest.NewRecorder()
	if s.router.ServeHTTP(w, req); w.Code != 413 {
		t.Errorf("an endless one: %d %s", w.Code, w.Body)
	}
}

// Shares, bursts and rests of one client network are the service's; reads without a rate have none.
func TestSharesOfAService(t *testing.T) { synctest.Test(t, sharesOfAService) }

func sharesOfAService(t *testing.T) {
	get := func(s *Server) int { return ask(s, "GET", "/tiles/zoom/1", "", nil).Code }
	count := func(s *Server) (n int) {
		for get(s) == 200 {
			if n++; n == 1000 {
				return n
			}
		}
		return n
	}
	for _, tt := range []struct {
		doc string
		l   Limits
		n   int
	}{
		{"no rate", Limits{Inflight: 8}, 1000},
		{"half of the rate", Limits{Inflight: 8, ReadRPS: 20, Rest: time.Nanosecond}, 10},
		{"a share of its own", Limits{Inflight: 8, ReadRPS: 2000, ReadShare: Rate{1, 150}, Rest: time.Nanosecond}, 150},
	} {
		s, _, _, _ := tileServer(t, tt.l)
		if got := count(s); got != tt.n {
			t.Errorf("%s: %d at once, want %d", tt.doc, got, tt.n)
		}
	}
}

// A service is notified of the reasons of its refusals, including those of the frame, and a route
// may ignore malformed time headers.
func TestRefusalsAreHeardAndHintsIgnored(t *testing.T) {
	var heard []string
	def := tiles(t.TempDir(), new(string), new(string))
	def.Refused = func(reason string) { heard = append(heard, reason) }
	for i := range def.Routes {
		def.Routes[i].Hints = def.Routes[i].Pattern == "/tiles/number"
	}
	s := serverOf(t, Limits{Inflight: 8}, def)
	for _, tt := range []struct {
		target, name, value string
		status              int
	}{
		{"/tiles/number", "Request-Timeout", "soon", 200},
		{"/tiles/number", "Deadline", "tomorrow", 200},
		{"/tiles/zoom/1", "Request-Timeout", "soon", 400},
		{"/tiles/zoom/1", "Deadline", "tomorrow", 400},
		{"/tiles/assets/none", "X", "y", 404},
		{"/tiles/nowhere", "X", "y", 404},
	} {
		if w := ask(s, "GET", tt.target, "", map[string]string{tt.name: tt.value}); w.Code != tt.status {
			t.Errorf("%s with %s %s: %d %s", tt.target, tt.name, tt.value, w.Code, w.Body)
		}
	}
	if want := []string{"bad_header", "bad_header", "no_tile", "not_found"}; !slices.Equal(heard, want) {
		t.Errorf("heard of %q, want %q", heard, want)
	}
}
