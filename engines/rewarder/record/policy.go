package record

import (
	"errors"
	"maps"
	"slices"
	"strings"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/canon"
)

// Constant values of the documents.
const (
	Calculus         = "ronbox-calculus/1"
	Floor            = "floor"
	LargestRemainder = "largest_remainder"
	Residual         = "residual"
	Redistribute     = "redistribute"
	policySchema     = "ronbox.rw.policy/1"
	retain           = "retain"
)

// metrics lists the metrics that a policy may weigh. They are work that a node can measure.
var metrics = []string{"bytes", "bytes_served", "bytes_stored", "cpu_units", "requests", "uptime_seconds"}

// Metrics returns the metrics that a policy may weigh, sorted.
func Metrics() []string { return slices.Clone(metrics) }

// Weight converts a quantity of a metric to a score: floor(q·Num/Den). No row counts for more than
// RowMax; 0 means no bound.
type Weight struct{ Num, Den, RowMax uint64 }

// Policy defines how a pool is shared. A zero ActorMax or Guarantee means none. The residual stays
// in Account.
type Policy struct {
	ID, Tenant, Version string
	Asset               string
	ActorMax, PoolMax   engines.Amount
	Excess              string // Residual or Redistribute: destination of shares above ActorMax
	Dust, Guarantee     engines.Amount
	Account, Source     string // the funding account and its kind
	Metrics             map[string]Weight
	Rounding            string // Floor or LargestRemainder
	Scale               uint64 // weights are in units of 10^-Scale
}

// ParsePolicy parses and checks a policy in any spelling. It returns the first fault.
func ParsePolicy(b []byte) (Policy, error) {
	p, f := readPolicy(b)
	return p, f.End()
}

// PolicyFaults returns every fault of a policy in any spelling, at most one per member. If there
// are none, ParsePolicy accepts the policy.
func PolicyFaults(b []byte) (all []*FieldError) {
	_, f := readPolicy(b)
	for _, err := range f.Faults() {
		fault, ok := errors.AsType[*FieldError](err)
		if ok && !slices.ContainsFunc(all, func(o *FieldError) bool { return o.Field == fault.Field }) {
			all = append(all, fault)
		}
	}
	return all
}

func readPolicy(b []byte) (Policy, *canon.Fields) {
	f := canon.Read(b)
	for _, path := range slices.Sorted(maps.Keys(fixed)) {
		f.Text(path, fixed[path])
	}
	p := Policy{
		ID:        f.Text("id"),
		Tenant:    f.Text("tenant"),
		Version:   f.Text("version"),
		Asset:     f.Text("asset"),
		Scale:     f.Number("scale"),
		ActorMax:  f.Amount("caps.actor_max_minor"),
		PoolMax:   f.Amount("caps.pool_max_minor"),
		Excess:    f.Text("caps.excess", Residual, Redistribute),
		Dust:      f.Amount("floors.dust_minor"),
		Guarantee: f.Amount("floors.guarantee_minor"),
		Rounding:  f.Text("rounding", LargestRemainder, Floor),
		Account:   f.Text("funding.account"),
		Metrics:   map[string]Weight{},
		Source: f.Text("funding.source", "protocol_pool", "advertiser_budget", "creator_pool", "governance_budget",
			"sponsor_budget"),
	}
	for _, name := range metrics {
		if at := "metrics." + name; f.Has(at+".num") || f.Has(at+".den") || f.Has(at+".row_max") {
			p.Metrics[name] = Weight{f.Number(at + ".num"), f.Number(at + ".den"), f.Number(at + ".row_max")}
		}
	}
	for _, err := range p.faults() {
		f.Fail(err)
	}
	return p, f
}

// fixed lists the members with only one valid value. The values of later calculi are refused by
// name.
var fixed = map[string]string{
	"schema":           policySchema,
	"calculus":         Calculus,
	"mode":             "share",
	"shortfall":        "quarantine",
	"funding.mode":     "transfer",
	"residual.mode":    retain,
	"residual.account": "",
}

// faults returns the semantic faults of a policy.
func (p *Policy) faults() []error {
	all := []error{
		CheckPolicyID(p.ID),
		CheckTenant(p.Tenant),
		check("version", p.Version, maxWord, true, ".+-"),
		checkAsset(p.Asset),
		CheckActor("funding.account", p.Account),
	}
	none := engines.Amount{}
	if p.ActorMax != none && (p.ActorMax.Less(p.Guarantee) || p.ActorMax.Less(p.Dust)) {
		all = append(all, canon.Fault("caps.actor_max_minor", "is below a floor: nobody could be paid"))
	}
	if p.Guarantee != none && p.Guarantee.Less(p.Dust) {
		all = append(all, canon.Fault("floors.guarantee_minor", "is below floors.dust_minor"))
	}
	if p.Scale > maxScale {
		all = append(all, canon.Fault("scale", "must be at most %d", maxScale))
	}
	if len(p.Metrics) == 0 {
		all = append(all, canon.Fault("metrics", "must weigh at least one of %s", strings.Join(metrics, ", ")))
	}
	for _, name := range metrics {
		if w, ok := p.Metrics[name]; ok && w.Den == 0 {
			all = append(all, canon.Fault("metrics."+name+".den", "must not be 0"))
		}
	}
	return all
}

const maxScale = 18

func checkAsset(s string) error {
	if err := engines.CheckAsset(s); err != nil {
		return canon.Fault("asset", "%v", err)
	}
	return nil
}

// Bytes returns the canonical document.
func (p *Policy) Bytes() []byte {
	weights := canon.Object{}
	for name, w := range p.Metrics {
		weights[name] = canon.Object{"den": w.Den, "num": w.Num, "row_max": w.RowMax}
	}
	return canon.Append(nil, canon.Object{
		"asset":     p.Asset,
		"calculus":  Calculus,
		"id":        p.ID,
		"metrics":   weights,
		"mode":      fixed["mode"],
		"rounding":  p.Rounding,
		"scale":     p.Scale,
		"caps":      canon.Object{"actor_max_minor": p.ActorMax, "excess": p.Excess, "pool_max_minor": p.PoolMax},
		"floors":    canon.Object{"dust_minor": p.Dust, "guarantee_minor": p.Guarantee},
		"funding":   p.funding(),
		"residual":  canon.Object{"account": "", "mode": retain},
		"schema":    policySchema,
		"shortfall": fixed["shortfall"],
		"tenant":    p.Tenant,
		"version":   p.Version,
	})
}

func (p *Policy) funding() canon.Object {
	return canon.Object{"account": p.Account, "mode": fixed["funding.mode"], "source": p.Source}
}

// Hash returns the id of the policy.
func (p *Policy) Hash() b3.Digest { return b3.Sum(p.Bytes()) }

// Weights returns the weights of metrics, in their order. missing names a metric without a weight.
func (p *Policy) Weights(of []string) (all []Weight, missing string) {
	for _, name := range of {
		if _, has := p.Metrics[name]; !has {
			missing = name
		}
		all = append(all, p.Metrics[name])
	}
	return all, missing
}

// sortedSet reports whether all ascends without duplicates.
func sortedSet(all []string) bool {
	return slices.IsSorted(all) && len(slices.Compact(slices.Clone(all))) == len(all)
}
