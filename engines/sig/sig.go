// Package sig tells public keys that a signature can be trusted under from those that it cannot.
//
// # Invariants
//
//  1. A key that passes has one encoding, and no signature passes for two messages under it.
//
// # Tasks and queues
//
// none
//
// # Lock order
//
// none
package sig

import (
	"bytes"
	"errors"

	"filippo.io/edwards25519"
)

// Faults of an Ed25519 public key, as they are said of it.
var (
	ErrNoPoint      = errors.New("is not a point of the curve")
	ErrNotCanonical = errors.New("is not in canonical encoding")
	ErrSmallOrder   = errors.New("has small order")
)

// CheckKey returns the fault of an Ed25519 public key, nil if there is none. Under a key of small order one fixed signature passes for every
// message, and a key with two encodings would count as two.
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
