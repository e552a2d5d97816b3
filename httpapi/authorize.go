package httpapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/limit"
	"ronbox/store"
)

// ScopeMetrics is the scope for /metrics of callers outside metrics_allow.
const ScopeMetrics = "node.metrics"

// authorize identifies the caller and checks its permission, before the body is read.
func authorize(s *Server, b *boundRoute, next Handler) Handler {
	return func(c *Request) (err error) {
		if c.actor, err = s.identify(c, b.route); err != nil {
			return err
		}
		if err := s.oneOf(c, b.route); err != nil {
			return err
		}
		c.checked = c.started
		return next(c)
	}
}

// recheckEvery is the time after which a stream checks its client again: the delay of a revocation.
const recheckEvery = 5 * time.Second

// errRightsEnded is returned if the client of a stream may no longer have it.
var errRightsEnded = errors.New("the client may no longer have this stream")

// recheck returns an error if the client of a stream may no longer have it: its token has expired
// or was revoked, or a reload has changed the permissions of its user. It does so every
// recheckEvery, and returns nil at other times.
func (r *Request) recheck() error {
	const early = recheckEvery / 10 // tickers with this period are not exact
	if r.checked.IsZero() || time.Since(r.checked) < recheckEvery-early {
		return nil
	}
	r.again, r.settings, r.checked = true, r.server.current.Load(), time.Now()
	actor, err := r.server.identify(r, r.route)
	if err == nil {
		r.actor = actor
		err = r.server.oneOf(r, r.route)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errRightsEnded, err)
	}
	return nil
}

// oneOf checks that the caller has one of the route's alternative scopes, if it has any.
func (s *Server) oneOf(c *Request, r *Route) error {
	if len(r.AnyOf) == 0 || slices.ContainsFunc(r.AnyOf, c.actor.May) {
		return nil
	}
	scope := strings.Join(r.AnyOf, "|")
	stage := "caveat"
	if c.peer.Socket {
		stage = "peer"
	}
	s.d.Metrics.Counter("auth_failures_total", r.Service, "stage", stage, "scope", scope, "surface", c.surface())(1)
	return &auth.DeniedError{
		TID: c.actor.CapID, Kid: c.actor.Kid, Tenant: c.actor.Tenant, Scope: scope, Fingerprint: c.actor.Fingerprint,
		Reasons: []string{"has none of the scopes " + strings.Join(r.AnyOf, ", ")},
	}
}

// surface returns the metric label of the listener.
func (r *Request) surface() string {
	if r.peer.Socket {
		return "uds"
	}
	return "tcp"
}

// identify returns the caller. A peer of the admin socket has the permissions in the uid map, a TCP
// peer those of its token. A socket peer that sends a token needs both.
func (s *Server) identify(c *Request, r *Route) (engines.Actor, error) {
	token, given := bearer(c.r)
	if given && s.d.Cluster != nil && !s.d.Cluster.Leads() {
		return engines.Actor{}, s.tokensElsewhere(c)
	}
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

// errElsewhere is returned for a token at a route that this node answers itself.
var errElsewhere = fmt.Errorf("%w: another node has the tokens", store.ErrNotLeader)

// tokensElsewhere returns the error for a token at a node that does not lead: only the leader has
// the tokens.
func (s *Server) tokensElsewhere(c *Request) error {
	id, _, known := s.d.Cluster.Leader()
	if !forwarded(c.route) && known && id != s.d.Cluster.Self() {
		return errElsewhere
	}
	return store.ErrNotLeader
}

// asked returns the request that a token must permit.
func (s *Server) asked(c *Request, r *Route) auth.Request {
	return auth.Request{
		Method: r.Method, // a token for GET also permits HEAD
		Path:   c.r.URL.Path, Service: r.Service, Scope: r.Scope, Now: s.now(), IP: c.peer.Addr, Socket: c.peer.Socket,
		Bytes: max(0, c.r.ContentLength), Again: c.again,
	}
}

// hidden reports whether a route does not exist for the peer. On TCP these are the socket routes,
// and the admin routes unless admin_on_tcp is set. The node's own pages may read admin routes, with
// the rights of their session.
func (r *Request) hidden(route *Route) bool {
	reads := r.peer.Inside && !route.Writes()
	return !r.peer.Socket && (route.Socket || route.Admin && !r.settings.adminOnTCP && !reads)
}

// admitted reports whether the service of b exists for the sender of r, as far as its path goes.
func (r *Request) admitted(b *boundRoute) bool {
	sv := b.service
	return sv.Admits == nil || !strings.HasPrefix(r.r.URL.Path, sv.Prefix) || sv.Admits(r)
}

// socketActor returns the peer of a socket as an actor. It returns an error unless the current map
// grants the peer the scope of r.
func (s *Server) socketActor(c *Request, r *Route) (engines.Actor, error) {
	uid := c.peer.UID
	scopes, _ := c.settings.peers.Scopes(uid, c.peer.GID)
	if c.peer.Relay != nil {
		scopes = c.peer.Relay.Scopes // by the map of the other node, where the uid is known
	}
	if !auth.Implies(scopes, r.Scope) {
		s.d.Metrics.Counter("auth_failures_total", r.Service, "stage", "peer", "scope", r.Scope, "surface", "uds")(1)
		return engines.Actor{}, &auth.DeniedError{
			Scope:   r.Scope,
			Reasons: []string{"uds.map gives " + c.peer.String() + " no such scope"},
		}
	}
	return engines.Actor{
		UID:       &uid,
		Admin:     auth.Implies(scopes, auth.ScopeAdmin),
		Scopes:    scopes,
		Principal: c.peer.String(),
	}, nil
}

// mayScrape returns an error if neither the network nor the scope of the peer permits reading
// metrics.
func (s *Server) mayScrape(c *Request) error {
	if !c.peer.Socket && c.settings.mayScrape(c.peer.Addr) {
		return nil
	}
	_, err := s.identify(c, &Route{Method: http.MethodGet, Service: serviceNode, Scope: ScopeMetrics, Class: ClassRead})
	return err
}

// DeniedText names the missing scope or the keys of the caveats that are not met. It does not
// contain the values of caveats.
func DeniedText(err error) string {
	d := DeniedDetails(err)
	if kinds, ok := d["caveats"].([]string); ok {
		return "the token does not allow this, by its caveat " + strings.Join(kinds, ", ")
	}
	if scope, ok := d["scope"].(string); ok {
		return "this needs the scope " + strings.ReplaceAll(scope, "|", " or ")
	}
	return "the caller has no permission for this"
}

// DeniedDetails returns the missing scope, or else the keys of the caveats that are not met.
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

// Network returns the caller's network for limits; see [limit.Network]. socket is true for a peer
// of the admin socket, which has no network and no rate per network.
func (r *Request) Network() (network netip.Addr, socket bool) {
	if r.peer.Socket {
		return netip.Addr{}, true
	}
	return limit.Network(r.peer.Addr), false
}

// Rest delays the next request of this connection, as after a caller has used its share. It does
// not delay peers of the admin socket.
func (r *Request) Rest() { r.rests = r.rests || !r.peer.Socket }

// HoldsMore reports whether the caller has the scope Route.More, by its token or as a peer of the
// admin socket. A caller without a token does not have it.
func (r *Request) HoldsMore() bool {
	_, given := bearer(r.r)
	if r.route.More == "" || !given && !r.peer.Socket {
		return false
	}
	_, err := r.server.identify(
		r,
		&Route{Method: r.r.Method, Service: r.route.Service, Scope: r.route.More, Class: r.route.Class},
	)
	return err == nil
}

// Charge takes n more tokens of the read rate of the caller's network, for a request that costs
// more than one. It is a no-op if the service has no such rate.
func (r *Request) Charge(n int) error {
	network, socket := r.Network()
	if socket || r.service.limits.Load().ReadRPS == 0 {
		return nil
	}
	for range n {
		if err := take(r.service.readShare, network, r.started); err != nil {
			r.Rest()
			return err
		}
	}
	return nil
}
