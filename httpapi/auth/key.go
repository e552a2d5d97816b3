package auth

import (
	"crypto/hkdf"
	"crypto/sha256"
	"time"
)

// keyLen is the length of a root key in bytes.
const keyLen = 32

// keyInfo separates root keys from whatever else is derived from the node secret.
const keyInfo = "ronbox/macaroon/1"

// KeyState says what a key may still do.
type KeyState string

// The states of a key, in the order it goes through them.
const (
	KeyActive  KeyState = "active"  // mints and verifies; one key at a time
	KeyVerify  KeyState = "verify"  // verifies the tokens it minted, until the last has expired
	KeyRetired KeyState = "retired" // is as if it had never been
)

// Key is the public part of a root key: with the node secret it gives the key, without it nothing.
type Key struct {
	Kid         string
	Salt        []byte
	State       KeyState
	CreatedAt   time.Time
	VerifyUntil time.Time // of KeyVerify; the zero time for no end
}

// rootKey derives the root key that belongs to salt. Neither the key nor the secret is ever stored beside the salt.
func rootKey(secret, salt []byte) []byte {
	key, err := hkdf.Key(sha256.New, secret, salt, keyInfo, keyLen)
	if err != nil {
		panic("auth: HKDF refused a fixed length: " + err.Error())
	}
	return key
}
