package cluster

import (
	"fmt"
	"strings"

	"ronbox/httpapi/wire"
)

// Roles of a member.
const (
	RoleVoter   = "voter"
	RoleStandby = "standby" // has all data and no vote
)

// ClusterStatus is the body of GET /admin/v1/cluster/status.
type ClusterStatus struct {
	Self    string   `json:"self" doc:"id of the node that answers"`
	Leader  string   `json:"leader" doc:"id of the node that leads; empty: none is known"`
	Members []Member `json:"members"`
	// FailureTolerance counts members that are down already.
	FailureTolerance uint64 `json:"failure_tolerance" doc:"voters that may fail before the cluster stops answering"`
	Term             uint64 `json:"term" doc:"of the election"`
	Applied          uint64 `json:"applied" doc:"last entry of the log that the leader, or the node if none is known, has"`
	Voters           uint64 `json:"voters"`
	VotersHealthy    uint64 `json:"voters_healthy"`
	Quorum           uint64 `json:"quorum" doc:"voters that must answer"`
}

// Advice returns what to do while no node leads.
func (s *ClusterStatus) Advice() string {
	var silent []string
	for i := range s.Members {
		if m := &s.Members[i]; m.Role == RoleVoter && !m.Answers {
			silent = append(silent, m.ID+" ("+m.Address+")")
		}
	}
	if answering := s.Voters - uint64(len(silent)); answering >= s.Quorum {
		return "A majority of the voters answers: wait until it has elected a leader."
	}
	return fmt.Sprintf("%d of %d voters do not answer: %s. Start them. If they are lost for ever: "+
		"`ronbox cluster recover --only-me`.", len(silent), s.Voters, strings.Join(silent, ", "))
}

// Member is a node of the cluster.
type Member struct {
	ID      string `json:"id"`
	Role    string `json:"role" enum:"voter|standby"`
	URL     string `json:"url" doc:"of its HTTP listener; empty: not known yet"`
	Lag     uint64 `json:"lag" doc:"entries of the log that it does not have yet"`
	Healthy bool   `json:"healthy" doc:"it answers, may lead, and has the secrets of the leader"`
	Note    string `json:"note,omitzero" doc:"why it is not healthy"`

	Address         string       `json:"address" doc:"of its peer port"`
	Applied         uint64       `json:"applied" doc:"last entry of the log that it has, as the leader knows; 0: not known"`
	SkewMS          int64        `json:"skew_ms" doc:"its clock minus the median of those of the members"`
	Unfit           string       `json:"unfit,omitzero" doc:"why it should not lead"`
	Answers         bool         `json:"answers" doc:"the leader has heard from it recently; without a leader: it has answered this node now"`
	CertificateEnds wire.Instant `json:"certificate_ends,omitzero"`
}

// InitRequest is the body of POST /admin/v1/cluster/init.
type InitRequest struct {
	Advertise string `json:"advertise,omitzero" doc:"host:port at which other nodes reach its peer port; empty: the configured one"`
}

// Inited answers InitRequest.
type Inited struct {
	Cluster string `json:"cluster" doc:"id of the new cluster"`
	ID      string `json:"id" doc:"id of this node in it"`
}

// JoinTokenRequest is the body of POST /admin/v1/cluster/tokens.
type JoinTokenRequest struct {
	Standby bool `json:"standby,omitzero" doc:"the node that joins gets no vote"`
}

// JoinToken answers JoinTokenRequest.
type JoinToken struct {
	Token     string       `json:"token" doc:"permits one node to join, once"`
	URL       string       `json:"url" doc:"of the peer port that takes it"`
	ExpiresAt wire.Instant `json:"expires_at"`
}

// LeaveRequest is the body of POST /admin/v1/cluster/leave.
type LeaveRequest struct {
	Last bool `json:"last,omitzero" doc:"the only member becomes a node alone, and keeps its data"`
}

// RemoveRequest is the body of POST /admin/v1/cluster/remove.
type RemoveRequest struct {
	ID string `json:"id" doc:"of the member"`
}

// Removed answers LeaveRequest and RemoveRequest.
type Removed struct {
	ID string `json:"id" doc:"of the node that is no longer a member"`
}

// RotateRequest is the body of POST /admin/v1/cluster/rotate, which may be absent.
type RotateRequest struct{}

// Rotated answers RotateRequest.
type Rotated struct {
	CertificateEnds wire.Instant `json:"certificate_ends" doc:"of the new certificate of the node that answers"`
}

// TransferRequest is the body of POST /admin/v1/cluster/transfer.
type TransferRequest struct {
	ID string `json:"id" doc:"of the voter that is to lead; empty: the one that lacks the fewest entries"`
}

// Transferred answers TransferRequest.
type Transferred struct {
	From   string `json:"from" doc:"id of the node that has led"`
	To     string `json:"to" doc:"id of the node that leads now"`
	TookMS int64  `json:"took_ms" doc:"for which no write was taken, in milliseconds"`
}
