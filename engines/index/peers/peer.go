package peers

import (
	"cmp"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/index/name"
)

// Peer is a peer with its breaker and counters.
type Peer struct {
	name.Peer
	Breaker *flow.Breaker
	Refused func(int)        // counts lookups that its breaker refused
	state   [3]func(float64) // gauges by flow.BreakerState; set by the breaker janitor
	asked   atomic.Uint64
	failed  atomic.Uint64
	last    atomic.Pointer[string] // error of the last failed call
	late    atomic.Int64           // time until which lookups do not wait for it if others answer, Unix ns
	rule    flow.BreakerRule       // rule of the breaker; owned by the breaker janitor once the peer is published
}

// IsLate reports whether p recently missed the hedge time of a lookup although other peers had
// answered.
func (p *Peer) IsLate(now time.Time) bool { return p.late.Load() > now.UnixNano() }

// Miss notes that p has missed a hedge time: lookups do not wait for it before until.
func (p *Peer) Miss(until time.Time) { p.late.Store(until.UnixNano()) }

// OnTime notes that p has answered within the hedge time.
func (p *Peer) OnTime() {
	if p.late.Load() != 0 {
		p.late.Store(0)
	}
}

func (t *Table) newPeer(p name.Peer) *Peer {
	rule, _ := t.rule()
	out := &Peer{
		Peer:    p,
		Breaker: flow.NewBreaker(rule).Counting(t.catalog, service, p.Target()),
		rule:    rule,
	}
	out.Refused = t.metrics.Counter("breaker_open_total", service, "target", p.Target())
	for s := range out.state {
		out.state[s] = t.metrics.Set("breaker_state", service, "target", p.Target(), "state",
			flow.BreakerState(s).String())
	}
	out.state[flow.BreakerClosed](1)
	return out
}

// forget removes the series of a peer that was removed.
func (t *Table) forget(p *Peer) {
	t.metrics.Remove("breaker_open_total", service, "target", p.Target())
	for s := range p.state {
		t.metrics.Remove("breaker_state", service, "target", p.Target(), "state", flow.BreakerState(s).String())
	}
}

// OrderFor returns the peers in the order in which a key asks them: head, which may be nil, then
// peers of the region, then by a hash of key and peer. Keys spread over the peers, and one key
// finds the same peers again.
func (s *Set) OrderFor(key, region string, head *Peer) []*Peer {
	order := slices.Clone(s.Peers)
	hash := func(p *Peer) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key)) // a hash never fails
		_, _ = h.Write([]byte(p.Target()))
		return h.Sum64()
	}
	behind := func(p *Peer) int {
		if p == head {
			return 0
		}
		return 1
	}
	slices.SortFunc(order, func(a, b *Peer) int {
		return cmp.Or(cmp.Compare(behind(a), behind(b)),
			cmp.Compare(name.Nearness(b.Region(), region), name.Nearness(a.Region(), region)),
			cmp.Compare(hash(a), hash(b)), cmp.Compare(a.Target(), b.Target()))
	})
	return order
}

// Settle records the outcome of a call that the breaker had let through.
func (p *Peer) Settle(pass flow.Pass, r flow.CallResult, err error) {
	p.asked.Add(1)
	if r == flow.Failed {
		p.failed.Add(1)
		text := err.Error()
		p.last.Store(&text)
	}
	p.Breaker.Record(pass, r, 1)
}

// Status returns the state of every peer: those of the configuration in its order, then those of
// the fleet by the ids of their items.
func (t *Table) Status() []name.PeerStatus {
	set := t.Load()
	nodes := make(map[*Peer]string, len(set.nodes))
	for node, p := range set.nodes {
		nodes[p] = node
	}
	out := make([]name.PeerStatus, len(set.Peers))
	for i, p := range set.Peers {
		out[i] = name.PeerStatus{
			Target:     p.Target(),
			Node:       nodes[p],
			Region:     p.Region(),
			Breaker:    p.Breaker.State().String(),
			RetryAfter: p.Breaker.RetryAfter(time.Now()),
			Asked:      p.asked.Load(),
			Failed:     p.failed.Load(),
		}
		if last := p.last.Load(); last != nil {
			out[i].LastError = *last
		}
	}
	return out
}

// AllOpen returns the error for a lookup in which the breaker of every peer is open.
func AllOpen(peers []*Peer) error {
	now, least := time.Now(), time.Duration(0)
	for i, p := range peers {
		if d := p.Breaker.RetryAfter(now); i == 0 || d < least {
			least = d
		}
	}
	return &name.BreakerOpenError{RetryAfter: least}
}
