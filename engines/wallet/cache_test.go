package wallet_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

func (r *rig) balance(account string, minSeq uint64) (ledger.BalanceView, error) {
	return r.e.Balance(context.Background(), alice, account, "ron", minSeq)
}

// A balance read from the ledger's memory is never older than the newest record of the account. A
// read that goes to the file counts as a miss and warms the balance.
func TestBalanceReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cold, warmed := true, ""
		r := newRig(t, over(func(c ledger.Client) ledger.Client { return &coldClient{c, &cold} }))
		*r.e.Warm() = func(_ context.Context, account, asset string) error {
			cold, warmed = false, account+" "+asset
			return nil
		}
		r.start()
		r.fund("alice", 100)
		ask := func(want, outcome string) {
			t.Helper()
			before := r.sum("balance_cache_total", "outcome", outcome)
			if b, err := r.balance("alice", 0); err != nil || b.Available.String() != want {
				t.Errorf("%+v, %v; want %s", b, err, want)
			}
			if r.sum("balance_cache_total", "outcome", outcome) != before+1 {
				t.Errorf("not a %s", outcome)
			}
			synctest.Wait()
		}
		ask("100", wallet.BalanceMiss)
		if warmed != "alice ron" {
			t.Errorf("%q was brought into memory", warmed)
		}
		ask("100", wallet.BalanceHit)
		got := r.must("k", transfer("alice", "bo", 10, 1))
		ask("90", wallet.BalanceHit)
		if b, err := r.balance("alice", got.Ledger.Seq); err != nil || b.Seq < got.Ledger.Seq {
			t.Errorf("%+v, %v", b, err)
		}
		if b, err := r.balance("nobody", 0); err != nil || b.Available.String() != "0" || b.Known {
			t.Errorf("%+v, %v", b, err)
		}
		r.stop()
	})
}

// coldClient is a ledger that reads balances from its file while cold is true.
type coldClient struct {
	ledger.Client
	cold *bool
}

func (c *coldClient) Balance(ctx context.Context, account, asset string, seq uint64) (ledger.BalanceView, error) {
	v, err := c.Client.Balance(ctx, account, asset, seq)
	v.Cold = *c.cold
	return v, err
}

// A read with a min_seq beyond the end of the ledger waits until its deadline, but at most for the
// timeout of one call. It then returns a BehindError with the current sequence number, which does
// not count as a failure of the ledger.
func TestMinSeqAhead(t *testing.T) {
	for within, want := range map[time.Duration]time.Duration{time.Minute: time.Second, 300 * time.Millisecond: 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t).start()
			r.fund("alice", 100)
			head, err := r.model.Head(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(context.Background(), within)
			defer cancel()
			began := time.Now()
			_, err = r.e.Balance(ctx, alice, "alice", "ron", head.Seq+2)
			var behind *wallet.BehindError
			if !errors.As(err, &behind) || *behind != (wallet.BehindError{Want: head.Seq + 2, Have: head.Seq}) ||
				reasonOf(err) != "timeout" ||
				time.Since(began) != want {
				t.Errorf("%v after %s", err, time.Since(began))
			}
			for _, word := range []string{"min_seq = " + fmt.Sprint(head.Seq+2), "record " + fmt.Sprint(head.Seq), "receipt", "again"} {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q does not say %q", err, word)
				}
			}
			r.want(0, "upstream_fail_total", "svc", "ledger")
			r.want(0, "io_timeouts_total", "op", "ledger_rpc")
			r.stop()
		})
	}
}

// A read with a min_seq returns as soon as that record exists. A read that is canceled while it
// waits returns CauseCanceled.
func TestMinSeqComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.fund("alice", 100)
		head, err := r.model.Head(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ask := func(ctx context.Context) chan error {
			out := make(chan error, 1)
			go func() {
				b, err := r.e.Balance(ctx, alice, "alice", "ron", head.Seq+1)
				if err == nil && (b.Seq != head.Seq+1 || b.Available.String() != "101") {
					err = fmt.Errorf("%+v", b)
				}
				out <- err
			}()
			synctest.Wait()
			return out
		}
		began := time.Now()
		leaves, stays := ask(ctx), ask(context.Background())
		time.Sleep(400 * time.Millisecond)
		cancel()
		var not *wallet.NotReadyError
		if err := <-leaves; !errors.As(err, &not) || not.Cause != wallet.CauseCanceled {
			t.Errorf("who leaves: %v", err)
		}
		r.fund("alice", 1)
		if err := <-stays; err != nil || time.Since(began) != 400*time.Millisecond {
			t.Errorf("who stays: %v after %s", err, time.Since(began))
		}
		r.stop()
	})
}

// A balance read with the sequence number of a receipt includes that receipt, while other transfers
// run.
func TestBalancesAreFresh(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 1000)
	for i := range uint64(200) {
		got := r.must("f"+name(int(i)), transfer("alice", "bo", 1, i+1))
		b, err := r.balance("bo", got.Ledger.Seq)
		if err != nil || b.Available != amountOf(i+1) {
			t.Fatalf("after %d transfers: %+v, %v", i+1, b, err)
		}
	}
}

// A read returns only accounts, assets and receipts within the token's grant, and no system
// accounts except issuance.
func TestWhoMayRead(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	mine := r.must("k", transfer("alice", "bo", 10, 1))
	ctx := context.Background()
	onlyBo := grant(func(g *engines.Grant) { g.NarrowAccount("bo") })
	onlyCarol := grant(func(g *engines.Grant) { g.NarrowAccount("carol") })
	onlyEur := grant(func(g *engines.Grant) { g.NarrowAsset("eur") })
	balance := func(by engines.Actor, account string) error {
		_, err := r.e.Balance(ctx, by, account, "ron", 0)
		return err
	}
	tx := func(by engines.Actor) error { _, err := r.e.Tx(ctx, by, mine.id(t)); return err }
	history := func(by engines.Actor, account string) error {
		_, err := r.e.History(ctx, by, ledger.HistoryQuery{Account: account, Asset: "ron", Limit: 10})
		return err
	}
	acct := func(by engines.Actor, account string) error { _, err := r.e.Account(ctx, by, account); return err }
	for what, tt := range map[string]struct {
		err  error
		want string
	}{
		"own balance": {balance(onlyBo, "bo"), ""}, "another's": {balance(onlyBo, "alice"), "forbidden"}, "another asset": {balance(onlyEur, "bo"), "forbidden"},
		"what was issued": {balance(alice, "sys:issue:ron"), ""}, "for who sees all": {balance(onlyBo, "sys:issue:ron"), "forbidden"},
		"the ledger's own": {balance(alice, "sys:else"), "forbidden"}, "no account": {balance(alice, "a b"), "malformed"},
		"receipt of a party": {tx(onlyBo), ""}, "of others": {tx(onlyCarol), "not_found"}, "of another asset": {tx(onlyEur), "not_found"},
		"statement": {history(onlyBo, "bo"), ""}, "another's statement": {history(onlyBo, "alice"), "forbidden"},
		"account": {acct(onlyBo, "bo"), ""}, "another's account": {acct(onlyBo, "alice"), "forbidden"},
		"the issuer's nonce": {acct(onlyBo, "sys:issue:ron"), ""}, "of another asset's": {acct(onlyEur, "sys:issue:ron"), "forbidden"},
		"some other of the ledger's": {acct(alice, "sys:else"), "forbidden"},
	} {
		if reasonOf(tt.err) != tt.want {
			t.Errorf("%s: %v, want %q", what, tt.err, tt.want)
		}
	}
	a, err := r.e.Account(ctx, alice, "alice")
	if err != nil || a.LastNonce != 1 || a.NextNonce != 2 {
		t.Errorf("%+v, %v", a, err)
	}
	if a, err := r.e.Account(ctx, alice, "nobody"); err != nil || a.Known || a.NextNonce != 1 {
		t.Errorf("%+v, %v", a, err)
	}
	if assets, err := r.e.Assets(ctx, onlyEur); err != nil || len(assets) != 1 || assets[0].Asset != "eur" {
		t.Errorf("%+v, %v", assets, err)
	}
	if err := r.e.Export(ctx, onlyBo, 1, 0, nil); !errors.Is(err, wallet.ErrForbidden) {
		t.Errorf("export by a narrowed token: %v", err)
	}
}
