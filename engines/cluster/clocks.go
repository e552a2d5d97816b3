package cluster

import (
	"maps"
	"slices"
	"time"
)

// clockFor bounds the age of the last hello of a member whose clock counts.
const clockFor = time.Minute

// skews returns by how many ns the clocks of the other members are ahead of that of this node.
func (p *peers) skews(now time.Time) map[string]int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := map[string]int64{}
	for id, s := range p.known {
		if now.Sub(s.heard) < clockFor {
			out[id] = int64(s.word.Skew)
		}
	}
	return out
}

// offset returns by how much the clock of this node is ahead of the median of the members' clocks.
// It reports false with fewer than two others, and if an even number of clocks has two camps: it
// cannot be known then which clocks are wrong.
func (n *Node) offset() (ahead time.Duration, known bool) {
	others := n.peers.skews(time.Now())
	delete(others, n.deps.Self.ServerID())
	if len(others) < 2 {
		return 0, false
	}
	all := append(slices.Collect(maps.Values(others)), 0)
	slices.Sort(all)
	low, high := time.Duration(all[(len(all)-1)/2]), time.Duration(all[len(all)/2])
	if high-low > mostSkew {
		return 0, false
	}
	return -(low + high) / 2, true
}

// Ahead returns by how much the clock of this node is ahead of the median of the members' clocks,
// or 0 if it is not known or not worth a correction.
func (n *Node) Ahead() time.Duration {
	if ahead, _ := n.offset(); ahead.Abs() > mostSkew {
		return ahead
	}
	return 0
}

// skewed reports whether the clock of this node differs from those of most members.
func (n *Node) skewed() bool {
	return n.Ahead() != 0
}

// HeardClock records by how much the clock of another member is ahead of that of this node.
func (n *Node) HeardClock(id string, skew time.Duration) {
	n.peers.mu.Lock()
	defer n.peers.mu.Unlock()
	s := n.peers.of(id)
	s.word.Skew, s.heard = skew, time.Now()
}

// Skews returns by how many ns the clocks of other members are ahead of that of this node.
func (n *Node) Skews() map[string]int64 { return n.peers.skews(time.Now()) }
