package record

import (
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/canon"
)

// Words of the documents.
const (
	Calculus         = "ronbox-calculus/1"
	Floor            = "floor"
	LargestRemainder = "largest_remainder"
	Residual         = "residual"
	Redistribute     = "redistribute"
	policySchema     = "ronbox.rw.policy/1"
	retain           = "retain"
)

// metrics are what a policy may weigh: work that a node can measure, not attention.
var metrics = []string{"bytes_served", "bytes_stored", "cpu_units", "requests", "uptime_seconds"}

// Weight makes a score of a metric: floor(q·Num/Den), where no row counts for more than RowMax; 0: no bound.
type Weight struct{ Num, Den, RowMax uint64 }

// Policy says how a pool is shared. A zero ActorMax or Guarantee is none. What is left stays in Account.
type Policy struct {
	ID, Tenant, Version string
	Asset               string
	ActorMax, PoolMax   engines.Amount
	Excess              string // Residual or Redistribute: what becomes of shares above ActorMax
	Dust, Guarantee     engines.Amount
	Account, Source     string // that pays
	Metrics             map[string]Weight
	Rounding            string // Floor or LargestRemainder
	Scale               uint64 // weights are in units of 10^-Scale
}

// ParsePolicy reads a policy in any spelling and checks it.
func ParsePolicy(b []byte) (Policy, error) {
	f := canon.Read(b)
	for path, word := range fixed {
		f.Text(path, word)
	}
	p := Policy{
		ID: f.Text("id"), Tenant: f.Text("tenant"), Version: f.Text("version"), Asset: f.Text("asset"), Scale: f.Number("scale"),
		ActorMax: f.Amount("caps.actor_max_minor"), PoolMax: f.Amount("caps.pool_max_minor"), Excess: f.Text("caps.excess", Residual, Redistribute),
		Dust: f.Amount("floors.dust_minor"), Guarantee: f.Amount("floors.guarantee_minor"), Rounding: f.Text("rounding", LargestRemainder, Floor),
		Account: f.Text("funding.account"), Metrics: map[string]Weight{},
		Source: f.Text("funding.source", "protocol_pool", "advertiser_budget", "creator_pool", "governance_budget", "sponsor_budget"),
	}
	for _, name := range metrics {
		if at := "metrics." + name; f.Has(at + ".num") {
			p.Metrics[name] = Weight{f.Number(at + ".num"), f.Number(at + ".den"), f.Number(at + ".row_max")}
		}
	}
	f.Fail(p.check())
	return p, f.End()
}

// fixed are members that have one word only. The values of later calculi are refused by name.
var fixed = map[string]string{
	"schema": policySchema, "calculus": Calculus, "mode": "share", "shortfall": "quarantine", "funding.mode": "transfer", "residual.mode": retain,
	"residual.account": "",
}

// check refuses a policy that cannot work.
func (p *Policy) check() error {
	for _, err := range []error{
		CheckPolicyID(p.ID), CheckTenant(p.Tenant), check("version", p.Version, maxWord, true, ".+-"), checkAsset(p.Asset),
		CheckActor("funding.account", p.Account),
	} {
		if err != nil {
			return err
		}
	}
	switch none := (engines.Amount{}); {
	case p.ActorMax != none && (p.ActorMax.Less(p.Guarantee) || p.ActorMax.Less(p.Dust)):
		return canon.Fault("caps.actor_max_minor", "is below a floor: nobody could be paid")
	case p.Guarantee != none && p.Guarantee.Less(p.Dust):
		return canon.Fault("floors.guarantee_minor", "is below floors.dust_minor")
	case p.Scale > 18:
		return canon.Fault("scale", "must be at most 18")
	case len(p.Metrics) == 0:
		return canon.Fault("metrics", "must weigh at least one of %s", strings.Join(metrics, ", "))
	}
	for _, name := range metrics {
		if w, ok := p.Metrics[name]; ok && w.Den == 0 {
			return canon.Fault("metrics."+name+".den", "must not be 0")
		}
	}
	return nil
}

func checkAsset(s string) error {
	if err := engines.CheckAsset(s); err != nil {
		return canon.Fault("asset", "%v", err)
	}
	return nil
}

// Bytes is the document.
func (p *Policy) Bytes() []byte {
	weights := canon.Object{}
	for name, w := range p.Metrics {
		weights[name] = canon.Object{"den": w.Den, "num": w.Num, "row_max": w.RowMax}
	}
	return canon.Append(nil, canon.Object{
		"asset": p.Asset, "calculus": Calculus, "id": p.ID, "metrics": weights, "mode": fixed["mode"], "rounding": p.Rounding, "scale": p.Scale,
		"caps":   canon.Object{"actor_max_minor": p.ActorMax, "excess": p.Excess, "pool_max_minor": p.PoolMax},
		"floors": canon.Object{"dust_minor": p.Dust, "guarantee_minor": p.Guarantee}, "funding": p.funding(),
		"residual": canon.Object{"account": "", "mode": retain}, "schema": policySchema, "shortfall": fixed["shortfall"], "tenant": p.Tenant, "version": p.Version,
	})
}

func (p *Policy) funding() canon.Object {
	return canon.Object{"account": p.Account, "mode": fixed["funding.mode"], "source": p.Source}
}

// Hash is the policy's id.
func (p *Policy) Hash() b3.Digest { return b3.Sum(p.Bytes()) }

// Weights are those of metrics, in their order. One that has none is named.
func (p *Policy) Weights(of []string) (all []Weight, missing string) {
	for _, name := range of {
		if _, has := p.Metrics[name]; !has {
			missing = name
		}
		all = append(all, p.Metrics[name])
	}
	return all, missing
}

// sortedSet reports whether all ascend, none twice.
func sortedSet(all []string) bool {
	return slices.IsSorted(all) && len(slices.Compact(slices.Clone(all))) == len(all)
}
