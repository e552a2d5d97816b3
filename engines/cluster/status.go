package cluster

import (
	"context"
	"time"

	"github.com/hashicorp/raft"
)

// Role is the role of a member.
type Role string

// The roles. A member that waits for its vote is a standby.
const (
	RoleVoter   Role = "voter"
	RoleStandby Role = "standby"
)

// Member describes a member of the cluster.
type Member struct {
	ID      string
	Addr    string // of its peer port
	URL     string // of its public port; "" if it has not said
	Role    Role
	Lag     uint64 // entries of the leader's log that it does not have
	Healthy bool   // it has answered lately
	Strange bool   // a node of another cluster answers at its address
}

// Status describes the cluster as this node sees it. Lag, Healthy and Strange of other members
// and FailureTolerance are known to the leader only.
type Status struct {
	Self             string
	Leader           string // "" if none is known
	Leads            bool
	Term             uint64
	Applied          uint64 // index of the last entry in the file
	Unfit            string // why this node does not stand for election, "" if it may
	Members          []Member
	FailureTolerance int // voters that may fail while a quorum remains
}

// Status returns the state of the cluster. It does not block. Before Start only Self and the
// members of the file are known.
func (n *Node) Status(context.Context) Status {
	leader, _, _ := n.Leader()
	s := Status{Self: n.deps.Self.ServerID(), Leader: leader, Leads: n.Leads(), Members: n.memberList()}
	if n.serving.Load() {
		s.Term, s.Applied, s.Unfit = n.raft.CurrentTerm(), n.store.Applied().Index, n.unfit()
	}
	voters, healthy := 0, 0
	for _, m := range s.Members {
		if m.Role == RoleVoter {
			voters++
			if m.Healthy {
				healthy++
			}
		}
	}
	s.FailureTolerance = max(0, healthy-(voters/2+1))
	return s
}

// memberList describes all members in the order of the configuration.
func (n *Node) memberList() []Member {
	now := time.Now()
	servers := n.servers()
	out := make([]Member, 0, len(servers))
	for _, s := range servers {
		out = append(out, n.describe(s, now))
	}
	return out
}

// describe describes a member.
func (n *Node) describe(s raft.Server, now time.Time) Member {
	addr, _ := splitAddress(s.Address)
	m := Member{ID: string(s.ID), Addr: addr, Role: RoleStandby}
	if s.Suffrage == raft.Voter {
		m.Role = RoleVoter
	}
	known := n.peers.state(m.ID)
	m.URL, m.Strange = known.url, n.peers.isStrange(s.Address)
	leader, _, _ := n.Leader()
	switch {
	case n.isSelf(s.ID):
		m.Healthy = leader != "" && !n.over()
		if n.serving.Load() {
			m.Lag = n.lag()
		}
	case leader == m.ID:
		m.Healthy = true
	case n.reign.Load() != nil:
		m.Healthy = !known.answered.IsZero() && now.Sub(known.answered) < silentAfter*n.heartbeat()
		if last := n.raft.LastIndex(); last > known.last {
			m.Lag = last - known.last
		}
	}
	return m
}

// lag returns the number of committed entries that are not in the file of this node.
func (n *Node) lag() uint64 {
	committed := n.raft.CommitIndex()
	handed := n.raft.AppliedIndex()
	if committed <= handed {
		return 0
	}
	return committed - handed
}
