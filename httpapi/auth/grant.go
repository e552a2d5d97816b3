package auth

import (
	"errors"

	"ronbox/engines"
)

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

// readAmount reads a ceiling. The asset comes first, lest a ceiling that meant nothing begin to hold by what its holder appends.
func (p *policy) readAmount(c *condition, value string, by func(*engines.Grant, engines.Amount)) error {
	c.service = "wallet"
	if p.grant.Asset("") == nil {
		return errNeedsAsset
	}
	return narrow(p, c, value, engines.ParseAmount, always(by))
}
