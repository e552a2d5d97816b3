package wallet_test

import (
	"context"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Lists return only entries within the token's grant. Only an admin can read a reference of another
// principal.
func TestRightsOfLists(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	set := ledger.Op{
		Code: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(9), ExpiresIn: time.Hour, Reference: "inv 7",
	}
	held := r.must("k", set)
	ctx := context.Background()
	onlyBo := grant(func(g *engines.Grant) { g.NarrowAccount("bo") })
	onlyCarol := grant(func(g *engines.Grant) { g.NarrowAccount("carol") })
	onlyEur := grant(func(g *engines.Grant) { g.NarrowAsset("eur") })
	bo := engines.Actor{CapID: "c2", Principal: "bo"}
	holds := func(by engines.Actor, account string, want int) error {
		page, err := r.e.Holds(ctx, by, ledger.HoldsQuery{Account: account, Limit: 5})
		if err == nil && len(page.Holds) != want {
			t.Errorf("%s: %+v, want %d", account, page, want)
		}
		return err
	}
	hold := func(by engines.Actor) error { _, err := r.e.Hold(ctx, by, held.id(t)); return err }
	reference := func(by engines.Actor, principal string) error {
		_, err := r.e.Reference(ctx, by, principal, "inv 7")
		return err
	}
	accounts := func(by engines.Actor, limit int) error {
		_, err := r.e.Accounts(ctx, by, ledger.AccountsQuery{Limit: limit})
		return err
	}
	for what, tt := range map[string]struct {
		err  error
		want string
	}{
		"own holds": {holds(onlyBo, "bo", 1), ""}, "another's": {holds(onlyBo, "alice", 0), "forbidden"},
		"another asset": {holds(onlyEur, "bo", 0), ""}, "no account": {holds(bo, "a b", 0), "malformed"},
		"a hold of a party": {hold(onlyBo), ""}, "of others": {hold(onlyCarol), "not_found"}, "in another asset": {hold(onlyEur), "not_found"},
		"own reference": {reference(alice, ""), ""}, "by its name": {reference(alice, "alice"), ""},
		"another principal's, as its own": {reference(bo, ""), "not_found"}, "by name": {reference(bo, "alice"), "forbidden"},
		"an admin's":   {reference(alice, "bo"), "not_found"},
		"all accounts": {accounts(bo, 5), ""}, "with a narrow token": {accounts(onlyBo, 5), "forbidden"},
		"too many": {accounts(bo, ledger.MaxAccounts+1), "malformed"},
	} {
		if got := reasonOf(tt.err); got != tt.want {
			t.Errorf("%s: %v, want %s", what, tt.err, tt.want)
		}
	}
}

// closedTx is a ledger whose records are in a closed period.
type closedTx struct{ ledger.Client }

func (closedTx) Tx(context.Context, record.TxID) (ledger.Outcome, error) {
	return ledger.Outcome{}, &ledger.ClosedError{Period: 1}
}

// A hold that is open is shown to its parties, though its own record is in a closed period.
func TestHoldOfAClosedPeriod(t *testing.T) {
	r := newRig(t, over(func(c ledger.Client) ledger.Client { return closedTx{c} })).start()
	r.fund("alice", 100)
	held := r.must("k", ledger.Op{
		Code: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(9), ExpiresIn: time.Hour,
	})
	if v, err := r.e.Hold(t.Context(), alice, held.id(t)); err != nil || v.From != "alice" {
		t.Errorf("hold %+v, %v", v, err)
	}
	other := grant(func(g *engines.Grant) { g.NarrowAccount("carol") })
	if v, err := r.e.Hold(t.Context(), other, held.id(t)); reasonOf(err) != "not_found" {
		t.Errorf("another's hold %+v, %v", v, err)
	}
}
