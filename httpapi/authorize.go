package httpapi

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"ronbox/engines"
	"ronbox/httpapi/auth"
)

// ScopeMetrics is the scope of callers that metrics_allow does not admit to /metrics.
const ScopeMetrics = "node.metrics"

// authorize finds the caller, before a byte of the body is read.
func authorize(s *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) (err error) {
		if c.actor, err = s.identify(c, b.route); err != nil {
			return err
		}
		if err := s.oneOf(c, b.route); err != nil {
			return err
		}
		return next(c)
	}
}

// oneOf wants one of several scopes, where a route has them.
func (s *Server) oneOf(c *Request, r *Route) error {
	if len(r.AnyOf) == 0 || slices.ContainsFunc(r.AnyOf, c.actor.May) {
		return nil
	}
	scope := strings.Join(r.AnyOf, "|")
	s.d.Metrics.Counter("auth_failures_total", r.Service, "stage", "caveat", "scope", scope, "surface", c.surface())(1)
	return &auth.DeniedError{
		TID: c.actor.CapID, Kid: c.actor.Kid, Tenant: c.actor.Tenant, Scope: scope, Fingerprint: c.actor.Fingerprint,
		Reasons: []string{"holds none of the scopes " + strings.Join(r.AnyOf, ", ")},
	}
}

// surface is the label of the way a caller came.
func (r *Request) surface() string {
	if r.peer.Socket {
		return "uds"
	}
	return "tcp"
}

// identify lets a peer of the admin socket do what the uid map gives it, and a TCP peer what its token says. A socket
// peer that shows a token needs both.
func (s *Server) identify(c *Request, r *Route) (engines.Actor, error) {
	token, given := bearer(c.r)
	if !c.peer.Socket {
		return s.d.Auth.Check(token, s.asked(c, r))
	}
	actor, err := s.socketActor(c, r)
	if err != nil || !given {
		return actor, err
	}
	held, err := s.d.Auth.Check(token, s.asked(c, r))
	held.UID, held.Admin, held.Scopes = actor.UID, held.Admin && actor.Admin, auth.Meet(held.Scopes, actor.Scopes)
	return held, err
}

// asked is what a token must allow for the request.
func (s *Server) asked(c *Request, r *Route) auth.Request {
	return auth.Request{
		Method: r.Method, // HEAD asks for no more than GET
		Path:   c.r.URL.Path, Service: r.Service, Scope: r.Scope, Now: s.now(), IP: c.peer.Addr, Socket: c.peer.Socket,
		Bytes: max(0, c.r.ContentLength),
	}
}

// hidden reports whether a route does not exist for the peer: on TCP, what is for the socket.
func (r *Request) hidden(route *Route) bool {
	return !r.peer.Socket && (route.Socket || route.Admin && !r.settings.adminOnTCP)
}

// socketActor is the peer of a socket, if the current map gives it the scope of r.
func (s *Server) socketActor(c *Request, r *Route) (engines.Actor, error) {
	uid := c.peer.UID
	scopes, _ := c.settings.peers.Scopes(uid, c.peer.GID)
	if !auth.Implies(scopes, r.Scope) {
		s.d.Metrics.Counter("auth_failures_total", r.Service, "stage", "peer", "scope", r.Scope, "surface", "uds")(1)
		return engines.Actor{}, &auth.DeniedError{Scope: r.Scope, Reasons: []string{"uds.map gives " + c.peer.String() + " no such scope"}}
	}
	return engines.Actor{
		UID: &uid, Admin: auth.Implies(scopes, auth.ScopeAdmin), Scopes: scopes, Principal: "uid:" + strconv.FormatUint(uint64(uid), 10),
	}, nil
}

// mayScrape refuses a peer who may not read the metrics, neither by its network nor by its scope.
func (s *Server) mayScrape(c *Request) error {
	if !c.peer.Socket && c.settings.mayScrape(c.peer.Addr) {
		return nil
	}
	_, err := s.identify(c, &Route{Method: http.MethodGet, Service: serviceNode, Scope: ScopeMetrics, Class: ClassRead})
	return err
}

// DeniedText says which scope or which kind of caveat a refused caller lacks; what the caveat allows is for the holder to look up.
func DeniedText(err error) string {
	d := DeniedDetails(err)
	if kinds, ok := d["caveats"].([]string); ok {
		return "the token does not allow this, by its caveat " + strings.Join(kinds, ", ") + "; `ronbox token inspect` shows what a token allows"
	}
	if scope, ok := d["scope"].(string); ok {
		return "this needs the scope " + strings.ReplaceAll(scope, "|", " or ") + "; `ronbox token inspect` shows what a token allows"
	}
	return HintForbidden
}

// DeniedDetails are the scope that is missing, or else the kinds of the caveats that forbid a request.
func DeniedDetails(err error) Details {
	if g, ok := errors.AsType[*engines.GrantError](err); ok {
		return Details{"caveats": []string{g.Caveat}}
	}
	d, ok := errors.AsType[*auth.DeniedError](err)
	switch {
	case !ok || d.Scope == "" && len(d.Caveats) == 0:
		return nil
	case len(d.Caveats) == 0 || slices.Contains(d.Caveats, "scope"):
		return Details{"scope": d.Scope}
	}
	return Details{"caveats": d.Caveats}
}
