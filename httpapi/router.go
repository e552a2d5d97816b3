package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"
)

var errNoRoute = errors.New("no such route")

// methodError says that the path is there, under other methods.
type methodError struct{ allow []string }

func (e *methodError) Error() string { return "method not allowed" }

// catchAll is the one GET row that httprouter can hold where fixed names stand beside parameters.
const catchAll = "/registry/*path"

// router finds the row of a request. Nothing is cleaned or redirected: a path is a row's, or there is none.
type router struct {
	tree     *httprouter.Router
	registry map[string]*templates // by method: the rows under catchAll
	none     map[string]*bound     // by service and method: what has no row
}

// newRouter registers every row under its methods.
func (s *Server) newRouter(routes []Route) *router {
	t := httprouter.New()
	t.RedirectTrailingSlash, t.RedirectFixedPath = false, false
	t.HandleOPTIONS, t.HandleMethodNotAllowed = false, false
	rt := &router{tree: t, registry: map[string]*templates{}, none: map[string]*bound{}}
	for i := range routes {
		var all []*bound
		for _, m := range routes[i].methods() {
			b := s.bind(&routes[i], m)
			all = append(all, b)
			rt.add(s, b)
		}
		watchInflight(s.d.Metrics, &routes[i], all)
	}
	t.NotFound = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt.missing(r), nil) })
	rt.addMissing(s)
	return rt
}

// ServeHTTP finds the row and runs it. A target without a path, as CONNECT has, has no row: httprouter's trees begin
// at the first slash.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !strings.HasPrefix(r.URL.Path, "/") {
		rt.tree.NotFound.ServeHTTP(w, r)
		return
	}
	rt.tree.ServeHTTP(w, r)
}

func (rt *router) add(s *Server, b *bound) {
	if b.method == b.route.Method && b.route.Method != http.MethodGet || !strings.HasPrefix(b.route.Pattern, "/registry/") {
		rt.tree.Handle(b.method, b.route.Pattern, func(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
			s.serve(w, r, b, p)
		})
		return
	}
	if rt.registry[b.method] == nil {
		set := &templates{fixed: map[string]*bound{}}
		rt.registry[b.method] = set
		rt.tree.Handle(b.method, catchAll, func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
			b, params := set.match(r.URL.Path)
			if b == nil {
				b = rt.missing(r)
			}
			s.serve(w, r, b, params)
		})
	}
	rt.registry[b.method].add(b)
}

// addMissing binds the pseudo-rows of requests that have none, one for each service. Their methods are a closed set,
// since they are labels.
func (rt *router) addMissing(s *Server) {
	refuse := func(c *call) error { return rt.refuse(s, c) }
	for _, service := range []string{serviceNode, serviceRegistry} {
		route := &Route{
			Pattern: "unmatched", Service: service, Class: ClassBypass, Deadline: bypassDeadline, handle: refuse,
		}
		for _, m := range []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodOptions, otherMethod,
		} {
			rt.none[service+m] = s.bind(route, m)
		}
	}
}

// refuse tells which methods the path has, unless it does not exist for the peer.
func (rt *router) refuse(s *Server, c *call) error {
	path := c.r.URL.Path
	hidden := slices.ContainsFunc(s.routes, func(r Route) bool { return r.Pattern == path && s.hidden(c.peer, &r) })
	if allow := rt.allowed(path); len(allow) > 0 && !hidden {
		return &methodError{allow}
	}
	return errNoRoute
}

const otherMethod = "other"

func (rt *router) missing(r *http.Request) *bound {
	service := serviceNode
	if strings.HasPrefix(r.URL.Path, "/registry/") {
		service = serviceRegistry
	}
	if b, ok := rt.none[service+r.Method]; ok {
		return b
	}
	return rt.none[service+otherMethod]
}

// allowed lists the methods that have a row for path.
func (rt *router) allowed(path string) []string {
	var out []string
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost} {
		if rt.has(m, path) {
			out = append(out, m)
		}
	}
	return out
}

func (rt *router) has(method, path string) bool {
	if !strings.HasPrefix(path, "/") {
		return false
	}
	h, params, _ := rt.tree.Lookup(method, path)
	if h == nil {
		return false
	}
	for _, p := range params {
		if p.Key == "path" {
			b, _ := rt.registry[method].match(path)
			return b != nil
		}
		if !validParam(p.Key, p.Value) {
			return false
		}
	}
	return true
}

// templates are the rows that are matched by hand: fixed ones by name, the others segment by segment.
type templates struct {
	fixed map[string]*bound
	rows  []template
}

type template struct {
	segments []string // ":v" takes any value of its kind
	bound    *bound
}

func (t *templates) add(b *bound) {
	if !strings.Contains(b.route.Pattern, ":") {
		t.fixed[b.route.Pattern] = b
		return
	}
	t.rows = append(t.rows, template{strings.Split(b.route.Pattern, "/"), b})
}

// match finds the row of path; there is one at most, since kinds of values do not overlap with each other or with names.
func (t *templates) match(path string) (*bound, httprouter.Params) {
	if b, ok := t.fixed[path]; ok {
		return b, nil
	}
	got := strings.Split(path, "/")
	for _, row := range t.rows {
		if p, ok := row.take(got); ok {
			return row.bound, p
		}
	}
	return nil, nil
}

func (t template) take(got []string) (httprouter.Params, bool) {
	if len(got) != len(t.segments) {
		return nil, false
	}
	var params httprouter.Params
	for i, want := range t.segments {
		name, isParam := strings.CutPrefix(want, ":")
		switch {
		case !isParam && want != got[i]:
			return nil, false
		case isParam && !validParam(name, got[i]):
			return nil, false
		case isParam:
			params = append(params, httprouter.Param{Key: name, Value: got[i]})
		}
	}
	return params, true
}

// validParam tells whether v is the one spelling of a value of this kind.
func validParam(name, v string) bool {
	switch name {
	case paramVersion, paramEpoch:
		return canonicalInt(v)
	case paramProposal:
		return isProposalID(v)
	}
	return false
}

// isProposalID tells "p_" and a ULID.
func isProposalID(s string) bool {
	id, ok := strings.CutPrefix(s, "p_")
	return ok && isULID(id)
}
