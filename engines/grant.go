package engines

import (
	"fmt"
	"strings"
)

// GrantError says that an actor's token does not reach as far as what it asks for: refuse, and change nothing.
type GrantError struct {
	Caveat string // "account", "asset", "ceiling", ...
	Reason string // for people, without what the token says
}

func (e *GrantError) Error() string { return fmt.Sprintf("not granted: %s %s", e.Caveat, e.Reason) }

// Grant is what a token leaves to the engine to check, since only the engine knows the account, the amount or the run. It is narrowed
// while its token is read and never changed after, so it is shared freely. A nil Grant restricts nothing.
//
// What a method says for one request does not depend on another: limits over several, by day or by run, get the sum so far from the
// engine, which must ask inside the command that adds to it.
type Grant struct {
	account string // "x" or "prefix*", "" for any
	asset   string // "" for any
	tenant  string // "" for any
	epoch   string // "" for any
	ceiling bound[Amount]
	daily   bound[Amount]
	runs    bound[uint64]
	bytes   bound[int64]
}

// bound is an upper limit, if it is set.
type bound[T any] struct {
	most T
	set  bool
}

func (b *bound[T]) lower(n T, less func(a, b T) bool) {
	if !b.set || less(n, b.most) {
		b.most, b.set = n, true
	}
}

// IsZero says whether g restricts nothing.
func (g *Grant) IsZero() bool { return g == nil || *g == Grant{} }

// NarrowAccount leaves one account, or with a "*" at the end those that begin so. It returns false if that leaves none.
func (g *Grant) NarrowAccount(pattern string) bool {
	switch {
	case g.account == "" || accountIn(pattern, g.account):
		g.account = pattern
	case !accountIn(g.account, pattern):
		return false
	}
	return true
}

// NarrowAsset leaves one asset. It returns false if another one was left before.
func (g *Grant) NarrowAsset(asset string) bool { return narrowName(&g.asset, asset) }

// NarrowTenant leaves one tenant. It returns false if another one was left before.
func (g *Grant) NarrowTenant(tenant string) bool { return narrowName(&g.tenant, tenant) }

// NarrowEpoch leaves one epoch. It returns false if another one was left before.
func (g *Grant) NarrowEpoch(id string) bool { return narrowName(&g.epoch, id) }

// NarrowCeiling bounds the amount of one operation.
func (g *Grant) NarrowCeiling(most Amount) { g.ceiling.lower(most, Amount.Less) }

// NarrowDaily bounds the amounts of one day together.
func (g *Grant) NarrowDaily(most Amount) { g.daily.lower(most, Amount.Less) }

// NarrowRuns bounds how many runs there may be.
func (g *Grant) NarrowRuns(most uint64) {
	g.runs.lower(most, func(a, b uint64) bool { return a < b })
}

// NarrowBytes bounds a request's body.
func (g *Grant) NarrowBytes(most int64) {
	g.bytes.lower(most, func(a, b int64) bool { return a < b })
}

func narrowName(has *string, want string) bool {
	if *has == "" {
		*has = want
	}
	return *has == want
}

// accountIn says whether every account that the first pattern covers is covered by the second.
func accountIn(inner, outer string) bool {
	prefix, open := strings.CutSuffix(outer, "*")
	return inner == outer || open && strings.HasPrefix(inner, prefix)
}

// Account allows acting for the account id, which is never "".
func (g *Grant) Account(id string) error {
	if g == nil || g.account == "" || !strings.HasSuffix(id, "*") && accountIn(id, g.account) {
		return nil
	}
	return &GrantError{"account", "is another one"}
}

// Asset allows the asset.
func (g *Grant) Asset(asset string) error {
	if g == nil {
		return nil
	}
	return sameName("asset", g.asset, asset)
}

// Tenant allows acting for the tenant.
func (g *Grant) Tenant(tenant string) error {
	if g == nil {
		return nil
	}
	return sameName("tenant", g.tenant, tenant)
}

// Epoch allows work on the epoch id.
func (g *Grant) Epoch(id string) error {
	if g == nil {
		return nil
	}
	return sameName("epoch", g.epoch, id)
}

func sameName(caveat, has, want string) error {
	if has == "" || has == want {
		return nil
	}
	return &GrantError{caveat, "is another one"}
}

// Amount allows one operation over n minor units. Its asset is Asset's to judge.
func (g *Grant) Amount(n Amount) error {
	if g == nil || !g.ceiling.set || !g.ceiling.most.Less(n) {
		return nil
	}
	return &GrantError{"ceiling", "is lower than the amount"}
}

// Daily allows n more minor units on a day that has seen spent.
func (g *Grant) Daily(spent, n Amount) error {
	if g == nil || !g.daily.set {
		return nil
	}
	if sum, ok := spent.Add(n); ok && !g.daily.most.Less(sum) {
		return nil
	}
	return &GrantError{"ceiling_daily", "is lower than the amounts of the day"}
}

// Run allows one more run after done ones.
func (g *Grant) Run(done uint64) error {
	if g == nil || !g.runs.set || done < g.runs.most {
		return nil
	}
	return &GrantError{"max_runs", "is used up"}
}

// Bytes allows a body of n bytes.
func (g *Grant) Bytes(n int64) error {
	if g == nil || !g.bytes.set || n <= g.bytes.most {
		return nil
	}
	return &GrantError{"max_bytes", "is less than the body"}
}

// MaxBytes is the largest body that Bytes allows, if there is such a limit.
func (g *Grant) MaxBytes() (most int64, limited bool) {
	if g == nil {
		return 0, false
	}
	return g.bytes.most, g.bytes.set
}

// MaxDaily is the most that Daily allows on one day, if there is such a limit.
func (g *Grant) MaxDaily() (most Amount, limited bool) {
	if g == nil {
		return Amount{}, false
	}
	return g.daily.most, g.daily.set
}
