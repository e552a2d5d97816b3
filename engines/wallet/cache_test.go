package wallet

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
)

func (r *rig) balance(account string, minSeq uint64) (Balance, error) {
	return r.e.Balance(context.Background(), alice, account, "ron", minSeq)
}

// A cached balance is as old as it says, never older than the window, and gone when the ledger has changed it.
func TestBalanceCache(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).start()
		r.fund("alice", 100)
		synctest.Wait()
		ask := func(want string, stale time.Duration, outcome string) {
			t.Helper()
			before := r.sum("balance_cache_total", "outcome", outcome)
			b, err := r.balance("alice", 0)
			if err != nil || b.Available.String() != want || b.Stale != stale {
				t.Errorf("%+v, %v; want %s, %s old", b, err, want, stale)
			}
			if r.sum("balance_cache_total", "outcome", outcome) != before+1 {
				t.Errorf("not a %s", outcome)
			}
			r.e.balances.kept.Settle()
		}
		ask("100", 0, cacheMiss)
		time.Sleep(100 * time.Millisecond)
		ask("100", 100*time.Millisecond, cacheHit)
		time.Sleep(149 * time.Millisecond)
		ask("100", 249*time.Millisecond, cacheHit)
		time.Sleep(time.Millisecond)
		ask("100", 0, cacheStale)
		got := r.must("k", transfer("alice", "bo", 10, 1))
		synctest.Wait()
		ask("90", 0, cacheStale)
		ask("90", 0, cacheHit) // what was read anew has taken the place of what was stale
		if b, err := r.balance("alice", got.Ledger.Seq); err != nil || b.Seq < got.Ledger.Seq {
			t.Errorf("%+v, %v", b, err)
		}
		r.e.balances.dropAll()
		ask("90", 0, cacheStale)
		r.e.Purge()
		ask("90", 0, cacheMiss)
		if b, err := r.balance("nobody", 0); err != nil || b.Available.String() != "0" || b.Known {
			t.Errorf("%+v, %v", b, err)
		}
		r.stop()
	})
}

// Who asks for more than the ledger has yet waits for it, for the time of one call or as long as he has, and is then told how far the ledger is.
// That is no failure of the ledger.
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
			var behind *BehindError
			if !errors.As(err, &behind) || *behind != (BehindError{Want: head.Seq + 2, Have: head.Seq}) || code(err) != "RETRY_LATER" || time.Since(began) != want {
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

// Who waits for a record gets the balance as soon as it is there; who leaves meanwhile is told nothing of the ledger.
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
		var not *NotReadyError
		if err := <-leaves; !errors.As(err, &not) || not.Cause != CauseCanceled {
			t.Errorf("who leaves: %v", err)
		}
		r.fund("alice", 1)
		if err := <-stays; err != nil || time.Since(began) != 400*time.Millisecond {
			t.Errorf("who stays: %v after %s", err, time.Since(began))
		}
		r.stop()
	})
}

// After lag, or an event that does not say which balances changed, all of them count as changed.
func TestInvalidatorLags(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).startBut(taskInvalidator)
		r.fund("alice", 100)
		v := &invalidator{e: r.e}
		if _, err := r.balance("alice", 0); err != nil {
			t.Fatal(err)
		}
		r.e.balances.kept.Settle()
		v.take(ledger.Committed{Last: 1, Touched: []ledger.Mark{ledger.MarkOf("alice", "ron") + 1}}, 0)
		if _, outcome := r.e.balances.get("alice", "ron", 0, time.Second); outcome != cacheHit {
			t.Errorf("another account's change: %s", outcome)
		}
		v.take(ledger.Committed{Last: 2}, 3)
		if _, outcome := r.e.balances.get("alice", "ron", 0, time.Second); outcome != cacheStale {
			t.Errorf("after lag: %s", outcome)
		}
		if _, err := r.balance("alice", 0); err != nil {
			t.Fatal(err)
		}
		r.e.balances.kept.Settle()
		v.take(ledger.Committed{Last: 3, All: true}, 0)
		if _, outcome := r.e.balances.get("alice", "ron", 0, time.Second); outcome != cacheStale {
			t.Errorf("after a batch that may have changed any: %s", outcome)
		}
		r.stop()
	})
}

// Balances that are read while money moves are never older than the window, nor than what their reader knows.
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

// Reads keep to what a token reaches, and to what is not the ledger's own.
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
		"own balance": {balance(onlyBo, "bo"), ""}, "another's": {balance(onlyBo, "alice"), "FORBIDDEN"}, "another asset": {balance(onlyEur, "bo"), "FORBIDDEN"},
		"what was issued": {balance(alice, "sys:issue:ron"), ""}, "for who sees all": {balance(onlyBo, "sys:issue:ron"), "FORBIDDEN"},
		"the ledger's own": {balance(alice, "sys:else"), "FORBIDDEN"}, "no account": {balance(alice, "a b"), "BAD_REQUEST"},
		"receipt of a party": {tx(onlyBo), ""}, "of others": {tx(onlyCarol), "NOT_FOUND"}, "of another asset": {tx(onlyEur), "NOT_FOUND"},
		"statement": {history(onlyBo, "bo"), ""}, "another's statement": {history(onlyBo, "alice"), "FORBIDDEN"},
		"account": {acct(onlyBo, "bo"), ""}, "another's account": {acct(onlyBo, "alice"), "FORBIDDEN"},
		"the issuer's nonce": {acct(onlyBo, "sys:issue:ron"), ""}, "of another asset's": {acct(onlyEur, "sys:issue:ron"), "FORBIDDEN"},
		"some other of the ledger's": {acct(alice, "sys:else"), "FORBIDDEN"},
	} {
		if code(tt.err) != tt.want {
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
	if err := r.e.Export(ctx, onlyBo, 1, 0, nil); !errors.Is(err, ErrForbidden) {
		t.Errorf("export by a narrowed token: %v", err)
	}
}
