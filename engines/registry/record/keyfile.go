package record

import (
	"crypto/ed25519"
	"fmt"
	"io"
	"time"

	"ronbox/appliance/b3"
)

// TypeKey is the type member of a key file.
const TypeKey = "ron.registry/key/v1"

// maxKeyFile is the most bytes of a key file.
const maxKeyFile = 4 << 10

type keyDoc struct {
	Algo      string `json:"algo"`
	PublicKey string `json:"public_key"`
	Seed      string `json:"seed"`
	SignerID  string `json:"signer_id"`
	Type      string `json:"type"`
}

var keyForm = formOf[keyDoc]()

// Key is a signer's private key. It prints as its signer only.
type Key struct {
	SignerID string
	private  ed25519.PrivateKey
}

// NewKey returns a new key for a signer, from 32 random bytes.
func NewKey(signerID string, random io.Reader) (*Key, error) {
	if !validSignerID(signerID) {
		return nil, fieldf("signer_id", "must be org:<realm>#<key>")
	}
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(random, seed); err != nil {
		return nil, fmt.Errorf("draw a seed: %w", err)
	}
	return &Key{SignerID: signerID, private: ed25519.NewKeyFromSeed(seed)}, nil
}

// ParseKey parses a key file: JSON with type, signer_id, algo, seed and public_key, the last two in
// standard base64. The public key must be that of the seed.
func ParseKey(raw []byte) (*Key, error) {
	canon, err := bounded(raw, "key file", maxKeyFile)
	if err != nil {
		return nil, err
	}
	var doc keyDoc
	f := keyForm.read("", canon, &doc)
	f.is("type", doc.Type, TypeKey)
	f.is("algo", doc.Algo, AlgoEd25519)
	f.complete()
	k := &Key{SignerID: doc.SignerID}
	seed, ok := decode64(doc.Seed, ed25519.SeedSize)
	if !validSignerID(k.SignerID) {
		f.fail("signer_id", "must be org:<realm>#<key>")
	}
	if !ok {
		f.fail("seed", "must be standard base64 of 32 bytes")
	}
	if err := f.done(); err != nil {
		return nil, err
	}
	k.private = ed25519.NewKeyFromSeed(seed)
	if doc.PublicKey != k.Public() {
		return nil, fieldf("public_key", "is not the public key of the seed")
	}
	return k, nil
}

// Bytes returns the key file, one line. It holds the secret: write it with mode 0600 and never log
// it.
func (k *Key) Bytes() []byte {
	return append(encode(keyDoc{AlgoEd25519, k.Public(), encode64(k.private.Seed()), k.SignerID, TypeKey}), '\n')
}

// Public returns the public key in standard base64.
func (k *Key) Public() string { return encode64(k.private.Public().(ed25519.PublicKey)) }

// Sign approves a payload as this signer.
func (k *Key) Sign(payloadB3 b3.Digest, at time.Time) Approval {
	sig := ed25519.Sign(k.private, SigningBytes(payloadB3))
	return Approval{SignerID: k.SignerID, Algo: AlgoEd25519, Sig: encode64(sig), SignedAt: FormatTime(at)}
}

// Signer returns an active entry with the key for a set.
func (k *Key) Signer(since uint64) Signer {
	return Signer{ID: k.SignerID, Algo: AlgoEd25519, PublicKey: k.Public(), Status: StatusActive, SinceVersion: since}
}

// String returns the signer without the secret.
func (k *Key) String() string { return "key of " + k.SignerID }

// GoString is String, so that no verb of fmt prints the seed.
func (k *Key) GoString() string { return k.String() }
