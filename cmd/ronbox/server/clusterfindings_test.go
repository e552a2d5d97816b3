package server

import (
	"strings"
	"testing"
	"time"

	"ronbox/appliance/host"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// The doctor has a finding for each state of a cluster that somebody must correct.
func TestClusterFindings(t *testing.T) {
	whole := func() *clusterapi.ClusterStatus {
		s := &clusterapi.ClusterStatus{Leader: "a", Voters: 3, VotersHealthy: 3, Quorum: 2, FailureTolerance: 1}
		for _, id := range []string{"a", "b", "c"} {
			s.Members = append(s.Members, clusterapi.Member{ID: id, Healthy: true, Answers: true})
		}
		return s
	}
	for what, tt := range map[string]struct {
		change func(*clusterapi.ClusterStatus)
		check  func(*clusterapi.ClusterStatus) host.Finding
		level  host.Level
		seen   string
	}{
		"whole":   {func(*clusterapi.ClusterStatus) {}, checkTolerance, host.OK, "1 of 3 voters may fail"},
		"led":     {func(*clusterapi.ClusterStatus) {}, checkLeader, host.OK, "a leads"},
		"in time": {func(*clusterapi.ClusterStatus) {}, checkSkew, host.OK, "agree"},
		"no leader": {func(s *clusterapi.ClusterStatus) {
			s.Leader = ""
		}, checkLeader, host.Bad, "2 of 3 voters must answer"},
		"one dead": {func(s *clusterapi.ClusterStatus) {
			s.Members[2] = clusterapi.Member{ID: "c", Note: "does not answer"}
			s.FailureTolerance = 0
		}, checkTolerance, host.Bad, "0 of 3 voters may fail; c does not answer"},
		"one unfit": {func(s *clusterapi.ClusterStatus) {
			s.Members[1].Healthy, s.Members[1].Note = false, "unfit to lead: no room"
		}, checkTolerance, host.Warn, "b unfit to lead: no room"},
		"two voters": {func(s *clusterapi.ClusterStatus) {
			s.Voters, s.FailureTolerance = 2, 0
		}, checkTolerance, host.Warn, "0 of 2"},
		"one clock": {func(s *clusterapi.ClusterStatus) {
			s.Members[0].SkewMS = -3_600_000
		}, checkSkew, host.Bad, "a is off by -1h0m0s"},
	} {
		s := whole()
		tt.change(s)
		f := tt.check(s)
		if f.Level != tt.level || !strings.Contains(f.Seen, tt.seen) || (f.Advice == "") != (f.Level == host.OK) {
			t.Errorf("%s: %+v", what, f)
		}
	}
	for left, level := range map[time.Duration]host.Level{
		90 * 24 * time.Hour: host.OK, 13 * 24 * time.Hour: host.Warn, -time.Second: host.Bad,
	} {
		if f := checkCertificate(left); f.Level != level {
			t.Errorf("%v left: %+v", left, f)
		}
	}
}
