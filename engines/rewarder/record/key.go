package record

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines/canon"
	"ronbox/engines/sig"
)

// Ed25519 is the algorithm of every signature.
const Ed25519 = "ed25519"

// Signature is one under a policy, beside it.
type Signature struct {
	Kid string `json:"kid"` // 64 hex digits: the public key itself
	Alg string `json:"alg"`
	Sig string `json:"sig"` // 128 hex digits
}

// Key signs policies. Its file is one line.
type Key struct{ private ed25519.PrivateKey }

const keyPrefix = "ronbox-policy-key-1:"

// NewKey draws a key.
func NewKey(random io.Reader) (*Key, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, err := io.ReadFull(random, seed)
	return &Key{ed25519.NewKeyFromSeed(seed)}, err
}

// ParseKey reads the file of a key.
func ParseKey(file []byte) (*Key, error) {
	text, ok := strings.CutPrefix(strings.TrimSuffix(string(file), "\n"), keyPrefix)
	seed, good := unhex(text, ed25519.SeedSize)
	if !ok || !good {
		return nil, errors.New("not a policy key: must be one line, " + keyPrefix + " and 64 lower-case hex digits")
	}
	return &Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// unhex reads n bytes of lower-case hex.
func unhex(s string, n int) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && len(b) == n && strings.ToLower(s) == s
}

// Bytes is the file of the key. It is a secret.
func (k *Key) Bytes() []byte { return []byte(keyPrefix + hex.EncodeToString(k.private.Seed()) + "\n") }

// Public is the key id, by which a node trusts it.
func (k *Key) Public() string { return hex.EncodeToString(k.private[ed25519.SeedSize:]) }

// Sign signs a policy.
func (k *Key) Sign(policy b3.Digest) Signature {
	return Signature{k.Public(), Ed25519, hex.EncodeToString(ed25519.Sign(k.private, signed(policy)))}
}

// signed is what is signed.
func signed(policy b3.Digest) []byte { return append([]byte("ronbox.rw.policy-sig/1\n"), policy[:]...) }

// CheckKid is nil for the id of a key that a signature can be trusted under.
func CheckKid(kid string) error {
	raw, ok := unhex(kid, ed25519.PublicKeySize)
	if !ok {
		return errors.New("must be the 64 lower-case hex digits of an Ed25519 public key")
	}
	return sig.CheckKey(raw)
}

// maxSignatures bounds the signatures of a policy: a quorum has at most as many.
const maxSignatures = 64

// CheckSignatures is nil if quorum distinct keys among trusted have signed the policy. Every signature that is there must be right.
func CheckSignatures(policy b3.Digest, sigs []Signature, trusted []string, quorum int) error {
	if len(sigs) < quorum || len(sigs) > maxSignatures {
		return canon.Fault("signatures", "are %d; the quorum is %d, the most %d", len(sigs), quorum, maxSignatures)
	}
	for i, s := range sigs {
		public, _ := hex.DecodeString(s.Kid) // a trusted one is a key
		raw, ok := unhex(s.Sig, ed25519.SignatureSize)
		switch {
		case s.Alg != Ed25519:
			return canon.Fault("signatures.alg", "must be %s", Ed25519)
		case !slices.Contains(trusted, s.Kid):
			return canon.Fault("signatures.kid", "is not one of rewarder.policy_trust_keys")
		case slices.ContainsFunc(sigs[:i], func(o Signature) bool { return o.Kid == s.Kid }):
			return canon.Fault("signatures.kid", "has signed twice")
		case !ok || !ed25519.Verify(public, signed(policy), raw):
			return canon.Fault("signatures.sig", "does not verify")
		}
	}
	return nil
}
