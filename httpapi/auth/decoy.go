package auth

import (
	"slices"

	"gopkg.in/macaroon.v2"
)

// decoyCaveats is how many caveats most tokens have.
const decoyCaveats = 4

// newDecoy is a token of the usual size, by a key that is nobody's.
func newDecoy(c codec, key []byte) string {
	raw, err := c.encode(Identifier{V: identifierVersion, Kid: "01JTC0000000000000000000AA", TID: "01JTC0000000000000000000AA", Sub: "nobody"})
	if err != nil {
		panic("auth: cannot encode a fixed identifier: " + err.Error())
	}
	m, err := macaroon.New(key, raw, "", macaroon.V2)
	if err != nil {
		panic("auth: cannot make a fixed token: " + err.Error())
	}
	if err := appendCaveats(m, slices.Repeat([]string{"exp < 2026-01-01T00:00:00Z"}, decoyCaveats)); err != nil {
		panic("auth: cannot make a fixed token: " + err.Error())
	}
	token, err := encode(m)
	if err != nil {
		panic("auth: cannot make a fixed token: " + err.Error())
	}
	return token
}
