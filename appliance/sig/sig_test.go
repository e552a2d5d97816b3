package sig

import (
	"crypto/ed25519"
	"encoding/hex"
	"errors"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// smallOrder lists the eight points with an order that divides the cofactor.
var smallOrder = []string{
	"0100000000000000000000000000000000000000000000000000000000000000", // the identity
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0000000000000000000000000000000000000000000000000000000000000080",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc85",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
}

// otherSpellings lists encodings of points that decode but do not encode back to the same bytes.
var otherSpellings = []string{
	"0100000000000000000000000000000000000000000000000000000000000080", // the identity, with a sign
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // the identity, y = p+1
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"f0ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f", // y = p+3, of large order
}

// Each weak key is refused with its reason. Under a key of small order the library accepts one
// signature for every message.
func TestWeakKeys(t *testing.T) {
	unhex := func(s string) []byte { b, _ := hex.DecodeString(s); return b }
	for want, keys := range map[error][]string{ErrSmallOrder: smallOrder, ErrNotCanonical: otherSpellings, ErrNoPoint: {"02" + smallOrder[2][2:], "", "00"}} {
		for _, key := range keys {
			if err := CheckKey(unhex(key)); !errors.Is(err, want) {
				t.Errorf("%q %v, want %v", key, err, want)
			}
		}
	}
	for _, message := range []string{"one", "another"} {
		if !ed25519.Verify(unhex(smallOrder[0]), []byte(message), append([]byte{1}, make([]byte, 63)...)) {
			t.Errorf("the signature does not fit %q: the assumption behind the rule has changed", message)
		}
	}
}

// Every key that the library generates is accepted.
func TestGoodKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.SliceOfN(rapid.Byte(), ed25519.SeedSize, ed25519.SeedSize).Draw(t, "seed")
		if err := CheckKey(ed25519.NewKeyFromSeed(seed).Public().(ed25519.PublicKey)); err != nil {
			t.Fatal(err)
		}
	})
}

// A file without a certificate trusts nobody, and says so instead.
func TestRoots(t *testing.T) {
	for _, pem := range []string{"", "x", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if pool, err := Roots([]byte(pem)); !errors.Is(err, ErrNoCertificate) || pool != nil {
			t.Errorf("%q: %v, %v", pem, pool, err)
		}
	}
}
