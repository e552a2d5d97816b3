package wallet_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger"
)

// Payments shows a narrowed token those that it may see, and refuses a filter outside the token.
func TestRightsOfPayments(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	r.must("k1", transfer("alice", "bo", 10, 1))
	r.must("k2", transfer("alice", "carol", 10, 2))
	ctx := context.Background()
	onlyBo := grant(func(g *engines.Grant) { g.NarrowAccount("bo*") })
	onlyEur := grant(func(g *engines.Grant) { g.NarrowAsset("eur") })
	for what, tt := range map[string]struct {
		by   engines.Actor
		f    ledger.PaymentFilter
		want string // the payees, or the reason of a refusal
	}{
		"all":                {alice, ledger.PaymentFilter{}, "alice bo carol"},
		"newest first":       {alice, ledger.PaymentFilter{Newest: true}, "carol bo alice"},
		"of one":             {alice, ledger.PaymentFilter{Account: "carol"}, "carol"},
		"issued":             {alice, ledger.PaymentFilter{Account: "sys:issue:ron"}, "alice"},
		"narrowed":           {onlyBo, ledger.PaymentFilter{}, "bo"},
		"within it":          {onlyBo, ledger.PaymentFilter{Account: "bo", Asset: "ron"}, "bo"},
		"within, but no one": {onlyBo, ledger.PaymentFilter{Account: "bob"}, ""},
		"outside it":         {onlyBo, ledger.PaymentFilter{Account: "alice"}, "forbidden"},
		"all that is issued": {onlyBo, ledger.PaymentFilter{Account: "sys:issue:ron"}, "forbidden"},
		"another asset":      {onlyEur, ledger.PaymentFilter{Asset: "ron"}, "forbidden"},
		"in one asset":       {onlyEur, ledger.PaymentFilter{}, ""},
		"no account":         {alice, ledger.PaymentFilter{Account: "a b"}, "malformed"},
		"the ledger's own":   {alice, ledger.PaymentFilter{Account: "sys:else"}, "forbidden"},
		"no asset":           {alice, ledger.PaymentFilter{Asset: "e ur"}, "malformed"},
	} {
		head, err := r.e.Head(ctx, tt.by)
		if err != nil {
			t.Fatal(err)
		}
		var payees []string
		err = r.e.Payments(ctx, tt.by, tt.f, 1, head.Seq, func(out *ledger.Outcome) error {
			payees = append(payees, out.Receipt.To)
			return nil
		})
		got := strings.Join(payees, " ")
		if err != nil {
			got = reasonOf(err)
		}
		if got != tt.want {
			t.Errorf("%s: %s, %v, want %s", what, got, err, tt.want)
		}
	}
	var refused *ledger.Reject
	for _, err := range []error{
		r.e.Payments(ctx, alice, ledger.PaymentFilter{Asset: "gold"}, 1, 0, nil),
		func() error {
			_, err := r.e.Accounts(ctx, alice, ledger.AccountsQuery{Asset: "gold", Limit: 1})
			return err
		}(),
	} {
		if !errors.As(err, &refused) {
			t.Errorf("an asset that nobody declared: %v", err)
		}
	}
}
