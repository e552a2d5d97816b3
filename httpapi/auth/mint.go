package auth

import (
	"crypto/rand"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
	"gopkg.in/macaroon.v2"
)

// MintSpec says what a new token is for.
type MintSpec struct {
	Sub     string // the holder, never ""
	Tenant  string
	Scopes  []string      // at least one
	TTL     time.Duration // 0 for the default, at most the maximum
	Path    string        // "" for any
	Methods []string      // none for any
	Extra   []string      // more caveats, "key op value"
	Now     time.Time     // the zero time for the clock's
}

// Mint makes a token with the active key. ErrSpec says that the spec asks for what cannot be.
func (a *Authority) Mint(spec MintSpec) (token string, id Identifier, err error) {
	if spec.Now.IsZero() {
		spec.Now = time.Now()
	}
	caveats, err := a.caveats(spec)
	if err != nil {
		return "", Identifier{}, err
	}
	id, err = a.identify(spec)
	if err != nil {
		return "", Identifier{}, err
	}
	token, err = a.seal(id, caveats)
	return token, id, err
}

// identify draws the token's id and binds it to the active key.
func (a *Authority) identify(spec MintSpec) (Identifier, error) {
	tid, err := ulid.New(ulid.Timestamp(spec.Now), rand.Reader)
	if err != nil {
		return Identifier{}, specErr("draw a token id: %w", err)
	}
	return Identifier{
		V: identifierVersion, Kid: a.keys.Active(), TID: tid.String(), Sub: spec.Sub, Tenant: spec.Tenant,
		IssuedAt: spec.Now.Unix(), Epoch: a.keys.Epoch(),
	}, nil
}

// caveats writes the spec down, scope and expiry first.
func (a *Authority) caveats(spec MintSpec) ([]string, error) {
	ttl := spec.TTL
	if ttl == 0 {
		ttl = a.cfg.DefaultTTL.D()
	}
	if ttl < time.Second || ttl > a.cfg.MaxTTL.D() {
		return nil, specErr("ttl %s: must be 1s..%s", ttl, a.cfg.MaxTTL)
	}
	scopes := make([]string, 0, len(spec.Scopes))
	for _, s := range spec.Scopes {
		n, err := NormalScope(s)
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
	out = append(out, spec.Extra...)
	return out, checkCaveats(out)
}

// checkCaveats refuses caveats that every check would deny.
func checkCaveats(caveats []string) error {
	for _, text := range caveats {
		c, err := parseCaveat(text)
		if err == nil {
			_, err = new(query).holds(c)
		}
		if err != nil {
			return specErr("caveat %q: %w", text, err)
		}
	}
	return nil
}

// seal puts identifier and caveats under the MAC. What Check would not decode is not handed out.
func (a *Authority) seal(id Identifier, caveats []string) (string, error) {
	root, ok := a.keys.Root(id.Kid)
	if !ok {
		return "", specErr("no key is active")
	}
	raw, err := a.codec.encode(id)
	if err != nil {
		return "", specErr("%w", err)
	}
	m, err := macaroon.New(root, raw, "", macaroon.V2)
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
	if _, err := decode(a.codec, token, a.cfg.MaxTokenBytes, a.cfg.MaxCaveats); err != nil {
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
