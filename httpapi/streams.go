package httpapi

import (
	"errors"
	"net/netip"

	"ronbox/appliance/flow"
	"ronbox/engines/registry"
	"ronbox/httpapi/front"
)

var errStreams = errors.New("too many open streams")

// streams bounds the open event streams, all and per address. It never waits.
type streams struct {
	mu   *flow.Mutex
	n    int                // guarded by mu
	byIP map[netip.Addr]int // guarded by mu; only addresses with a stream
}

func newStreams(c *flow.Catalog) *streams {
	return &streams{mu: flow.NewMutex(c, serviceNode, flow.RankCounters), byIP: map[netip.Addr]int{}}
}

// enter takes one of the places of cfg for the peer. Peers of the socket have one address, and only the common bound.
func (s *streams) enter(p *front.Peer, cfg registry.SSEConfig) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= cfg.MaxClients || !p.Socket && s.byIP[p.Addr] >= cfg.MaxPerIP {
		return false
	}
	s.n++
	s.byIP[p.Addr]++
	return true
}

func (s *streams) leave(p *front.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if s.byIP[p.Addr]--; s.byIP[p.Addr] == 0 {
		delete(s.byIP, p.Addr)
	}
}

func (s *streams) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.n)
}
