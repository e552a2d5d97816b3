package ledger_test

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// verify checks the whole file against its journal.
func (r *rig) verify() {
	r.t.Helper()
	err := r.store.View(r.ctx(), func(rd store.Reader) error {
		rep, err := lverify.Verify(r.ctx(), rd, lverify.Options{})
		if err == nil && !rep.OK {
			err = rep.Err()
		}
		return err
	})
	if err != nil {
		r.t.Fatalf("verify: %v", err)
	}
}

// books returns everything readable of a ledger as text.
func (r *rig) books(names ...string) string {
	r.t.Helper()
	out, err := r.tryBooks(names...)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

func (r *rig) tryBooks(names ...string) (string, error) {
	if _, err := r.l.Balance(r.ctx(), names[0], "ron", 0); err != nil { // it ends overdue holds
		return "", err
	}
	head, err := r.l.Head(r.ctx())
	if err != nil {
		return "", err
	}
	out := fmt.Sprintln(head)
	for _, name := range names {
		for _, asset := range []string{"ron", "gold"} {
			b, err := r.l.Balance(r.ctx(), name, asset, 0)
			if err != nil {
				return "", err
			}
			b.Cold = false // it depends on what memory has
			out += fmt.Sprintln(b)
		}
		a, err := r.l.Account(r.ctx(), name)
		if err != nil {
			return "", err
		}
		page, err := r.l.History(
			r.ctx(),
			ledger.HistoryQuery{Account: name, Asset: "ron", Limit: 500, NewestFirst: true},
		)
		if err != nil {
			return "", err
		}
		out += fmt.Sprintln(a, page)
	}
	assets, err := r.l.Assets(r.ctx())
	return out + fmt.Sprintln(assets), err
}

var people = []string{"alice", "bob", "carol", "dave", "erin", "a/b:c_d-e", "sys:issue:ron"}

// Reads do not depend on when rows were flushed or whether the process was restarted.
func TestRedo(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		clock := ledgertest.NewClock()
		r := newRig(t, clock, func(c *ledger.Config) {
			c.FlushSlice = rapid.IntRange(1, 9).Draw(rt, "slice")
			c.DirtyMaxAccounts = rapid.SampledFrom([]int{1, 12, 1 << 20}).Draw(rt, "dirty")
			c.SlotMax = rapid.IntRange(2, 20).Draw(rt, "slot")
			c.VerifyOnOpen = rapid.SampledFrom([]string{ledger.VerifyNone, ledger.VerifyTail, ledger.VerifyFull}).
				Draw(rt, "verify")
		})
		defer r.stop()
		rows := rapid.SampledFrom([]int{0, 3, 1 << 16}).Draw(rt, "rows")
		r.l.Forgetful(rows)
		r.declare("ron")
		dice := ledgertest.NewDice(rapid.Uint64().Draw(rt, "seed"))
		for range rapid.IntRange(5, 40).Draw(rt, "steps") {
			clock.Advance(time.Duration(rapid.IntRange(1, 600).Draw(rt, "seconds")) * time.Second)
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0, 1:
				was := r.books(people...)
				r.reopen()
				r.l.Forgetful(rows)
				if is := r.books(people...); is != was {
					rt.Fatalf("after a boot:\n%s\nbefore it:\n%s", is, was)
				}
			case 2, 3:
				if _, err := r.l.FlushSlice(r.ctx()); err != nil {
					rt.Fatal(err)
				}
			case 4:
				if err := r.l.Seal(r.ctx()); err != nil {
					rt.Fatal(err)
				}
			case 5:
				if err := r.l.Sweep(r.ctx()); err != nil {
					rt.Fatal(err)
				}
			default:
				call := dice.Call()
				for i, out := range r.commit(call...) {
					dice.Note(call[i], out)
				}
			}
		}
		r.verify()
		if err := r.l.Flush(r.ctx()); err != nil {
			rt.Fatal(err)
		}
		if n := r.l.Dirty(); n != 0 {
			rt.Fatalf("%d rows are dirty after a flush", n)
		}
		was := r.books(people...)
		r.verify()
		r.reopen()
		if is := r.books(people...); is != was {
			rt.Fatalf("after a flush and a boot:\n%s\nbefore it:\n%s", is, was)
		}
	})
}

// An outcome has the same bytes at first, on a replay, after a flush, after a boot, and when read
// by its id.
func TestSameBytes(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock).declare("ron")
	asked := []ledger.Op{
		keyed(issue("alice", 1000, 1), "a"),
		keyed(transfer("alice", "bob", 10, 1), "b"),
		keyed(
			ledger.Op{
				Code:      record.OpHold,
				From:      "alice",
				To:        "bob",
				Asset:     "ron",
				Amount:    amount(5),
				Nonce:     2,
				ExpiresIn: time.Minute,
			},
			"c",
		),
		keyed(ledger.Op{Code: record.OpBurn, From: "bob", Asset: "ron", Amount: amount(3), Nonce: 1}, "d"),
		keyed(ledger.Op{Code: record.OpFlags, From: "carol", Set: record.NoDebit}, "e"),
	}
	first := r.accept(asked...)
	capture := keyed(ledger.Op{Code: record.OpCapture, Hold: first[2].Receipt.TxID, Amount: amount(2)}, "f")
	batch := keyed(ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{
		transfer("alice", "dave", 1, 3), transfer("alice", "dave", 1, 9), transfer("dave", "alice", 1, 1),
	}}, "g")
	asked = append(asked, capture, batch)
	first = append(first, r.accept(capture)...)
	first = append(first, r.commit(batch)...)
	again := func(when string) {
		t.Helper()
		for i, out := range r.accept(asked...) {
			if got, want := receipts(out), receipts(first[i]); got != want || !out.Replayed {
				t.Errorf("%s: op %d: replayed %v\n%s\nfirst:\n%s", when, i, out.Replayed, got, want)
			}
			if out.Batch {
				continue
			}
			if tx, err := r.l.Tx(r.ctx(), first[i].Receipt.TxID); err != nil || receipts(tx) != receipts(first[i]) {
				t.Errorf("%s: tx of op %d: %s, %v", when, i, receipts(tx), err)
			}
		}
	}
	again("at once")
	r.reopen()
	again("after a boot")
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	again("after a flush")
	r.reopen()
	again("after both")
	r.verify()
}

// receipts returns the bytes of an outcome.
func receipts(o ledger.Outcome) string {
	if !o.Batch {
		return string(o.Receipt.AppendJSON(nil))
	}
	out := ""
	for _, each := range o.Results {
		if each.Reject != nil {
			out += each.Reject.Code.String() + "\n"
			continue
		}
		out += receipts(each) + "\n"
	}
	return out
}

// Keys count for exactly their TTL, wherever the index keeps them.
func TestKeysAge(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock, func(c *ledger.Config) { c.SlotMax = 2 }).declare("ron")
	for i := range uint64(20) {
		r.accept(keyed(issue("alice", 1, i+1), fmt.Sprint("k", i)))
		clock.Advance(time.Second)
	}
	if err := r.l.Seal(r.ctx()); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func(){func() {}, r.reopen} {
		step()
		for i := range uint64(20) {
			if out := r.accept(keyed(issue("alice", 1, i+1), fmt.Sprint("k", i))); !out[0].Replayed {
				t.Errorf("key %d is not replayed", i)
			}
		}
	}
	clock.Advance(time.Hour - 20*time.Second + time.Millisecond)
	if out := r.commit(keyed(issue("alice", 1, 1), "k0")); out[0].Reject == nil ||
		out[0].Reject.Code != record.NonceReused {
		t.Errorf("a key that is an hour old: %+v", out[0])
	}
	clock.Advance(25 * time.Hour)
	r.accept(keyed(issue("alice", 1, 21), "k20"))
	if err := r.l.Seal(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.verify()
}

// A boot without sealed slots reads the keys of a batch all or none: a check of the slot that they go
// into tells by their time which of them it must have.
func TestKeysOfABatchAfterABoot(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock, func(c *ledger.Config) { c.SlotMax, c.KeyTTL = 2, unit.Duration(time.Hour) }).declare("ron")
	var batch []ledger.Op
	for i := range uint64(4) {
		batch = append(batch, keyed(issue("alice", 1, i+1), fmt.Sprint("k", i)))
	}
	r.accept(batch...)
	clock.Advance(2 * time.Hour)
	r.accept(issue("alice", 1, 5))
	r.reopen()
	r.accept(keyed(issue("alice", 1, 6), "k6"))
	if err := r.l.Seal(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.verify()
}

// Records before the first key can be closed, before and after a boot.
func TestClosableBeforeKeys(t *testing.T) {
	r := newRig(t, ledgertest.NewClock()).declare("ron")
	r.accept(issue("alice", 1, 0))
	first := r.accept(keyed(issue("alice", 1, 2), "k"))[0].Receipt.Seq
	for range 2 {
		if err := r.l.Flush(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if seq, keys := r.l.Closable(); seq != first-1 || !keys {
			t.Errorf("closable up to %d, keys %v; the first key is of record %d", seq, keys, first)
		}
		r.reopen()
	}
}
