package appliance

import (
	"testing"
	"time"

	"ronbox/httpapi/client"
	"ronbox/httpapi/wire"
)

// payAll asks for everything that moves money and reads what came of it; what the answers are like is the witness' to judge.
func payAll(t *testing.T, c *client.Client) {
	ctx := t.Context()
	posted := told[client.Posted](t)
	posted(c.DeclareAsset(ctx, "asset", wire.AssetDeclare{Asset: "gold"}))
	posted(c.Issue(ctx, "issue", wire.Issue{To: "t/carol", Asset: "gold", AmountMinor: "1000", Nonce: 1}))
	body := wire.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "10", Nonce: 1, Memo: "for the book"}
	first := posted(c.Transfer(ctx, "pay", body))
	if again := posted(c.Transfer(ctx, "pay", body)); !again.Replayed || string(again.Raw) != string(first.Raw) {
		t.Errorf("again: %s, was %s", again.Raw, first.Raw)
	}
	posted(c.Burn(ctx, "burn", wire.Burn{From: "alice", Asset: "ron", AmountMinor: "5", Nonce: 2}))
	hold := func(key string, nonce uint64) string {
		return posted(c.Hold(ctx, key, wire.Hold{From: "alice", To: "bob", Asset: "ron", AmountMinor: "7", Nonce: nonce, ExpiresInS: 3600})).Receipt.TxID
	}
	posted(c.Capture(ctx, "capture", wire.Capture{Hold: hold("hold-1", 3), AmountMinor: "6"}))
	posted(c.Release(ctx, "release", wire.Release{Hold: hold("hold-2", 4)}))
	posted(c.SetFlags(ctx, "freeze", wire.FlagsChange{Account: "bob", Set: []string{"no_credit"}}))
	batch := told[client.BatchPosted](t)
	batch(c.Batch(ctx, "some", wire.Batch{Mode: "independent", Ops: []wire.BatchOp{
		{Op: wire.OpTransfer, From: "alice", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 5},
		{Op: wire.OpTransfer, From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Nonce: 6},
	}}))
	batch(c.Batch(ctx, "all", wire.Batch{Mode: "atomic", Ops: []wire.BatchOp{
		{Op: wire.OpTransfer, From: "alice", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 6},
	}}))
	told[wire.Ready](t)(c.Ready(ctx, "wallet", ""))
	readMoney(t, c, first)
}

func readMoney(t *testing.T, c *client.Client, paid client.Posted) {
	ctx, id := t.Context(), paid.Receipt.TxID
	told[wire.Balance](t)(c.Balance(ctx, "alice", "ron", paid.Receipt.Ledger.Seq))
	told[wire.Balance](t)(c.Balance(ctx, "nobody", "ron", 0))
	told[wire.Account](t)(c.Account(ctx, "alice"))
	told[wire.Account](t)(c.Account(ctx, "nobody"))
	told[wire.AssetList](t)(c.Assets(ctx))
	page := told[wire.History](t)(c.History(ctx, client.HistoryQuery{Account: "alice", Asset: "ron", Limit: 2}))
	told[wire.History](t)(c.History(ctx, client.HistoryQuery{Account: "alice", Asset: "ron", Limit: 2, Cursor: page.Next}))
	told[wire.History](t)(c.History(ctx, client.HistoryQuery{Account: "alice", Asset: "ron", Since: time.Now().Add(-time.Hour), Order: "asc"}))
	told[wire.Roots](t)(c.Roots(ctx, 0, 2))
	told[wire.LedgerHead](t)(c.LedgerHead(ctx))
	raw := told[[]byte](t)
	raw(c.Tx(ctx, id))
	raw(c.Proof(ctx, id, 0))
	raw(c.Consistency(ctx, 1, paid.Receipt.Ledger.Batch))
	lines := 0
	done(t, "export", c.ExportLedger(ctx, 1, 0, false, func([]byte) error { lines++; return nil }))
	if lines < 10 {
		t.Errorf("an export of %d lines", lines)
	}
}

// refusePayments asks for what the wallet must refuse.
func refusePayments(t *testing.T, c *client.Client) {
	ctx := t.Context()
	const nobody = "tx_00000000000000000000000000"
	_, _ = c.Transfer(ctx, "r1", wire.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "x", Nonce: 7})
	_, _ = c.Transfer(ctx, "r2", wire.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Nonce: 70})
	_, _ = c.Transfer(ctx, "r3", wire.Transfer{From: "nobody", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 1})
	_, _ = c.Transfer(ctx, "pay", wire.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "11", Nonce: 1})
	_, _ = c.Transfer(ctx, "r4", wire.Transfer{From: "alice", To: "bob", Asset: "ron", AmountMinor: "1", Nonce: 7}) // it takes no credit
	_, _ = c.Capture(ctx, "r5", wire.Capture{Hold: nobody})
	_, _ = c.Batch(ctx, "r6", wire.Batch{Mode: "atomic", Ops: []wire.BatchOp{
		{Op: wire.OpTransfer, From: "nobody", To: "carol", Asset: "ron", AmountMinor: "1", Nonce: 1},
	}})
	_, _ = c.Tx(ctx, nobody)
	_, _ = c.Proof(ctx, nobody, 0)
	_, _ = c.Consistency(ctx, 5, 1)
	_, _ = c.History(ctx, client.HistoryQuery{Account: "alice", Asset: "ron", Cursor: "none"})
}
