package record

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"strings"

	"golang.org/x/mod/sumdb/note"

	"ronbox/engines/sig"
)

// AlgoEd25519 is the only signature algorithm: plain Ed25519 of RFC 8032.
const AlgoEd25519 = "ed25519"

// decode64 reads strict standard base64 of exactly n bytes: padded, no line breaks, no spare bits.
func decode64(s string, n int) ([]byte, bool) {
	if len(s) != base64.StdEncoding.EncodedLen(n) || strings.ContainsAny(s, "\r\n") {
		return nil, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	return b, err == nil && len(b) == n
}

func encode64(b []byte) string { return base64.StdEncoding.EncodeToString(b) }

// parsePublicKey reads the text of a public key and judges it.
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

// LogKey is a key that may sign checkpoints of the log: a C2SP vkey "name+hash+base64".
type LogKey struct {
	Name   string
	Hash   uint32
	Public ed25519.PublicKey
}

// ParseLogKey reads a vkey of the Ed25519 kind in its one spelling; its point must be as sound as a signer's.
func ParseLogKey(vkey string) (LogKey, error) {
	v, err := note.NewVerifier(vkey)
	if err != nil {
		return LogKey{}, &FieldError{Reason: "is not a C2SP verifier key"}
	}
	const algEd25519 = 1
	parts := strings.SplitN(vkey, "+", 3) // the base64 may hold a plus of its own
	raw, ok := decode64(parts[len(parts)-1], 1+ed25519.PublicKeySize)
	if !ok || raw[0] != algEd25519 {
		return LogKey{}, &FieldError{Reason: "is not an Ed25519 verifier key"}
	}
	k := LogKey{Name: v.Name(), Hash: v.KeyHash(), Public: raw[1:]}
	if err := sig.CheckKey(k.Public); err != nil {
		return LogKey{}, &FieldError{Reason: err.Error()}
	}
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], k.Hash)
	if want := fmt.Sprintf("%s+%x+%s", k.Name, sum, encode64(raw)); want != vkey {
		return LogKey{}, &FieldError{Reason: "is not in its one spelling"}
	}
	return k, nil
}
