package server

import (
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/host"
	"ronbox/appliance/peer"
	"ronbox/engines/cluster/member"
)

// rotations returns the details of the audit rows about new certificates of a member.
func (l *lives) rotations(server string) (ends []string) {
	l.t.Helper()
	page, err := l.Audit(l.t.Context(), 0, 0)
	must(l.t, err)
	for _, r := range page.Rows {
		if r.Event == member.EventRotated && r.Detail["server"] == server {
			ends = append(ends, r.Detail["certificate_ends"])
		}
	}
	return ends
}

// Each member of a cluster renews its certificate when it is told to, while it serves. The leader
// sees that of the other one.
func TestRotate(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	b := join(t, a)
	b.votes(t, a)
	first, err := a.cluster().ClusterStatus(t.Context())
	must(t, err)
	ended := a.ended + b.ended
	for _, l := range []*lives{b, a} {
		id := l.self()
		was := memberOf(&first, id).CertificateEnds
		before, err := member.At(l.cfg.Node.DataDir).Identity()
		must(t, err)
		done, err := l.cluster().RotateCertificate(t.Context())
		must(t, err)
		ends := done.CertificateEnds.Time
		if !ends.After(was.Time) || time.Until(ends) > 90*24*time.Hour {
			t.Errorf("until %v, was %v", ends, was)
		}
		kept, err := member.At(l.cfg.Node.DataDir).Identity()
		must(t, err)
		if slices.Equal(kept.CertPEM(), before.CertPEM()) || !kept.NotAfter().Equal(ends) {
			t.Error("the certificate on the disk is another one")
		}
		if at := l.metric("cluster_certificate_expiry_seconds"); at != float64(ends.Unix()) {
			t.Errorf("the gauge shows %v, want %d", at, ends.Unix())
		}
		a.await("the status of the leader", func() bool {
			s, err := a.status()
			return err == nil && memberOf(&s, id).CertificateEnds.Equal(ends)
		})
		a.await("its audit row", func() bool { return slices.Equal(a.rotations(id), []string{ends.Format(time.RFC3339)}) })
		l.freshLines() // what follows is a new connection
	}
	for _, l := range []*lives{a, b} {
		s, err := l.cluster().ClusterStatus(t.Context())
		must(t, err)
		same := s.Leader == first.Leader && s.Term == first.Term && s.VotersHealthy == 2
		if !same && a.ended+b.ended == ended { // no lease was lost for lack of time
			t.Errorf("status %+v, was %+v", s, first)
		}
	}
	b.halt()
	a.halt()
}

// A member whose certificate has ended while it was off renews it by itself and comes back.
func TestCertificateOutOfDate(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	b := join(t, a)
	b.votes(t, a)
	id, err := member.At(b.cfg.Node.DataDir).Identity()
	must(t, err)
	a.stop()
	b.halt()
	a.halt()
	must(t, member.At(b.cfg.Node.DataDir).Renew(id, time.Now().Add(-100*24*time.Hour)))
	a, b = live(t, a.cfg), live(t, b.cfg)
	a.with(b)
	b.await("its renewal", func() bool {
		id, err := member.At(b.cfg.Node.DataDir).Identity()
		return err == nil && time.Until(id.NotAfter()) > 89*24*time.Hour && id.CheckDates(time.Now()) == nil &&
			b.found("cluster_certificate").Level == host.OK
	})
	b.await("a leader", func() bool { return a.server.Report("", "").Ready && b.server.Report("", "").Ready })
	b.stop()
	a.halt()
	b.halt()
}

// A member whose clock was wrong renews its certificate once its clock is right. In a cluster of two
// nobody knows which clock is right, so neither refuses the other meanwhile.
func TestCertificateOfAWrongClock(t *testing.T) {
	t.Parallel()
	a := leadsAlone(t)
	var shift atomic.Int64
	b := a.with(liveBy(t, joined(t, a), clock.Options{Read: turned(&shift)}))
	b.votes(t, a)
	shift.Store(int64(70 * 24 * time.Hour))
	var id *peer.Identity
	renewed := func() (err error) {
		id, err = member.At(b.cfg.Node.DataDir).Identity()
		return err
	}
	b.await("a certificate from the future", func() bool { return renewed() == nil && id.NotBefore().After(time.Now()) })
	b.freshLines()
	ends := id.NotAfter()
	a.await("the hello of the member", func() bool {
		s, err := a.status()
		return err == nil && memberOf(&s, b.self()).CertificateEnds.Equal(ends)
	})
	shift.Store(0)
	b.await("another certificate", func() bool {
		return renewed() == nil && id.CheckDates(time.Now()) == nil && !id.Due(time.Now())
	})
	b.halt()
	a.halt()
}
