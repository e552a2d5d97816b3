package httpapi

import (
	"errors"
	"net/netip"

	"ronbox/appliance/flow"
	"ronbox/httpapi/front"
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
func (s *streams) enter(p *front.Peer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.n >= s.max || !p.Socket && s.byIP[p.Addr] >= s.perIP {
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
