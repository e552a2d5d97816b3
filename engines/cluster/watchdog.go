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
	mostSkew   = 500 * time.Millisecond // of this clock against those of most peers
)

// runWatchdog ends the life of a hung node and keeps an unfit one from standing for election.
func (n *Node) runWatchdog(ctx context.Context) error {
	defer n.watch.Stop()
	unfit := ""
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-n.watch.C():
		}
		if n.latch.writes.age() > hungAfter || n.commits.age() > hungAfter {
			n.end(ReasonHung, nil)
		}
		now := n.unfit()
		if now != unfit {
			n.log.Warn("fitness", "unfit", now)
			unfit = now
		}
		if err := n.applyFitness(now); err != nil {
			return err
		}
	}
}

// applyFitness sets the time after which this node stands. A leader keeps its timeouts: its
// heartbeats follow them.
func (n *Node) applyFitness(unfit string) error {
	if unfit == "" || n.raft.State() == raft.Leader {
		return n.setTimeouts(n.heartbeat())
	}
	return n.setTimeouts(never)
}

// unfit returns why this node must not lead, "" if it may. It votes in any case. The only voter may
// always lead unless its log has failed, because nobody else can.
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
	case n.deps.Fit != nil:
		return n.deps.Fit()
	}
	return ""
}

// held reports whether the node does not stand because its last lives were short.
func (n *Node) held() bool { return n.deps.Hold && time.Since(n.begun) < holdFor }

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
