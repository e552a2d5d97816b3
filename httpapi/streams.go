package httpapi

import (
	"errors"
	"net/netip"

	"ronbox/appliance/flow"
	"ronbox/engines/registry"
	"ronbox/httpapi/front"
	"ronbox/httpapi/limit"
)

var errStreams = errors.New("too many open streams")

// streams bounds the open event streams, all and per address. It never waits.
type streams struct {
	mu   *flow.Mutex
	n    int                // guarded by mu
	byIP map[netip.Addr]int // guarded by mu; by network, only those with a stream
}

func newStreams(c *flow.Catalog) *streams {
	return &streams{mu: flow.NewMutex(c, serviceNode, flow.RankCounters), byIP: map[netip.Addr]int{}}
}

// enter takes one of the places of cfg for the peer. Peers of the socket have the common bound only.
func (s *streams) enter(p *front.Peer, cfg registry.SSEConfig) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= cfg.MaxClients {
		return false
	}
	if !p.Socket {
		from := limit.Network(p.Addr)
		if s.byIP[from] >= cfg.MaxPerIP {
			return false
		}
		s.byIP[from]++
	}
	s.n++
	return true
}

func (s *streams) leave(p *front.Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if p.Socket {
		return
	}
	from := limit.Network(p.Addr)
	if s.byIP[from]--; s.byIP[from] == 0 {
		delete(s.byIP, from)
	}
}

func (s *streams) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.n)
}
