package wallet

import (
	"context"
	"errors"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// What the wallet did can be proven by anyone, exported, and followed on the bus.
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
	if _, err := n.e.Consistency(ctx, alice, 1, head.Batches+100); code(err) != "BAD_REQUEST" {
		t.Errorf("a batch that is not there: %v", err)
	}
	lines := 0
	if err := n.e.Export(ctx, alice, 1, 0, func(record.Line) error { lines++; return nil }); err != nil || lines < int(head.Seq) {
		t.Errorf("%d lines, %v", lines, err)
	}
	if err := n.e.Export(ctx, alice, 1, 0, func(record.Line) error { return errTest }); !errors.Is(err, errTest) {
		t.Errorf("%v", err)
	}
	if ev, _, err := events.Recv(ctx); err != nil || ev.Last == 0 {
		t.Errorf("%+v, %v", ev, err)
	}
	other := grant(func(g *engines.Grant) { g.NarrowAccount("carol") })
	if _, err := n.e.Proof(ctx, other, made.id(t), 0); !errors.Is(err, ErrNotFound) {
		t.Errorf("a proof for one who may not see it: %v", err)
	}
	for _, limit := range []int{0, ledger.MaxRoots + 1} {
		if _, err := n.e.Roots(ctx, alice, 0, limit); code(err) != "BAD_REQUEST" {
			t.Errorf("%d roots: %v", limit, err)
		}
	}
	if _, err := n.e.History(ctx, alice, ledger.HistoryQuery{Account: "shop", Asset: "ron"}); code(err) != "BAD_REQUEST" {
		t.Errorf("a page of nothing: %v", err)
	}
	if _, err := n.e.History(ctx, alice, ledger.HistoryQuery{Account: "shop", Asset: "ron", Limit: 1, Cursor: "x"}); code(err) != "BAD_REQUEST" {
		t.Errorf("a cursor of something else: %v", err)
	}
}

// Assets are declared once; each op of a batch needs its own scope and reaches what the token reaches.
func TestAssetsAndBatchScopes(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	ctx := context.Background()
	first, err := r.e.DeclareAsset(ctx, alice, "a1", "", "usd")
	if err != nil {
		t.Fatal(err)
	}
	if again, err := r.e.DeclareAsset(ctx, alice, "a2", "", "usd"); err != nil || parse(t, again.bytes()).TxID != parse(t, first.bytes()).TxID {
		t.Errorf("%s, %v; first %s", again.bytes(), err, first.bytes())
	}
	if _, err := r.e.DeclareAsset(ctx, alice, "a3", "", "U$D"); code(err) != "BAD_REQUEST" {
		t.Error(err)
	}
	hold := r.must("h", Request{Op: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(5), Nonce: 1, ExpiresIn: minHold})
	by := grant(func(g *engines.Grant) { g.NarrowAccount("alice"); g.NarrowCeiling(amountOf(20)) }, "wallet.transfer", "wallet.capture")
	for i, tt := range []struct {
		op    Request
		want  string
		index int
	}{
		{issue("alice", 1, 2), "FORBIDDEN", 1},
		{Request{Op: record.OpFlags, From: "alice", Set: record.Frozen}, "BAD_REQUEST", 1},
		{transfer("bo", "alice", 1, 1), "FORBIDDEN", 1},
		{transfer("alice", "alice", 1, 1), "BAD_REQUEST", 1},
		{transfer("alice", "bo", 21, 3), "LIMITS_EXCEEDED", 1},
		{Request{Op: record.OpCapture, Hold: hold.id(t)}, "HOLD_NOT_FOUND", 1},
		{transfer("alice", "bo", 1, 3), "", 0},
	} {
		_, err := r.e.Batch(ctx, by, "b"+name(i), "", false, []Request{transfer("alice", "bo", 1, 2), tt.op})
		var at *IndexError
		if code(err) != tt.want || tt.want != "" && (!errors.As(err, &at) || at.Index != tt.index) {
			t.Errorf("case %d: %v, want %s of op %d", i, err, tt.want, tt.index)
		}
	}
	if _, err := r.e.Batch(ctx, alice, "", "", false, []Request{transfer("alice", "bo", 1, 4)}); code(err) != "BAD_REQUEST" {
		t.Errorf("no key: %v", err)
	}
	if _, err := r.e.Batch(ctx, alice, "x", "", false, make([]Request, MaxBatchOps+1)); code(err) != "LIMITS_EXCEEDED" {
		t.Errorf("too many: %v", err)
	}
	if got := r.available("bo"); got != "2" {
		t.Errorf("bo has %s", got)
	}
}

// A batch waits for the nonces before its own as a single request does, on every account it debits.
func TestBatchWaitsForNonces(t *testing.T) {
	j := &job{}
	for _, op := range []Request{
		transfer("a", "x", 1, 5), transfer("b", "x", 1, 9), transfer("a", "x", 1, 6), {Op: record.OpRelease}, issue("x", 1, 2), transfer("b", "x", 1, 12),
	} {
		j.op.Ops = append(j.op.Ops, ledger.Op{Code: op.Op, From: op.From, To: op.To, Asset: op.Asset, Nonce: op.Nonce})
	}
	j.wantsAll(false)
	want := []need{{account: "a", lo: 5, hi: 7}, {account: "b", lo: 9, hi: 10}, {account: "sys:issue:ron", lo: 2, hi: 3}}
	if len(j.needs) != len(want) {
		t.Fatalf("%+v", j.needs)
	}
	for i := range want {
		if j.needs[i] != want[i] {
			t.Errorf("need %d: %+v, want %+v", i, j.needs[i], want[i])
		}
	}
	if j.wantsAll(true); j.needs[1].hi != 13 {
		t.Errorf("where nonces may skip: %+v", j.needs)
	}
	n, set := nonceTable(1), strict(4)
	first, last := &burst{}, &burst{}
	before := nonceJob(n, "b", 8, 9)
	if n.place(first, before, set) != reserved {
		t.Fatal("8 has no place")
	}
	j.wantsAll(false)
	n.note(j)
	places := []place{n.placeOf(last, j, 0, set), n.placeOf(last, j, 1, set)}
	if places[0] != reserved || places[1] != parked {
		t.Errorf("places %v", places)
	}
	if woken := n.strike(before, nil); len(woken) != 1 || woken[0] != j {
		t.Errorf("woken: %v", woken)
	}
}
