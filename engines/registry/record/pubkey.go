package record

import (
	"crypto/ed25519"
	"encoding/base64"
	"strings"

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
