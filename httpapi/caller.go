package httpapi

import (
	"net/netip"

	"ronbox/httpapi/limit"
)

// Network returns the network of the caller as limits count it, see [limit.Network]. socket reports that the caller
// is a peer of the admin socket, which has no network and no rate of one.
func (r *Request) Network() (network netip.Addr, socket bool) {
	if r.peer.Socket {
		return netip.Addr{}, true
	}
	return limit.Network(r.peer.Addr), false
}

// Rest delays the next request of this connection, as for a caller that has used up its share. A peer of the admin
// socket is not delayed.
func (r *Request) Rest() { r.rests = r.rests || !r.peer.Socket }

// Holds reports whether the caller holds scope, on a route that needs none: by its token, or as a peer of the admin
// socket. A caller without a token is not looked at further.
func (r *Request) Holds(scope string) bool {
	if _, given := bearer(r.r); !given && !r.peer.Socket {
		return false
	}
	_, err := r.server.identify(r, &Route{Method: r.r.Method, Service: r.route.Service, Scope: scope, Class: r.route.Class})
	return err == nil
}

// Charge takes n more tokens of the rate of reads of the caller's network, for a request that costs more than one. A
// service without such a rate charges nothing.
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
