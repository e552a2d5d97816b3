package httpapi

import (
	"errors"
	"net/netip"

	"ronbox/appliance/flow"
)

var errStreams = errors.New("too many open streams")

// streams bounds the open event streams, all and per address. It never waits.
type streams struct {
	max, perIP int

	mu   *flow.Mutex
	n    int                // guarded by mu
	byIP map[netip.Addr]int // guarded by mu; only addresses with a stream
}

func newStreams(c *flow.Catalog, most, perIP int) *streams {
	return &streams{max: most, perIP: perIP, mu: flow.NewMutex(c, serviceNode, flow.RankCounters), byIP: map[netip.Addr]int{}}
}

// enter takes a place for the peer. Peers of the socket have one address, and only the common bound.
func (s *streams) enter(p *peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= s.max || !p.socket && s.byIP[p.addr] >= s.perIP {
		return false
	}
	s.n++
	s.byIP[p.addr]++
	return true
}

func (s *streams) leave(p *peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.n--
	if s.byIP[p.addr]--; s.byIP[p.addr] == 0 {
		delete(s.byIP, p.addr)
	}
}

func (s *streams) count() float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return float64(s.n)
}
