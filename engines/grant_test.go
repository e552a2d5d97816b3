package engines

import (
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// ask is a request to every method of a Grant.
type ask struct {
	account, asset, tenant, epoch string
	amount, spent                 Amount
	done                          uint64
	bytes                         int64
}

// judge lists the refusals of a Grant.
func (g *Grant) judge(a ask) map[string]bool {
	refused := map[string]bool{}
	for _, err := range []error{
		g.Account(a.account), g.Asset(a.asset), g.Tenant(a.tenant), g.Epoch(a.epoch), g.Amount(a.amount), g.Daily(a.spent, a.amount),
		g.Run(a.done), g.Bytes(a.bytes),
	} {
		if e := new(GrantError); errors.As(err, &e) {
			refused[e.Caveat] = true
		}
	}
	return refused
}

func names() *rapid.Generator[string] {
	return rapid.SampledFrom([]string{"a", "ab", "abc", "b", "ba"})
}

func asks() *rapid.Generator[ask] {
	small := rapid.Custom(func(t *rapid.T) Amount { return units(rapid.Uint64Range(0, 20).Draw(t, "n")) })
	return rapid.Custom(func(t *rapid.T) ask {
		return ask{
			account: names().Draw(t, "account"),
			asset:   names().Draw(t, "asset"),
			tenant:  names().Draw(t, "tenant"),
			epoch:   names().Draw(t, "epoch"),
			amount: rapid.OneOf(small, amounts()).
				Draw(t, "amount"),
			spent: rapid.OneOf(small, amounts()).Draw(t, "spent"),
			done:  rapid.Uint64Range(0, 20).Draw(t, "done"),
			bytes: rapid.Int64Range(0, 20).Draw(t, "bytes"),
		}
	})
}

// narrow takes one narrowing step and reports whether anything was left.
func (g *Grant) narrow(t *rapid.T) bool {
	name := names().Draw(t, "name")
	n := rapid.Uint64Range(0, 20).Draw(t, "limit")
	switch rapid.IntRange(0, 7).Draw(t, "kind") {
	case 0:
		return g.NarrowAccount(name + rapid.SampledFrom([]string{"", "*"}).Draw(t, "open"))
	case 1:
		return g.NarrowAsset(name)
	case 2:
		return g.NarrowTenant(name)
	case 3:
		return g.NarrowEpoch(name)
	case 4:
		g.NarrowCeiling(units(n))
	case 5:
		g.NarrowDaily(units(n))
	case 6:
		g.NarrowRuns(n)
	case 7:
		g.NarrowBytes(int64(n))
	}
	return true
}

// Narrowing never allows more, even if it leaves nothing.
func TestNarrowingNeverWidens(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g, a := new(Grant), asks().Draw(t, "ask")
		before := (*Grant)(nil).judge(a)
		if len(before) != 0 || len(g.judge(a)) != 0 || !g.IsZero() {
			t.Fatal("no grant, and a new one, restrict nothing")
		}
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			g.narrow(t)
			after := g.judge(a)
			for caveat := range before {
				if !after[caveat] {
					t.Fatalf("%s was refused, and is not any more", caveat)
				}
			}
			before = after
		}
	})
}

func TestGrant(t *testing.T) {
	var g Grant
	for _, step := range []bool{
		g.NarrowAccount("shop:*"), g.NarrowAccount("shop:till*"), g.NarrowAccount("shop:*"), !g.NarrowAccount("bank:*"), g.NarrowAccount("shop:till7"),
		!g.NarrowAccount("shop:till8"), g.NarrowAccount("*"), g.NarrowAsset("ron"), !g.NarrowAsset("eur"), g.NarrowTenant("acme"),
		!g.NarrowTenant("other"), g.NarrowEpoch("e1"), !g.NarrowEpoch("e2"),
	} {
		if !step {
			t.Fatalf("a step said the opposite: %+v", g)
		}
	}
	g.NarrowCeiling(units(50))
	g.NarrowCeiling(units(70))
	g.NarrowDaily(units(100))
	g.NarrowRuns(2)
	g.NarrowBytes(10)
	most, limited := g.MaxBytes()
	if g.IsZero() || most != 10 || !limited {
		t.Errorf("%+v", g)
	}
	huge, _ := ParseAmount("340282366920938463463374607431768211455")
	for doc, tt := range map[string]struct {
		err     error
		refuses string
	}{
		"account": {g.Account("shop:till7"), ""}, "other account": {g.Account("shop:till70"), "account"}, "a pattern": {g.Account("shop:till7*"), "account"},
		"asset": {g.Asset("ron"), ""}, "other asset": {g.Asset("eur"), "asset"}, "no asset": {g.Asset(""), "asset"},
		"tenant": {g.Tenant("acme"), ""}, "no tenant": {g.Tenant(""), "tenant"}, "epoch": {g.Epoch("e1"), ""}, "other epoch": {g.Epoch("e2"), "epoch"},
		"amount": {g.Amount(units(50)), ""}, "amount over": {g.Amount(units(51)), "ceiling"},
		"day": {g.Daily(units(60), units(40)), ""}, "day over": {g.Daily(units(60), units(41)), "ceiling_daily"},
		"day over all": {g.Daily(huge, huge), "ceiling_daily"},
		"run":          {g.Run(1), ""}, "run over": {g.Run(2), "max_runs"}, "body": {g.Bytes(10), ""}, "body over": {g.Bytes(11), "max_bytes"},
	} {
		e := new(GrantError)
		if errors.As(tt.err, &e) != (tt.refuses != "") || e.Caveat != tt.refuses {
			t.Errorf("%s: %v, want %q", doc, tt.err, tt.refuses)
		}
		if tt.err != nil && !strings.Contains(tt.err.Error(), tt.refuses) {
			t.Errorf("%s: %q", doc, tt.err)
		}
	}
}

func TestMaxDaily(t *testing.T) {
	var g Grant
	if most, limited := g.MaxDaily(); limited || !most.IsZero() {
		t.Errorf("a new grant allows %s a day, %v", most, limited)
	}
	g.NarrowDaily(units(7))
	g.NarrowDaily(units(9))
	if most, limited := g.MaxDaily(); !limited || most != units(7) {
		t.Errorf("%s a day, %v, want 7", most, limited)
	}
	if _, limited := (*Grant)(nil).MaxDaily(); limited {
		t.Error("no grant limits a day")
	}
}
