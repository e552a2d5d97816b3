package period_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// fills pays until the file has no room, and nothing more can be dropped. It returns the number of
// payments. A burst that is faster than the dropping has to wait.
func (n *node) fills(to string) (payments uint64) {
	n.Helper()
	return n.fillsWith(func(uint64) string { return to }, strings.Repeat("x", record.MaxMemo))
}

// fillsWith is fills with the account of each payment.
func (n *node) fillsWith(to func(payment uint64) string, memo string) (payments uint64) {
	n.Helper()
	ops := make([]ledger.Op, 512)
	for {
		for i := range ops {
			ops[i] = ledger.Op{
				Code: record.OpIssue, To: to(payments + uint64(i)), Asset: "ron", Amount: engines.AmountOf(0, 1),
				Memo: memo,
			}
		}
		n.clock.Advance(time.Second)
		c := n.c.Load().State()
		_, err := n.l.Commit(n.Context(), ops)
		if errors.Is(err, ledger.ErrFull) {
			if c.State == "dropping" {
				time.Sleep(time.Millisecond)
				continue
			}
			return payments
		}
		n.must(err)
		payments += uint64(len(ops))
		if err := n.l.Flush(n.Context()); !errors.Is(err, store.ErrFull) {
			n.must(err)
		}
	}
}

// TestCloseHealsAFullFile fills a file, more than once. A closing into another folder makes room:
// payments are taken from then on, and no record and no money is lost.
func TestCloseHealsAFullFile(t *testing.T) {
	n := newNode(t, 1, func(c *store.Config) { c.MaxBytes = 40 << 20 })
	c, stop := n.closer(period.Config{})
	defer stop()
	paid, first := uint64(0), uint64(0)
	for round := range 3 {
		made := n.fills("alice")
		if paid += made; round == 0 {
			first = made
		}
		if made < first/2 {
			t.Errorf("round %d: full after %d payments, the first time after %d", round, made, first)
		}
		n.clock.Advance(time.Hour)
		p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Dir: t.TempDir(), By: "test"})
		n.must(err)
		n.closed(c, p.Period)
		one := ledger.Op{Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 1)}
		for late := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
			if _, err = n.l.Commit(t.Context(), []ledger.Op{one}); !errors.Is(err, ledger.ErrFull) {
				break
			}
			if time.Now().After(late) {
				t.Fatalf("round %d: no room after the closing: %+v, %d bytes to be dropped, %d left", round, c.State(),
					c.Reclaimable(), n.s.BytesLeft())
			}
		}
		n.must(err)
		paid++
		v, err := n.l.Balance(t.Context(), "alice", "ron", 0)
		if n.must(err); v.Posted != engines.AmountOf(0, paid) {
			t.Fatalf("round %d: alice has %s, %d were paid", round, v.Posted, paid)
		}
	}
	n.view(func(r store.Reader) {
		rep, err := lverify.Verify(t.Context(), r, lverify.Options{})
		n.must(errors.Join(err, rep.Err()))
	})
}

// TestBaseWithoutRoom fills a file with accounts. What is after the period would not fit beside the
// records, so no closing begins, and the error names a limit of the file that is enough.
func TestBaseWithoutRoom(t *testing.T) {
	n := newNode(t, 1, func(c *store.Config) { c.MaxBytes = 40 << 20 })
	c, stop := n.closer(period.Config{})
	defer stop()
	accounts := n.fillsWith(func(payment uint64) string { return fmt.Sprint("account-", payment) }, "")
	n.clock.Advance(time.Hour)
	_, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now()})
	var room *period.NoRoomError
	if !errors.As(err, &room) || !room.Base || room.Enough <= 40<<20 || room.Enough > 80<<20 {
		t.Fatalf("%d accounts: %+v, %v", accounts, room, err)
	}
	n.view(func(r store.Reader) {
		if c := tables.GetClosing(r); c.Step != 0 {
			t.Errorf("a closing is under way: %+v", c)
		}
	})
	if got, want := room.Need, int64(accounts)*217; got < want || got > want*5/4 {
		t.Errorf("the base of %d accounts takes %d bytes, want some %d", accounts, got, want)
	}
}
