package index

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/index/name"
)

// peer is a Peer with its breaker and counters.
type peer struct {
	name.Peer
	breaker *flow.Breaker
	refused func(int)        // counts lookups that its breaker refused
	state   [3]func(float64) // gauges by flow.BreakerState; set by the breaker janitor
	asked   atomic.Uint64
	failed  atomic.Uint64
	last    atomic.Pointer[string] // error of the last failed call
	late    atomic.Int64           // time until which lookups do not wait for it if others answer, Unix ns
	rule    BreakerConfig          // rule of the breaker; owned by the breaker janitor once the peer is published
}

// isLate reports whether p recently missed the hedge time of a lookup although other peers had
// answered.
func (p *peer) isLate(now time.Time) bool { return p.late.Load() > now.UnixNano() }

// onTime notes that p has answered within the hedge time.
func (p *peer) onTime() {
	if p.late.Load() != 0 {
		p.late.Store(0)
	}
}

func (e *Engine) newPeer(p name.Peer) *peer {
	rule := e.live().Breaker
	out := &peer{
		Peer:    p,
		breaker: flow.NewBreaker(rule.rule()).Counting(e.catalog, service, p.Target()),
		rule:    rule,
	}
	out.refused = e.m.reg.Counter("breaker_open_total", service, "target", p.Target())
	for s := range out.state {
		out.state[s] = e.m.reg.Set("breaker_state", service, "target", p.Target(), "state",
			flow.BreakerState(s).String())
	}
	out.state[flow.BreakerClosed](1)
	return out
}

// forget removes the series of a peer that was removed.
func (e *Engine) forget(p *peer) {
	e.m.reg.Remove("breaker_open_total", service, "target", p.Target())
	for s := range p.state {
		e.m.reg.Remove("breaker_state", service, "target", p.Target(), "state", flow.BreakerState(s).String())
	}
}

// orderFor returns the peers in the order in which a key asks them: head, which may be nil, then
// peers of the region, then by a hash of key and peer. Keys spread over the peers, and one key
// finds the same peers again.
func (s *peerSet) orderFor(key, region string, head *peer) []*peer {
	order := slices.Clone(s.peers)
	hash := func(p *peer) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key)) // a hash never fails
		_, _ = h.Write([]byte(p.Target()))
		return h.Sum64()
	}
	behind := func(p *peer) int {
		if p == head {
			return 0
		}
		return 1
	}
	slices.SortFunc(order, func(a, b *peer) int {
		return cmp.Or(cmp.Compare(behind(a), behind(b)),
			cmp.Compare(name.Nearness(b.Region(), region), name.Nearness(a.Region(), region)),
			cmp.Compare(hash(a), hash(b)), cmp.Compare(a.Target(), b.Target()))
	})
	return order
}

// settle records the outcome of a call that the breaker had let through.
func (p *peer) settle(pass flow.Pass, r flow.CallResult, err error) {
	p.asked.Add(1)
	if r == flow.Failed {
		p.failed.Add(1)
		text := err.Error()
		p.last.Store(&text)
	}
	p.breaker.Record(pass, r, 1)
}

// errOvertaken is the error of a call that was still running when the second wave won.
var errOvertaken = errors.New("was overtaken by a peer that was asked later")

// kindOf returns the class of a peer's error.
func kindOf(err error) string {
	switch {
	case errors.Is(err, name.ErrTransient):
		return "transient"
	case errors.Is(err, name.ErrNoRoute):
		return "no_route"
	case errors.Is(err, name.ErrPeerTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, errOvertaken):
		return "overtaken"
	}
	return "invalid"
}

// Peers returns the state of every peer: those of the configuration in its order, then those of the
// fleet by the ids of their items.
func (e *Engine) Peers() []name.PeerStatus {
	set := e.set.Load()
	nodes := make(map[*peer]string, len(set.nodes))
	for node, p := range set.nodes {
		nodes[p] = node
	}
	out := make([]name.PeerStatus, len(set.peers))
	for i, p := range set.peers {
		out[i] = name.PeerStatus{
			Target:     p.Target(),
			Node:       nodes[p],
			Region:     p.Region(),
			Breaker:    p.breaker.State().String(),
			RetryAfter: p.breaker.RetryAfter(time.Now()),
			Asked:      p.asked.Load(),
			Failed:     p.failed.Load(),
		}
		if last := p.last.Load(); last != nil {
			out[i].LastError = *last
		}
	}
	return out
}

// verified returns the valid providers of a peer's answer about cid: records signed by their own
// key for this id, and unsigned providers with an id and addresses. It takes the first MaxHeard in
// the order of the peer. bad counts invalid ones. All answers of one lookup count as received at
// asOf, so that their order does not matter.
func (e *Engine) verified(
	cid b3.Digest,
	list []name.Provider,
	s *settings,
	asOf time.Time,
) (out []name.Provider, bad int) {
	for i := range list[:min(len(list), name.MaxProviders)] {
		if len(out) == name.MaxHeard {
			break
		}
		if list[i].Record == nil {
			p, ok := name.Unsigned(&list[i])
			if !ok {
				bad++
				continue
			}
			p.AtMS, p.ExpiresMS = asOf.UnixMilli(), asOf.Add(2*s.ttl+s.staleFor).UnixMilli()
			out = append(out, p)
			continue
		}
		r, err := name.ParseProviderRecord(list[i].Record, e.wall())
		if err != nil || r.CID != cid {
			bad++
			continue
		}
		out = append(out, name.ProviderOf(list[i].Record, &r, asOf.UnixMilli()))
	}
	return out, bad
}

// allOpen returns the error for a lookup in which the breaker of every peer is open.
func allOpen(peers []*peer) error {
	now, least := time.Now(), time.Duration(0)
	for i, p := range peers {
		if d := p.breaker.RetryAfter(now); i == 0 || d < least {
			least = d
		}
	}
	return &name.BreakerOpenError{RetryAfter: least}
}
