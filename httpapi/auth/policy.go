package auth

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/limit"
)

// policy is all that a token says, read once. It is never changed.
type policy struct {
	id         Identifier
	fault      string // why it allows nothing, whatever is asked
	conditions []condition
	scopes     []string // what all scope caveats leave
	expires    time.Time
	tenant     string // the one it acts for, "" for any
	signer     string // the one it acts for, "" for any
	rate       int    // requests a second, 0 for any
	grant      engines.Grant
	narrowed   []string // what it says beyond what every token begins with

	// Of a token that was proven:
	token       string
	fingerprint string
	root        root
}

var errUnknownCaveat = errors.New("unknown caveat")

// readPolicy reads the caveats of a token in their order: what one of them says can depend on those before it, never on those after.
func readPolicy(id Identifier, texts []string) *policy {
	p := &policy{id: id, conditions: make([]condition, 0, len(texts)+1)}
	if id.Tenant != "" {
		p.add("tenant = " + id.Tenant) // the identifier says so, which nobody can append to
	}
	for _, text := range texts {
		p.add(text)
	}
	first := len(p.conditions) - len(texts)
	if p.fault = p.form(first); p.fault == "" {
		p.narrowed = narrowing(p.conditions[first+2:])
	}
	return p
}

// narrowing lists caveats as they hold for a token of another age.
func narrowing(own []condition) []string {
	var out []string
	for i := range own {
		switch c := &own[i]; c.key {
		case "ttl":
			out = append(out, "exp < "+c.at.UTC().Format(time.RFC3339))
		default:
			out = append(out, c.text)
		}
	}
	return out
}

func (p *policy) add(text string) {
	c := condition{text: text}
	parsed, err := parseCaveat(text)
	if err == nil {
		c.key = parsed.key
		err = p.read(&c, parsed)
	}
	if err != nil {
		c.fault = err.Error()
	}
	p.conditions = append(p.conditions, c)
}

// form refuses what Mint would not have written: both are first, so that a holder cannot supply them.
func (p *policy) form(first int) string {
	own := p.conditions[first:]
	if len(own) < 2 || own[0].key != "scope" || own[0].fault != "" || own[1].key != "exp" || own[1].fault != "" {
		return "the token does not begin with a scope and an expiry"
	}
	if own[1].at.After(time.Unix(p.id.IssuedAt, 0).Add(longestTTL + time.Second)) {
		return fmt.Sprintf("the token lives longer than %s", unit.Duration(longestTTL))
	}
	return ""
}

// read reads one caveat into c, and what it means for all into p. An error is a fault.
func (p *policy) read(c *condition, from caveat) (err error) {
	switch from.key + " " + from.op {
	case "scope =":
		if c.list, err = parseList(from.value, NormalScope); err == nil {
			p.narrowScopes(c.list)
		}
	case "aud =":
		c.list, err = parseList(from.value, parseService)
	case "method =":
		c.list, err = parseList(from.value, parseMethod)
	case "path =":
		c.list, err = parseList(from.value, parsePath)
	case "ip =":
		c.nets, err = parseList(from.value, parsePrefix)
	case "nbf >":
		c.at, err = parseTime(from.value)
	case "exp <":
		if c.at, err = parseTime(from.value); err == nil {
			p.expireAt(c.at)
		}
	case "ttl =":
		var ttl unit.Duration
		if ttl, err = unit.ParseDuration(from.value); err == nil {
			c.at = time.Unix(p.id.IssuedAt, 0).Add(ttl.D())
			p.expireAt(c.at)
		}
	case "rate <=":
		if c.rate, err = parseRate(from.value); err == nil && (p.rate == 0 || c.rate < p.rate) {
			p.rate = c.rate
		}
	case "registry.signer =":
		return p.readSigner(c, from.value)
	case "amnesia =":
		if from.value != "on" {
			err = errors.New(`must be "on"`)
		}
	default:
		return p.readLimit(c, from)
	}
	return err
}

func (p *policy) expireAt(at time.Time) {
	if p.expires.IsZero() || at.Before(p.expires) {
		p.expires = at.UTC()
	}
}

func (p *policy) narrowScopes(list []string) {
	if p.scopes == nil {
		p.scopes = list
	}
	p.scopes = Meet(p.scopes, list)
}

// readSigner ties the token to one signer; two different ones leave none.
func (p *policy) readSigner(c *condition, value string) error {
	id, err := parseWord(value)
	if err != nil {
		return err
	}
	if p.signer != "" && p.signer != id {
		return errNothingLeft
	}
	p.signer, c.list, c.service = id, []string{id}, "registry"
	return nil
}

// rateOf is the rate of a token's own caveat: a second's worth may come at once.
func rateOf(perSecond int) limit.Rate { return limit.Per(float64(perSecond), perSecond) }
