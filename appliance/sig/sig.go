// Package sig rejects public keys under which a signature proves nothing.
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
	"errors"

	"filippo.io/edwards25519"
)

// Errors for Ed25519 public keys.
var (
	ErrNoPoint      = errors.New("is not a point of the curve")
	ErrNotCanonical = errors.New("is not in canonical encoding")
	ErrSmallOrder   = errors.New("has small order")
)

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
