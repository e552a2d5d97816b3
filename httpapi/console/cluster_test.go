package console

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"ronbox/httpapi/wire/cluster"
	"ronbox/httpapi/wire/edge"
	"ronbox/httpapi/wire/index"
	"ronbox/httpapi/wire/node"
)

// member returns the answers of a node that is a member of a cluster and of a fleet.
func member(t *testing.T, leader string) recorded {
	t.Helper()
	n := readRecorded(t)
	put := func(target string, v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		a := n["/admin/v1/status"]
		a.Body = string(raw)
		n[target] = a
	}
	var status node.Status
	if err := json.Unmarshal([]byte(n["/admin/v1/status"].Body), &status); err != nil {
		t.Fatal(err)
	}
	status.Cluster = &node.MemberStatus{Self: "n2", Role: "follower", Leader: leader, Applied: 90, Lag: 3}
	status.Fleet = &node.FleetStatus{Self: "node/n2", Version: 7, Nodes: 3, Faults: 1}
	put("/admin/v1/status", status)
	put("/admin/v1/cluster/status", cluster.ClusterStatus{
		Self: "n2", Leader: leader, Term: 4, Applied: 93, Voters: 3, VotersHealthy: 2, Quorum: 2, FailureTolerance: 0,
		Members: []cluster.Member{
			{ID: "n1", Role: cluster.RoleVoter, URL: "https://n1:8080", Healthy: true, Answers: true, Applied: 93},
			{ID: "n2", Role: cluster.RoleVoter, URL: "https://n2:8080", Healthy: true, Answers: true, Lag: 3},
			{ID: "n3", Role: cluster.RoleVoter, Address: "n3:7946", Note: "does not answer", Lag: 93},
		},
	})
	put("/index/peers", index.PeerList{Peers: []index.PeerState{
		{Target: "n3:8080", Node: "node/n3", State: "open", Asked: 4, Failed: 4, LastError: "connection refused"},
	}})
	put("/edge/placements", edge.PlacementList{Placements: []edge.Placement{
		{ID: "placement/map", State: "fetching", Objects: 9, Missing: 2, Bytes: 4096},
	}})
	return n
}

// The pages of a member name the leader, the lag of each member, and what the fleet places here.
func TestPagesOfAMember(t *testing.T) {
	s := &session{rights: rights{who: "uid:1000", uid: 1000}, form: "FORM"}
	h := newGolden(t, member(t, "n1"))
	golden(t, "cluster_member", h.page(t, s, "/console/cluster"))
	golden(t, "fleet_member", h.page(t, s, "/console/fleet"))
	for leader, want := range map[string]string{
		"n1": "This node follows n1, 3 entries of the log behind", "": "The cluster has no leader",
	} {
		h := newGolden(t, member(t, leader))
		if page := string(h.page(t, s, "/console/")); !strings.Contains(page, want) {
			t.Errorf("the overview of a follower of %q lacks %q", leader, want)
		}
	}
	h = newGolden(t, member(t, ""))
	if page := string(h.page(t, s, "/console/cluster")); !strings.Contains(page, "no leader") ||
		!strings.Contains(page, "n3 (n3:7946)") && !strings.Contains(page, "A majority of the voters answers") {
		t.Errorf("without a leader: %s", page)
	}
}
