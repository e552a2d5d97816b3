package wallet_test

import (
	"context"
	"errors"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// Balance and History refuse an undeclared asset with the same code as a payment in that asset. An
// unknown account has a zero balance and an empty history.
func TestReadsOfAnAsset(t *testing.T) {
	n := newNode(t)
	n.pay(1, 100)
	ctx := context.Background()
	if _, err := n.e.History(ctx, alice,
		ledger.HistoryQuery{Account: name(0), Asset: "gold", Limit: 10, Cursor: "x"}); !noAsset(
		err,
	) {
		t.Errorf("a cursor in no asset: %v", err)
	}
	reads := func(account, asset string) (balance, history error) {
		b, balance := n.e.Balance(ctx, alice, account, asset, 0)
		page, history := n.e.History(ctx, alice, ledger.HistoryQuery{Account: account, Asset: asset, Limit: 10})
		if balance == nil && (!b.Posted.IsZero() || !b.Available.IsZero() || !b.Held.IsZero()) ||
			len(page.Entries) > 0 {
			t.Errorf("%s in %s: %+v, %+v", account, asset, b, page)
		}
		return balance, history
	}
	for _, account := range []string{name(0), "nobody", "sys:issue:gold"} {
		for range 2 { // twice: the refusal must not be cached
			if balance, history := reads(account, "gold"); !noAsset(balance) || !noAsset(history) ||
				wallet.ReasonOf(balance) != record.AssetUnknown.String() {
				t.Errorf("%s: %v, %v", account, balance, history)
			}
		}
	}
	if _, err := n.e.Balance(ctx, grant(func(g *engines.Grant) { g.NarrowAsset("ron") }), "nobody", "gold", 0); reasonOf(
		err,
	) != "forbidden" {
		t.Errorf("to whom the asset is nothing: %v", err)
	}
	looks := n.sum("upstream_calls_total", "op", wallet.OpAssets)
	if balance, history := reads("nobody", "ron"); balance != nil || history != nil {
		t.Errorf("%v, %v", balance, history)
	}
	if again := n.sum("upstream_calls_total", "op", wallet.OpAssets); again != looks {
		t.Errorf("%v looks for an asset that is known", again-looks)
	}
	if _, err := n.e.DeclareAsset(ctx, alice, "declare", "", "gold", nil); err != nil {
		t.Fatal(err)
	}
	if balance, history := reads(name(0), "gold"); balance != nil || history != nil {
		t.Errorf("declared since: %v, %v", balance, history)
	}
	if _, err := n.e.History(ctx, alice,
		ledger.HistoryQuery{Account: name(0), Asset: "gold", Limit: 10, Cursor: "x"}); !errors.Is(
		err,
		ledger.ErrCursor,
	) {
		t.Errorf("a cursor of nothing: %v", err)
	}
}

func noAsset(err error) bool {
	var reject *ledger.Reject
	return errors.As(err, &reject) && reject.Code == record.AssetUnknown
}
