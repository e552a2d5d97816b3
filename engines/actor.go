package engines

import (
	"fmt"
	"slices"
	"strings"
)

// Actor is the authenticated caller. The zero Actor is anonymous. Engines trust only an Actor that
// auth has made.
type Actor struct {
	// CapID is the id of the caller's token, "" for a peer of the admin socket.
	CapID string
	// Kid names the key that signed the token.
	Kid string
	// Fingerprint identifies the token in logs. Narrowed tokens share the id but not the
	// fingerprint.
	Fingerprint string
	// Principal is the subject of the token, or the name of the socket peer.
	Principal string
	// Tenant is the only tenant that this actor may act for, "" for any.
	Tenant string
	// UID is the Unix user id of a peer of the admin socket, nil for a call over TCP.
	UID *uint32
	// Admin reports whether the actor holds every scope.
	Admin bool
	// Scopes lists the scopes of the actor, such as "wallet.transfer". It is immutable after the
	// actor is handed out.
	Scopes []string
	// Signer is the only registry signer that this actor may act for, "" for any.
	Signer string
	// Grant holds restrictions that the engine must check; nil: none.
	Grant *Grant
	// Caveats lists the caveats of the token other than scope and expiry, with a ttl as a point
	// in time. Tokens that are derived from it must not exceed them.
	Caveats []string
}

// Anonymous reports whether the actor is unauthenticated.
func (a Actor) Anonymous() bool {
	return a.CapID == "" && a.Principal == "" && a.UID == nil
}

// May reports whether a holds the scope. An Admin holds every scope.
func (a Actor) May(scope string) bool {
	return a.Admin || slices.Contains(a.Scopes, scope)
}

// GrantError is returned when a caveat of the actor's token forbids the request. The engine must
// refuse the request without effects.
type GrantError struct {
	Caveat string // "account", "asset", "ceiling", ...
	Reason string // human-readable, without values of the token
}

func (e *GrantError) Error() string { return fmt.Sprintf("not granted: %s %s", e.Caveat, e.Reason) }

// Grant holds the caveats of a token that only the engine can check, because it knows the account,
// the amount or the run. It is narrowed while the token is parsed and immutable afterwards, so it
// may be shared. A nil Grant restricts nothing.
//
// Its methods judge one request each. Limits over several requests, per day or per run, take the
// sum so far from the engine, which must check them inside the command that adds to the sum.
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

// bound is an optional upper limit.
type bound[T any] struct {
	most T
	set  bool
}

func (b *bound[T]) lower(n T, less func(a, b T) bool) {
	if !b.set || less(n, b.most) {
		b.most, b.set = n, true
	}
}

// IsZero reports whether g restricts nothing.
func (g *Grant) IsZero() bool { return g == nil || *g == Grant{} }

// NarrowAccount restricts g to one account or, with a trailing "*", to the accounts with this
// prefix. It returns false if no account is left.
func (g *Grant) NarrowAccount(pattern string) bool {
	switch {
	case g.account == "" || accountIn(pattern, g.account):
		g.account = pattern
	case !accountIn(g.account, pattern):
		return false
	}
	return true
}

// NarrowAsset restricts g to one asset. It returns false if g was restricted to another one.
func (g *Grant) NarrowAsset(asset string) bool { return narrowName(&g.asset, asset) }

// NarrowTenant restricts g to one tenant. It returns false if g was restricted to another one.
func (g *Grant) NarrowTenant(tenant string) bool { return narrowName(&g.tenant, tenant) }

// NarrowEpoch restricts g to one epoch. It returns false if g was restricted to another one.
func (g *Grant) NarrowEpoch(id string) bool { return narrowName(&g.epoch, id) }

// NarrowCeiling bounds the amount of one operation.
func (g *Grant) NarrowCeiling(most Amount) { g.ceiling.lower(most, Amount.Less) }

// NarrowDaily bounds the sum of the amounts of one day.
func (g *Grant) NarrowDaily(most Amount) { g.daily.lower(most, Amount.Less) }

// NarrowRuns bounds the number of runs.
func (g *Grant) NarrowRuns(most uint64) {
	g.runs.lower(most, func(a, b uint64) bool { return a < b })
}

// NarrowBytes bounds the body of a request.
func (g *Grant) NarrowBytes(most int64) {
	g.bytes.lower(most, func(a, b int64) bool { return a < b })
}

func narrowName(has *string, want string) bool {
	if *has == "" {
		*has = want
	}
	return *has == want
}

// accountIn reports whether the pattern outer covers every account of the pattern inner.
func accountIn(inner, outer string) bool {
	prefix, open := strings.CutSuffix(outer, "*")
	return inner == outer || open && strings.HasPrefix(inner, prefix)
}

// Account returns a *GrantError unless the actor may act for the account id, which is never "".
func (g *Grant) Account(id string) error {
	if g == nil || g.account == "" || !strings.HasSuffix(id, "*") && accountIn(id, g.account) {
		return nil
	}
	return &GrantError{"account", "is another one"}
}

// Asset returns a *GrantError unless the asset is allowed.
func (g *Grant) Asset(asset string) error {
	if g == nil {
		return nil
	}
	return sameName("asset", g.asset, asset)
}

// Tenant returns a *GrantError unless the actor may act for the tenant.
func (g *Grant) Tenant(tenant string) error {
	if g == nil {
		return nil
	}
	return sameName("tenant", g.tenant, tenant)
}

// Epoch returns a *GrantError unless the actor may work on the epoch.
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

// Amount returns a *GrantError unless one operation over n minor units is allowed. It does not
// check the asset.
func (g *Grant) Amount(n Amount) error {
	if g == nil || !g.ceiling.set || !g.ceiling.most.Less(n) {
		return nil
	}
	return &GrantError{"ceiling", "is lower than the amount"}
}

// Daily returns a *GrantError unless n more minor units are allowed on a day after spent.
func (g *Grant) Daily(spent, n Amount) error {
	if g == nil || !g.daily.set {
		return nil
	}
	if sum, ok := spent.Add(n); ok && !g.daily.most.Less(sum) {
		return nil
	}
	return &GrantError{"ceiling_daily", "is lower than the amounts of the day"}
}

// Run returns a *GrantError unless another run is allowed after done runs.
func (g *Grant) Run(done uint64) error {
	if g == nil || !g.runs.set || done < g.runs.most {
		return nil
	}
	return &GrantError{"max_runs", "is used up"}
}

// Bytes returns a *GrantError unless a body of n bytes is allowed.
func (g *Grant) Bytes(n int64) error {
	if g == nil || !g.bytes.set || n <= g.bytes.most {
		return nil
	}
	return &GrantError{"max_bytes", "is less than the body"}
}

// MaxBytes returns the limit of Bytes, if there is one.
func (g *Grant) MaxBytes() (most int64, limited bool) {
	if g == nil {
		return 0, false
	}
	return g.bytes.most, g.bytes.set
}

// MaxDaily returns the limit of Daily, if there is one.
func (g *Grant) MaxDaily() (most Amount, limited bool) {
	if g == nil {
		return Amount{}, false
	}
	return g.daily.most, g.daily.set
}
