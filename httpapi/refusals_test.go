package httpapi

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"ronbox/httpapi/front"
)

// A refusal is one way in which a stage can refuse a row.
type refusal struct {
	doc    string
	on     func(*Route) bool
	ready  func(*rig, *Route)
	change func(*http.Request)
	peer   *front.Peer // nil: a peer of the socket that may do everything
	status int
	reason string
}

func refusals() []refusal {
	full := func(r *rig, route *Route) { r.services[route.Service].inflight.max.Store(0) }
	empty := func(r *rig, route *Route) {
		sv := r.services[route.Service]
		sv.set(Limits{RPS: 1, Burst: 1, ReadRPS: 1, Inflight: 9})
		sv.writes.Take(r.now())
		sv.reads.Take(r.now())
	}
	set := func(name, v string) func(*http.Request) { return func(q *http.Request) { q.Header.Set(name, v) } }
	return []refusal{
		{"too many headers", every, nil, func(q *http.Request) { q.Header["X"] = make([]string, maxHeaders+1) }, nil, 431, reasonBadHeader},
		{"a long target", every, nil, func(q *http.Request) { q.RequestURI = strings.Repeat("x", maxTarget+1) }, nil, 414, reasonMalformed},
		{"no place for a probe", bypassing, func(r *rig, _ *Route) { r.bypass.max.Store(0) }, nil, nil, 429, reasonInflight},
		{"starting", guarded, func(r *rig, _ *Route) { r.gate = newGate() }, nil, nil, 503, reasonDegraded},
		{"closed", guarded, func(r *rig, _ *Route) { r.SetGate(GateClosed) }, nil, nil, 503, reasonDraining},
		{"a timeout that is none", guarded, nil, set(timeoutHeader, "soon"), nil, 400, reasonBadHeader},
		{"no place", takesPlace, full, nil, nil, 429, reasonInflight},
		{"no token", protected, nil, nil, &front.Peer{}, 401, reasonUnauth},
		{"a token of another scope", protected, nil, set("Authorization", "Bearer bad"), &front.Peer{}, 403, reasonForbidden},
		{"a peer of another scope", protected, nil, nil, &front.Peer{Socket: true, UID: 12}, 403, reasonForbidden},
		{"an empty bucket", guarded, empty, nil, nil, 429, reasonRate},
		{"a body where none belongs", func(r *Route) bool { return guarded(r) && !takesBody(r) }, nil, func(q *http.Request) { q.ContentLength = 1 }, nil, 400, reasonMalformed},
		{"a body of another type", takesBody, nil, func(q *http.Request) { q.ContentLength = 1 }, nil, 415, reasonMediaType},
		{"a body beyond the cap", takesBody, nil, func(q *http.Request) {
			q.ContentLength = 2 << 20
			q.Header.Set("Content-Type", typeJSON)
		}, nil, 413, reasonBodyCap},
		{"no length", func(r *Route) bool { return r.Body == SizedJSON }, nil, nil, nil, 411, reasonLength},
		{"a parameter that is none", func(r *Route) bool { return r.In == nil }, nil, func(q *http.Request) { q.URL.RawQuery = "unheard_of=1" }, nil, 400, reasonMalformed},
	}
}

// Each stage refuses each row that it is fitted to as the document says, counts it once, lets go of what it took, and says
// when to come back where that makes sense. This is every row that is not hidden times every stage that can refuse.
func TestEveryStageRefusesEveryRoute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // buckets stay empty
		for _, tt := range refusals() {
			r, asked := newRig(t, func(c *Settings, _ *Deps) { c.Server.AdminOnTCP = true }), map[string]float64{}
			for i := range r.routes {
				route := &r.routes[i]
				if !tt.on(route) || tt.peer != nil && !tt.peer.Socket && route.Socket {
					continue
				}
				for _, s := range r.services {
					s.set(Limits{Inflight: 9})
				}
				if tt.ready != nil {
					tt.ready(r, route)
				}
				asked[route.Service]++
				r.refused(t, tt, route)
			}
			for service, want := range asked {
				all := sum(t, r.metrics, "rejected_total", "service", service)
				if one := sum(t, r.metrics, "rejected_total", "service", service, "reason", tt.reason); all != want || one != want {
					t.Errorf("%s: %s counted %v times, %v of them as %s, want %v", tt.doc, service, all, one, tt.reason, want)
				}
			}
			if len(asked) == 0 || r.reg.calls != 0 {
				t.Errorf("%s: asked %v, %d calls of the engine", tt.doc, asked, r.reg.calls)
			}
		}
	})
}

func (r *rig) refused(t *testing.T, tt refusal, route *Route) {
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
	if later := tt.status == http.StatusTooManyRequests || tt.status == http.StatusServiceUnavailable; later != (again != "") || later != p.Retryable {
		t.Errorf("%s: Retry-After %q, retryable %v", doc, again, p.Retryable)
	} else if later && again != strconv.Itoa(p.RetryAfter) {
		t.Errorf("%s: Retry-After %q and in the body %d", doc, again, p.RetryAfter)
	}
	if (w.Header().Get("WWW-Authenticate") != "") != (tt.status == http.StatusUnauthorized) {
		t.Errorf("%s: challenged as %q", doc, w.Header().Get("WWW-Authenticate"))
	}
	for name, s := range r.services {
		if n := s.inflight.n.Load(); n != 0 {
			t.Errorf("%s: %d places of %s are not given back", doc, n, name)
		}
	}
}
