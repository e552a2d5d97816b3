package record

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"io"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/appliance/sig"
	"ronbox/engines/canon"
)

// Ed25519 is the algorithm of all signatures.
const Ed25519 = "ed25519"

// Signature is a signature of a policy, stored beside it.
type Signature struct {
	Kid string `json:"kid"` // 64 hex digits: the public key itself
	Alg string `json:"alg"`
	Sig string `json:"sig"` // 128 hex digits
}

// Key signs policies. Its file is one line.
type Key struct{ private ed25519.PrivateKey }

const keyPrefix = "ronbox-policy-key-1:"

// NewKey generates a key from random.
func NewKey(random io.Reader) (*Key, error) {
	seed := make([]byte, ed25519.SeedSize)
	_, err := io.ReadFull(random, seed)
	return &Key{ed25519.NewKeyFromSeed(seed)}, err
}

// ParseKey parses a key file.
func ParseKey(file []byte) (*Key, error) {
	text, ok := strings.CutPrefix(strings.TrimSuffix(string(file), "\n"), keyPrefix)
	seed, good := unhex(text, ed25519.SeedSize)
	if !ok || !good {
		return nil, errors.New("not a policy key: must be one line, " + keyPrefix + " and 64 lower-case hex digits")
	}
	return &Key{ed25519.NewKeyFromSeed(seed)}, nil
}

// unhex decodes n bytes of lower-case hex.
func unhex(s string, n int) ([]byte, bool) {
	b, err := hex.DecodeString(s)
	return b, err == nil && len(b) == n && strings.ToLower(s) == s
}

// Bytes returns the contents of the key file, which are secret.
func (k *Key) Bytes() []byte { return []byte(keyPrefix + hex.EncodeToString(k.private.Seed()) + "\n") }

// Public returns the key id, by which nodes trust the key.
func (k *Key) Public() string { return hex.EncodeToString(k.private[ed25519.SeedSize:]) }

// Sign signs the policy with this hash.
func (k *Key) Sign(policy b3.Digest) Signature {
	return Signature{k.Public(), Ed25519, hex.EncodeToString(ed25519.Sign(k.private, signed(policy)))}
}

// signed returns the bytes to sign.
func signed(policy b3.Digest) []byte { return append([]byte("ronbox.rw.policy-sig/1\n"), policy[:]...) }

// CheckKid returns an error unless kid is the id of a valid Ed25519 key.
func CheckKid(kid string) error {
	raw, ok := unhex(kid, ed25519.PublicKeySize)
	if !ok {
		return errors.New("must be the 64 lower-case hex digits of an Ed25519 public key")
	}
	return sig.CheckKey(raw)
}

// maxSignatures bounds the signatures of a policy, and therefore the quorum.
const maxSignatures = 64

// CheckSignatures returns an error unless at least quorum distinct trusted keys have signed the
// policy and every signature verifies.
func CheckSignatures(policy b3.Digest, sigs []Signature, trusted []string, quorum int) error {
	if len(sigs) < quorum || len(sigs) > maxSignatures {
		return canon.Fault("signatures", "are %d; the quorum is %d, the most %d", len(sigs), quorum, maxSignatures)
	}
	for i, s := range sigs {
		public, _ := hex.DecodeString(s.Kid) // trusted ids are valid keys
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
