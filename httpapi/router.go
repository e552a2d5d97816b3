package httpapi

import (
	"errors"
	"net/http"
	"strings"

	"github.com/julienschmidt/httprouter"
)

// ErrNoRoute refuses a path that no route has, for what only looks like one.
var ErrNoRoute = errors.New("no such route")

var errPath = errors.New("the path has an empty or a dotted segment, or a byte that no path has")

// PathError says which path parameter keeps a path from being a route's. It never repeats the value.
type PathError struct{ Param, Reason string }

func (e *PathError) Error() string { return e.Param + ": " + e.Reason }

// methodError says that the path is there, under other methods.
type methodError struct{ allow []string }

func (e *methodError) Error() string { return "method not allowed" }

// oddPath reports whether a path means another one to a program that cleans it. Nothing is cleaned here.
func oddPath(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") ||
		strings.ContainsAny(path, "\\\x00")
}

const (
	unmatched   = "unmatched" // the label of a request that has no route
	otherMethod = "other"
)

// router finds the route of a request. Nothing is cleaned or redirected: a path is a route's, or there is none.
type router struct {
	s    *Server
	tree *httprouter.Router
	all  map[string]*templates  // by method: every route
	none map[string]*boundRoute // by service and method: what has no route
}

// newRouter registers every route under its methods. httprouter cannot hold fixed names beside parameters, as below the prefixes of
// the services: each prefix is one entry there, and what is below it is matched by templates.
func (s *Server) newRouter(routes []Route) *router {
	t := httprouter.New()
	t.RedirectTrailingSlash, t.RedirectFixedPath = false, false
	t.HandleOPTIONS, t.HandleMethodNotAllowed = false, false
	rt := &router{s: s, tree: t, all: map[string]*templates{}, none: map[string]*boundRoute{}}
	for i := range routes {
		var all []*boundRoute
		for _, m := range routes[i].methods() {
			b := s.bind(&routes[i], m)
			all = append(all, b)
			rt.add(b)
		}
		watchInflight(s.d.Metrics, &routes[i], all)
	}
	t.NotFound = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, rt.missing(r), nil) })
	rt.addMissing()
	return rt
}

// ServeHTTP finds the route and runs it: at once where its path has no parameters, as that of HEAD, which is asked
// for most. A target without a path, as CONNECT has, has no route: httprouter's trees begin at the first slash.
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

// prefix is that of the service that has path below its own, "" for none.
func (rt *router) prefix(path string) string {
	for _, sv := range rt.s.services {
		if sv.Prefix != "" && strings.HasPrefix(path, sv.Prefix) {
			return sv.Prefix
		}
	}
	return ""
}

// addMissing binds the pseudo-routes of requests that have none, one for each service. Their methods are a closed set,
// since they are labels.
func (rt *router) addMissing() {
	for name := range rt.s.services {
		route := &Route{
			Method: http.MethodGet, Pattern: unmatched, Service: name, Class: ClassStatic, Deadline: DefaultDeadline, Handle: rt.refuse,
		}
		for _, m := range []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodOptions, otherMethod,
		} {
			rt.none[name+m] = rt.s.bind(route, m)
		}
	}
}

// missing is the pseudo-route of a request that has no route, of the service that its path belongs to.
func (rt *router) missing(r *http.Request) *boundRoute {
	service := serviceNode
	for name, sv := range rt.s.services {
		if sv.Prefix != "" && strings.HasPrefix(r.URL.Path, sv.Prefix) {
			service = name
		}
	}
	if b, ok := rt.none[service+r.Method]; ok {
		return b
	}
	return rt.none[service+otherMethod]
}

// refuse answers which methods the path has for the peer, or that there is no such path. A browser of an allowed origin
// that asks ahead is answered.
func (rt *router) refuse(c *Request) error {
	allow := rt.allowed(c)
	switch {
	case oddPath(c.r.URL.Path):
		return errPath
	case len(allow) == 0:
		return rt.noRoute(c)
	case c.settings.cors.preflight(c):
		return nil
	}
	return &methodError{allow}
}

// noRoute answers 404, or 400 where the path is right but for a value that stands alone in its place, were there a slash in it, encoded.
func (rt *router) noRoute(c *Request) error {
	if rows, ok := rt.all[c.r.Method]; ok {
		if p, ok := rows.misspelt(c.r.URL.EscapedPath()); ok {
			return &PathError{p.Name, p.Wrong}
		}
	}
	return ErrNoRoute
}

// allowed lists the methods that have a route for the path of c which is not hidden from its peer.
func (rt *router) allowed(c *Request) []string {
	var out []string
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
		if rows, ok := rt.all[m]; ok {
			if b, _ := rows.match(c.r.URL.Path, true); b != nil && !c.hidden(b.route) {
				out = append(out, m)
			}
		}
	}
	return out
}

// templates are the routes of one method: fixed paths by name, the others segment by segment.
type templates struct {
	fixed map[string]*boundRoute
	rows  []template
}

// template is a pattern with parameters.
type template struct {
	segments []segment
	bound    *boundRoute
}

// segment is a fixed name, or takes the values of a parameter.
type segment struct {
	name  string
	param bool
	rest  bool // takes all that is left
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

// match finds the route of path; there is one at most, since kinds of values do not overlap with each other or with names. A
// strict match checks the parameters of every route.
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

// take gives the parameters of a path that the template fits.
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

// misspelt finds the parameter that alone keeps path from having a route, where its service says what to answer then.
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
