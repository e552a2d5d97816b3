package auth

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"gopkg.in/macaroon.v2"

	"ronbox/appliance/unit"
)

// MintSpec says what a new token is for.
type MintSpec struct {
	Sub     string // the holder, never ""
	Tenant  string
	Scopes  []string      // at least one; read, issue, transfer and burn are the wallet's
	TTL     time.Duration // 0 for the default, at most the maximum
	Path    string        // "" for any
	Methods []string      // none for any
	Caveats []string      // more, "key op value"
	Now     time.Time     // the zero time for the clock's
}

// Mint makes a token with the active key. ErrSpec says that the spec asks for what cannot be.
func (a *Authority) Mint(spec MintSpec) (token string, id Identifier, err error) {
	if spec.Now.IsZero() {
		spec.Now = time.Now()
	}
	cfg, state := a.cfg.Load(), a.state.Load()
	id, err = identify(spec, state)
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
	if id.IssuedAt, err = state.issuedAt(id, p.tenant); err != nil {
		return "", Identifier{}, err
	}
	token, err = a.seal(id, caveats, cfg, state)
	return token, id, err
}

// identify draws the token's id and binds it to the active key.
func identify(spec MintSpec, s *State) (Identifier, error) {
	tid, err := ulid.New(ulid.Timestamp(spec.Now), rand.Reader)
	if err != nil {
		return Identifier{}, specErr("draw a token id: %w", err)
	}
	return Identifier{
		V: identifierVersion, Kid: s.active, TID: tid.String(), Sub: spec.Sub, Tenant: spec.Tenant, IssuedAt: spec.Now.Unix(), Epoch: s.epoch,
	}, nil
}

// issuedAt is the second at which a new token of id that acts for tenant was issued. Seconds are too coarse to tell one minted after a
// revocation from those minted before it in the same one: it is of the next.
func (s *State) issuedAt(id Identifier, tenant string) (int64, error) {
	if r, ok := s.revoked.find(id, tenant); ok && r.At.Unix() == id.IssuedAt {
		id.IssuedAt++
	}
	if r, ok := s.revoked.find(id, tenant); ok {
		return 0, specErr("%s %s is revoked as of %s: rotate the key, or wait until then", r.What, r.Value, r.At.UTC().Format(time.RFC3339))
	}
	return id.IssuedAt, nil
}

// caveats writes the spec down, scope and expiry first.
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
		n, err := mintScope(s)
		if err != nil {
			return nil, specErr("scope %w", err)
		}
		scopes = append(scopes, n)
	}
	if len(scopes) == 0 {
		return nil, specErr("it needs at least one scope")
	}
	out := []string{"scope = " + strings.Join(scopes, ","), "exp < " + spec.Now.Add(ttl).UTC().Format(time.RFC3339)}
	if spec.Path != "" {
		out = append(out, "path = "+spec.Path)
	}
	if len(spec.Methods) > 0 {
		out = append(out, "method = "+strings.Join(spec.Methods, ","))
	}
	return append(out, spec.Caveats...), nil
}

// seal puts identifier and caveats under the MAC. What Check would not decode is not handed out.
func (a *Authority) seal(id Identifier, caveats []string, cfg *Config, s *State) (string, error) {
	r, ok := s.keys[id.Kid]
	if !ok {
		return "", specErr("no key is active")
	}
	raw, err := a.codec.encode(id)
	if err != nil {
		return "", specErr("%w", err)
	}
	m, err := macaroon.New(r.key, raw, "", macaroon.V2)
	if err != nil {
		return "", specErr("%w", err)
	}
	if err := appendCaveats(m, caveats); err != nil {
		return "", err
	}
	token, err := encode(m)
	if err != nil {
		return "", specErr("%w", err)
	}
	if _, err := decode(a.codec, token, cfg.MaxTokenBytes, cfg.MaxCaveats); err != nil {
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
