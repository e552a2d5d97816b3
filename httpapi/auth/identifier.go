package auth

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fxamacker/cbor/v2"
	"github.com/oklog/ulid/v2"
)

// identifierVersion is the only version of Identifier there is.
const identifierVersion = 1

// Limits of the names in an Identifier, in bytes.
const (
	maxKid    = 64
	maxSub    = 128
	maxTenant = 64
)

// maxIssuedAt is in the year 6325, so that a ttl leads to a time that RFC 3339 can tell.
const maxIssuedAt = 1 << 37

// Identifier says, under the MAC, which key made a token, for whom and when.
type Identifier struct {
	V        int    `cbor:"v" json:"v"`
	Kid      string `cbor:"kid" json:"kid"`
	TID      string `cbor:"tid" json:"tid"` // ULID
	Sub      string `cbor:"sub" json:"sub"`
	Tenant   string `cbor:"tenant" json:"tenant"`
	IssuedAt int64  `cbor:"iat" json:"iat"` // Unix seconds
	Epoch    uint64 `cbor:"epoch" json:"epoch"`
}

// codec reads and writes identifiers: deterministic out, strict in.
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

// encode is the one encoding of id.
func (c codec) encode(id Identifier) ([]byte, error) {
	if err := id.check(); err != nil {
		return nil, err
	}
	return c.enc.Marshal(id)
}

// decode takes the one encoding of a valid Identifier.
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
	return errors.Join(checkName("kid", id.Kid, maxKid), checkName("sub", id.Sub, maxSub), checkName("tenant", id.Tenant, maxTenant))
}

// checkName takes what can be printed on one line.
func checkName(field, s string, limit int) error {
	if len(s) > limit {
		return fmt.Errorf("identifier: %s must be at most %d bytes", field, limit)
	}
	if !printable(s) {
		return fmt.Errorf("identifier: %s is not printable text on one line", field)
	}
	return nil
}

// printable says whether who is shown s sees all of it: UTF-8 without control characters, and no space but the plain one.
func printable(s string) bool {
	return utf8.ValidString(s) && !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}
