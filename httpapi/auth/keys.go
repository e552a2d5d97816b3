package auth

import (
	"crypto/hkdf"
	"crypto/sha256"
)

// keyLen is the length of a root key in bytes.
const keyLen = 32

// keyInfo separates root keys from whatever else is derived from the node secret.
const keyInfo = "ronbox/macaroon/1"

// Keys is where root keys and revocations come from. Its methods answer from memory and are safe for concurrent use.
type Keys interface {
	// Root is the root key of kid, if it may still verify.
	Root(kid string) (key []byte, ok bool)
	// Active is the kid that mints, "" for none.
	Active() (kid string)
	// Epoch must equal a token's epoch; it moves on when all tokens are voided.
	Epoch() uint64
	// Revoked says whether the one token is void.
	Revoked(tid string) bool
}

// RootKey derives the root key that belongs to salt. Neither the key nor the secret is ever stored beside the salt.
func RootKey(nodeSecret, salt []byte) []byte {
	key, err := hkdf.Key(sha256.New, nodeSecret, salt, keyInfo, keyLen)
	if err != nil {
		panic("auth: HKDF refused a fixed length: " + err.Error())
	}
	return key
}
