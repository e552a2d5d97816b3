package wallet

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// Every operation does what its receipt says, and the receipt can be read again in the same bytes.
func TestEveryOperation(t *testing.T) {
	r := newRig(t).start()
	for _, step := range []struct {
		q         Request
		alice, bo string
	}{
		{issue("alice", 1000, 1), "1000", "0"},
		{transfer("alice", "bo", 300, 1), "700", "300"},
		{Request{Op: record.OpBurn, From: "bo", Asset: "ron", Amount: amountOf(50), Nonce: 1}, "700", "250"},
		{Request{Op: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(100), Nonce: 2, ExpiresIn: time.Hour}, "600", "250"},
	} {
		got := r.must("k-"+step.q.Op.String(), step.q)
		if got.Op != step.q.Op.String() || got.Amount != step.q.Amount.String() || got.Idem != "k-"+got.Op {
			t.Errorf("%s: receipt %+v", step.q.Op, got)
		}
		if a, b := r.available("alice"), r.available("bo"); a != step.alice || b != step.bo {
			t.Errorf("%s: balances %s, %s, want %s, %s", step.q.Op, a, b, step.alice, step.bo)
		}
	}
	hold := r.must("k-hold", Request{Op: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(100), Nonce: 2, ExpiresIn: time.Hour})
	got := r.must("k-capture", Request{Op: record.OpCapture, Hold: hold.id(t), Amount: amountOf(60)})
	if a, b := r.available("alice"), r.available("bo"); a != "640" || b != "310" {
		t.Errorf("after a capture of 60: %s, %s", a, b)
	}
	hold = r.must("k-hold2", Request{Op: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(100), Nonce: 3, ExpiresIn: time.Hour})
	r.must("k-release", Request{Op: record.OpRelease, Hold: hold.id(t)})
	r.must("k-flags", Request{Op: record.OpFlags, From: "bo", Set: record.Frozen})
	if _, err := r.post("k-locked", transfer("bo", "alice", 1, 2)); code(err) != "ACCOUNT_LOCKED" {
		t.Errorf("a frozen account: %v", err)
	}
	a, err := r.post("k-capture", Request{Op: record.OpCapture, Hold: hold.id(t)})
	if code(err) != "IDEMPOTENCY_CONFLICT" {
		t.Errorf("the key of another capture: %s, %v", a.bytes(), err)
	}
	bytes, err := r.e.Tx(context.Background(), alice, got.id(t))
	again, _ := r.post("k-capture", Request{Op: record.OpCapture, Hold: parse(t, bytes).holdOf(t, bytes), Amount: amountOf(60)})
	if err != nil || string(bytes) != string(again.bytes()) {
		t.Errorf("read again: %s, %v, want %s", bytes, err, again.bytes())
	}
}

func (j receiptJSON) holdOf(t *testing.T, body []byte) record.TxID {
	t.Helper()
	_, rest, _ := strings.Cut(string(body), `"hold":"`)
	id, err := record.ParseTxID(rest[:29])
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// grant is an actor whose token is narrowed.
func grant(narrow func(*engines.Grant), scopes ...string) engines.Actor {
	g := new(engines.Grant)
	narrow(g)
	return engines.Actor{CapID: "cap-n", Principal: "narrow", Scopes: scopes, Grant: g}
}

// A token that reaches one account reaches no other, by whatever operation.
func TestGrants(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 1000)
	r.fund("bo", 1000)
	hold := r.must("h", Request{Op: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(100), Nonce: 1, ExpiresIn: time.Hour})
	onlyAlice := grant(func(g *engines.Grant) { g.NarrowAccount("alice") })
	onlyBo := grant(func(g *engines.Grant) { g.NarrowAccount("bo") })
	onlyEur := grant(func(g *engines.Grant) { g.NarrowAsset("eur") })
	small := grant(func(g *engines.Grant) { g.NarrowCeiling(amountOf(10)) })
	daily := grant(func(g *engines.Grant) { g.NarrowDaily(amountOf(15)) })
	for i, tt := range []struct {
		by   engines.Actor
		q    Request
		want string
	}{
		{onlyBo, transfer("alice", "bo", 1, 2), "FORBIDDEN"},
		{onlyBo, issue("alice", 1, 3), "FORBIDDEN"},
		{onlyBo, Request{Op: record.OpBurn, From: "alice", Asset: "ron", Amount: amountOf(1), Nonce: 2}, "FORBIDDEN"},
		{onlyBo, Request{Op: record.OpFlags, From: "alice", Set: record.Frozen}, "FORBIDDEN"},
		{onlyEur, transfer("alice", "bo", 1, 2), "FORBIDDEN"},
		{onlyEur, Request{Op: record.OpAsset, Asset: "usd"}, "FORBIDDEN"},
		{onlyAlice, Request{Op: record.OpCapture, Hold: hold.id(t)}, "HOLD_NOT_FOUND"},
		{onlyAlice, Request{Op: record.OpRelease, Hold: hold.id(t)}, "HOLD_NOT_FOUND"},
		{onlyBo, Request{Op: record.OpCapture, Hold: record.NewTxID(1, 2, 3)}, "HOLD_NOT_FOUND"},
		{small, transfer("alice", "bo", 11, 2), "LIMITS_EXCEEDED"},
		{small, Request{Op: record.OpCapture, Hold: hold.id(t)}, "LIMITS_EXCEEDED"},
		{daily, transfer("alice", "bo", 16, 2), "LIMITS_EXCEEDED"},
		{alice, transfer("alice", "sys:issue:ron", 1, 2), "FORBIDDEN"},
		{alice, transfer("sys:issue:ron", "alice", 1, 2), "FORBIDDEN"},
		{onlyAlice, transfer("alice", "bo", 1, 2), ""},
		{small, transfer("alice", "bo", 10, 3), ""},
		{small, Request{Op: record.OpCapture, Hold: hold.id(t), Amount: amountOf(10)}, ""},
		{onlyBo, issue("bo", 1, 3), ""},
	} {
		_, err := r.e.Post(context.Background(), tt.by, "g"+name(i), "", tt.q)
		if code(err) != tt.want {
			t.Errorf("case %d, %s: %v, want %q", i, tt.q.Op, err, tt.want)
		}
	}
}

// A token's ceiling of a day bounds what that token moves: from all accounts together, captures included, in a batch or alone, and not what
// others have moved.
func TestDailyCeilingOfAToken(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 1000)
	r.fund("bo", 1000)
	token := func(id string, most uint64) engines.Actor {
		by := grant(func(g *engines.Grant) { g.NarrowDaily(amountOf(most)) }, "wallet.transfer", "wallet.capture")
		by.CapID = id
		return by
	}
	one, fresh, none := token("one", 150), token("fresh", 150), token("none", 0)
	r.must("t", transfer("alice", "shop", 500, 1))
	hold := r.must("h", Request{Op: record.OpHold, From: "alice", To: "shop", Asset: "ron", Amount: amountOf(60), Nonce: 2, ExpiresIn: time.Hour})
	capture := func(n uint64) Request { return Request{Op: record.OpCapture, Hold: hold.id(t), Amount: amountOf(n)} }
	for i, tt := range []struct {
		by   engines.Actor
		want string
		ops  []Request
	}{
		{one, "", []Request{transfer("alice", "shop", 100, 3)}},
		{one, "LIMITS_EXCEEDED", []Request{transfer("bo", "shop", 51, 1)}},
		{one, "LIMITS_EXCEEDED", []Request{capture(0)}},
		{one, "LIMITS_EXCEEDED", []Request{transfer("bo", "shop", 20, 1), capture(31)}},
		{none, "LIMITS_EXCEEDED", []Request{capture(0)}},
		{one, "", []Request{capture(50)}},
		{one, "LIMITS_EXCEEDED", []Request{transfer("bo", "shop", 1, 1)}},
		{fresh, "", []Request{transfer("alice", "shop", 50, 4), transfer("bo", "shop", 100, 1)}},
		{fresh, "LIMITS_EXCEEDED", []Request{transfer("bo", "shop", 1, 2)}},
	} {
		var err error
		if key := "d" + name(i); len(tt.ops) == 1 {
			_, err = r.e.Post(context.Background(), tt.by, key, "", tt.ops[0])
		} else {
			_, err = r.e.Batch(context.Background(), tt.by, key, "", true, tt.ops)
		}
		if code(err) != tt.want {
			t.Errorf("case %d: %v, want %q", i, err, tt.want)
		}
	}
}

// One who may administer may give up anybody's hold, as far as his token reaches.
func TestReleaseByAdmin(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 1000)
	hold := r.must("h", Request{Op: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(100), Nonce: 1, ExpiresIn: time.Hour})
	for i, tt := range []struct {
		by   engines.Actor
		want string
	}{
		{grant(func(g *engines.Grant) { g.NarrowAccount("carol") }, "wallet.admin"), "HOLD_NOT_FOUND"},
		{grant(func(g *engines.Grant) { g.NarrowAsset("eur") }, "wallet.admin"), "HOLD_NOT_FOUND"},
		{grant(func(g *engines.Grant) { g.NarrowAccount("alice") }, "wallet.release"), "HOLD_NOT_FOUND"},
		{grant(func(g *engines.Grant) { g.NarrowAccount("alice") }, "wallet.admin"), ""},
	} {
		if _, err := r.e.Post(context.Background(), tt.by, "r"+name(i), "", Request{Op: record.OpRelease, Hold: hold.id(t)}); code(err) != tt.want {
			t.Errorf("case %d: %v, want %q", i, err, tt.want)
		}
	}
}

// The ledger's own limits come back under their codes, with what their bearer needs to go on.
func TestRefusals(t *testing.T) {
	r := newRig(t, with(func(c *Config) {
		c.MaxAmountPerOp, c.DailyCeiling = amountOf(100), amountOf(150)
	})).start()
	r.fund("alice", 1000)
	for i, tt := range []struct {
		q    Request
		want string
	}{
		{transfer("alice", "bo", 101, 1), "LIMITS_EXCEEDED"},
		{transfer("alice", "bo", 1, 2), "NONCE_CONFLICT"},
		{transfer("bo", "alice", 1, 1), "INSUFFICIENT_FUNDS"},
		{transfer("alice", "bo", 100, 1), ""},
		{transfer("alice", "bo", 100, 1), "NONCE_CONFLICT"},
		{transfer("alice", "bo", 51, 2), "LIMITS_EXCEEDED"},
		{Request{Op: record.OpTransfer, From: "alice", To: "bo", Asset: "none", Amount: amountOf(1), Nonce: 2}, "BAD_REQUEST"},
		{Request{Op: record.OpTransfer, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(1), Nonce: 2, ValidUntil: time.Unix(1, 0)}, "BAD_REQUEST"},
		{Request{Op: record.OpCapture, Hold: record.NewTxID(1, 9, 9)}, "HOLD_NOT_FOUND"},
	} {
		_, err := r.post("r"+name(i), tt.q)
		if code(err) != tt.want {
			t.Errorf("case %d: %v, want %q", i, err, tt.want)
		}
	}
	_, err := r.post("gap", transfer("alice", "bo", 1, 7))
	var reject *ledger.Reject
	if !errors.As(err, &reject) || reject.Expected != 2 || !CodeOf(err).Retryable {
		t.Errorf("a gap: %+v", err)
	}
	r.want(3, "wallet_nonce_conflicts_total")
	r.want(2, "wallet_rejects_total", "reason", "nonce_gap")
}

// Flags on a name that the ledger has not seen are refused, unless the request says that it is new. What was done is told again.
func TestFlagsOfAnUnknownAccount(t *testing.T) {
	r := newRig(t).start()
	for _, q := range []Request{{Op: record.OpFlags, From: "tpyo", Set: record.Frozen}, {Op: record.OpFlags, From: "tpyo", Clear: record.Frozen}} {
		if _, err := r.post("k-typo", q); CodeOf(err).Reason != "account_unknown" {
			t.Errorf("%+v: %v", q, err)
		}
		if a, err := r.e.Account(t.Context(), alice, "tpyo"); err != nil || a.Known {
			t.Errorf("it was opened: %+v, %v", a, err)
		}
	}
	opens := Request{Op: record.OpFlags, From: "tpyo", Set: record.Frozen, New: true}
	first := r.must("k-new", opens)
	if again := r.must("k-new", opens); again.TxID != first.TxID {
		t.Errorf("again: %+v, was %+v", again, first)
	}
	r.must("k-known", Request{Op: record.OpFlags, From: "tpyo", Clear: record.Frozen})
	if _, err := r.post("k-pay", Request{Op: record.OpIssue, To: "bo", Asset: "ron", Amount: amountOf(1), Nonce: 1, New: true}); code(err) != "BAD_REQUEST" {
		t.Errorf("new of an issue: %v", err)
	}
}
