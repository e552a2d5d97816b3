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
)

const (
	watchEvery = 500 * time.Millisecond
	hungAfter  = 5 * time.Second
	holdFor    = time.Minute            // after two short lives
	holdBeats  = 5                      // heartbeats without a leader that lift the hold
	mostSkew   = 500 * time.Millisecond // of this clock against those of most peers
)

// runWatchdog ends the life of a hung node, and logs changes of its fitness.
func (n *Node) runWatchdog(ctx context.Context) error {
	defer n.watch.Stop()
	unfit := ""
	silent := map[string]bool{}
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
	}
}

// logSilent logs the members that have stopped answering or answer again. silent holds those that
// do not answer.
func (n *Node) logSilent(silent map[string]bool) {
	for _, m := range n.memberList() {
		switch {
		case !m.Healthy && !silent[m.ID]:
			silent[m.ID] = true
			n.log.Warn("member_silent", "member", m.ID, "addr", m.Addr)
		case m.Healthy && silent[m.ID]:
			delete(silent, m.ID)
			n.log.Info("member_answers", "member", m.ID, "lag", m.Lag)
		}
	}
}

// unfit returns why this node must not be elected, "" if it may. It votes in any case, and stays
// leader if it is. The only voter is fit unless its log has failed: no other node can lead. unfit
// does not block: it uses the last answer of Deps.Fit.
func (n *Node) unfit() string {
	switch {
	case n.over() || n.latch.err() != nil:
		return "its life ends"
	case n.onlyVoter():
		return ""
	case n.held():
		return "its last lives were short"
	case n.latch.full.Load():
		return "no room for its log"
	case n.stalled.Load() != nil:
		return "its file cannot hold the entries of the leader"
	case n.peers.skewed():
		return "its clock differs from those of most members"
	case n.deps.Fit == nil:
		return ""
	}
	if why := n.judged.Load(); why != nil {
		return *why
	}
	return "it has just started"
}

// held reports whether the node does not stand because its last lives were short. Others have the
// time to be elected first. If none is, it stands: a cluster of held nodes would rest.
func (n *Node) held() bool {
	return n.deps.Hold && time.Since(n.begun) < holdFor && time.Since(n.heard()) < holdBeats*n.heartbeat()
}

// heard returns when this node heard the last leader, or candidate that got its vote, but not
// before its life began.
func (n *Node) heard() time.Time {
	if n.serving.Load() {
		if last := n.raft.LastContact(); last.After(n.begun) {
			return last
		}
	}
	return n.begun
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
