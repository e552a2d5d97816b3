package cluster

import (
	"context"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"ronbox/appliance/flow"
	"ronbox/appliance/peer"
	"ronbox/engines/cluster/member"
)

// clockFor bounds the age of the last reading of the clock of a member that counts.
const clockFor = time.Minute

// clocks returns the clocks of the other members that were read lately.
func (p *peers) clocks(origin, now time.Time) map[string]member.Clock {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]member.Clock{}
	for id, s := range p.known {
		if age := now.Sub(s.read); age < clockFor {
			out[id] = member.Clock{Ahead: int64(s.origin.Sub(origin)), Age: int64(age)}
		}
	}
	return out
}

// keepMedian makes origin the last median that was known. It returns that of before if known is
// false; the zero time is none.
func (p *peers) keepMedian(origin time.Time, known bool) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if known {
		p.median = origin
	}
	return p.median
}

// offset returns by how much the clock of this node, whose origin is given, is ahead of the median
// of the members' clocks.
// Without two others that were heard lately, the last known median counts as a clock: a wrong clock
// stays wrong when a member dies. If an even number of clocks has two camps, it cannot be known
// which are wrong, and the last known median counts alone. It reports false if there is none.
func (n *Node) offset(origin time.Time) (ahead time.Duration, known bool) {
	others := n.peers.clocks(origin, time.Now())
	delete(others, n.deps.Self.ServerID())
	all := []time.Duration{0}
	for _, c := range others {
		all = append(all, time.Duration(c.Ahead))
	}
	by, agree := median(all)
	last := n.peers.keepMedian(origin.Add(by), agree && len(others) >= 2)
	if last.IsZero() {
		return 0, false
	}
	if len(others) == 1 {
		by, _ = median(append(all, last.Sub(origin)))
		return -by, true
	}
	return origin.Sub(last), true
}

// median returns the median of ds, which it sorts. It reports false if the two in the middle differ
// by more than MostSkew.
func median(ds []time.Duration) (time.Duration, bool) {
	slices.Sort(ds)
	low, high := ds[(len(ds)-1)/2], ds[len(ds)/2]
	return low + (high-low)/2, high-low <= MostSkew
}

// Median returns the origin of the median of the members' clocks, see Deps.Origin. It reports false
// if it is not known.
func (n *Node) Median() (origin time.Time, known bool) {
	origin = n.deps.Origin()
	ahead, known := n.offset(origin)
	return origin.Add(-ahead), known
}

// skewed reports whether the clock of this node differs from those of most members.
func (n *Node) skewed() bool {
	ahead, _ := n.offset(n.deps.Origin())
	return ahead.Abs() > MostSkew
}

// HeardClock records a reading of the clock of another member, unless there is a later one.
func (n *Node) HeardClock(id string, c member.Clock) {
	origin := n.deps.Origin().Add(time.Duration(c.Ahead))
	read := time.Now().Add(-time.Duration(max(0, c.Age)))
	n.peers.mu.Lock()
	defer n.peers.mu.Unlock()
	if s := n.peers.of(id); !read.Before(s.read) {
		s.origin, s.read = origin, read
	}
}

// AskClocks reads the clocks of the other members. now is that of this node.
func (n *Node) AskClocks(ctx context.Context, now func() time.Time) {
	ctx, cancel := context.WithTimeout(ctx, standWithin)
	defer cancel()
	others := slices.Clone(n.servers())
	others = slices.DeleteFunc(others, func(s raft.Server) bool { return n.isSelf(s.ID) })
	_ = flow.Fan(ctx, len(others), func(ctx context.Context, i int) error { // no leg fails
		addr, _ := splitAddress(others[i].Address)
		from := now()
		stand, err := n.deps.Stand(ctx, addr)
		if skew := peer.SkewOf(stand.Clock, from, now()); err == nil && skew.Counts() {
			n.HeardClock(string(others[i].ID), member.Clock{Ahead: int64(skew.By)})
		}
		return nil
	})
}

// Clocks returns the clocks of the other members that were read lately.
func (n *Node) Clocks() map[string]member.Clock {
	return n.peers.clocks(n.deps.Origin(), time.Now())
}
