package auth

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/limit"
)

// policy is the parsed content of a token. It is immutable.
type policy struct {
	id         Identifier
	fault      string // the reason why the token permits nothing
	conditions []condition
	scopes     []string // the intersection of the scope caveats
	expires    time.Time
	tenant     string // tenant it acts for; "": any
	signer     string // signer it acts for; "": any
	rate       int    // requests per second; 0: no limit
	grant      engines.Grant
	narrowed   []string // its caveats except scope and expiry

	// set if the MAC was verified:
	token       string
	fingerprint string
	root        root
}

var errUnknownCaveat = errors.New("unknown caveat")

// readPolicy parses the caveats of a token in order. The meaning of a caveat may depend on earlier
// ones, but never on later ones.
func readPolicy(id Identifier, texts []string) *policy {
	p := &policy{id: id, conditions: make([]condition, 0, len(texts)+1)}
	if id.Tenant != "" {
		p.add("tenant = " + id.Tenant) // from the identifier, which holders cannot change
	}
	for _, text := range texts {
		p.add(text)
	}
	first := len(p.conditions) - len(texts)
	if p.fault = p.formFault(first); p.fault == "" {
		p.narrowed = narrowedTexts(p.conditions[first+2:])
	}
	return p
}

// narrowedTexts returns caveats in a form that is independent of the time of issue.
func narrowedTexts(own []condition) []string {
	var out []string
	for i := range own {
		switch c := &own[i]; c.key {
		case "ttl":
			out = append(out, "exp < "+formatTime(c.at))
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

// formFault returns an error text if Mint could not have written the token, or "". Scope and expiry
// must come first, so that a holder cannot add them.
func (p *policy) formFault(first int) string {
	own := p.conditions[first:]
	if len(own) < 2 || own[0].key != "scope" || own[0].fault != "" || own[1].key != "exp" || own[1].fault != "" {
		return "the token does not begin with a scope and an expiry"
	}
	if own[1].at.After(time.Unix(p.id.IssuedAt, 0).Add(longestTTL + time.Second)) {
		return fmt.Sprintf("the token lives longer than %s", unit.Duration(longestTTL))
	}
	return ""
}

// read parses one caveat into c and applies it to p. It returns an error if the caveat is invalid.
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

// readSigner binds the token to one signer. Two different signers permit nothing.
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

// rateOf returns the rate of a token's own caveat, with a burst of one second.
func rateOf(perSecond int) limit.Rate { return limit.Per(float64(perSecond), perSecond) }

var (
	errNothingLeft = errors.New("contradicts an earlier one, so that nothing is left")
	errNeedsAsset  = errors.New(`stands for amounts of one asset: "asset = ..." must come before it`)
)

// readLimit parses a caveat that engines check, and applies it to the grants of the token and of c.
func (p *policy) readLimit(c *condition, from caveat) error {
	c.limit = &engines.Grant{}
	switch from.key + " " + from.op {
	case "tenant =":
		return p.readTenant(c, from.value)
	case "account =":
		c.service = "wallet"
		return narrow(p, c, from.value, parseAccount, (*engines.Grant).NarrowAccount)
	case "asset =":
		c.service = "wallet"
		return narrow(p, c, from.value, parseAsset, (*engines.Grant).NarrowAsset)
	case "ceiling <=":
		return p.readAmount(c, from.value, (*engines.Grant).NarrowCeiling)
	case "ceiling_daily <=":
		return p.readAmount(c, from.value, (*engines.Grant).NarrowDaily)
	case "epoch =":
		c.service = "rewarder"
		return narrow(p, c, from.value, parseWord, (*engines.Grant).NarrowEpoch)
	case "max_runs <=":
		c.service = "rewarder"
		return narrow(p, c, from.value, parseCount, always((*engines.Grant).NarrowRuns))
	case "max_bytes <=":
		return narrow(p, c, from.value, parseCount, func(g *engines.Grant, n uint64) bool {
			g.NarrowBytes(int64(n)) // parseCount accepts only values that fit
			return true
		})
	}
	return errUnknownCaveat
}

// narrow parses a value and restricts the grants of the token and of c.
func narrow[T any](
	p *policy,
	c *condition,
	text string,
	parse func(string) (T, error),
	by func(*engines.Grant, T) bool,
) error {
	value, err := parse(text)
	if err != nil {
		return err
	}
	if !by(&p.grant, value) {
		return errNothingLeft
	}
	by(c.limit, value)
	return nil
}

func always[T any](by func(*engines.Grant, T)) func(*engines.Grant, T) bool {
	return func(g *engines.Grant, v T) bool {
		by(g, v)
		return true
	}
}

func (p *policy) readTenant(c *condition, value string) error {
	if err := checkName("tenant", value, maxTenant); err != nil {
		return err
	}
	if p.tenant != "" && p.tenant != value {
		return errNothingLeft
	}
	p.tenant = value
	p.grant.NarrowTenant(value)
	c.limit.NarrowTenant(value)
	return nil
}

// readAmount parses a ceiling. The caveat with the asset must come first; otherwise a caveat
// appended by a holder would give meaning to the ceiling.
func (p *policy) readAmount(c *condition, value string, by func(*engines.Grant, engines.Amount)) error {
	c.service = "wallet"
	if p.grant.Asset("") == nil {
		return errNeedsAsset
	}
	return narrow(p, c, value, engines.ParseAmount, always(by))
}

// ownCaveats returns the number of caveats in the token.
func (p *policy) ownCaveats() int {
	if p.id.Tenant != "" {
		return len(p.conditions) - 1
	}
	return len(p.conditions)
}

// checkValid returns the reason why a genuine token is not valid now, or nil.
func (p *policy) checkValid(q *query, s *State) *InvalidError {
	stage, reason := stageTime, ""
	if err := s.checkRevoked(&p.id, p.tenant); err != nil {
		stage, reason = stageRevoked, err.Error()
	} else if reason = p.outOfTime(q); reason == "" {
		return nil
	}
	return &InvalidError{Stage: stage, Reason: reason, TID: p.id.TID, Kid: p.id.Kid, Tenant: p.tenant}
}

// outOfTime returns the reason why the token is not valid yet or any more, or "".
func (p *policy) outOfTime(q *query) string {
	if p.early(q) {
		return "issued in the future"
	}
	for i := range p.conditions {
		if c := &p.conditions[i]; c.timed() && c.fault == "" && !c.holds(q) {
			return Failed{c.text, c.reason(q)}.String()
		}
	}
	return ""
}

// early reports whether the token was issued after q.
func (p *policy) early(q *query) bool { return q.Now.Before(time.Unix(p.id.IssuedAt, 0).Add(-q.skew)) }

// failed lists all reasons why the token does not permit q.
func (p *policy) failed(q *query) []Failed {
	var out []Failed
	if p.fault != "" {
		out = append(out, Failed{Reason: p.fault})
	}
	for i := range p.conditions {
		if c := &p.conditions[i]; !c.holds(q) {
			out = append(out, Failed{c.text, c.reason(q)})
		}
	}
	return out
}

// faults lists the caveats that are never met.
func (p *policy) faults() []string {
	var out []string
	for _, c := range p.conditions {
		if c.fault != "" {
			out = append(out, Failed{c.text, c.fault}.String())
		}
	}
	if p.fault != "" {
		out = append(out, p.fault)
	}
	return out
}

// actor returns the holder, with the grant that engines must still check.
func (p *policy) actor() engines.Actor {
	actor := engines.Actor{
		CapID:       p.id.TID,
		Kid:         p.id.Kid,
		Fingerprint: p.fingerprint,
		Principal:   p.id.Sub,
		Tenant:      p.tenant,
		Signer:      p.signer,
		Admin:       len(p.scopes) > 0 && Implies(p.scopes, ScopeAdmin),
		Scopes:      p.scopes,
		Caveats:     p.narrowed,
	}
	if !p.grant.IsZero() {
		actor.Grant = &p.grant
	}
	return actor
}
