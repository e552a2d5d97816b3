package rverify

import (
	"maps"
	"math/big"
	"regexp"
	"slices"
)

// Policy defines how a pool is shared.
type Policy struct {
	document
	ID, Asset, Tenant, Account string // Account is the funding account
	PoolMax                    *big.Int

	actorMax, dust, guarantee *big.Int
	redistribute, floor       bool
	metrics                   []string // keys of weights, sorted
	weights                   map[string]weight
}

// weight scores num/den points per unit of a metric. At most rowMax units of one row count; 0 means
// no bound.
type weight struct{ num, den, rowMax *big.Int }

// words lists the grammars of the strings of a policy. Most allow few values, because this is
// calculus 1 in mode share.
var words = func() map[string]*regexp.Regexp {
	out := map[string]*regexp.Regexp{}
	for field, grammar := range map[string]string{
		"schema":           `ronbox\.rw\.policy/1`,
		"calculus":         `ronbox-calculus/1`,
		"mode":             `share`,
		"rounding":         `floor|largest_remainder`,
		"shortfall":        `quarantine`,
		"caps.excess":      `residual|redistribute`,
		"funding.mode":     `transfer`,
		"funding.source":   `(protocol|creator)_pool|(advertiser|sponsor|governance)_budget`,
		"funding.account":  `[A-Za-z0-9:/_-]{1,256}`,
		"residual.mode":    `retain`,
		"residual.account": ``,
		"asset":            `[a-z0-9]{1,16}`,
		"tenant":           `[a-z0-9][a-z0-9_-]{0,62}`,
		"id":               `[A-Za-z0-9_.-]{1,64}`,
		"version":          `[A-Za-z0-9_.+-]{1,64}`,
		"scale":            `[0-9]|1[0-8]`,
	} {
		out[field] = regexp.MustCompile(`^(` + grammar + `)$`)
	}
	return out
}()

// ParsePolicy parses and checks a policy in any spelling. It returns the first fault.
func ParsePolicy(raw []byte) (Policy, error) {
	numbers := []string{"caps.pool_max_minor", "caps.actor_max_minor", "floors.dust_minor", "floors.guarantee_minor"}
	weights := []string{"metrics.*.num", "metrics.*.den", "metrics.*.row_max"}
	texts := slices.Sorted(maps.Keys(words))
	d, err := parse(raw, false, slices.Concat(texts, numbers, weights)...)
	if err != nil {
		return Policy{}, within("policy", err)
	}
	var c checker
	for _, field := range texts {
		c.match(field, d.text(field), words[field])
	}
	number := func(field string, most *big.Int) *big.Int { return c.number(field, d.text(field), most) }
	p := Policy{
		document:     d,
		ID:           d.text("id"),
		Asset:        d.text("asset"),
		Tenant:       d.text("tenant"),
		Account:      d.text("funding.account"),
		PoolMax:      number(numbers[0], most128),
		actorMax:     number(numbers[1], most128),
		dust:         number(numbers[2], most128),
		guarantee:    number(numbers[3], most128),
		redistribute: d.text("caps.excess") == "redistribute",
		floor:        d.text("rounding") == "floor",
		weights:      map[string]weight{},
	}
	metrics, _ := d["metrics"].(map[string]any)
	p.metrics = slices.Sorted(maps.Keys(metrics))
	c.fail(len(p.metrics) == 0, "metrics", "must be one at least")
	for _, name := range p.metrics {
		at := "metrics." + name
		c.match(at, name, metricName)
		p.weights[name] = weight{number(at+".num", most64), number(at+".den", most64), number(at+".row_max", most64)}
		c.fail(p.weights[name].den.Sign() == 0, at+".den", "must not be 0")
	}
	capped := p.actorMax.Sign() > 0
	c.fail(capped && p.actorMax.Cmp(p.guarantee) < 0, "caps.actor_max_minor",
		"must not be below floors.guarantee_minor")
	c.fail(capped && p.actorMax.Cmp(p.dust) < 0, "caps.actor_max_minor", "must not be below floors.dust_minor")
	c.fail(p.guarantee.Sign() > 0 && p.guarantee.Cmp(p.dust) < 0, "floors.guarantee_minor",
		"must not be below floors.dust_minor")
	return p, within("policy", c.err)
}
