// Package nametest provides keys, digests and signed records for tests of the index.
//
// # Invariants
//
//  1. The same arguments give the same bytes.
//
// # Tasks and queues
//
// None.
//
// # Lock order
//
// None.
package nametest

import (
	"crypto/ed25519"
	"fmt"
	"time"

	"ronbox/appliance/b3"
	"ronbox/engines/index/name"
)

// Key returns an Ed25519 key derived from n.
func Key(n byte) ed25519.PrivateKey {
	seed := make([]byte, ed25519.SeedSize)
	seed[0], seed[1] = n, 0x1d
	return ed25519.NewKeyFromSeed(seed)
}

// Public returns the public part of a key.
func Public(key ed25519.PrivateKey) ed25519.PublicKey { return key.Public().(ed25519.PublicKey) }

// Parse parses a key of the index that is valid.
func Parse(s string) name.Key {
	k, err := name.ParseKey(s)
	if err != nil {
		panic(err)
	}
	return k
}

// Digest returns the BLAKE3 of a text.
func Digest(format string, args ...any) b3.Digest { return b3.Sum(fmt.Appendf(nil, format, args...)) }

// SignedProvider returns the record of a provider with one address.
func SignedProvider(
	owner ed25519.PrivateKey,
	cid b3.Digest,
	region string,
	at time.Time,
	ttl time.Duration,
) []byte {
	r := name.ProviderRecord{
		CID:    cid,
		Addrs:  []string{"/ip4/192.0.2.1/tcp/8443/https"},
		Region: region,
		AtMS:   at.UnixMilli(),
		TTLSec: int64(ttl / time.Second),
	}
	raw, err := r.Sign(owner, at)
	if err != nil {
		panic(err)
	}
	return raw
}

// SignedName returns the record of a name, valid for an hour.
func SignedName(owner ed25519.PrivateKey, k name.Key, m b3.Digest, seq uint64, at time.Time) []byte {
	n := name.NameRecord{
		Key:       k,
		Manifest:  m,
		Seq:       seq,
		UpdatedMS: at.UnixMilli(),
		ExpiresMS: at.Add(time.Hour).UnixMilli(),
	}
	raw, err := n.Sign(owner)
	if err != nil {
		panic(err)
	}
	return raw
}
