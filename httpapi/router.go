package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/julienschmidt/httprouter"
)

var (
	errNoRoute = errors.New("no such route")
	errTxID    = errors.New(`txid: must be "tx_" and the 26 characters of a ULID, in capitals`)
	errPath    = errors.New("the path has an empty or a dotted segment, or a byte that no path has")
)

// oddPath tells a path that means another one to whoever cleans it. Nothing is cleaned here.
func oddPath(path string) bool {
	return strings.Contains(path, "//") || strings.Contains(path+"/", "/../") || strings.Contains(path+"/", "/./") ||
		strings.ContainsAny(path, "\\\x00")
}

// methodError says that the path is there, under other methods.
type methodError struct{ allow []string }

func (e *methodError) Error() string { return "method not allowed" }

// The prefixes under which httprouter cannot hold the rows of one method, since fixed names stand beside parameters:
// each is one row there, and what is below it is matched by hand.
const (
	registryPrefix = "/registry/"
	adminPrefix    = "/admin/v1/"
	walletPrefix   = "/v1/"
	catchAll       = "*path"

	unmatched = "unmatched" // the label of what has no row
)

// router finds the row of a request. Nothing is cleaned or redirected: a path is a row's, or there is none.
type router struct {
	s    *Server
	tree *httprouter.Router
	all  map[string]*templates // by method: every row
	none map[string]*bound     // by service and method: what has no row
}

// newRouter registers every row under its methods.
func (s *Server) newRouter(routes []Route) *router {
	t := httprouter.New()
	t.RedirectTrailingSlash, t.RedirectFixedPath = false, false
	t.HandleOPTIONS, t.HandleMethodNotAllowed = false, false
	rt := &router{s: s, tree: t, all: map[string]*templates{}, none: map[string]*bound{}}
	for i := range routes {
		var all []*bound
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

// ServeHTTP finds the row and runs it: at once where the path is one without parameters, as that of HEAD, which is asked
// for most. A target without a path, as CONNECT has, has no row: httprouter's trees begin at the first slash.
func (rt *router) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if b := rt.fixed(r); b != nil {
		rt.s.serve(w, r, b, nil)
		return
	}
	if !strings.HasPrefix(r.URL.Path, "/") {
		rt.tree.NotFound.ServeHTTP(w, r)
		return
	}
	rt.tree.ServeHTTP(w, r)
}

// fixed is the row of a path without parameters, nil for none.
func (rt *router) fixed(r *http.Request) *bound {
	if rows, ok := rt.all[r.Method]; ok {
		return rows.fixed[r.URL.Path]
	}
	return nil
}

func (rt *router) add(b *bound) {
	rows := set(rt.all, b.method)
	rows.add(b)
	prefix := handPrefix(b)
	if prefix == "" {
		rt.tree.Handle(b.method, b.route.Pattern, func(w http.ResponseWriter, r *http.Request, p httprouter.Params) {
			rt.s.serve(w, r, b, p)
		})
		return
	}
	if there, _, _ := rt.tree.Lookup(b.method, prefix); there != nil {
		return
	}
	rt.tree.Handle(b.method, prefix+catchAll, func(w http.ResponseWriter, r *http.Request, _ httprouter.Params) {
		b, params := rows.match(r.URL.Path)
		if b == nil {
			b = rt.missing(r)
		}
		rt.s.serve(w, r, b, params)
	})
}

// handPrefix is the prefix under which b is matched by hand, "" for none.
func handPrefix(b *bound) string {
	switch {
	case strings.HasPrefix(b.route.Pattern, adminPrefix):
		return adminPrefix
	case strings.HasPrefix(b.route.Pattern, registryPrefix) && b.route.Method == http.MethodGet:
		return registryPrefix
	case strings.HasPrefix(b.route.Pattern, walletPrefix):
		return walletPrefix
	}
	return ""
}

func set(all map[string]*templates, key string) *templates {
	t, ok := all[key]
	if !ok {
		t = &templates{fixed: map[string]*bound{}}
		all[key] = t
	}
	return t
}

// addMissing binds the pseudo-rows of requests that have none, one for each service. Their methods are a closed set,
// since they are labels.
func (rt *router) addMissing() {
	for _, service := range rt.s.served() {
		route := &Route{
			Method: http.MethodGet, Pattern: unmatched, Service: service, Class: ClassStatic, Deadline: bypassDeadline, handle: rt.refuse,
		}
		for _, m := range []string{
			http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
			http.MethodOptions, otherMethod,
		} {
			rt.none[service+m] = rt.s.bind(route, m)
		}
	}
}

// refuse tells which methods the path has for the peer, or that there is no such path. A browser of an allowed origin
// that asks ahead is answered.
func (rt *router) refuse(c *call) error {
	allow := rt.allowed(c)
	switch {
	case oddPath(c.r.URL.Path):
		return errPath
	case len(allow) == 0:
		return rt.noRoute(c)
	case c.live.cors.preflight(c):
		return nil
	}
	return &methodError{allow}
}

// noRoute says that a path is none, or, where only a txid in it is no txid, so. Of the other kinds of values none stands alone in its
// place: what is not one of them may be meant as another, or as a name.
func (rt *router) noRoute(c *call) error {
	if rows, ok := rt.all[c.r.Method]; ok && strings.HasPrefix(c.r.URL.Path, walletPrefix) && rows.misspelt(c.r.URL.Path) {
		return errTxID
	}
	return errNoRoute
}

const otherMethod = "other"

func (rt *router) missing(r *http.Request) *bound {
	service := rt.s.serviceOf(r.URL.Path)
	if b, ok := rt.none[service+r.Method]; ok {
		return b
	}
	return rt.none[service+otherMethod]
}

// serviceOf is whose a path is that has no row.
func (s *Server) serviceOf(path string) string {
	switch {
	case s.d.Registry != nil && strings.HasPrefix(path, registryPrefix):
		return serviceRegistry
	case s.d.Wallet != nil && strings.HasPrefix(path, walletPrefix):
		return serviceWallet
	}
	return serviceNode
}

// allowed lists the methods that have a row for the path of c which is not hidden from its peer.
func (rt *router) allowed(c *call) []string {
	var out []string
	for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut} {
		if rows, ok := rt.all[m]; ok {
			if b, _ := rows.match(c.r.URL.Path); b != nil && !hidden(c, b.route) {
				out = append(out, m)
			}
		}
	}
	return out
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

// misspelt tells whether path would have a row if a txid stood where a row wants one.
func (t *templates) misspelt(path string) bool {
	got := strings.Split(path, "/")
	return slices.ContainsFunc(t.rows, func(row template) bool {
		at := slices.Index(row.segments, ":"+paramTx)
		if at < 0 || len(got) != len(row.segments) || got[at] == "" {
			return false
		}
		meant := slices.Clone(got)
		meant[at] = row.segments[at]
		return slices.Equal(meant, row.segments)
	})
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

// namePattern is what isName takes.
const namePattern = "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"

// isName tells a word of letters, digits and "._-" that begins with one of the first two.
func isName(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		if !alnum && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return s != "" && len(s) <= 128
}

// validParam tells whether v is the one spelling of a value of this kind.
func validParam(name, v string) bool {
	switch name {
	case paramVersion, paramEpoch:
		return canonicalInt(v)
	case paramProposal:
		return isProposalID(v)
	case paramKid, paramSchema, paramProfile:
		return isName(v)
	case paramTx:
		return isTx(v)
	}
	return false
}

// isTx tells "tx_" and a ULID.
func isTx(s string) bool {
	id, ok := strings.CutPrefix(s, "tx_")
	return ok && isULID(id)
}

// isProposalID tells "p_" and a ULID.
func isProposalID(s string) bool {
	id, ok := strings.CutPrefix(s, "p_")
	return ok && isULID(id)
}
