package member

import (
	"context"
	"errors"
	"time"

	"ronbox/appliance/peer"
	"ronbox/cmd/ronbox/server/tokens"
	"ronbox/engines"
	"ronbox/engines/cluster/member"
	"ronbox/httpapi/wire"
	clusterapi "ronbox/httpapi/wire/cluster"
	"ronbox/store"
)

const (
	// renewAgain is the time after which a renewal that has failed is tried again.
	renewAgain = time.Minute

	// tellWithin is the time after a start within which the other members tell a node their clocks.
	// Until then its own clock is not trusted: if that is wrong, the certificate that the node has
	// is better than one by that clock.
	tellWithin = 10 * time.Second
)

// agreed returns the time by which this member judges the dates of certificates: that on which the
// members agree. sure is false while it knows no other clocks to compare its own with: after a
// start, and in a cluster of fewer than three.
func (m *Member) agreed() (now time.Time, sure bool) {
	return m.d.Clock.Wall(), m.d.Median.Load() != nil
}

// keepCertificate renews the certificate of this member if it is due, see [peer.Identity.Due]. It
// costs a comparison if it is not.
func (m *Member) keepCertificate(ctx context.Context) {
	now, sure := m.agreed()
	trusts := sure || len(m.raft.Members()) < leastVoters || time.Since(m.begun) >= tellWithin
	if !m.id.Due(now) || !trusts || time.Since(m.unrenewed) < renewAgain {
		return
	}
	if err := m.renew(now); err != nil {
		m.unrenewed = time.Now()
		m.log.Warn("certificate_not_renewed",
			"ends", m.id.NotAfter(), "reason", err.Error(), "retry_in", renewAgain.String())
		return
	}
	if (answering{m}).Leads() { // if another one leads, it appends the row
		m.note(ctx, member.EventRotated, member.RotatedDetail(m.id.ServerID(), m.id.NotAfter()))
	}
}

// renew gives this member a new key and a new certificate.
func (m *Member) renew(now time.Time) error {
	was := m.id.NotAfter()
	err := m.dir.Renew(m.id, now)
	if err == nil {
		m.log.Info("certificate_renewed", "ended", was, "ends", m.id.NotAfter())
	}
	return err
}

// Rotate implements the engine of the routes. The row of a member that does not lead is appended by
// the leader, which hears of the new certificate.
func (a Admin) Rotate(
	ctx context.Context, by engines.Actor, corrID string,
) (out clusterapi.Rotated, err error) {
	m, err := a.member()
	if err != nil {
		return out, err
	}
	now, _ := m.agreed()
	switch err := m.renew(now); {
	case errors.Is(err, peer.ErrNoAuthority):
		return out, conflict("%v: `ronbox cluster rejoin --wipe` fetches it", err)
	case errors.Is(err, store.ErrLocked):
		return out, conflict("another command changes the membership of this node: repeat this one")
	case err != nil:
		return out, err
	}
	ends := m.id.NotAfter()
	a.node.Note(ctx, tokens.AuditEvent(
		member.EventRotated, by, corrID, member.RotatedDetail(m.id.ServerID(), ends)))
	return clusterapi.Rotated{CertificateEnds: wire.Instant{Time: ends.UTC()}}, nil
}

// mayAdmit returns an error if a node that joins would refuse this one, because of its certificate.
func (m *Member) mayAdmit() error {
	now, _ := m.agreed()
	if m.id.CheckDates(now) == nil {
		return nil
	}
	return conflict("a node that joins would refuse the certificate of this member, %s: %s. "+
		"If its clock is right, `ronbox cluster rotate` at it renews the certificate",
		m.id.ServerID(), validity(m.id.NotBefore(), m.id.NotAfter()))
}

// validity describes the dates of a certificate.
func validity(from, until time.Time) string {
	return "it is valid from " + from.UTC().Format(time.RFC3339) + " until " + until.UTC().Format(time.RFC3339)
}
