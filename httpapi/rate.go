package httpapi

import (
	"net/netip"
	"time"

	"ronbox/httpapi/limit"
)

// limitRate takes a token of the service's bucket, then one of the caller's network, which a peer of the socket has not.
// Clients whom a proxy does not tell clearly share one.
func limitRate(s *Server, b *bound, next handler) handler {
	sv := s.services[b.route.Service]
	bucket := sv.reads
	if b.route.writes() {
		bucket = sv.writes
	}
	return func(c *call) error {
		if ok, wait := bucket.Take(c.started); !ok {
			return &rateError{wait}
		}
		if !c.peer.Socket {
			if err := take(sv.byIP, network(c.peer.Addr), c.started); err != nil {
				return err
			}
		}
		return next(c)
	}
}

// network is what counts as one address: an IPv6 host owns its /64.
func network(a netip.Addr) netip.Addr {
	if a = a.Unmap(); a.Is4() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil { // the zero Addr, of those who are not told
		return a
	}
	return p.Addr()
}

// limitCaller takes a token of who the token says is calling. It stands behind auth, which alone knows.
func limitCaller(s *Server, b *bound, next handler) handler {
	sv := s.services[b.route.Service]
	return func(c *call) error {
		if t := c.actor.Tenant; t != "" {
			if err := take(sv.byTenant, t, c.started); err != nil {
				return err
			}
		}
		if p := c.actor.Principal; p != "" {
			if err := take(sv.byName, p, c.started); err != nil {
				return err
			}
		}
		return next(c)
	}
}

func take[K comparable](t *limit.Keyed[K], key K, now time.Time) error {
	if ok, wait := t.Take(key, now); !ok {
		return &rateError{wait}
	}
	return nil
}
