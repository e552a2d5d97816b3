package record

import (
	"crypto/ed25519"
	"strconv"

	"ronbox/appliance/b3"
)

// TypeSigners is the type member of a signer set.
const TypeSigners = "ron.registry/signers/v1"

// States of a signer.
const (
	StatusActive  = "active"
	StatusRetired = "retired" // counts up to grace_until_version
	StatusRevoked = "revoked" // never counts again, whenever it signed
)

// SignerSet says who may approve and how many must. Once parsed or validated it must not be modified.
type SignerSet struct {
	Epoch         uint64
	Threshold     int // approvals an update needs
	ThresholdGov  int // approvals a change of signers needs
	Signers       []Signer
	LogKeys       []string // C2SP vkeys
	WitnessPolicy string   // "" when absent
}

// Signer is one entry of a set; entries never disappear.
type Signer struct {
	ID, Algo, PublicKey string // the key in standard base64
	Status              string
	SinceVersion        uint64
	GraceUntilVersion   uint64 // 0 when absent
	Reason              string // "" when absent

	sound string // the public key that was judged when the set was parsed
}

// ParseSignerSet reads a set in any spelling. The rules that need no other set are checked; Validate adds those of history.
func ParseSignerSet(raw []byte) (*SignerSet, error) {
	if len(raw) > 4*MaxPayload {
		return nil, ErrHardLimit
	}
	canon, err := Canonical(raw)
	if err != nil {
		return nil, err
	}
	return signerSetOf("", canon)
}

func signerSetOf(path string, canon []byte) (*SignerSet, error) {
	f := newFields(path, canon)
	f.is("type", TypeSigners)
	s := &SignerSet{
		Epoch: f.uint("epoch"), Threshold: f.count("threshold", 0, MaxItems), ThresholdGov: f.count("threshold_gov", 0, MaxItems),
		LogKeys: f.texts("log_keys"), WitnessPolicy: f.textOpt("witness_policy"),
	}
	for i, raw := range f.array("signers") {
		at := f.path + "signers." + strconv.Itoa(i)
		signer, err := signerOf(at, raw)
		if err != nil {
			return nil, err
		}
		s.Signers = append(s.Signers, signer)
	}
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

func signerOf(path string, canon []byte) (Signer, error) {
	f := newFields(path, canon)
	s := Signer{
		ID: f.text("signer_id"), Algo: f.text("algo"), PublicKey: f.text("public_key"), Status: f.text("status"),
		SinceVersion: f.uint("since_version"), GraceUntilVersion: f.uintOpt("grace_until_version"), Reason: f.textOpt("reason"),
	}
	return s, f.done()
}

// Bytes is the canonical set.
func (s *SignerSet) Bytes() []byte {
	var w writer
	w.begin()
	w.uint("epoch", s.Epoch)
	w.texts("log_keys", s.LogKeys)
	w.array("signers", len(s.Signers), func(i int) { s.Signers[i].write(&w) })
	w.uint("threshold", uint64(s.Threshold))
	w.uint("threshold_gov", uint64(s.ThresholdGov))
	w.text("type", TypeSigners)
	w.textOpt("witness_policy", s.WitnessPolicy)
	w.end()
	return w.out
}

func (s Signer) write(w *writer) {
	w.begin()
	w.text("algo", s.Algo)
	w.uintOpt("grace_until_version", s.GraceUntilVersion)
	w.text("public_key", s.PublicKey)
	w.textOpt("reason", s.Reason)
	w.text("signer_id", s.ID)
	w.uint("since_version", s.SinceVersion)
	w.text("status", s.Status)
	w.end()
}

// B3 is the hash that payloads and log entries name the set by.
func (s *SignerSet) B3() b3.Digest { return b3.Sum(s.Bytes()) }

// Find gives the entry of a signer.
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

// Active counts the signers that may approve.
func (s *SignerSet) Active() int {
	n := 0
	for _, e := range s.Signers {
		if e.Status == StatusActive {
			n++
		}
	}
	return n
}

// Key is the entry's public key, nil if its text is not one.
func (s Signer) Key() ed25519.PublicKey {
	key, ok := decode64(s.PublicKey, ed25519.PublicKeySize)
	if !ok {
		return nil
	}
	return key
}
