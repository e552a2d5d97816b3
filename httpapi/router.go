package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"

	"ronbox/appliance/unit"
)

// ErrNoRoute is returned for a path that only looks like that of a route.
var ErrNoRoute = errors.New("no such route")

var errPath = errors.New("the path has an empty or a dotted segment, or a byte that no path has")

// PathError names the path parameter that is wrong and the reason. It never contains the value.
type PathError struct{ Param, Reason string }

func (e *PathError) Error() string { return e.Param + ": " + e.Reason }

// methodError is returned for a path that exists with other methods.
type methodError struct{ allow []string }

func (e *methodError) Error() string { return "method not allowed" }

// oddPath reports whether cleaning would change the path. This package never cleans paths.
func oddPath(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") ||
		strings.ContainsAny(path, "\\\x00")
}

const (
	unmatched   = "unmatched" // label of requests without a route
	otherMethod = "other"
)

// router finds the route of a request. Paths are neither cleaned nor redirected.
type router struct {
	s    *Server
	tree *httprouter.Router
	all  map[string]*templates  // by method: all routes
	none map[string]*boundRoute // by service and method: pseudo-routes of requests without a route

	public []string // patterns of routes that are not hidden from anybody
}

// newRouter registers every route with its methods. httprouter does not support fixed names next to
// parameters, which services have. So each prefix is one entry in httprouter, and templates match
// the rest of the path.
func (s *Server) newRouter(routes []Route) *router {
	t := httprouter.New()
	t.RedirectTrailingSlash, t.RedirectFixedPath = false, false
	t.HandleOPTIONS, t.HandleMethodNotAllowed = false, false
	rt := &router{s: s, tree: t, all: map[string]*templates{}, none: map[string]*boundRoute{}}
	for i := range routes {
		if r := &routes[i]; !r.Admin && !r.Socket && !r.Page && !strings.Contains(r.Pattern, "*") {
			rt.public = append(rt.public, r.Pattern)
		}
		var all []*boundRoute
		for _, m := range routes[i].methods() {
			b := s.bind(&routes[i], m)
			all = append(all, b)
			rt.add(b)
		}
		showOnRequest(s.d.Metrics, &routes[i], all)
	}
	t.NotFound = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt.missing(r), nil) })
	rt.addMissing()
	return rt
}

// ServeHTTP finds the route and runs it. It looks up paths without parameters first, because that
// of HEAD is requested most. A target without a path, as in CONNECT, has no route, because
// httprouter's trees begin with a slash.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if rows, ok := rt.all[r.Method]; ok {
		if b := rows.fixed[r.URL.Path]; b != nil {
			rt.s.serve(w, r, b, nil)
			return
		}
	}
	if !strings.HasPrefix(r.URL.Path, "/") {
		rt.tree.NotFound.ServeHTTP(w, r)
		return
	}
	rt.tree.ServeHTTP(w, r)
}

func (rt *router) add(b *boundRoute) {
	rows, ok := rt.all[b.method]
	if !ok {
		rows = &templates{fixed: map[string]*boundRoute{}}
		rt.all[b.method] = rows
	}
	rows.add(b)
	prefix := rt.prefix(b.route.Pattern)
	if prefix == "" {
		rt.tree.Handle(b.method, b.route.Pattern, func(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
			rt.s.serve(w, r, b, p)
		})
		return
	}
	if there, _, _ := rt.tree.Lookup(b.method, prefix); there != nil {
		return
	}
	rt.tree.Handle(b.method, prefix+"*path", func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		b, params := rows.match(r.URL.Path, false)
		if b == nil {
			b = rt.missing(r)
		}
		rt.s.serve(w, r, b, params)
	})
}

// prefix returns the prefix of the service that path belongs to, or "".
func (rt *router) prefix(path string) string {
	for _, sv := range rt.s.services {
		if sv.Prefix != "" && strings.HasPrefix(path, sv.Prefix) {
			return sv.Prefix
		}
	}
	return ""
}

// addMissing binds the pseudo-routes of requests without a route, one per service. Their methods
// are a closed set, because they are labels.
func (rt *router) addMissing() {
	for name := range rt.s.services {
		route := &Route{
			Method:   http.MethodGet,
			Pattern:  unmatched,
			Service:  name,
			Class:    ClassStatic,
			Deadline: DefaultDeadline,
			Handle:   rt.refuse,
		}
		for _, m := range []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodOptions, otherMethod,
		} {
			rt.none[name+m] = rt.s.bind(route, m)
		}
	}
}

// missing returns the pseudo-route of a request, for the service that its path belongs to.
func (rt *router) missing(r *http.Request) *boundRoute {
	service := serviceNode
	for name, sv := range rt.s.services {
		if sv.Prefix != "" && strings.HasPrefix(r.URL.Path, sv.Prefix) {
			service = name
		}
	}
	return rt.pseudo(service, r.Method)
}

// pseudo returns the pseudo-route of a service.
func (rt *router) pseudo(service, method string) *boundRoute {
	if b, ok := rt.none[service+method]; ok {
		return b
	}
	return rt.none[service+otherMethod]
}

// refuse answers with the methods of the path that the peer may use, or that there is no such path.
// It answers preflight requests of listed origins, and OPTIONS for a path with shared routes.
func (rt *router) refuse(c *Request) error {
	allow, shared := rt.allowed(c)
	if len(shared) > 0 {
		c.open()
	}
	switch {
	case oddPath(c.r.URL.Path):
		return errPath
	case len(allow) == 0 && c.service.shows(c):
		return c.service.Missing(c)
	case len(allow) == 0:
		return rt.noRoute(c)
	case len(shared) > 0 && c.r.Method == http.MethodOptions:
		c.permitAny(shared)
		return nil
	case c.settings.cors.preflight(c):
		return nil
	case c.settings.cors == nil && isPreflight(c.r):
		return errCORSOff
	}
	return &methodError{allow}
}

// shows reports whether a service answers a request without a route itself.
func (s *service) shows(c *Request) bool {
	reads := c.r.Method == http.MethodGet || c.r.Method == http.MethodHead
	return s.Missing != nil && reads && (s.Admits == nil || s.Admits(c))
}

// noRoute returns the error for 404, or for 400 if one value of the path is the only reason and its
// parameter has an error text for that.
func (rt *router) noRoute(c *Request) error {
	if rows, ok := rt.all[c.r.Method]; ok {
		if p, ok := rows.misspelt(c.r.URL.EscapedPath()); ok {
			return &PathError{p.Name, p.Wrong}
		}
	}
	if c.server.isSecluded(c.r.URL.Path) {
		return ErrNoRoute
	}
	if near := rt.nearest(c.r.URL.Path); near != "" {
		return &noRouteError{near}
	}
	return ErrNoRoute
}

// isSecluded reports whether a path is of a service that admits only some callers. To the others it
// is like what does not exist.
func (s *Server) isSecluded(path string) bool {
	for _, sv := range s.services {
		if sv.Admits != nil && strings.HasPrefix(path+"/", sv.Prefix) {
			return true
		}
	}
	return false
}

// noRouteError is ErrNoRoute with the public route whose path is nearest to that of the request.
type noRouteError struct{ near string }

func (e *noRouteError) Error() string { return "there is no such route; did you mean " + e.near + "?" }
func (e *noRouteError) Unwrap() error { return ErrNoRoute }

// longestLike bounds the paths for which a similar route is looked for, because that takes time.
const longestLike = 64

// nearest returns the path of a public route that is similar to path, or "". Parameters stand for
// themselves. The operator's paths get none, because whether they exist is hidden.
func (rt *router) nearest(path string) string {
	if len(path) > longestLike || strings.HasPrefix(path, "/admin/") {
		return ""
	}
	asked := strings.Split(path, "/")
	var known, patterns []string
	for _, pattern := range rt.public {
		parts := strings.Split(pattern, "/")
		if len(parts) != len(asked) {
			continue
		}
		for i, part := range parts {
			if strings.HasPrefix(part, ":") {
				parts[i] = asked[i]
			}
		}
		known, patterns = append(known, strings.Join(parts, "/")), append(patterns, pattern)
	}
	if i := slices.Index(known, unit.Nearest(path, known)); i >= 0 {
		return patterns[i]
	}
	return ""
}

// allowed lists the methods with a route for the path of c that is not hidden from its peer, and
// those of them whose route is shared.
func (rt *router) allowed(c *Request) (all, shared []string) {
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
		if rows, ok := rt.all[m]; ok {
			if b, _ := rows.match(c.r.URL.Path, true); b != nil && c.admitted(b) && !c.hidden(b.route) {
				all = append(all, m)
				if b.route.open() {
					shared = append(shared, m)
				}
			}
		}
	}
	return all, shared
}

// templates are the routes of one method: fixed paths by name, others segment by segment.
type templates struct {
	fixed map[string]*boundRoute
	rows  []template
}

// template is a pattern with parameters.
type template struct {
	segments []segment
	bound    *boundRoute
}

// segment is a fixed name or a parameter.
type segment struct {
	name  string
	param bool
	rest  bool // matches the rest of the path
	kind  PathParam
}

func (t *templates) add(b *boundRoute) {
	if !strings.ContainsAny(b.route.Pattern, ":*") {
		t.fixed[b.route.Pattern] = b
		return
	}
	row := template{bound: b}
	for part := range strings.SplitSeq(b.route.Pattern, "/") {
		s := segment{name: part}
		if part != "" && (part[0] == ':' || part[0] == '*') {
			s = segment{name: part[1:], param: true, rest: part[0] == '*'}
			s.kind, _ = b.service.param(s.name)
		}
		row.segments = append(row.segments, s)
	}
	t.rows = append(t.rows, row)
}

// match returns the route of path. There is at most one, because kinds of values do not overlap
// with each other or with names. A strict match checks the parameters of every route.
func (t *templates) match(path string, strict bool) (*boundRoute, httprouter.Params) {
	if b, ok := t.fixed[path]; ok {
		return b, nil
	}
	got := strings.Split(path, "/")
	for i := range t.rows {
		if p, ok := t.rows[i].take(path, got, strict); ok {
			return t.rows[i].bound, p
		}
	}
	return nil, nil
}

// take returns the parameters of a path that matches the template.
func (t *template) take(path string, got []string, strict bool) (params httprouter.Params, ok bool) {
	last := &t.segments[len(t.segments)-1]
	if len(got) != len(t.segments) && (!last.rest || len(got) < len(t.segments)) {
		return nil, false
	}
	for i := range t.segments {
		want, v := &t.segments[i], got[i]
		switch {
		case !want.param && want.name != v:
			return nil, false
		case !want.param:
			continue
		case want.rest:
			v = strings.Join(got[i:], "/")
			if oddPath(path) {
				return nil, false
			}
		}
		if v == "" || (strict || !t.bound.route.AnyParam) && want.kind.Check != nil && !want.kind.Check(v) {
			return nil, false
		}
		params = append(params, httprouter.Param{Key: want.name, Value: v})
	}
	return params, true
}

// misspelt returns the parameter that is the only reason why path has no route, if its service has
// an error text for that.
func (t *templates) misspelt(path string) (PathParam, bool) {
	got := strings.Split(path, "/")
	for i := range t.rows {
		if p, ok := t.rows[i].misspelt(got); ok {
			return p, true
		}
	}
	return PathParam{}, false
}

func (t *template) misspelt(got []string) (at PathParam, found bool) {
	if len(got) != len(t.segments) {
		return at, false
	}
	for i := range t.segments {
		want := &t.segments[i]
		switch {
		case want.param && want.kind.Wrong != "" && got[i] != "" && !found:
			at, found = want.kind, true
		case want.param || want.name != got[i]:
			return at, false
		}
	}
	return at, found
}
