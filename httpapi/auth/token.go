package auth

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
	"github.com/oklog/ulid/v2"
	"gopkg.in/macaroon.v2"

	"ronbox/appliance/b3"
	"ronbox/httpapi/wire"
)

// decoded is a decoded token. None of it is verified.
type decoded struct {
	mac *macaroon.Macaroon
	id  Identifier
}

// caveats returns the texts of the caveats.
func (d decoded) caveats() []string {
	out := make([]string, 0, len(d.mac.Caveats()))
	for _, c := range d.mac.Caveats() {
		out = append(out, string(c.Id))
	}
	return out
}

// decode decodes a token in its canonical form.
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

// checkForm refuses macaroons that the library accepts but Mint never writes.
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

// encode returns the text of m.
func encode(m *macaroon.Macaroon) (string, error) {
	raw, err := m.MarshalBinary()
	if err != nil {
		return "", fmt.Errorf("encode token: %w", err)
	}
	return base64.RawURLEncoding.EncodeToString(raw), nil
}

// Fingerprint identifies a token in a log without revealing it: 16 hex digits of its hash.
func Fingerprint(token string) string {
	d := b3.Sum([]byte(token))
	return hex.EncodeToString(d[:8])
}

// identifierVersion is the only version of Identifier.
const identifierVersion = 1

// Bounds of the names in an Identifier, in bytes.
const (
	maxKid    = 64
	maxSub    = 128
	maxTenant = 64
)

// maxIssuedAt is in the year 6325, so that adding a TTL yields a time that RFC 3339 can express.
const maxIssuedAt = 1 << 37

// Identifier is the authenticated identity of a token: its key, its holder and its time of issue.
type Identifier struct {
	V        int    `cbor:"v" json:"v"`
	Kid      string `cbor:"kid" json:"kid"`
	TID      string `cbor:"tid" json:"tid"` // ULID
	Sub      string `cbor:"sub" json:"sub"`
	Tenant   string `cbor:"tenant" json:"tenant"`
	IssuedAt int64  `cbor:"iat" json:"iat"` // Unix seconds
	Epoch    uint64 `cbor:"epoch" json:"epoch"`
}

// codec encodes identifiers deterministically and decodes them strictly.
type codec struct {
	enc cbor.EncMode
	dec cbor.DecMode
}

func newCodec() codec {
	enc, err := cbor.CoreDetEncOptions().EncMode()
	if err != nil {
		panic("auth: CBOR encoder: " + err.Error())
	}
	dec, err := cbor.DecOptions{
		DupMapKey: cbor.DupMapKeyEnforcedAPF, IndefLength: cbor.IndefLengthForbidden, TagsMd: cbor.TagsForbidden,
		ExtraReturnErrors: cbor.ExtraDecErrorUnknownField, MaxNestedLevels: 4,
	}.DecMode()
	if err != nil {
		panic("auth: CBOR decoder: " + err.Error())
	}
	return codec{enc: enc, dec: dec}
}

// encode returns the canonical encoding of id.
func (c codec) encode(id Identifier) ([]byte, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	return c.enc.Marshal(id)
}

// decode decodes the canonical encoding of a valid Identifier.
func (c codec) decode(b []byte) (Identifier, error) {
	var id Identifier
	if err := c.dec.Unmarshal(b, &id); err != nil {
		return Identifier{}, fmt.Errorf("identifier: %w", err)
	}
	again, err := c.encode(id)
	if err != nil {
		return Identifier{}, err
	}
	if !bytes.Equal(again, b) {
		return Identifier{}, errors.New("identifier: not in its one encoding")
	}
	return id, nil
}

func (id Identifier) check() error {
	if id.V != identifierVersion {
		return fmt.Errorf("identifier: version %d", id.V)
	}
	if u, err := ulid.ParseStrict(id.TID); err != nil || u.String() != id.TID {
		return errors.New("identifier: tid is not a ULID")
	}
	if id.IssuedAt < 0 || id.IssuedAt > maxIssuedAt {
		return fmt.Errorf("identifier: iat %d must be 0..%d", id.IssuedAt, int64(maxIssuedAt))
	}
	if id.Kid == "" || id.Sub == "" {
		return errors.New("identifier: kid and sub must not be empty")
	}
	return errors.Join(checkName("kid", id.Kid, maxKid), checkName("sub", id.Sub, maxSub),
		checkName("tenant", id.Tenant, maxTenant))
}

// checkName refuses a name that is not printable on one line.
func checkName(field, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("identifier: %s must be at most %d bytes", field, limit)
	}
	if !printable(s) {
		return fmt.Errorf("identifier: %s is not printable text on one line", field)
	}
	return nil
}

// printable reports whether s is UTF-8 without control characters and without spaces other than
// U+0020.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

// Inspection is the content of a token. None of it is verified.
type Inspection struct {
	Identifier
	Caveats     []string     `json:"caveats"`
	Scopes      []string     `json:"scopes"`              // the intersection of its scope caveats
	ExpiresAt   wire.Instant `json:"expires_at,omitzero"` // the earliest expiry
	Fingerprint string       `json:"fingerprint"`
}

// Inspect decodes a token of any node, without a key and without the limits of a configuration.
func Inspect(token string) (Inspection, error) {
	d, err := decode(newCodec(), token, mostTokenBytes, mostCaveats)
	if err != nil {
		return Inspection{}, err
	}
	texts := d.caveats()
	p := readPolicy(d.id, texts)
	return Inspection{
		Identifier:  d.id,
		Caveats:     texts,
		Scopes:      append([]string{}, p.scopes...),
		ExpiresAt:   wire.Instant{Time: p.expires},
		Fingerprint: Fingerprint(token),
	}, nil
}

// Attenuate appends caveats to a token, as any holder can. It returns ErrSpec if a caveat is
// malformed or would permit nothing, if token is malformed, or if the result exceeds the default
// limits.
func Attenuate(token string, caveats ...string) (string, error) {
	c := DefaultConfig()
	d, err := decode(newCodec(), token, c.MaxTokenBytes, c.MaxCaveats)
	if err != nil {
		return "", specErr("%w", err)
	}
	if _, err := checkCaveats(d.id, append(d.caveats(), caveats...)); err != nil {
		return "", err
	}
	if err := appendCaveats(d.mac, caveats); err != nil {
		return "", err
	}
	return encodeChecked(newCodec(), d.mac, &c)
}

// checkCaveats parses caveats, and refuses those with which a token would permit nothing.
func checkCaveats(id Identifier, texts []string) (*policy, error) {
	p := readPolicy(id, texts)
	if faults := p.faults(); len(faults) > 0 {
		return nil, specErr("%s", strings.Join(faults, "; "))
	}
	return p, nil
}
