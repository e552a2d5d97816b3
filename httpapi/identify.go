package httpapi

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"ronbox/engines"
	"ronbox/httpapi/auth"
)

// Scopes of the node itself, beside auth.ScopeAdmin, which implies them.
const (
	scopeMetrics = "node.metrics"
	scopeDrain   = "node.drain"
	scopeToken   = "node.token"
)

// authorize decides who calls, before a byte of the body is read.
func authorize(s *Server, b *bound, next handler) handler {
	return func(c *call) (err error) {
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
func (s *Server) oneOf(c *call, r *Route) error {
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

// surface is the label of how a caller came.
func (c *call) surface() string {
	if c.peer.Socket {
		return "uds"
	}
	return "tcp"
}

// identify lets a peer of the admin socket do what the uid map gives it, and a TCP peer what its token says. A socket
// peer that shows a token needs both.
func (s *Server) identify(c *call, r *Route) (engines.Actor, error) {
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

// asked is what a token must allow.
func (s *Server) asked(c *call, r *Route) auth.Request {
	return auth.Request{
		Method: r.Method, // HEAD asks for no more than GET
		Path:   c.r.URL.Path, Service: r.Service, Scope: r.Scope, Now: s.now(), IP: c.peer.Addr, Socket: c.peer.Socket,
		Bytes: max(0, c.r.ContentLength),
	}
}

// hidden tells whether r does not exist for the peer of c: on TCP, what is for the socket.
func hidden(c *call, r *Route) bool {
	return !c.peer.Socket && (r.Socket || r.Admin && !c.live.adminOnTCP)
}

// socketActor is the peer of a socket, if the map in force gives it the scope of r.
func (s *Server) socketActor(c *call, r *Route) (engines.Actor, error) {
	uid := c.peer.UID
	scopes, _ := c.live.peers.Scopes(uid, c.peer.GID)
	if !auth.Implies(scopes, r.Scope) {
		s.d.Metrics.Counter("auth_failures_total", r.Service, "stage", "peer", "scope", r.Scope, "surface", "uds")(1)
		return engines.Actor{}, &auth.DeniedError{Scope: r.Scope, Reasons: []string{"uds.map gives " + c.peer.String() + " no such scope"}}
	}
	return engines.Actor{
		UID: &uid, Admin: auth.Implies(scopes, auth.ScopeAdmin), Scopes: scopes, Principal: "uid:" + strconv.FormatUint(uint64(uid), 10),
	}, nil
}

// bearer reads the token of the Authorization header. What is not one such token is the empty one, which auth refuses.
func bearer(r *http.Request) (token string, given bool) {
	lines := r.Header["Authorization"]
	if len(lines) != 1 {
		return "", len(lines) > 0
	}
	scheme, token, _ := strings.Cut(lines[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", true
	}
	return token, true
}

// mayScrape tells whether the peer may read the metrics: by its network, or by the scope.
func (s *Server) mayScrape(c *call) error {
	if !c.peer.Socket && c.live.mayScrape(c.peer.Addr) {
		return nil
	}
	_, err := s.identify(c, &Route{Method: http.MethodGet, Service: serviceNode, Scope: scopeMetrics, Class: ClassRead})
	return err
}
