package member

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/peer"
	"ronbox/store"
)

// DefaultTTL is the time for which a token may be redeemed. MaxTTL is the longest.
const (
	DefaultTTL = time.Hour
	MaxTTL     = 24 * time.Hour
)

const (
	tokenVersion = 1
	secretSize   = 32
)

// ErrTokenForm is returned by ParseToken.
var ErrTokenForm = errors.New("not a token of `ronbox cluster token`")

// Token lets one node join. It is printed as base64url of a version byte, the secret and the pin.
type Token struct {
	Secret [secretSize]byte
	Pin    peer.Pin // of the authority of the cluster
}

// String returns the printed form, 87 characters.
func (t Token) String() string {
	raw := append([]byte{tokenVersion}, t.Secret[:]...)
	return base64.RawURLEncoding.EncodeToString(append(raw, t.Pin[:]...))
}

// ParseToken parses the printed form.
func ParseToken(text string) (t Token, err error) {
	raw, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(raw) != 1+len(t.Secret)+len(t.Pin) || raw[0] != tokenVersion {
		return t, ErrTokenForm
	}
	t.Secret = [secretSize]byte(raw[1:])
	t.Pin = peer.Pin(raw[1+secretSize:])
	return t, nil
}

// MintSpec describes a token.
type MintSpec struct {
	TTL     time.Duration // 0: DefaultTTL; at most MaxTTL
	Standby bool          // the node stays without a vote
	By      store.Event   // actor of the audit row
}

// Mint draws a token and stores its hash. It returns ErrManyTokens if 64 tokens are open, and the
// errors of [store.Commit].
func Mint(ctx context.Context, s *store.Store, pin peer.Pin, spec MintSpec) (t Token, expires time.Time, err error) {
	if spec.TTL == 0 {
		spec.TTL = DefaultTTL
	}
	if spec.TTL < time.Minute || spec.TTL > MaxTTL {
		return t, expires, fmt.Errorf("ttl = %v: must be 1m..%v", spec.TTL, MaxTTL)
	}
	t.Pin = pin
	if _, err := rand.Read(t.Secret[:]); err != nil {
		return t, expires, fmt.Errorf("draw a token: %w", err)
	}
	at, err := store.Commit(ctx, s, store.Control, mint{
		Hash: sha256.Sum256(t.Secret[:]), TTL: int64(spec.TTL), Standby: spec.Standby, Note: spec.By,
	})
	return t, time.Unix(0, at).UTC(), err
}
