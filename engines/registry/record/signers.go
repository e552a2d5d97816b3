package record

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/appliance/sig"
)

// TypeSigners is the type member of a signer set.
const TypeSigners = "ron.registry/signers/v1"

// States of a signer.
const (
	StatusActive  = "active"
	StatusRetired = "retired" // counts up to grace_until_version
	StatusRevoked = "revoked" // never counts again, whenever it signed
)

// SignerSet lists the signers and the thresholds. It must not be modified once parsed or validated.
type SignerSet struct {
	Epoch         uint64   `json:"epoch"`
	Threshold     int      `json:"threshold"`     // approvals an update needs
	ThresholdGov  int      `json:"threshold_gov"` // approvals a change of signers needs
	Signers       []Signer `json:"signers"`
	LogKeys       []string `json:"log_keys"`                // C2SP vkeys
	WitnessPolicy string   `json:"witness_policy,omitzero"` // "" when absent
}

// Signer is one entry of a set. Entries never disappear.
type Signer struct {
	ID                string `json:"signer_id"`
	Algo              string `json:"algo"`
	PublicKey         string `json:"public_key"` // in standard base64
	Status            string `json:"status"`
	SinceVersion      uint64 `json:"since_version"`
	GraceUntilVersion uint64 `json:"grace_until_version,omitzero"` // 0 when absent
	Reason            string `json:"reason,omitzero"`              // "" when absent

	sound string // the public key that was checked when the set was parsed
}

// ParseSignerSet parses a set in any spelling. It checks the rules that need no other set; Validate
// adds those of history.
func ParseSignerSet(raw []byte) (*SignerSet, error) {
	canon, err := bounded(raw, "signer set", MaxPayload)
	if err != nil {
		return nil, err
	}
	return signerSetOf("", canon)
}

type setDoc struct {
	Type string `json:"type"`
	*SignerSet
}

var setForm = formOf[setDoc]()

func signerSetOf(path string, canon []byte) (*SignerSet, error) {
	s := &SignerSet{}
	doc := setDoc{SignerSet: s}
	f := setForm.read(path, canon, &doc)
	f.is("type", doc.Type, TypeSigners)
	f.complete()
	f.within("threshold", s.Threshold, 0, MaxItems)
	f.within("threshold_gov", s.ThresholdGov, 0, MaxItems)
	if err := f.done(); err != nil {
		return nil, err
	}
	if err := s.check(f.path); err != nil {
		return nil, err
	}
	for i := range s.Signers {
		s.Signers[i].sound = s.Signers[i].PublicKey
	}
	return s, nil
}

// Bytes returns the canonical set.
func (s *SignerSet) Bytes() []byte {
	return encode(setDoc{TypeSigners, s})
}

// B3 returns the hash by which payloads and log entries name the set.
func (s *SignerSet) B3() b3.Digest { return b3.Sum(s.Bytes()) }

// Find returns the entry of a signer.
func (s *SignerSet) Find(id string) (Signer, bool) {
	if s == nil {
		return Signer{}, false
	}
	for _, e := range s.Signers {
		if e.ID == id {
			return e, true
		}
	}
	return Signer{}, false
}

// Active returns the number of signers that may approve.
func (s *SignerSet) Active() int {
	n := 0
	for _, e := range s.Signers {
		if e.Status == StatusActive {
			n++
		}
	}
	return n
}

// Key returns the public key, nil if its text is invalid.
func (s Signer) Key() ed25519.PublicKey {
	key, ok := decode64(s.PublicKey, ed25519.PublicKeySize)
	if !ok {
		return nil
	}
	return key
}

// AlgoEd25519 is the only signature algorithm: plain Ed25519 of RFC 8032.
const AlgoEd25519 = "ed25519"

// decode64 decodes strict standard base64 of exactly n bytes: padded, no line breaks, no spare
// bits.
func decode64(s string, n int) ([]byte, bool) {
	if len(s) != base64.StdEncoding.EncodedLen(n) || strings.ContainsAny(s, "\r\n") {
		return nil, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) == n
}

func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// parsePublicKey parses the text of a public key and checks the point.
func parsePublicKey(s string) (key ed25519.PublicKey, reason string) {
	b, ok := decode64(s, ed25519.PublicKeySize)
	if !ok {
		return nil, "must be standard base64 of 32 bytes"
	}
	if err := sig.CheckKey(b); err != nil {
		return nil, err.Error()
	}
	return b, ""
}
