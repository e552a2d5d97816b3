package auth

import (
	"crypto/rand"
	"slices"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"gopkg.in/macaroon.v2"

	"ronbox/appliance/unit"
)

// MintSpec describes a new token.
type MintSpec struct {
	Sub     string // the holder, required
	Tenant  string
	Scopes  []string      // at least one; the bare verbs read, issue, transfer and burn are those of the wallet
	TTL     time.Duration // 0: the default; at most the maximum
	Path    string        // "": any
	Methods []string      // empty: any
	Caveats []string      // further caveats, "key op value"
	Now     time.Time     // zero: the current time
}

// Mint returns a token signed with the active key. It returns ErrSpec if spec cannot be met.
func (a *Authority) Mint(spec MintSpec) (token string, id Identifier, err error) {
	if spec.Now.IsZero() {
		spec.Now = time.Now()
	}
	cfg, state := a.cfg.Load(), a.state.Load()
	id, err = newIdentifier(spec, state)
	if err != nil {
		return "", Identifier{}, err
	}
	caveats, err := spec.caveats(cfg)
	if err != nil {
		return "", Identifier{}, err
	}
	p, err := checkCaveats(id, caveats)
	if err != nil {
		return "", Identifier{}, err
	}
	if !p.expires.After(spec.Now) {
		return "", Identifier{}, specErr("it would have expired at %s, and now it is %s", formatTime(p.expires),
			formatTime(spec.Now))
	}
	if id.IssuedAt, err = state.issuedAt(id, p.tenant); err != nil {
		return "", Identifier{}, err
	}
	r, ok := state.keys[id.Kid]
	if !ok {
		return "", Identifier{}, specErr("no key is active")
	}
	token, err = newToken(a.codec, r.key, id, caveats, cfg)
	return token, id, err
}

// newIdentifier draws the id of the token and binds it to the active key.
func newIdentifier(spec MintSpec, s *State) (Identifier, error) {
	tid, err := ulid.New(ulid.Timestamp(spec.Now), rand.Reader)
	if err != nil {
		return Identifier{}, specErr("draw a token id: %w", err)
	}
	return Identifier{
		V:        identifierVersion,
		Kid:      s.active,
		TID:      tid.String(),
		Sub:      spec.Sub,
		Tenant:   spec.Tenant,
		IssuedAt: spec.Now.Unix(),
		Epoch:    s.epoch,
	}, nil
}

// issuedAt returns the second at which a new token of id for tenant is issued. If a revocation
// voids tokens issued in the current second, it is the next second, so that the new token is not
// voided.
func (s *State) issuedAt(id Identifier, tenant string) (int64, error) {
	if r, ok := s.revoked.find(id, tenant); ok && r.At.Unix() == id.IssuedAt {
		id.IssuedAt++
	}
	if r, ok := s.revoked.find(id, tenant); ok {
		return 0, specErr("%s %s is revoked as of %s: rotate the key, or wait until then", r.What, r.Value,
			formatTime(r.At))
	}
	return id.IssuedAt, nil
}

// caveats returns the caveats for spec, scope and expiry first.
func (spec MintSpec) caveats(cfg *Config) ([]string, error) {
	ttl := spec.TTL
	if ttl == 0 {
		ttl = cfg.DefaultTTL.D()
	}
	if ttl < time.Second || ttl > cfg.MaxTTL.D() {
		return nil, specErr("ttl %s: must be 1s..%s", unit.Duration(ttl), cfg.MaxTTL)
	}
	scopes := make([]string, 0, len(spec.Scopes))
	for _, s := range spec.Scopes {
		n, err := MintScope(s)
		if err != nil {
			return nil, specErr("scope %w", err)
		}
		scopes = append(scopes, n)
	}
	if len(scopes) == 0 {
		return nil, specErr("it needs at least one scope")
	}
	out := []string{"scope = " + strings.Join(scopes, ","), "exp < " + formatTime(spec.Now.Add(ttl))}
	if spec.Path != "" {
		out = append(out, "path = "+spec.Path)
	}
	if len(spec.Methods) > 0 {
		out = append(out, "method = "+strings.Join(spec.Methods, ","))
	}
	return append(out, spec.Caveats...), nil
}

// newToken returns a token: identifier and caveats, signed with key.
func newToken(c codec, key []byte, id Identifier, caveats []string, cfg *Config) (string, error) {
	raw, err := c.encode(id)
	if err != nil {
		return "", specErr("%w", err)
	}
	m, err := macaroon.New(key, raw, "", macaroon.V2)
	if err != nil {
		return "", specErr("%w", err)
	}
	if err := appendCaveats(m, caveats); err != nil {
		return "", err
	}
	return encodeChecked(c, m, cfg)
}

// encodeChecked returns the text of m, or an error if Check would not decode it.
func encodeChecked(c codec, m *macaroon.Macaroon, cfg *Config) (string, error) {
	token, err := encode(m)
	if err == nil {
		_, err = decode(c, token, cfg.MaxTokenBytes, cfg.MaxCaveats)
	}
	if err != nil {
		return "", specErr("%w", err)
	}
	return token, nil
}

func appendCaveats(m *macaroon.Macaroon, caveats []string) error {
	for _, c := range caveats {
		if err := m.AddFirstPartyCaveat([]byte(c)); err != nil {
			return specErr("caveat %q: %w", c, err)
		}
	}
	return nil
}

// decoyCaveats is the number of caveats of a typical token.
const decoyCaveats = 4

// newDecoy returns a token of typical size, signed with a key of no node.
func newDecoy(c codec, key []byte) string {
	id := Identifier{
		V:   identifierVersion,
		Kid: "01JTC0000000000000000000AA",
		TID: "01JTC0000000000000000000AA",
		Sub: "nobody",
	}
	cfg := DefaultConfig()
	token, err := newToken(c, key, id, slices.Repeat([]string{"exp < 2026-01-01T00:00:00Z"}, decoyCaveats), &cfg)
	if err != nil {
		panic("auth: cannot make a fixed token: " + err.Error())
	}
	return token
}
