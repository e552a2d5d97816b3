package name

import (
	"crypto/ed25519"
	"time"
)

const (
	MaxKeyText = maxKeyText
	MaxRegion  = maxRegion
)

var (
	CheckName = checkName
	Compare   = compare
	Encode    = encMode.Marshal
)

// Seal signs a provider record without the checks of a good signer.
func Seal(r *ProviderRecord, key ed25519.PrivateKey) ([]byte, error) {
	return sealed(providerDomain, r, key)
}

// Sound reports whether a record is valid at now and raw is its form as signed by key.
func (r *ProviderRecord) Sound(raw []byte, key ed25519.PublicKey, now time.Time) bool {
	return verify(providerDomain, raw, raw[ed25519.SignatureSize:], key) == nil && r.check(now) == nil
}
