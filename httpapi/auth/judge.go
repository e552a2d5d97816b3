package auth

import (
	"fmt"
	"time"

	"ronbox/engines"
)

// written is how many caveats the token itself has.
func (p *policy) written() int {
	if p.id.Tenant != "" {
		return len(p.conditions) - 1
	}
	return len(p.conditions)
}

// voided says why a genuine token does not stand now, nil if it does.
func (p *policy) voided(q *query, s *State) *InvalidError {
	stage, reason := stageTime, ""
	if err := s.standing(&p.id, p.tenant); err != nil {
		stage, reason = stageRevoked, err.Error()
	} else if q.Now.Before(time.Unix(p.id.IssuedAt, 0).Add(-q.skew)) {
		reason = "issued in the future"
	} else if c := p.untimely(q); c != nil {
		reason = told(c, q)
	} else {
		return nil
	}
	return &InvalidError{Stage: stage, Reason: reason, TID: p.id.TID, Kid: p.id.Kid, Tenant: p.tenant}
}

// untimely is the first caveat that keeps the token from standing now.
func (p *policy) untimely(q *query) *condition {
	for i := range p.conditions {
		if c := &p.conditions[i]; c.timed() && c.fault == "" && !c.holds(q) {
			return c
		}
	}
	return nil
}

// allows says whether all caveats hold.
func (p *policy) allows(q *query) bool {
	if p.fault != "" {
		return false
	}
	for i := range p.conditions {
		if !p.conditions[i].holds(q) {
			return false
		}
	}
	return true
}

// reasons lists all that does not hold.
func (p *policy) reasons(q *query) []string {
	var out []string
	if p.fault != "" {
		out = append(out, p.fault)
	}
	for i := range p.conditions {
		if c := &p.conditions[i]; !c.holds(q) {
			out = append(out, told(c, q))
		}
	}
	return out
}

func told(c *condition, q *query) string { return fmt.Sprintf("caveat %q: %s", c.text, c.reason(q)) }

// faults are the caveats that hold for no request.
func (p *policy) faults() []string {
	var out []string
	for _, c := range p.conditions {
		if c.fault != "" {
			out = append(out, fmt.Sprintf("caveat %q: %s", c.text, c.fault))
		}
	}
	if p.fault != "" {
		out = append(out, p.fault)
	}
	return out
}

// actor is who the token lets act, with what engines must still check.
func (p *policy) actor() engines.Actor {
	who := engines.Actor{
		CapID: p.id.TID, Kid: p.id.Kid, Fingerprint: p.fingerprint, Principal: p.id.Sub, Tenant: p.tenant, Signer: p.signer,
		Admin: len(p.scopes) > 0 && Implies(p.scopes, ScopeAdmin), Scopes: p.scopes, Caveats: p.narrowed,
	}
	if !p.grant.IsZero() {
		who.Grant = &p.grant
	}
	return who
}
