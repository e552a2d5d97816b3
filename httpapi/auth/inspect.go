package auth

import (
	"time"

	"ronbox/appliance/unit"
)

// Inspection is what a token says of itself. Nothing of it was verified.
type Inspection struct {
	Identifier
	Caveats     []string  `json:"caveats"`
	ExpiresAt   time.Time `json:"expires_at,omitzero"` // the earliest of all that it says
	Fingerprint string    `json:"fingerprint"`
}

// Inspect decodes a token, which needs no key.
func Inspect(token string) (Inspection, error) {
	c := DefaultConfig()
	d, err := decode(newCodec(), token, c.MaxTokenBytes, c.MaxCaveats)
	if err != nil {
		return Inspection{}, err
	}
	out := Inspection{Identifier: d.id, Caveats: []string{}, Fingerprint: Fingerprint(token)}
	for _, cav := range d.mac.Caveats() {
		text := string(cav.Id)
		out.Caveats = append(out.Caveats, text)
		if at, ok := expiry(text, d.id); ok && (out.ExpiresAt.IsZero() || at.Before(out.ExpiresAt)) {
			out.ExpiresAt = at
		}
	}
	return out, nil
}

// expiry is the time after which a caveat does not hold any more, if it sets one.
func expiry(text string, id Identifier) (time.Time, bool) {
	c, err := parseCaveat(text)
	if err != nil {
		return time.Time{}, false
	}
	switch c.key + " " + c.op {
	case "exp <":
		at, err := parseTime(c.value)
		return at.UTC(), err == nil
	case "ttl =":
		ttl, err := unit.ParseDuration(c.value)
		return time.Unix(id.IssuedAt, 0).Add(ttl.D()).UTC(), err == nil
	}
	return time.Time{}, false
}

// Attenuate appends caveats to a token, which anyone who holds it can do. ErrSpec says that one is not a caveat, or the token not a token.
func Attenuate(token string, caveats ...string) (string, error) {
	c := DefaultConfig()
	d, err := decode(newCodec(), token, c.MaxTokenBytes, c.MaxCaveats)
	if err != nil {
		return "", specErr("%w", err)
	}
	if err := checkCaveats(caveats); err != nil {
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
