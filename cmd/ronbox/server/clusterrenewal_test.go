package server

import (
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/clock"
	"ronbox/appliance/peer"
	"ronbox/engines/cluster/member"
	"ronbox/store"
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
		m := l.member.(*membership)
		id := m.id.ServerID()
		was := memberOf(&first, id).CertificateEnds
		cert := m.id.CertPEM()
		done, err := l.cluster().RotateCertificate(t.Context())
		must(t, err)
		ends := done.CertificateEnds.Time
		if !ends.After(was.Time) || time.Until(ends) > 90*24*time.Hour || slices.Equal(cert, m.id.CertPEM()) {
			t.Errorf("until %v, was %v", ends, was)
		}
		kept, err := m.dir.Identity()
		must(t, err)
		if !slices.Equal(kept.CertPEM(), m.id.CertPEM()) {
			t.Error("the certificate on the disk is another one")
		}
		if at := l.metric("cluster_certificate_expiry_seconds"); at != float64(ends.Unix()) {
			t.Errorf("the gauge shows %v, want %d", at, ends.Unix())
		}
		a.await("the status of the leader", func() bool {
			s, err := clusterAdmin{a.Node}.Status(t.Context())
			return err == nil && memberOf(&s, id).CertificateEnds.Equal(ends)
		})
		a.await("its audit row", func() bool { return slices.Equal(a.rotations(id), []string{ends.Format(time.RFC3339)}) })
		m.client.CloseIdleConnections() // what follows is a new connection
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
	id, err := b.member.(*membership).dir.Identity()
	must(t, err)
	a.stop()
	b.halt()
	a.halt()
	must(t, member.At(b.cfg.Node.DataDir).Renew(id, time.Now().Add(-100*24*time.Hour)))
	a, b = live(t, a.cfg), live(t, b.cfg)
	a.with(b)
	b.await("its renewal", func() bool {
		m, ok := b.member.(*membership)
		return ok && m.started.Load() && time.Until(m.id.NotAfter()) > 89*24*time.Hour && m.id.CheckDates(time.Now()) == nil
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
	m := b.member.(*membership)
	shift.Store(int64(70 * 24 * time.Hour))
	b.await("a certificate from the future", func() bool { return m.id.NotBefore().After(time.Now()) })
	m.client.CloseIdleConnections()
	ends := m.id.NotAfter()
	a.await("the hello of the member", func() bool {
		s, err := clusterAdmin{a.Node}.Status(t.Context())
		return err == nil && memberOf(&s, m.id.ServerID()).CertificateEnds.Equal(ends)
	})
	shift.Store(0)
	b.await("another certificate", func() bool { return m.id.CheckDates(time.Now()) == nil && !m.id.Due(time.Now()) })
	b.halt()
	a.halt()
}

// A token is refused while a node that joins would refuse the member.
func TestNoTokenFromAMemberOutOfDate(t *testing.T) {
	t.Parallel()
	cfg, _ := devConfig(t)
	n := &Node{boot: cfg, wall: time.Now}
	id, err := peer.Found("127.0.0.1:7946", store.Schema, time.Now().Add(48*time.Hour))
	must(t, err)
	m := &membership{n: n, id: id}
	why := m.mayAdmit()
	if why == nil || !strings.Contains(why.Error(), id.ServerID()) || !strings.Contains(why.Error(), "cluster rotate") {
		t.Errorf("it may admit: %v", why)
	}
	fresh, err := id.Renewed(time.Now())
	must(t, err)
	id.Adopt(fresh)
	must(t, m.mayAdmit())
}
