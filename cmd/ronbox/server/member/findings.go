package member

import (
	"context"
	"fmt"
	"net"
	"strings"
	"time"

	"ronbox/appliance/host"
	"ronbox/appliance/unit"
	"ronbox/engines/cluster"
	clusterapi "ronbox/httpapi/wire/cluster"
)

// Bounds of the findings about the cluster.
const (
	leastVoters     = 3 // of which one may fail
	certificateSoon = 14 * 24 * time.Hour
)

// Findings returns the findings about the cluster, as the leader sees it, and about this member.
func (m *Member) Findings() []host.Finding {
	s, err := Admin{m: m}.Status(context.Background())
	now, _ := m.agreed()
	found := []host.Finding{m.checkKeys(), checkCertificate(m.id, &s, now)}
	if err != nil {
		return found // it has not begun
	}
	return append(found, checkLeader(&s), checkTolerance(&s), checkSkew(&s), m.checkAddress())
}

func checkLeader(s *clusterapi.ClusterStatus) host.Finding {
	if s.Leader != "" {
		return host.Finding{Check: "cluster_leader", Level: host.OK, Seen: s.Leader + " leads"}
	}
	return host.Finding{
		Check: "cluster_leader", Level: host.Bad,
		Seen:   fmt.Sprintf("no leader is known: %d of %d voters must answer", s.Quorum, s.Voters),
		Advice: s.Advice(),
	}
}

// checkTolerance warns of members that are not healthy, and of a cluster in which no voter may
// fail.
func checkTolerance(s *clusterapi.ClusterStatus) host.Finding {
	f := host.Finding{
		Check: "cluster_tolerance", Level: host.OK,
		Seen: fmt.Sprintf("%d of %d voters may fail", s.FailureTolerance, s.Voters),
	}
	var sick []string
	dead := false
	for _, member := range s.Members {
		if !member.Healthy {
			sick = append(sick, member.ID+" "+member.Note)
		}
		dead = dead || !member.Answers
	}
	switch {
	case sick != nil:
		if f.Level = host.Warn; dead {
			f.Level = host.Bad
		}
		f.Seen, f.Advice = f.Seen+"; "+strings.Join(sick, "; "), "`ronbox cluster status` shows each member"
	case s.Leader != "" && s.Voters < leastVoters:
		f.Level, f.Advice = host.Warn, "add members until there are three voters: `ronbox cluster token`"
	}
	return f
}

// checkSkew warns of the clocks of members that differ from the median of all.
func checkSkew(s *clusterapi.ClusterStatus) host.Finding {
	f := host.Finding{Check: "cluster_clock", Level: host.OK, Seen: "the clocks of the members agree"}
	var off []string
	for _, member := range s.Members {
		if by := time.Duration(member.SkewMS) * time.Millisecond; by.Abs() > cluster.MostSkew {
			off = append(off, fmt.Sprintf("%s is off by %s", member.ID, unit.Short(by)))
		}
	}
	if off != nil {
		f.Level, f.Seen, f.Advice = host.Bad, strings.Join(off, "; "), "correct the clocks of these members"
	}
	return f
}

const addressAdvice = "set cluster.advertise to an address at which the other members reach this node, and restart it"

// checkAddress judges the address of the peer port of this member.
func (m *Member) checkAddress() host.Finding {
	addr, bind := m.id.Advertise(), m.bind
	f := host.Finding{Check: "cluster_address", Level: host.OK, Seen: addr}
	_, port, _ := net.SplitHostPort(addr)
	_, bound, err := net.SplitHostPort(bind)
	switch was := m.raft.Address(m.id.ServerID()); {
	case was != addr && was != "":
		f.Level = host.Bad
		f.Seen = fmt.Sprintf("the members know this node at %s, and it is at %s", was, addr)
		if why := *m.unreached.Load(); why != "" {
			f.Seen += ": " + why
		}
	case err == nil && port != bound:
		f.Level = host.Warn
		f.Seen = fmt.Sprintf("%s has another port than cluster.bind, %s: right only behind a translation", addr, bind)
	default:
		return f
	}
	f.Advice = addressAdvice
	return f
}

// certificate is the certificate of this member.
type certificate interface {
	NotBefore() time.Time
	NotAfter() time.Time
}

// checkCertificate warns of the certificate of this member if it is out of date or ends soon, and
// of those of others that the leader knows to have ended.
func checkCertificate(own certificate, s *clusterapi.ClusterStatus, now time.Time) host.Finding {
	left := own.NotAfter().Sub(now)
	f := host.Finding{Check: "cluster_certificate", Level: host.OK, Seen: "valid for " + days(left)}
	var ended []string
	for _, member := range s.Members {
		if ends := member.CertificateEnds.Time; !ends.IsZero() && ends.Before(now) && member.ID != s.Self {
			ended = append(ended, member.ID)
		}
	}
	switch {
	case left <= 0 || now.Before(own.NotBefore()):
		f.Level = host.Bad
		f.Seen = "out of date, other members may refuse it: " + validity(own.NotBefore(), own.NotAfter())
	case left < certificateSoon:
		f.Level, f.Seen = host.Warn, f.Seen+", and not renewed: the log of this node says why"
	case ended != nil:
		f.Level, f.Seen = host.Bad, "out of date: that of "+strings.Join(ended, ", ")
	default:
		return f
	}
	f.Advice = "correct the clock of the member; if it is right, run `ronbox cluster rotate` there"
	return f
}

func days(d time.Duration) string { return fmt.Sprintf("%d days", int(d/(24*time.Hour))) }

// checkKeys returns the finding of the doctor about the secrets that all members share.
func (m *Member) checkKeys() host.Finding {
	f := host.Finding{Check: "cluster_keys", Level: host.OK, Seen: "the secrets are those of the leader"}
	if differ := m.differing(); differ != "" {
		f.Level, f.Seen, f.Advice = host.Bad, differ+": not that of the leader; "+keysEffect, keysAdvice
	}
	return f
}
