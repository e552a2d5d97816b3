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
	Applied uint64        // index of the last entry that it has
	Lag     uint64        // entries of the leader's log that it does not have
	Answers bool          // it has answered lately
	Healthy bool          // it answers and may lead
	Unfit   string        // why it should not lead, "" if it may
	Skew    time.Duration // its clock is ahead of the median of the members by so much
	Ends    time.Time     // of its certificate; zero: it has not said
	Strange bool          // a node of another cluster answers at its address
}

// Status describes the cluster as this node sees it. What it shows of other members beside their
// role and address, and FailureTolerance, are known to the leader only.
type Status struct {
	Self             string
	Leader           string // "" if none is known
	Leads            bool
	Term             uint64
	Applied          uint64 // index of the last entry in the file
	Unfit            string // why this node does not stand for election, "" if it may
	Members          []Member
	Voters           int
	Healthy          int // of the voters
	FailureTolerance int // voters that may fail while a quorum answers and one of them may lead
}

// Quorum returns how many voters must answer.
func (s *Status) Quorum() int { return s.Voters/2 + 1 }

// Status returns the state of the cluster. It does not block. Before Start only Self and the
// members of the file are known.
func (n *Node) Status(context.Context) Status {
	leader, _, _ := n.Leader()
	s := Status{Self: n.deps.Self.ServerID(), Leader: leader, Leads: n.Leads(), Members: n.memberList()}
	if n.serving.Load() {
		s.Term, s.Applied, s.Unfit = n.raft.CurrentTerm(), n.store.Applied().Index, n.unfit()
	}
	answering := 0
	for _, m := range s.Members {
		if m.Role != RoleVoter {
			continue
		}
		s.Voters++
		if m.Answers {
			answering++
		}
		if m.Healthy {
			s.Healthy++
		}
	}
	s.FailureTolerance = max(0, min(answering-s.Quorum(), s.Healthy-1))
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
	m.URL, m.Strange = known.word.URL, n.peers.isStrange(s.Address)
	ahead, _ := n.offset(n.deps.Origin())
	leader, _, _ := n.Leader()
	switch {
	case n.isSelf(s.ID):
		m.Answers = leader != "" && !n.over()
		m.Unfit, m.Skew, m.Ends = n.Unfit(), ahead, n.deps.Self.NotAfter()
		if n.serving.Load() {
			m.Applied, m.Lag = n.store.Applied().Index, n.lag()
		}
	case leader == m.ID:
		m.Answers = true
	case n.reign.Load() != nil:
		m.Answers = !known.answered.IsZero() && now.Sub(known.answered) < silentAfter*n.heartbeat()
		m.Unfit, m.Ends = known.word.Unfit, known.word.Ends
		if !known.read.IsZero() {
			m.Skew = known.origin.Sub(n.deps.Origin()) + ahead
		}
		m.Applied = known.last
		if last := n.raft.LastIndex(); last > known.last {
			m.Lag = last - known.last
		}
	}
	m.Healthy = m.Answers && m.Unfit == "" && m.Skew.Abs() <= MostSkew
	return m
}

// URL returns the URL of the public port of a member, or "" if this node has not heard it.
func (n *Node) URL(id string) string { return n.peers.state(id).word.URL }

// lag returns the number of committed entries that are not in the file of this node.
func (n *Node) lag() uint64 {
	waiting := uint64(max(0, n.backlog.entries.Load()))
	committed := n.raft.CommitIndex()
	handed := n.raft.AppliedIndex()
	if committed <= handed {
		return waiting
	}
	return committed - handed + waiting
}
