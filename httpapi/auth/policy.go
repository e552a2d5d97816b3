package auth

import (
	"errors"
	"fmt"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/httpapi/limit"
)

// policy is the content of a token, read once. It is never changed.
type policy struct {
	id         Identifier
	fault      string // why it allows no request at all
	conditions []condition
	scopes     []string // the intersection of the scope caveats
	expires    time.Time
	tenant     string // the one it acts for, "" for any
	signer     string // the one it acts for, "" for any
	rate       int    // requests a second, 0 for any
	grant      engines.Grant
	narrowed   []string // its caveats but for the two that every token begins with

	// Of a token whose MAC was verified:
	token       string
	fingerprint string
	root        root
}

var errUnknownCaveat = errors.New("unknown caveat")

// readPolicy reads the caveats of a token in their order: the meaning of one can depend on those before it, never on those after.
func readPolicy(id Identifier, texts []string) *policy {
	p := &policy{id: id, conditions: make([]condition, 0, len(texts)+1)}
	if id.Tenant != "" {
		p.add("tenant = " + id.Tenant) // of the identifier, which no holder can change
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

// narrowedTexts lists caveats as they hold for a token issued at another time.
func narrowedTexts(own []condition) []string {
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

// formFault returns why Mint would not have written the token, "" if it would: scope and expiry are first, so that a holder cannot supply them.
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

// read reads one caveat into c, and its part of the whole into p. An error is a fault.
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

// rateOf returns the rate of a token's own caveat: a second's worth may come at once.
func rateOf(perSecond int) limit.Rate { return limit.Per(float64(perSecond), perSecond) }

var (
	errNothingLeft = errors.New("contradicts an earlier one, so that nothing is left")
	errNeedsAsset  = errors.New(`stands for amounts of one asset: "asset = ..." must come before it`)
)

// readLimit reads a caveat that engines check, into the token's grant and into one of c's own.
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
			g.NarrowBytes(int64(n)) // parseCount takes no more than fits
			return true
		})
	}
	return errUnknownCaveat
}

// narrow reads a value and narrows the token's grant by it, and c's own.
func narrow[T any](p *policy, c *condition, text string, parse func(string) (T, error), by func(*engines.Grant, T) bool) error {
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

// readAmount reads a ceiling. The asset must come first, lest a ceiling without meaning begin to hold by a caveat that its holder appends.
func (p *policy) readAmount(c *condition, value string, by func(*engines.Grant, engines.Amount)) error {
	c.service = "wallet"
	if p.grant.Asset("") == nil {
		return errNeedsAsset
	}
	return narrow(p, c, value, engines.ParseAmount, always(by))
}

// ownCaveats counts the caveats of the token itself.
func (p *policy) ownCaveats() int {
	if p.id.Tenant != "" {
		return len(p.conditions) - 1
	}
	return len(p.conditions)
}

// checkValid returns why a genuine token is not valid now, nil if it is.
func (p *policy) checkValid(q *query, s *State) *InvalidError {
	stage, reason := stageTime, ""
	if err := s.checkRevoked(&p.id, p.tenant); err != nil {
		stage, reason = stageRevoked, err.Error()
	} else if reason = p.outOfTime(q); reason == "" {
		return nil
	}
	return &InvalidError{Stage: stage, Reason: reason, TID: p.id.TID, Kid: p.id.Kid, Tenant: p.tenant}
}

// outOfTime returns why the token is too early or too late, "" if it is neither.
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

// failed lists every fault and caveat by which the token does not allow q.
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

// faults lists the caveats that hold for no request.
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
		CapID: p.id.TID, Kid: p.id.Kid, Fingerprint: p.fingerprint, Principal: p.id.Sub, Tenant: p.tenant, Signer: p.signer,
		Admin: len(p.scopes) > 0 && Implies(p.scopes, ScopeAdmin), Scopes: p.scopes, Caveats: p.narrowed,
	}
	if !p.grant.IsZero() {
		actor.Grant = &p.grant
	}
	return actor
}
