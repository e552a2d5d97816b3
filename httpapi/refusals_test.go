package httpapi_test

import (
	"bufio"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/host/hosttest"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/document"
	"ronbox/httpapi"
	"ronbox/httpapi/front"
)

// A refusal is one way in which a stage can refuse a row.
type refusal struct {
	doc    string
	on     func(*httpapi.Route) bool
	ready  func(*rig, *httpapi.Route)
	change func(*http.Request)
	peer   *front.Peer // nil: a peer of the socket that may do everything
	status int
	reason string
}

func refusals() []refusal {
	full := func(r *rig, route *httpapi.Route) { r.Inflight(route.Service).Limit(0) }
	empty := func(r *rig, route *httpapi.Route) {
		r.SetLimits(route.Service, httpapi.Limits{RPS: 1, Burst: 1, ReadRPS: 1, Inflight: 9})
		writes, reads := r.Buckets(route.Service)
		writes.Take(r.Now())
		reads.Take(r.Now())
	}
	set := func(name, v string) func(*http.Request) { return func(q *http.Request) { q.Header.Set(name, v) } }
	return []refusal{
		{
			"too many headers",
			httpapi.Every,
			nil,
			func(q *http.Request) { q.Header["X"] = make([]string, httpapi.MaxHeaders+1) },
			nil,
			431,
			httpapi.ReasonBadHeader,
		},
		{
			"a long target",
			httpapi.Every,
			nil,
			func(q *http.Request) { q.RequestURI = strings.Repeat("x", httpapi.MaxTarget+1) },
			nil,
			414,
			httpapi.ReasonMalformed,
		},
		{
			"no place for a probe",
			httpapi.Bypassing,
			func(r *rig, _ *httpapi.Route) { r.Bypass().Limit(0) },
			nil,
			nil,
			429,
			httpapi.ReasonInflight,
		},
		{
			"starting",
			httpapi.Guarded,
			func(r *rig, _ *httpapi.Route) { r.Reopen() },
			nil,
			nil,
			503,
			httpapi.ReasonDegraded,
		},
		{
			"closed",
			httpapi.Guarded,
			func(r *rig, _ *httpapi.Route) { r.SetGate(httpapi.GateClosed) },
			nil,
			nil,
			503,
			httpapi.ReasonDraining,
		},
		{
			"a timeout that is none",
			func(r *httpapi.Route) bool { return httpapi.Guarded(r) && !r.Hints },
			nil,
			set(httpapi.TimeoutHeader, "soon"),
			nil,
			400,
			httpapi.ReasonBadHeader,
		},
		{"no place", httpapi.TakesSlot, full, nil, nil, 429, httpapi.ReasonInflight},
		{"no token", httpapi.Protected, nil, nil, &front.Peer{}, 401, httpapi.ReasonUnauth},
		{
			"a token of another scope",
			httpapi.Protected,
			nil,
			set("Authorization", "Bearer bad"),
			&front.Peer{},
			403,
			httpapi.ReasonForbidden,
		},
		{
			"a peer of another scope",
			httpapi.Protected,
			nil,
			nil,
			&front.Peer{Socket: true, UID: 12},
			403,
			httpapi.ReasonForbidden,
		},
		{"an empty bucket", httpapi.Guarded, empty, nil, nil, 429, httpapi.ReasonRate},
		{
			"a body where none belongs",
			func(r *httpapi.Route) bool { return httpapi.Guarded(r) && !httpapi.TakesBody(r) },
			nil,
			func(q *http.Request) { q.ContentLength = 1 },
			nil,
			400,
			httpapi.ReasonMalformed,
		},
		{
			"a body of another type",
			httpapi.TakesBody,
			nil,
			func(q *http.Request) {
				q.ContentLength = 1
				q.Header.Set("Content-Type", "text/csv")
			},
			nil,
			415,
			httpapi.ReasonMediaType,
		},
		{"a body beyond the cap", func(r *httpapi.Route) bool {
			return httpapi.TakesBody(r) && r.Body != httpapi.StreamBody // such a route has a cap and a type of its own
		}, nil, func(q *http.Request) {
			q.ContentLength = 2 << 20
			q.Header.Set("Content-Type", httpapi.TypeJSON)
		}, nil, 413, httpapi.ReasonBodyCap},
		{
			"no length",
			func(r *httpapi.Route) bool { return r.Body == httpapi.SizedJSON || r.Body == httpapi.SizedEither },
			nil,
			nil,
			nil,
			411,
			httpapi.ReasonLength,
		},
		{
			"a parameter that is none",
			func(r *httpapi.Route) bool {
				return r.In == nil && r.Others == httpapi.QueryStrict
			},
			nil,
			func(q *http.Request) { q.URL.RawQuery = "unheard_of=1" },
			nil,
			400,
			httpapi.ReasonMalformed,
		},
	}
}

// Each stage refuses each route that it applies to as the document describes, counts the refusal
// once, releases what it took, and sets Retry-After where that makes sense. The test covers every
// visible route with every stage that can refuse.
func TestEveryStageRefusesEveryRoute(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("nothing runs beside it: left to the run without -race")
	}
	synctest.Test(t, func(t *testing.T) { // buckets stay empty
		for _, tt := range refusals() {
			r, asked := newRig(
				t,
				func(c *httpapi.Settings, _ *deps) { c.Server.AdminOnTCP = true },
			), map[string]float64{}
			table := r.Table()
			for i := range table {
				route := &table[i]
				if !tt.on(route) || tt.peer != nil && !tt.peer.Socket && route.Socket {
					continue
				}
				for _, name := range r.Services() {
					r.SetLimits(name, httpapi.Limits{Inflight: 9})
				}
				if tt.ready != nil {
					tt.ready(r, route)
				}
				asked[route.Service]++
				r.refused(t, tt, route)
			}
			for service, want := range asked {
				all := sum(t, r.metrics, "rejected_total", "service", service)
				if one := sum(t, r.metrics, "rejected_total", "service", service, "reason", tt.reason); all != want ||
					one != want {
					t.Errorf("%s: %s counted %v times, %v of them as %s, want %v", tt.doc, service, all, one, tt.reason,
						want)
				}
			}
			if len(asked) == 0 || r.reg.calls != 0 {
				t.Errorf("%s: asked %v, %d calls of the engine", tt.doc, asked, r.reg.calls)
			}
		}
	})
}

func (r *rig) refused(t *testing.T, tt refusal, route *httpapi.Route) {
	t.Helper()
	peer := tt.peer
	if peer == nil {
		peer = &front.Peer{Socket: true, UID: 7}
	}
	w := r.ask(peer, route, tt.change)
	p, doc := problemIn(t, w.Body.String()), route.Method+" "+route.Pattern+", "+tt.doc
	if w.Code != tt.status || p.Status != tt.status || p.Reason != tt.reason || p.Service != route.Service {
		t.Errorf("%s: %d %+v, want %d %s", doc, w.Code, p, tt.status, tt.reason)
	}
	again := w.Header().Get("Retry-After")
	if later := tt.status == http.StatusTooManyRequests ||
		tt.status == http.StatusServiceUnavailable; later != (again != "") ||
		later != p.Retryable {
		t.Errorf("%s: Retry-After %q, retryable %v", doc, again, p.Retryable)
	} else if later &&
		again != strconv.Itoa(p.RetryAfter) {
		t.Errorf("%s: Retry-After %q and in the body %d", doc, again, p.RetryAfter)
	}
	if (w.Header().Get("WWW-Authenticate") != "") != (tt.status == http.StatusUnauthorized) {
		t.Errorf("%s: challenged as %q", doc, w.Header().Get("WWW-Authenticate"))
	}
	for _, name := range r.Services() {
		if n := r.Inflight(name).Taken(); n != 0 {
			t.Errorf("%s: %d places of %s are not given back", doc, n, name)
		}
	}
}

// told is an answer without what differs from call to call.
func (r *rig) told(method, path string, h header) string {
	h = mapsWith(h, "X-Corr-ID", someULID)
	w := r.as(&front.Peer{}, method, path, "", h)
	var lines []string
	for name, v := range w.Header() {
		lines = append(lines, name+": "+strings.Join(v, ", "))
	}
	slices.Sort(lines)
	return w.Result().Status + "\n" + strings.Join(lines, "\n") + "\n" + w.Body.String()
}

func mapsWith(h header, name, value string) header {
	out := header{name: value}
	for k, v := range h {
		out[k] = v
	}
	return out
}

// A route that is hidden from a peer always answers like a path without a route.
func TestHiddenIsLikeUnknown(t *testing.T) {
	full := func(c *httpapi.Settings, _ *deps) { c.Limits[serviceNode] = httpapi.Limits{Inflight: 0} }
	for _, tt := range []struct {
		doc, query string
		gate       httpapi.Gate
		h          header
		change     func(*httpapi.Settings, *deps)
	}{
		{doc: "as it is", gate: httpapi.GateOpen},
		{doc: "with a query", query: "?from=1", gate: httpapi.GateOpen},
		{doc: "with a token", gate: httpapi.GateOpen, h: writer},
		{doc: "with a bad deadline", gate: httpapi.GateOpen, h: header{"Deadline": "x"}},
		{doc: "while the node drains", gate: httpapi.GateDraining},
		{doc: "when the node is closed", gate: httpapi.GateClosed},
		{doc: "without a place", gate: httpapi.GateOpen, change: full},
	} {
		change := tt.change
		if change == nil {
			change = func(*httpapi.Settings, *deps) {}
		}
		r := newRig(t, change)
		r.SetGate(tt.gate)
		for _, route := range r.Table() {
			if !route.Admin {
				continue
			}
			hidden, unknown := r.told(route.Method, target(&route)+tt.query, tt.h), r.told(route.Method,
				"/admin/v1/nothing"+tt.query, tt.h)
			if hidden != unknown {
				t.Errorf("%s %s, %s:\n%s\nwhat is not there:\n%s", route.Method, route.Pattern, tt.doc, hidden, unknown)
			}
		}
	}
}

// What has no row has no parameters that could be wrong: the path or the method is.
func TestWhatHasNoRowHasNoQuery(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		method, path string
		status       int
	}{{"GET", "/nowhere?x=1", 404}, {"GET", "/nowhere?x=%zz", 404}, {"PUT", "/registry/diff?from=1&to=2", 405}} {
		if w := r.do(tt.method, tt.path, "", nil); w.Code != tt.status {
			t.Errorf("%s %s: %d, want %d", tt.method, tt.path, w.Code, tt.status)
		}
	}
}

// Requests for paths without a route do not use the slots of probes.
func TestProbesShareNoPlaceWithStrangers(t *testing.T) {
	r := newRig(t)
	for range httpapi.BypassInflight {
		r.Bypass().Acquire()
	}
	if w := r.do(http.MethodGet, "/nowhere", "", nil); w.Code != http.StatusNotFound {
		t.Errorf("%d with 64 probes inside", w.Code)
	}
}

// A length beside the chunks was dropped unseen by net/http, so that no other request may follow on
// the connection, whatever became of this one.
func TestChunkedRequestsCloseTheirConnection(t *testing.T) {
	r := newRig(t).listening(t)
	for _, target := range []string{"GET /healthz", "GET /registry/head", "GET /nowhere", "POST /registry/proposals", "PUT /registry/head"} {
		c := r.dial(t)
		_, _ = io.WriteString(
			c,
			target+" HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"+
				"GET /registry/head HTTP/1.1\r\nHost: x\r\n\r\n",
		)
		in := bufio.NewReader(c)
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		if rest, _ := io.ReadAll(in); !resp.Close || len(rest) > 0 {
			t.Errorf("%s: close %v, then %q", target, resp.Close, rest)
		}
	}
}

func TestOptionsOfTheServerIsAnsweredLikeAnyOther(t *testing.T) {
	r := newRig(t).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n")
	if got := readStatus(t, c); got != http.StatusNotFound {
		t.Errorf("%d, want 404", got)
	}
	if got := sum(t, r.metrics, "http_requests_total", "method", "OPTIONS"); got != 1 {
		t.Errorf("counted %v times", got)
	}
}

// What does not exist on TCP has no methods there either.
func TestHiddenRoutesHaveNoMethods(t *testing.T) {
	admin := newRig(t, func(c *httpapi.Settings, _ *deps) { c.Server.AdminOnTCP = true })
	for _, tt := range []struct {
		r            *rig
		method, path string
		tcp, socket  int
	}{
		{newRig(t), "DELETE", "/admin/v1/status", 404, 405}, {newRig(t), "DELETE", "/admin/v1/tokens", 404, 405}, {newRig(t), "GET", "/admin/v1/keys/k1/retire", 404, 405},
		{newRig(t), "GET", "/admin/v1/registry/genesis", 404, 405},
		{admin, "DELETE", "/admin/v1/status", 405, 405}, {admin, "GET", "/admin/v1/registry/genesis", 404, 405},
	} {
		tcp, socket := tt.r.do(tt.method, tt.path, "", nil), tt.r.socket(tt.method, tt.path, "", nil)
		if tcp.Code != tt.tcp || socket.Code != tt.socket || (tcp.Header().Get("Allow") == "") == (tt.tcp == 405) {
			t.Errorf("%s %s: TCP %d, socket %d, want %d and %d", tt.method, tt.path, tcp.Code, socket.Code, tt.tcp,
				tt.socket)
		}
	}
}

func TestEveryDrainingAnswerClosesItsConnection(t *testing.T) {
	closed, late := newRig(t), newRig(t)
	closed.SetGate(httpapi.GateClosed)
	late.reg.set(flow.ErrClosed) // the queue closed under a request that the gate had let in
	for doc, r := range map[string]*rig{"gate closed": closed, "queue closed": late} {
		w := r.do(http.MethodPost, "/registry/commit/"+proposal, "", writer)
		if w.Code != http.StatusServiceUnavailable || w.Header().Get("Connection") != "close" {
			t.Errorf("%s: %d, Connection %q", doc, w.Code, w.Header().Get("Connection"))
		}
	}
}

func TestPayloadMustBeAnObject(t *testing.T) {
	r := newRig(t)
	for _, v := range []string{`"x"`, `1`, `[]`, `true`} {
		a := r.do(http.MethodPost, "/registry/proposals", `{"schema_version":"1.0.0","payload":`+v+`}`, writer)
		b := r.socket(http.MethodPost, "/admin/v1/registry/genesis", `{"payload":`+v+`,"approvals":[]}`, nil)
		for _, w := range []string{a.Body.String(), b.Body.String()} {
			if p := problemIn(t, w); p.Status != http.StatusBadRequest || p.Details["field"] != "payload" ||
				r.reg.calls != 0 {
				t.Errorf("payload %s: %s", v, w)
			}
		}
	}
}

// A stream that missed only events it had already sent gets no lagged event.
func TestStreamIsSilentAboutLagThatMissedNothing(t *testing.T) {
	r := newRig(t)
	sub := r.reg.bus.Subscribe("sse")
	defer sub.Close()
	for v := uint64(4); v <= 23; v++ {
		r.commit(v)
	}
	rec := &recorder{header: http.Header{}}
	st := r.feed(t, rec, sub, 23) // as after a replay
	for !drained(st) {
		if err := st.Next(); err != nil {
			t.Fatal(err)
		}
	}
	if got := rec.body.String() + string(*st.Out()); got != "" {
		t.Errorf("told %q", got)
	}
}

// A client that stops reading is dropped within the write timeout, and its place is free again.
func TestStalledStreamIsClosed(t *testing.T) {
	r := newRig(t, func(c *httpapi.Settings, _ *deps) {
		c.Server.WriteTimeout = unit.Duration(100 * time.Millisecond)
	}).listening(t)
	r.reg.since = func(after uint64, limit int) ([]document.Update, error) {
		return []document.Update{{Version: after + 1, CorrID: strings.Repeat("x", 1<<20)}}, nil
	}
	r.reg.moveHead(1000)
	c := r.dial(t)
	_, _ = io.WriteString(c, "GET /registry/stream HTTP/1.1\r\nHost: x\r\nLast-Event-ID: 1\r\n\r\n")
	waitFor(t, "event that is not taken",
		func() bool { return sum(t, r.metrics, "io_timeouts_total", "op", "write", "service", "registry") == 1 })
	waitFor(t, "end of the stream", func() bool {
		return r.OpenStreams(serviceRegistry).Count() == 0 && sum(t, r.metrics, "conns_open", "listener", "http") == 0
	})
}
