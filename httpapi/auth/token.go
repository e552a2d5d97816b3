package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"

	"gopkg.in/macaroon.v2"

	"ronbox/appliance/b3"
)

// decoded is a token taken apart; nothing of it is trusted yet.
type decoded struct {
	mac *macaroon.Macaroon
	id  Identifier
}

// caveats are the texts of the token's caveats.
func (d decoded) caveats() []string {
	out := make([]string, 0, len(d.mac.Caveats()))
	for _, c := range d.mac.Caveats() {
		out = append(out, string(c.Id))
	}
	return out
}

// decode takes a token in its one spelling.
func decode(c codec, token string, maxBytes, maxCaveats int) (decoded, error) {
	if token == "" {
		return decoded{}, errors.New("no token")
	}
	if len(token) > maxBytes {
		return decoded{}, fmt.Errorf("longer than %d bytes", maxBytes)
	}
	raw, err := base64.RawURLEncoding.Strict().DecodeString(token)
	if err != nil || base64.RawURLEncoding.EncodedLen(len(raw)) != len(token) { // the decoder skips line breaks
		return decoded{}, errors.New("not base64url without padding")
	}
	if len(raw) == 0 || raw[0] != byte(macaroon.V2) { // the library would try V1
		return decoded{}, errors.New("not a V2 macaroon")
	}
	var m macaroon.Macaroon
	if err := m.UnmarshalBinary(raw); err != nil {
		return decoded{}, fmt.Errorf("not a macaroon: %w", err)
	}
	if err := checkForm(&m, raw, maxCaveats); err != nil {
		return decoded{}, err
	}
	id, err := c.decode(m.Id())
	if err != nil {
		return decoded{}, err
	}
	return decoded{mac: &m, id: id}, nil
}

// checkForm refuses what the library lets pass.
func checkForm(m *macaroon.Macaroon, raw []byte, maxCaveats int) error {
	if m.Location() != "" {
		return errors.New("a macaroon with a location")
	}
	caveats := m.Caveats()
	if len(caveats) > maxCaveats {
		return fmt.Errorf("more than %d caveats", maxCaveats)
	}
	for _, c := range caveats {
		if len(c.VerificationId) > 0 || c.Location != "" {
			return errors.New("a third-party caveat")
		}
		if !printable(string(c.Id)) {
			return errors.New("a caveat that is not printable text on one line")
		}
	}
	if again, err := m.MarshalBinary(); err != nil || !bytes.Equal(again, raw) {
		return errors.New("not in its one encoding")
	}
	return nil
}

// encode is the token text of m.
func encode(m *macaroon.Macaroon) (string, error) {
	raw, err := m.MarshalBinary()
	if err != nil {
		return "", fmt.Errorf("encode token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// Fingerprint names a token in a log without giving it away: 16 hex digits of its hash.
func Fingerprint(token string) string {
	d := b3.Sum([]byte(token))
	return hex.EncodeToString(d[:8])
}
