package httpapi

import (
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"ronbox/engines"
	"ronbox/httpapi/auth"
	"ronbox/httpapi/front"
)

// authorize decides who calls, before a byte of the body is read.
func authorize(s *Server, b *bound, next handler) handler {
	return func(c *call) (err error) {
		if c.actor, err = s.identify(c, b.route); err != nil {
			return err
		}
		return next(c)
	}
}

// identify lets a peer of the admin socket do everything, as its uid, and a TCP peer what its token says. A socket
// peer that shows a token is held to it too. What is for the socket only does not exist on TCP.
func (s *Server) identify(c *call, r *Route) (engines.Actor, error) {
	if s.hidden(c.peer, r) {
		return engines.Actor{}, errNoRoute
	}
	overSocket := c.peer.Socket
	token, given := bearer(c.r)
	if overSocket && !given {
		return socketActor(c.peer), nil
	}
	actor, err := s.d.Auth.Check(token, auth.Request{
		Method: r.Method, // HEAD asks for no more than GET
		Path:   c.r.URL.Path, Service: r.Service, Scope: r.Scope, Now: s.now(), IP: c.peer.Addr,
	})
	if err == nil && overSocket {
		actor.UID = socketActor(c.peer).UID
	}
	return actor, err
}

// hidden tells whether r does not exist for p.
func (s *Server) hidden(p *front.Peer, r *Route) bool {
	return !p.Socket && (r.Socket || r.Class == ClassAdmin && !s.cfg.AdminOnTCP)
}

func socketActor(p *front.Peer) engines.Actor {
	uid := p.UID
	return engines.Actor{UID: &uid, Principal: "uid:" + strconv.FormatUint(uint64(uid), 10)}
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

// mayScrape tells whether the peer may read the metrics.
func (s *Server) mayScrape(c *call) error {
	if c.peer.Socket || s.allowed(c.peer.Addr) {
		return nil
	}
	_, err := s.identify(c, &Route{Method: http.MethodGet, Service: serviceNode, Scope: "node.metrics", Class: ClassRead})
	return err
}

func (s *Server) allowed(a netip.Addr) bool {
	a = a.Unmap()
	for _, p := range s.metricsAllow {
		if p.Contains(a) {
			return true
		}
	}
	return false
}
