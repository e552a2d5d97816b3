package ledger_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// Lists merge the rows of the file with newer rows in memory, whichever of them were flushed, and
// after a boot.
func TestListsMergeMemoryAndFile(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1_000_000, 1))
	want := map[string]bool{}
	for i := range 40 {
		o := ledger.Op{
			Code: record.OpHold, From: "alice", To: fmt.Sprintf("shop/%02d", i), Asset: "ron", Amount: amount(uint64(i + 1)),
			ExpiresIn: time.Hour - time.Duration(i)*time.Minute,
		}
		id := r.accept(o)[0].Receipt.TxID
		want[id.String()] = true
		switch {
		case i%5 == 1:
			r.accept(ledger.Op{Code: record.OpRelease, Hold: id})
			delete(want, id.String())
		case i%7 == 3:
			if err := r.l.Flush(r.ctx()); err != nil {
				t.Fatal(err)
			}
		case i == 20:
			r.reopen()
		}
	}
	q := ledger.HoldsQuery{Account: "alice", Limit: 6}
	last := int64(0)
	for more := true; more; more = q.After != "" {
		page, err := r.l.Holds(r.ctx(), q)
		if err != nil {
			t.Fatal(err)
		}
		for _, h := range page.Holds {
			if !want[h.TxID.String()] || h.Expires < last || h.From != "alice" {
				t.Fatalf("%+v is shown twice, out of order, or closed", h)
			}
			delete(want, h.TxID.String())
			last = h.Expires
		}
		q.After = page.Next
	}
	if len(want) > 0 {
		t.Errorf("not shown: %v", want)
	}
	page, err := r.l.Accounts(r.ctx(), ledger.AccountsQuery{Prefix: "shop/", Limit: 30})
	if err != nil || len(page.Accounts) != 30 || page.Next != "shop/29" {
		t.Fatalf("%+v, %v", page, err)
	}
	page, err = r.l.Accounts(r.ctx(), ledger.AccountsQuery{Prefix: "shop/", After: page.Next, Limit: 30})
	if err != nil || len(page.Accounts) != 10 || page.Next != "" || page.Accounts[9].Account != "shop/39" {
		t.Fatalf("%+v, %v", page, err)
	}
}

// A page of holds ends after examining a bounded number of holds of other accounts. The next page
// continues there.
func TestHoldsExamineABoundedNumber(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1_000_000, 1), issue("bob", 10, 2))
	hold := func(from string, in time.Duration) ledger.Op {
		return ledger.Op{Code: record.OpHold, From: from, To: "shop", Asset: "ron", Amount: amount(1), ExpiresIn: in}
	}
	ops := make([]ledger.Op, ledger.HoldScan+1)
	for i := range ops {
		ops[i] = hold("alice", time.Hour)
	}
	r.accept(ops...)
	mine := r.accept(hold("bob", 2*time.Hour))[0].Receipt.TxID
	look := func() {
		t.Helper()
		q := ledger.HoldsQuery{Account: "bob", Limit: 1}
		page, err := r.l.Holds(r.ctx(), q)
		if err != nil || len(page.Holds) != 0 || page.Next == "" {
			t.Fatalf("%+v, %v", page, err)
		}
		q.After = page.Next
		page, err = r.l.Holds(r.ctx(), q)
		if err != nil || len(page.Holds) != 1 || page.Holds[0].TxID != mine || page.Next != "" {
			t.Fatalf("%+v, %v", page, err)
		}
	}
	look() // in memory
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	look()
	r.reopen()
	look()
}

// A payment made during a list appears in a later call and never twice. No read treats a row that
// is being flushed as lost.
func TestListsWhileRowsMove(t *testing.T) {
	r := newRig(t, nil, func(c *ledger.Config) { c.FlushEvery, c.FlushSlice = 1_000_000, 8 }).declare("ron").start()
	r.accept(issue("alice", 1_000_000, 1))
	ctx, stop := context.WithCancel(r.ctx())
	done := make(chan error, 2)
	read := func(ask func() error) {
		for ctx.Err() == nil {
			if err := ask(); err != nil {
				done <- err
				return
			}
		}
		done <- nil
	}
	go read(func() error {
		_, err := r.l.Holds(r.ctx(), ledger.HoldsQuery{Account: "alice", Limit: 50})
		return err
	})
	go read(func() error {
		page, err := r.l.Accounts(r.ctx(), ledger.AccountsQuery{Limit: 50})
		for i := 1; i < len(page.Accounts); i++ {
			if page.Accounts[i-1].Account >= page.Accounts[i].Account {
				return fmt.Errorf("%+v", page)
			}
		}
		return err
	})
	for i := range 300 {
		id := r.accept(ledger.Op{
			Code: record.OpHold, From: "alice", To: fmt.Sprint("to", i), Asset: "ron", Amount: amount(1), ExpiresIn: time.Hour,
		})[0].Receipt.TxID
		if i%2 == 0 {
			r.accept(ledger.Op{Code: record.OpRelease, Hold: id})
		}
	}
	stop()
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if why := r.l.SafeMode(); why != "" {
		t.Error(why)
	}
}

// Expiring counts the keys and the open holds that end before a time, wherever their rows are.
func TestExpiring(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock).declare("ron")
	r.accept(issue("alice", 1000, 1))
	now := clock.Now()
	for i, in := range []time.Duration{time.Hour, 3 * time.Hour, 5 * time.Hour, 50 * time.Hour} {
		key := fmt.Sprint("hold", i)
		id := r.accept(ledger.Op{
			Code: record.OpHold, From: "alice", To: "bob", Asset: "ron", Amount: amount(1), ExpiresIn: in,
			Dedupe: ledger.DedupeKey{Scope: "alice", Key: key}, Idem: key, TTL: 24 * time.Hour,
		})[0].Receipt.TxID
		if i == 1 {
			r.accept(ledger.Op{Code: record.OpRelease, Hold: id})
		}
	}
	look := func(doc string, ahead time.Duration, keys, holds int64) {
		t.Helper()
		gotKeys, gotHolds, err := r.l.Expiring(r.ctx(), now.Add(ahead))
		if err != nil || gotKeys != keys || gotHolds != holds {
			t.Errorf("%s: %d keys, %d holds, %v, want %d and %d", doc, gotKeys, gotHolds, err, keys, holds)
		}
	}
	for _, where := range []string{"in memory", "in the file", "after a boot"} {
		look(where+", at once", 0, 0, 0)
		look(where+", before the keys end", 4*time.Hour, 0, 1)
		look(where+", after they ended", 26*time.Hour, 4, 2)
		look(where+", after all", 60*time.Hour, 4, 3)
		if where == "in memory" {
			if err := r.l.Flush(r.ctx()); err != nil {
				t.Fatal(err)
			}
		} else {
			r.reopen()
		}
	}
	clock.Advance(25 * time.Hour)
	look("the keys ended before", 60*time.Hour, 0, 1)
}
