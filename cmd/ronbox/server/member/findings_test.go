package member

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
		}, checkSkew, host.Bad, "a is off by -1h"},
	} {
		s := whole()
		tt.change(s)
		f := tt.check(s)
		if f.Level != tt.level || !strings.Contains(f.Seen, tt.seen) || (f.Advice == "") != (f.Level == host.OK) {
			t.Errorf("%s: %+v", what, f)
		}
	}
}

// valid is the validity of a certificate.
type valid struct{ from, until time.Time }

func (v valid) NotBefore() time.Time { return v.from }
func (v valid) NotAfter() time.Time  { return v.until }

// The doctor finds a certificate that is out of date or was not renewed, of this member or another.
func TestCertificateFindings(t *testing.T) {
	const day = 24 * time.Hour
	now := time.Date(2026, 11, 29, 0, 0, 0, 0, time.UTC)
	s := &clusterapi.ClusterStatus{Self: "a"}
	for _, id := range []string{"a", "b", "c"} { // c has not said
		s.Members = append(s.Members, clusterapi.Member{ID: id})
	}
	for _, tt := range []struct {
		doc         string
		from, until time.Duration
		other       time.Duration
		level       host.Level
		seen        string
	}{
		{"new", -day, 90 * day, day, host.OK, "valid for 90 days"},
		{"not renewed", -78 * day, 13 * day, day, host.Warn, "valid for 13 days"},
		{"ended", -92 * day, -time.Second, day, host.Bad, "until 2026-11-28T23:59:59Z"},
		{"not begun", 29 * day, 120 * day, day, host.Bad, "from 2026-12-28T00:00:00Z"},
		{"that of another", -day, 90 * day, -day, host.Bad, "that of b"},
	} {
		s.Members[1].CertificateEnds.Time = now.Add(tt.other)
		f := checkCertificate(valid{now.Add(tt.from), now.Add(tt.until)}, s, now)
		if f.Level != tt.level || !strings.Contains(f.Seen, tt.seen) || (f.Advice == "") != (f.Level == host.OK) {
			t.Errorf("%s: %+v", tt.doc, f)
		}
	}
}
