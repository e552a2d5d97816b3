package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// Names of the tasks.
const (
	taskLeadership = "leadership"
	taskConfirmer  = "confirmer"
	taskStabiliser = "stabiliser"
	taskWatchdog   = "watchdog"
	taskFollower   = "follower"
)

const (
	watchEvery = 500 * time.Millisecond
	hungAfter  = 5 * time.Second
	holdFor    = time.Minute            // after two short lives, or one whose leader was unfit
	holdBeats  = 5                      // heartbeats without a leader that lift the hold
	lastBeats  = 10                     // heartbeats without a leader after which an unfit node stands
	unfitTicks = 2                      // after which a leader resigns
	askBeats   = 10                     // heartbeats until an unfit leader looks for another one again
	MostSkew   = 500 * time.Millisecond // of a clock against the median of those of the members
)

// runWatchdog ends the life of a hung node, logs changes of its fitness, and makes an unfit leader
// resign.
func (n *Node) runWatchdog(ctx context.Context) error {
	defer n.watch.Stop()
	unfit, ticks := "", 0
	silent := map[string]bool{}
	var asked time.Time // the leadership to resign
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.watch.C():
		}
		if n.latch.writes.age() > hungAfter || n.commits.age() > hungAfter {
			n.end(ReasonHung, nil)
		}
		if n.Leads() {
			n.logSilent(silent)
		}
		now := n.unfit()
		if now != unfit {
			n.log.Warn("fitness", "unfit", now)
			unfit = now
		}
		if ticks++; now == "" || !n.Leads() {
			ticks = 0
		}
		if ticks >= unfitTicks && time.Since(asked) >= askBeats*n.heartbeat() {
			asked = time.Now()
			n.notify(n.wake)
		}
	}
}

// logSilent logs the members that have stopped answering or answer again. silent holds those that
// do not answer.
func (n *Node) logSilent(silent map[string]bool) {
	for _, m := range n.memberList() {
		switch {
		case !m.Answers && !silent[m.ID]:
			silent[m.ID] = true
			n.log.Warn("member_silent", "member", m.ID, "addr", m.Addr)
		case m.Answers && silent[m.ID]:
			delete(silent, m.ID)
			n.log.Info("member_answers", "member", m.ID, "lag", m.Lag)
		}
	}
}

// unfit returns why this node must not be elected, "" if it may. It votes in any case, and stays
// leader if it is. The only voter is fit unless its log has failed: no other node can lead. All may
// be full or slow: if no node has led for some time, one of them must, or no row could be deleted.
// unfit does not block: it uses the last answer of Deps.Fit.
func (n *Node) unfit() string {
	switch {
	case n.over() || n.latch.err() != nil:
		return "its life ends"
	case n.onlyVoter():
		return ""
	case n.stalled.Load() != nil:
		return "its file cannot hold the entries of the leader"
	}
	judged := n.verdict()
	switch {
	case judged.firm:
		return judged.why
	case n.reign.Load() == nil && n.leaderless(lastBeats):
		return ""
	case n.held():
		return "its last lives were short, or it was unfit as the leader"
	case n.latch.full.Load() != nil:
		return "no room for its log"
	case n.skewed():
		return "its clock differs from those of most members"
	}
	return judged.why
}

// verdict is an answer of Deps.Fit.
type verdict struct {
	why  string
	firm bool
}

// verdict returns the last answer of Deps.Fit.
func (n *Node) verdict() verdict {
	judged := n.judged.Load()
	switch {
	case n.deps.Fit == nil:
		return verdict{}
	case judged == nil:
		return verdict{"it has just started", true}
	}
	return *judged
}

// held reports whether the node does not stand because of its last lives. Others have the time to
// be elected first. If none is, it stands: a cluster of held nodes would rest.
func (n *Node) held() bool {
	return n.deps.Hold && time.Since(n.begun) < holdFor && !n.leaderless(holdBeats)
}

// leaderless reports whether this node has known no leader for some heartbeats.
func (n *Node) leaderless(beats int) bool {
	return time.Since(n.heard()) >= time.Duration(beats)*n.heartbeat()
}

// heard returns when this node heard the last leader, or candidate that got its vote, or when its
// log last found no room, which may have ended its own election: the others come first then. It is
// not before the life began.
func (n *Node) heard() time.Time {
	last := n.begun
	if n.serving.Load() {
		if at := n.raft.LastContact(); at.After(last) {
			last = at
		}
	}
	if at := n.latch.full.Load(); at != nil && at.After(last) {
		last = *at
	}
	return last
}

// onlyVoter reports whether this node is the only voter.
func (n *Node) onlyVoter() bool {
	voters := 0
	self := false
	for _, s := range n.servers() {
		if s.Suffrage == raft.Voter {
			voters++
			self = self || n.isSelf(s.ID)
		}
	}
	return self && voters == 1
}

func (n *Node) isSelf(id raft.ServerID) bool { return string(id) == n.deps.Self.ServerID() }

// servers returns the members by the latest configuration, which may not be committed. Before Start
// it returns those of the file.
func (n *Node) servers() []raft.Server {
	if n.serving.Load() {
		return n.raft.GetConfiguration().Configuration().Servers
	}
	c, err := decodeConfiguration(n.latest.Load().raw)
	if err != nil {
		return nil // Start reports it
	}
	return c.Servers
}
