package index

import (
	"cmp"
	"context"
	"errors"
	"hash/fnv"
	"slices"
	"sync/atomic"
	"time"

	"github.com/multiformats/go-multiaddr"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
)

// peer is a configured Peer with its breaker and counts.
type peer struct {
	Peer
	breaker *flow.Breaker
	refused func(int)        // counts lookups that its breaker turned away
	state   [3]func(float64) // its gauges, by flow.BreakerState; set by the breaker janitor
	asked   atomic.Uint64
	failed  atomic.Uint64
	last    atomic.Pointer[string] // how the last failed call did
}

func (e *Engine) newPeer(p Peer) *peer {
	out := &peer{Peer: p, breaker: flow.NewBreaker(e.boot.Breaker.rule()).Counting(e.catalog, service, p.Target())}
	out.refused = e.m.reg.Counter("breaker_open_total", service, "target", p.Target())
	for s := range out.state {
		out.state[s] = e.m.reg.Set("breaker_state", service, "target", p.Target(), "state", flow.BreakerState(s).String())
	}
	out.state[flow.BreakerClosed](1)
	return out
}

// orderFor orders the peers for a key: those of the region first, then by a hash that differs from key to key, so that keys spread over peers
// and one key finds the same ones again.
func (e *Engine) orderFor(key, region string) []*peer {
	order := slices.Clone(e.peers)
	hash := func(p *peer) uint64 {
		h := fnv.New64a()
		_, _ = h.Write([]byte(key)) // a hash takes everything
		_, _ = h.Write([]byte(p.Target()))
		return h.Sum64()
	}
	slices.SortFunc(order, func(a, b *peer) int {
		return cmp.Or(cmp.Compare(nearness(b.Region(), region), nearness(a.Region(), region)), cmp.Compare(hash(a), hash(b)), cmp.Compare(a.Target(), b.Target()))
	})
	return order
}

// settle books how a call ended that the breaker had let through.
func (p *peer) settle(pass flow.Pass, r flow.CallResult, err error) {
	p.asked.Add(1)
	if r == flow.Failed {
		p.failed.Add(1)
		text := err.Error()
		p.last.Store(&text)
	}
	p.breaker.Record(pass, r, 1)
}

// errOvertaken is how a call failed that was still out when the second wave won.
var errOvertaken = errors.New("was overtaken by a peer that was asked later")

// kindOf names the class of a peer's error.
func kindOf(err error) string {
	switch {
	case errors.Is(err, ErrTransient):
		return "transient"
	case errors.Is(err, ErrNoRoute):
		return "no_route"
	case errors.Is(err, ErrPeerTimeout), errors.Is(err, context.DeadlineExceeded):
		return "timeout"
	case errors.Is(err, errOvertaken):
		return "overtaken"
	}
	return "invalid"
}

// Peers is the state of every configured peer, in the order of the configuration.
func (e *Engine) Peers() []PeerStatus {
	out := make([]PeerStatus, len(e.peers))
	for i, p := range e.peers {
		out[i] = PeerStatus{
			Target: p.Target(), Region: p.Region(), Breaker: p.breaker.State().String(), RetryAfter: p.breaker.RetryAfter(time.Now()),
			Asked: p.asked.Load(), Failed: p.failed.Load(),
		}
		if last := p.last.Load(); last != nil {
			out[i].LastError = *last
		}
	}
	return out
}

// signedProvider returns the provider of a verified record. A record that is dated ahead of now, Unix ms, counts as
// signed now, so that no publisher ranks before the others by its clock.
func signedProvider(raw []byte, r *ProviderRecord, now int64) Provider {
	return Provider{
		Peer: r.Peer, Addrs: r.Addrs, Region: r.Region, Verified: true,
		AtMS: min(r.AtMS, now), ExpiresMS: r.ExpiresMS(), Record: raw,
	}
}

// verified takes over what a peer said about cid, as far as it holds: a record that is signed by its own key for this id, or, unsigned, an id
// with addresses. It takes MaxHeard of them, the first in the peer's order. bad counts what does not hold.
func (e *Engine) verified(cid b3.Digest, list []Provider, s *settings) (out []Provider, bad int) {
	now := e.now()
	for i := range list[:min(len(list), MaxProviders)] {
		if len(out) == MaxHeard {
			break
		}
		if list[i].Record == nil {
			p, ok := unsigned(&list[i])
			if !ok {
				bad++
				continue
			}
			p.AtMS, p.ExpiresMS = now.UnixMilli(), now.Add(2*s.ttl+s.staleFor).UnixMilli()
			out = append(out, p)
			continue
		}
		r, err := ParseProviderRecord(list[i].Record, now)
		if err != nil || r.CID != cid {
			bad++
			continue
		}
		out = append(out, signedProvider(list[i].Record, &r, now.UnixMilli()))
	}
	return out, bad
}

// unsigned takes the id and the addresses that this node can read.
func unsigned(p *Provider) (Provider, bool) {
	id, err := ParsePeerID(string(p.Peer))
	addrs := plainAddrs(p.Addrs[:min(len(p.Addrs), maxAddrs)])
	addrs = slices.DeleteFunc(addrs, func(a string) bool { return checkAddrs([]string{a}) != nil })
	if err != nil || len(addrs) == 0 {
		return Provider{}, false
	}
	out := Provider{Peer: id, Addrs: addrs}
	if CheckRegion(p.Region) == nil {
		out.Region = p.Region
	}
	return out, true
}

// plainAddrs spells addresses as multiaddr prints them; what is none is left as it is.
func plainAddrs(addrs []string) []string {
	out := make([]string, 0, len(addrs))
	for _, a := range addrs {
		if m, err := multiaddr.NewMultiaddr(a); err == nil && len(a) <= maxAddr {
			a = m.String()
		}
		out = append(out, a)
	}
	return out
}
