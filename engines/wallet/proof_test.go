package wallet_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// Committed transactions can be proven, exported, and followed on the bus.
func TestProofsAndExport(t *testing.T) {
	n := newNode(t)
	ctx := context.Background()
	events := n.e.Events("test")
	defer events.Close()
	n.pay(1, 100)
	made := n.must("k", transfer(name(0), "shop", 10, 1))
	proof, err := n.e.Proof(ctx, alice, made.id(t), 0)
	if err != nil {
		t.Fatal(err)
	}
	got, err := proof.Verify()
	if err != nil || got.TxID != made.id(t) || got.From != name(0) || got.To != "shop" {
		t.Errorf("the proof says %+v, %v", got, err)
	}
	head, err := n.e.Head(ctx, alice)
	if err != nil || head.Seq < made.Ledger.Seq {
		t.Errorf("%+v, %v", head, err)
	}
	roots, err := n.e.Roots(ctx, alice, 0, 10)
	if err != nil || len(roots) == 0 || uint64(len(roots)) > head.Batches {
		t.Errorf("%d roots, %v", len(roots), err)
	}
	grown, err := n.e.Consistency(ctx, alice, 1, head.Batches)
	if err != nil || grown.Verify() != nil {
		t.Errorf("%v, %v", err, grown.Verify())
	}
	if _, err := n.e.Consistency(ctx, alice, 1, head.Batches+100); reasonOf(err) != "malformed" {
		t.Errorf("a batch that is not there: %v", err)
	}
	lines := 0
	if err := n.e.Export(ctx, alice, 1, 0, func(record.Line) error { lines++; return nil }); err != nil ||
		lines < int(head.Seq) {
		t.Errorf("%d lines, %v", lines, err)
	}
	if err := n.e.Export(ctx, alice, 1, 0, func(record.Line) error { return errTest }); !errors.Is(err, errTest) {
		t.Errorf("%v", err)
	}
	if ev, _, err := events.Recv(ctx); err != nil || ev.Last == 0 {
		t.Errorf("%+v, %v", ev, err)
	}
	other := grant(func(g *engines.Grant) { g.NarrowAccount("carol") })
	if _, err := n.e.Proof(ctx, other, made.id(t), 0); !errors.Is(err, wallet.ErrNotFound) {
		t.Errorf("a proof for one who may not see it: %v", err)
	}
	for _, limit := range []int{0, ledger.MaxRoots + 1} {
		if _, err := n.e.Roots(ctx, alice, 0, limit); reasonOf(err) != "malformed" {
			t.Errorf("%d roots: %v", limit, err)
		}
	}
	if _, err := n.e.History(ctx, alice, ledger.HistoryQuery{Account: "shop", Asset: "ron"}); reasonOf(
		err,
	) != "malformed" {
		t.Errorf("a page of nothing: %v", err)
	}
	if _, err := n.e.History(ctx, alice,
		ledger.HistoryQuery{Account: "shop", Asset: "ron", Limit: 1, Cursor: "x"}); reasonOf(
		err,
	) != "malformed" {
		t.Errorf("a cursor of something else: %v", err)
	}
}

// Declaring an asset again returns the first receipt. Each op of a batch is checked against the
// scopes and the grant of the token.
func TestAssetsAndBatchScopes(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	ctx := context.Background()
	first, err := r.e.DeclareAsset(ctx, alice, "a1", "", "usd", nil)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.e.DeclareAsset(ctx, alice, "a2", "", "usd", nil); err != nil ||
		parse(t, bytesOf(again)).TxID != parse(t, bytesOf(first)).TxID {
		t.Errorf("%s, %v; first %s", bytesOf(again), err, bytesOf(first))
	}
	two, three := 2, 3
	if _, err := r.e.DeclareAsset(ctx, alice, "a4", "", "usd", &two); err != nil {
		t.Error(err)
	}
	if _, err := r.e.DeclareAsset(ctx, alice, "a5", "", "usd", &three); reasonOf(err) != "decimals_set" {
		t.Error(err)
	}
	if _, err := r.e.DeclareAsset(ctx, alice, "a3", "", "U$D", nil); reasonOf(err) != "malformed" {
		t.Error(err)
	}
	hold := r.must(
		"h",
		ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "bo",
			Asset:     "ron",
			Amount:    amountOf(5),
			Nonce:     1,
			ExpiresIn: time.Second,
		},
	)
	by := grant(func(g *engines.Grant) { g.NarrowAccount("alice"); g.NarrowCeiling(amountOf(20)) }, "wallet.transfer",
		"wallet.capture")
	for i, tt := range []struct {
		op    ledger.Op
		want  string
		index int
	}{
		{issue("alice", 1, 2), "forbidden", 1},
		{ledger.Op{Code: record.OpFlags, From: "alice", Set: record.Frozen}, "malformed", 1},
		{transfer("bo", "alice", 1, 1), "forbidden", 1},
		{transfer("alice", "alice", 1, 1), "malformed", 1},
		{transfer("alice", "bo", 21, 3), "limits_exceeded", 1},
		{ledger.Op{Code: record.OpCapture, Hold: hold.id(t)}, "hold_unknown", 1},
		{transfer("alice", "bo", 1, 3), "", 0},
	} {
		_, err := r.e.Batch(ctx, by, "b"+name(i), "", false, []ledger.Op{transfer("alice", "bo", 1, 2), tt.op})
		var at *wallet.IndexError
		if reasonOf(err) != tt.want || tt.want != "" && (!errors.As(err, &at) || at.Index != tt.index) {
			t.Errorf("case %d: %v, want %s of op %d", i, err, tt.want, tt.index)
		}
	}
	if _, err := r.e.Batch(ctx, alice, "", "", false, []ledger.Op{transfer("alice", "bo", 1, 4)}); reasonOf(
		err,
	) != "malformed" {
		t.Errorf("no key: %v", err)
	}
	if _, err := r.e.Batch(ctx, alice, "x", "", false, make([]ledger.Op, wallet.MaxBatchOps+1)); reasonOf(err) != "limits_exceeded" {
		t.Errorf("too many: %v", err)
	}
	if got := r.available("bo"); got != "2" {
		t.Errorf("bo has %s", got)
	}
}
