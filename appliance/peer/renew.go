package peer

import (
	"crypto/ed25519"
	"crypto/x509"
	"errors"
	"fmt"
	"time"
)

// renewAt is the age at which a node renews its certificate.
const renewAt = nodeLife * 2 / 3

// ErrNoAuthority is returned by a node that cannot issue a certificate: it lacks the key of the
// authority.
var ErrNoAuthority = errors.New("peer: this node lacks the key of the authority")

// WithClock returns a copy of i that judges the dates of certificates by a clock. While sure is
// false, the node cannot tell a wrong clock of its own from a certificate that is out of date, and
// judges no dates.
func (i *Identity) WithClock(agreed func() (now time.Time, sure bool)) *Identity {
	out := *i
	out.agreed = agreed
	return &out
}

// time returns the time by which the node judges the dates of certificates, if it knows one.
func (i *Identity) time() (now time.Time, sure bool) {
	if i.agreed == nil {
		return i.now(), true
	}
	return i.agreed()
}

func (i *Identity) leaf() *x509.Certificate { return i.chain.Load().Leaf }

// NotBefore returns the begin of the validity of the certificate of the node.
func (i *Identity) NotBefore() time.Time { return i.leaf().NotBefore }

// NotAfter returns the end of the validity of the certificate of the node.
func (i *Identity) NotAfter() time.Time { return i.leaf().NotAfter }

// CheckDates returns an error that is ErrStranger unless the certificate of the node is valid at a
// time.
func (i *Identity) CheckDates(now time.Time) error { return checkDates(i.leaf(), now) }

// Due reports whether the certificate of the node is to be renewed at a time: 60 of its 90 days
// have passed, or it ends more than a day later than one issued then. Such a certificate was
// issued for a longer time, by an old release, or by a clock that was wrong.
func (i *Identity) Due(now time.Time) bool {
	left := i.NotAfter().Sub(now)
	return left <= nodeLife-renewAt || left > nodeLife+backdate
}

// Renewed returns a copy of i with a new key and a new certificate, which Adopt puts into use. It
// returns ErrNoAuthority if the node has no authority.
func (i *Identity) Renewed(now time.Time) (*Identity, error) {
	if i.authority == nil {
		return nil, ErrNoAuthority
	}
	key, err := NewKey()
	if err != nil {
		return nil, err
	}
	cert, err := i.authority.Issue(i.info.Server, key.Public().(ed25519.PublicKey), now)
	if err != nil {
		return nil, err
	}
	fresh, err := NewIdentity(i.info, i.speaks.Schema, key, cert, i.CACertPEM(), i.authority)
	if err != nil {
		return nil, err
	}
	out := *i
	out.chain = fresh.chain
	return &out, nil
}

// Adopt makes i and its copies use the key and the certificate of other, which is the same node.
// New connections show them, in both directions; open ones go on.
func (i *Identity) Adopt(other *Identity) { i.chain.Store(other.chain.Load()) }

// mend returns the certificate of a server, or one with the same dates for key if a renewal was
// interrupted after it wrote the key.
func (a *Authority) mend(text []byte, server string, key ed25519.PrivateKey) ([]byte, error) {
	cert, err := parseCert(text)
	if err != nil {
		return nil, fmt.Errorf("certificate of the node: %w", err)
	}
	pub := key.Public().(ed25519.PublicKey)
	if was, err := serverOf(cert, a.cert); err != nil || was != server || pub.Equal(cert.PublicKey) {
		return text, nil // NewIdentity reports what is wrong
	}
	return a.issue(server, pub, cert.NotBefore.Add(backdate), cert.NotAfter)
}
