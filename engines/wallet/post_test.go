package wallet_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// Every operation changes balances as its receipt states, and the receipt can be read again in the
// same bytes.
func TestEveryOperation(t *testing.T) {
	r := newRig(t).start()
	for _, step := range []struct {
		q         ledger.Op
		alice, bo string
	}{
		{issue("alice", 1000, 1), "1000", "0"},
		{transfer("alice", "bo", 300, 1), "700", "300"},
		{ledger.Op{Code: record.OpBurn, From: "bo", Asset: "ron", Amount: amountOf(50), Nonce: 1}, "700", "250"},
		{ledger.Op{Code: record.OpHold, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(100), Nonce: 2, ExpiresIn: time.Hour}, "600", "250"},
	} {
		got := r.must("k-"+step.q.Code.String(), step.q)
		if got.Op != step.q.Code.String() || got.Amount != step.q.Amount.String() || got.Idem != "k-"+got.Op {
			t.Errorf("%s: receipt %+v", step.q.Code, got)
		}
		if a, b := r.available("alice"), r.available("bo"); a != step.alice || b != step.bo {
			t.Errorf("%s: balances %s, %s, want %s, %s", step.q.Code, a, b, step.alice, step.bo)
		}
	}
	hold := r.must(
		"k-hold",
		ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "bo",
			Asset:     "ron",
			Amount:    amountOf(100),
			Nonce:     2,
			ExpiresIn: time.Hour,
		},
	)
	got := r.must("k-capture", ledger.Op{Code: record.OpCapture, Hold: hold.id(t), Amount: amountOf(60)})
	if a, b := r.available("alice"), r.available("bo"); a != "640" || b != "310" {
		t.Errorf("after a capture of 60: %s, %s", a, b)
	}
	hold = r.must(
		"k-hold2",
		ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "bo",
			Asset:     "ron",
			Amount:    amountOf(100),
			Nonce:     3,
			ExpiresIn: time.Hour,
		},
	)
	r.must("k-release", ledger.Op{Code: record.OpRelease, Hold: hold.id(t)})
	r.must("k-flags", ledger.Op{Code: record.OpFlags, From: "bo", Set: record.Frozen})
	if _, err := r.post("k-locked", transfer("bo", "alice", 1, 2)); reasonOf(err) != "account_locked" {
		t.Errorf("a frozen account: %v", err)
	}
	a, err := r.post("k-capture", ledger.Op{Code: record.OpCapture, Hold: hold.id(t)})
	if reasonOf(err) != "idem_conflict" {
		t.Errorf("the key of another capture: %s, %v", bytesOf(a), err)
	}
	bytes, err := r.e.Tx(context.Background(), alice, got.id(t))
	again, _ := r.post(
		"k-capture",
		ledger.Op{Code: record.OpCapture, Hold: parse(t, bytes).holdOf(t, bytes), Amount: amountOf(60)},
	)
	if err != nil || string(bytes) != string(bytesOf(again)) {
		t.Errorf("read again: %s, %v, want %s", bytes, err, bytesOf(again))
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

// grant returns an actor with a narrowed token.
func grant(narrow func(*engines.Grant), scopes ...string) engines.Actor {
	g := new(engines.Grant)
	narrow(g)
	return engines.Actor{CapID: "cap-n", Principal: "narrow", Scopes: scopes, Grant: g}
}

// A token limited to one account cannot use any other account, in any operation.
func TestGrants(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 1000)
	r.fund("bo", 1000)
	hold := r.must(
		"h",
		ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "bo",
			Asset:     "ron",
			Amount:    amountOf(100),
			Nonce:     1,
			ExpiresIn: time.Hour,
		},
	)
	onlyAlice := grant(func(g *engines.Grant) { g.NarrowAccount("alice") })
	onlyBo := grant(func(g *engines.Grant) { g.NarrowAccount("bo") })
	onlyEur := grant(func(g *engines.Grant) { g.NarrowAsset("eur") })
	small := grant(func(g *engines.Grant) { g.NarrowCeiling(amountOf(10)) })
	daily := grant(func(g *engines.Grant) { g.NarrowDaily(amountOf(15)) })
	for i, tt := range []struct {
		by   engines.Actor
		q    ledger.Op
		want string
	}{
		{onlyBo, transfer("alice", "bo", 1, 2), "forbidden"},
		{onlyBo, issue("alice", 1, 3), "forbidden"},
		{onlyBo, ledger.Op{Code: record.OpBurn, From: "alice", Asset: "ron", Amount: amountOf(1), Nonce: 2}, "forbidden"},
		{onlyBo, ledger.Op{Code: record.OpFlags, From: "alice", Set: record.Frozen}, "forbidden"},
		{onlyEur, transfer("alice", "bo", 1, 2), "forbidden"},
		{onlyEur, ledger.Op{Code: record.OpAsset, Asset: "usd"}, "forbidden"},
		{onlyAlice, ledger.Op{Code: record.OpCapture, Hold: hold.id(t)}, "hold_unknown"},
		{onlyAlice, ledger.Op{Code: record.OpRelease, Hold: hold.id(t)}, "hold_unknown"},
		{onlyBo, ledger.Op{Code: record.OpCapture, Hold: record.NewTxID(1, 2, 3)}, "hold_unknown"},
		{small, transfer("alice", "bo", 11, 2), "limits_exceeded"},
		{small, ledger.Op{Code: record.OpCapture, Hold: hold.id(t)}, "limits_exceeded"},
		{daily, transfer("alice", "bo", 16, 2), "limits_exceeded"},
		{alice, transfer("alice", "sys:issue:ron", 1, 2), "forbidden"},
		{alice, transfer("sys:issue:ron", "alice", 1, 2), "forbidden"},
		{onlyAlice, transfer("alice", "bo", 1, 2), ""},
		{small, transfer("alice", "bo", 10, 3), ""},
		{small, ledger.Op{Code: record.OpCapture, Hold: hold.id(t), Amount: amountOf(10)}, ""},
		{onlyBo, issue("bo", 1, 3), ""},
	} {
		_, err := r.e.Post(context.Background(), tt.by, "g"+name(i), "", tt.q)
		if reasonOf(err) != tt.want {
			t.Errorf("case %d, %s: %v, want %q", i, tt.q.Code, err, tt.want)
		}
	}
}

// The daily ceiling of a token bounds the amounts moved with that token. It covers all accounts,
// captures, single ops and batches, and excludes amounts moved by others.
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
	hold := r.must(
		"h",
		ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "shop",
			Asset:     "ron",
			Amount:    amountOf(60),
			Nonce:     2,
			ExpiresIn: time.Hour,
		},
	)
	capture := func(n uint64) ledger.Op {
		return ledger.Op{Code: record.OpCapture, Hold: hold.id(t), Amount: amountOf(n)}
	}
	for i, tt := range []struct {
		by   engines.Actor
		want string
		ops  []ledger.Op
	}{
		{one, "", []ledger.Op{transfer("alice", "shop", 100, 3)}},
		{one, "limit_daily", []ledger.Op{transfer("bo", "shop", 51, 1)}},
		{one, "limit_daily", []ledger.Op{capture(0)}},
		{one, "limit_daily", []ledger.Op{transfer("bo", "shop", 20, 1), capture(31)}},
		{none, "limits_exceeded", []ledger.Op{capture(0)}},
		{one, "", []ledger.Op{capture(50)}},
		{one, "limit_daily", []ledger.Op{transfer("bo", "shop", 1, 1)}},
		{fresh, "", []ledger.Op{transfer("alice", "shop", 50, 4), transfer("bo", "shop", 100, 1)}},
		{fresh, "limit_daily", []ledger.Op{transfer("bo", "shop", 1, 2)}},
	} {
		var err error
		if key := "d" + name(i); len(tt.ops) == 1 {
			_, err = r.e.Post(context.Background(), tt.by, key, "", tt.ops[0])
		} else {
			_, err = r.e.Batch(context.Background(), tt.by, key, "", true, tt.ops)
		}
		if reasonOf(err) != tt.want {
			t.Errorf("case %d: %v, want %q", i, err, tt.want)
		}
	}
}

// An admin can release any hold within the token's grant.
func TestReleaseByAdmin(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 1000)
	hold := r.must(
		"h",
		ledger.Op{
			Code:      record.OpHold,
			From:      "alice",
			To:        "bo",
			Asset:     "ron",
			Amount:    amountOf(100),
			Nonce:     1,
			ExpiresIn: time.Hour,
		},
	)
	for i, tt := range []struct {
		by   engines.Actor
		want string
	}{
		{grant(func(g *engines.Grant) { g.NarrowAccount("carol") }, "wallet.admin"), "hold_unknown"},
		{grant(func(g *engines.Grant) { g.NarrowAsset("eur") }, "wallet.admin"), "hold_unknown"},
		{grant(func(g *engines.Grant) { g.NarrowAccount("alice") }, "wallet.release"), "hold_unknown"},
		{grant(func(g *engines.Grant) { g.NarrowAccount("alice") }, "wallet.admin"), ""},
	} {
		if _, err := r.e.Post(context.Background(), tt.by, "r"+name(i), "",
			ledger.Op{Code: record.OpRelease, Hold: hold.id(t)}); reasonOf(
			err,
		) != tt.want {
			t.Errorf("case %d: %v, want %q", i, err, tt.want)
		}
	}
}

// Refusals by the ledger's limits map to their codes and carry the data needed for a retry.
func TestRefusals(t *testing.T) {
	r := newRig(t, with(func(c *wallet.Config) {
		c.MaxAmountPerOp, c.DailyCeiling = amountOf(100), amountOf(150)
	})).start()
	r.fund("alice", 1000)
	for i, tt := range []struct {
		q    ledger.Op
		want string
	}{
		{transfer("alice", "bo", 101, 1), "limit_op"},
		{transfer("alice", "bo", 1, 2), "nonce_gap"},
		{transfer("bo", "alice", 1, 1), "insufficient_funds"},
		{transfer("alice", "bo", 100, 1), ""},
		{transfer("alice", "bo", 100, 1), "nonce_reused"},
		{transfer("alice", "bo", 51, 2), "limit_daily"},
		{ledger.Op{Code: record.OpTransfer, From: "alice", To: "bo", Asset: "none", Amount: amountOf(1), Nonce: 2}, "asset_unknown"},
		{ledger.Op{Code: record.OpTransfer, From: "alice", To: "bo", Asset: "ron", Amount: amountOf(1), Nonce: 2, ValidUntil: time.Unix(1, 0).UnixNano()}, "expired"},
		{ledger.Op{Code: record.OpCapture, Hold: record.NewTxID(1, 9, 9)}, "hold_unknown"},
	} {
		_, err := r.post("r"+name(i), tt.q)
		if reasonOf(err) != tt.want {
			t.Errorf("case %d: %v, want %q", i, err, tt.want)
		}
	}
	_, err := r.post("gap", transfer("alice", "bo", 1, 7))
	var reject *ledger.Reject
	if !errors.As(err, &reject) || reject.Expected != 2 || !rowOf(err).Retry {
		t.Errorf("a gap: %+v", err)
	}
	r.want(3, "wallet_nonce_conflicts_total")
	r.want(2, "wallet_rejects_total", "reason", "nonce_gap")
}

// SetFlags on an unknown account is refused unless the request permits opening the account. A
// repeated request returns the first answer.
func TestFlagsOfAnUnknownAccount(t *testing.T) {
	r := newRig(t).start()
	for _, q := range []ledger.Op{{Code: record.OpFlags, From: "tpyo", Set: record.Frozen}, {Code: record.OpFlags, From: "tpyo", Clear: record.Frozen}} {
		if _, err := r.post("k-typo", q); wallet.ReasonOf(err) != "account_unknown" {
			t.Errorf("%+v: %v", q, err)
		}
		if a, err := r.e.Account(t.Context(), alice, "tpyo"); err != nil || a.Known {
			t.Errorf("it was opened: %+v, %v", a, err)
		}
	}
	opens := ledger.Op{Code: record.OpFlags, From: "tpyo", Set: record.Frozen}
	open := func() wallet.Answer {
		a, err := r.e.SetFlags(t.Context(), alice, "k-new", "", opens, true)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	first := open()
	if again := open(); again.Receipt.TxID != first.Receipt.TxID || !again.Replayed {
		t.Errorf("again: %+v, was %+v", again, first)
	}
	r.must("k-known", ledger.Op{Code: record.OpFlags, From: "tpyo", Clear: record.Frozen})
}

// A payment that must not open its payee is refused for an account that was never paid, and leaves
// its key free. A repetition gets the first answer, with the condition or without it.
func TestPaymentToAnExistingPayee(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	r.fund("bob", 1)
	existing := func(key string, op ledger.Op) (wallet.Answer, error) {
		return r.e.PostExisting(t.Context(), alice, key, "", op)
	}
	hold := ledger.Op{Code: record.OpHold, From: "alice", To: "bbo", Asset: "ron", Amount: amountOf(1), ExpiresIn: time.Hour}
	for key, op := range map[string]ledger.Op{"pay": transfer("alice", "bbo", 1, 0), "hold": hold} {
		for range 2 {
			if _, err := existing(key, op); wallet.ReasonOf(err) != "payee_unknown" {
				t.Errorf("%s: %v", key, err)
			}
		}
		if a, err := r.e.Account(t.Context(), alice, "bbo"); err != nil || a.Known {
			t.Errorf("%s: it was opened: %+v, %v", key, a, err)
		}
	}
	known, err := existing("known", transfer("alice", "bob", 1, 0))
	if err != nil || known.Replayed {
		t.Errorf("a known payee: %+v, %v", known, err)
	}
	first := r.must("pay", transfer("alice", "bbo", 1, 0))
	again, err := existing("pay", transfer("alice", "bbo", 1, 0))
	if err != nil || !again.Replayed || again.Receipt.TxID.String() != first.TxID {
		t.Errorf("again: %+v, %v, want %+v", again, err, first)
	}
	if got := r.must("known", transfer("alice", "bob", 1, 0)); got.TxID != known.Receipt.TxID.String() {
		t.Errorf("again: %+v, want %+v", got, known)
	}
}

// slowAccounts is a ledger that answers reads of accounts after gate was closed.
type slowAccounts struct {
	ledger.Client
	gate chan struct{}
}

func (g slowAccounts) Account(ctx context.Context, account string) (ledger.AccountView, error) {
	<-g.gate
	return g.Client.Account(ctx, account)
}

// A payment that joins one that must not open its payee is not refused with it.
func TestConditionIsThatOfEachCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, over(func(c ledger.Client) ledger.Client { return slowAccounts{c, gate} })).start()
		r.fund("alice", 100)
		op := transfer("alice", "bbo", 1, 0)
		strict, plain := make(chan error, 2), make(chan error, 1)
		pay := func(to chan error, post func(context.Context, engines.Actor, string, string, ledger.Op) (wallet.Answer, error)) {
			go func() {
				_, err := post(context.Background(), alice, "k", "", op)
				to <- err
			}()
			synctest.Wait()
		}
		pay(strict, r.e.PostExisting)
		pay(strict, r.e.PostExisting)
		pay(plain, r.e.Post)
		close(gate)
		for range 2 {
			if err := <-strict; !errors.Is(err, wallet.ErrUnknownPayee) {
				t.Errorf("with the condition: %v", err)
			}
		}
		if err := <-plain; err != nil {
			t.Errorf("without the condition: %v", err)
		}
		r.stop()
	})
}

// A debit without a nonce gets the next nonce of the account, and its receipt shows it. A nonce
// given explicitly is still checked strictly.
func TestAssignedNonces(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	for i, key := range []string{"a", "b", "c"} {
		if got := r.must(key, transfer("alice", "bob", 1, 0)); got.Nonce != uint64(i+1) {
			t.Errorf("%+v, want the nonce %d", got, i+1)
		}
	}
	first := r.must("again", transfer("alice", "bob", 1, 0))
	if got := r.must("again", transfer("alice", "bob", 1, 0)); got.TxID != first.TxID || got.Nonce != 4 {
		t.Errorf("again: %+v, want %+v", got, first)
	}
	var reject *ledger.Reject
	if _, err := r.post("d", transfer("alice", "bob", 1, 4)); !errors.As(err, &reject) ||
		reject.Code != record.NonceReused {
		t.Errorf("a nonce that was assigned: %v", err)
	}
	if got := r.must("e", transfer("alice", "bob", 1, 5)); got.Nonce != 5 {
		t.Errorf("%+v, want the nonce 5", got)
	}
}
