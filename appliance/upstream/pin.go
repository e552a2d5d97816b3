package upstream

import (
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrPin is returned when a host has another key than the pinned ones.
var ErrPin = errors.New("upstream: the key of the host is not pinned")

// Pin is the SHA-256 of the SubjectPublicKeyInfo of a certificate. It stays the same when the
// certificate is renewed for the same key.
type Pin [sha256.Size]byte

// pinPrefix begins the text of a pin.
const pinPrefix = "sha256:"

// ParsePin parses a pin: sha256: and 64 hex digits, or sha256: and the padded base64 of the hash.
func ParsePin(text string) (p Pin, err error) {
	rest, ok := strings.CutPrefix(text, pinPrefix)
	var raw []byte
	if len(rest) == 2*len(p) {
		raw, err = hex.DecodeString(rest)
	} else {
		raw, err = base64.StdEncoding.Strict().DecodeString(rest)
	}
	if !ok || err != nil || len(raw) != len(p) {
		return p, fmt.Errorf("%.80q: must be sha256: and 64 hex digits, or the base64 of a SHA-256", text)
	}
	return Pin(raw), nil
}

// PinOf returns the pin of a certificate's raw SubjectPublicKeyInfo.
func PinOf(spki []byte) Pin { return sha256.Sum256(spki) }

// String returns the pin in hex, as ParsePin reads it.
func (p Pin) String() string { return pinPrefix + hex.EncodeToString(p[:]) }

// pinned changes a TLS configuration so that it accepts exactly the hosts that prove to have one of
// the keys. The key replaces the chain: issuer, names and dates of the certificate are not checked.
func pinned(c *tls.Config, pins []Pin) {
	c.InsecureSkipVerify = true // VerifyConnection, which every handshake calls, checks the key
	c.VerifyConnection = func(s tls.ConnectionState) error {
		if len(s.PeerCertificates) == 0 {
			return ErrPin
		}
		has := PinOf(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
		if slices.Contains(pins, has) {
			return nil
		}
		return fmt.Errorf("%w: it has %s", ErrPin, has)
	}
}
