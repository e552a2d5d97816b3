package auth

import (
	"strings"
	"time"
)

// Decision is what a token says and what it would allow, for people: it is never told to who shows the token.
type Decision struct {
	Identifier            // what the token says of itself, which counts only if it is authentic
	Authentic   bool      // of a key of this node
	Allowed     bool      // Check would let the request pass, unless it comes too soon
	Scopes      []string  // what all its scope caveats leave
	ExpiresAt   time.Time // the earliest of all that it says
	Fingerprint string
	Failed      []Failed // all that stands in the way
}

// Failed is one caveat that does not hold, or what else is wrong, and why.
type Failed struct {
	Caveat string // "" for what is no caveat
	Reason string
}

// Verify judges a token like Check, and lists all that fails. It counts nothing, and nothing that Check counts.
// A scope is taken in either spelling, and without a service names it.
func (a *Authority) Verify(token string, r Request) Decision {
	r = r.normal()
	cfg, state := a.cfg.Load(), a.state.Load()
	d, err := decode(a.codec, token, cfg.MaxTokenBytes, cfg.MaxCaveats)
	if err != nil {
		return Decision{Failed: []Failed{{Reason: "not a token: " + err.Error()}}}
	}
	p, invalid := a.prove(token, r.Now, cfg, state)
	if invalid != nil {
		p = readPolicy(d.id, d.caveats())
	}
	out := Decision{
		Identifier: p.id, Authentic: invalid == nil, Scopes: p.scopes, ExpiresAt: p.expires, Fingerprint: Fingerprint(token),
	}
	q := query{Request: r, skew: cfg.ClockSkew.D(), amnesia: a.amnesia.Load()}
	out.Failed = p.failed(&q, state, invalid)
	out.Allowed = len(out.Failed) == 0
	return out
}

// normal is the request as a route would put it.
func (r Request) normal() Request {
	if scope, err := NormalScope(r.Scope); err == nil {
		r.Scope = scope
		if r.Service == "" {
			r.Service, _, _ = strings.Cut(scope, ".")
		}
	}
	return r
}

// failed lists all that keeps p from allowing q; invalid is why its MAC is not right.
func (p *policy) failed(q *query, s *State, invalid *InvalidError) []Failed {
	var out []Failed
	if invalid != nil {
		out = append(out, Failed{Reason: invalid.Stage + ": " + invalid.Reason})
	}
	if err := s.standing(&p.id, p.tenant); err != nil {
		out = append(out, Failed{Reason: err.Error()})
	}
	if q.Now.Before(time.Unix(p.id.IssuedAt, 0).Add(-q.skew)) {
		out = append(out, Failed{Reason: "issued in the future"})
	}
	if p.fault != "" {
		out = append(out, Failed{Reason: p.fault})
	}
	for i := range p.conditions {
		if c := &p.conditions[i]; !c.holds(q) {
			out = append(out, Failed{Caveat: c.text, Reason: c.reason(q)})
		}
	}
	return out
}
