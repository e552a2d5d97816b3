package auth

import (
	"strings"
	"time"
)

// Inspection is what a token says of itself. Nothing of it was verified.
type Inspection struct {
	Identifier
	Caveats     []string  `json:"caveats"`
	Scopes      []string  `json:"scopes"`              // what all its scope caveats leave
	ExpiresAt   time.Time `json:"expires_at,omitzero"` // the earliest of all that it says
	Fingerprint string    `json:"fingerprint"`
}

// Inspect decodes a token, which needs no key, whatever the limits of the node that made it.
func Inspect(token string) (Inspection, error) {
	d, err := decode(newCodec(), token, mostTokenBytes, mostCaveats)
	if err != nil {
		return Inspection{}, err
	}
	texts := d.caveats()
	p := readPolicy(d.id, texts)
	return Inspection{
		Identifier: d.id, Caveats: texts, Scopes: append([]string{}, p.scopes...), ExpiresAt: p.expires, Fingerprint: Fingerprint(token),
	}, nil
}

// Attenuate appends caveats to a token, which anyone who holds it can do. ErrSpec says that one is not a caveat or would leave nothing, or
// that the token is none, or would be longer than the default limits.
func Attenuate(token string, caveats ...string) (string, error) {
	c := DefaultConfig()
	d, err := decode(newCodec(), token, c.MaxTokenBytes, c.MaxCaveats)
	if err != nil {
		return "", specErr("%w", err)
	}
	if _, err := checkCaveats(d.id, append(d.caveats(), caveats...)); err != nil {
		return "", err
	}
	if err := appendCaveats(d.mac, caveats); err != nil {
		return "", err
	}
	narrowed, err := encode(d.mac)
	if err != nil {
		return "", specErr("%w", err)
	}
	if _, err := decode(newCodec(), narrowed, c.MaxTokenBytes, c.MaxCaveats); err != nil {
		return "", specErr("%w", err)
	}
	return narrowed, nil
}

// checkCaveats reads caveats, and refuses those with which a token would allow nothing.
func checkCaveats(id Identifier, texts []string) (*policy, error) {
	p := readPolicy(id, texts)
	if faults := p.faults(); len(faults) > 0 {
		return nil, specErr("%s", strings.Join(faults, "; "))
	}
	return p, nil
}
