// Package sig rejects public keys under which a signature proves nothing, and reads trusted
// certificates.
//
// # Invariants
//
//  1. A key that passes has one encoding, and no signature is valid for two messages under it.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package sig

import (
	"bytes"
	"crypto/x509"
	"errors"

	"filippo.io/edwards25519"
)

// Errors for Ed25519 public keys.
var (
	ErrNoPoint      = errors.New("is not a point of the curve")
	ErrNotCanonical = errors.New("is not in canonical encoding")
	ErrSmallOrder   = errors.New("has small order")
)

// ErrNoCertificate is returned by Roots.
var ErrNoCertificate = errors.New("holds no certificate in PEM")

// Roots returns the certificates of a PEM file as a pool. It returns ErrNoCertificate if there is
// none.
func Roots(pem []byte) (*x509.CertPool, error) {
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, ErrNoCertificate
	}
	return pool, nil
}

// CheckKey returns an error if an Ed25519 public key is unsafe. Under a key of small order one
// fixed signature is valid for every message. A key with two encodings would count as two keys.
func CheckKey(key []byte) error {
	p, err := new(edwards25519.Point).SetBytes(key)
	switch {
	case err != nil:
		return ErrNoPoint
	case !bytes.Equal(p.Bytes(), key):
		return ErrNotCanonical
	case new(edwards25519.Point).MultByCofactor(p).Equal(edwards25519.NewIdentityPoint()) == 1:
		return ErrSmallOrder
	}
	return nil
}
