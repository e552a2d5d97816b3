package ledger_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// notOfRecords are the methods of a client that are not asked for a record, a batch or a time, or
// that are asked for what counts for ever: other tests have them.
const notOfRecords = " Prepare Submit Commit Find Settle Balance Account Assets Reference Holds " +
	"Accounts Head Probe Events Close "

// What is asked for by a record, a batch or a time of a closed period is refused with that period,
// whether its rows are dropped or not.
func TestClosedReads(t *testing.T) {
	eachPast(t, func(t *testing.T, p *past) {
		p.accept(transfer("alice", "bob", 5, 0))
		ctx, head := p.ctx(), func() uint64 {
			h, err := p.l.Head(p.ctx())
			if err != nil {
				t.Fatal(err)
			}
			return h.Seq
		}()
		none := func(record.Line) error { return nil }
		noPayment := func(*ledger.Outcome) error { return nil }
		forged := record.NewTxID(p.h.At, p.h.Seq, 77)
		asks := map[string]func() error{
			"Hold that has ended": func() error { _, err := p.l.Hold(ctx, p.ended); return err },
			"Hold of another id":  func() error { _, err := p.l.Hold(ctx, forged); return err },
			"Tx of another id":    func() error { _, err := p.l.Tx(ctx, forged); return err },
			"Prove of another id": func() error { _, err := p.l.Prove(ctx, forged, 0); return err },
			"Roots":               func() error { _, err := p.l.Roots(ctx, 1, 10); return err },
			"Consistency":         func() error { _, err := p.l.Consistency(ctx, p.h.Batch-1, p.h.Batch+1); return err },
			"Consistency from 0":  func() error { _, err := p.l.Consistency(ctx, 0, p.h.Batch-1); return err },
			"Export":              func() error { return p.l.Export(ctx, 0, 0, none) },
			"Export of the last":  func() error { return p.l.Export(ctx, p.h.Seq, 0, none) },
			"Payments oldest first": func() error {
				return p.l.Payments(ctx, ledger.PaymentFilter{}, p.h.Seq, head, noPayment)
			},
			"Payments newest first": func() error {
				return p.l.Payments(ctx, ledger.PaymentFilter{Newest: true}, 1, p.h.Seq, noPayment)
			},
			"Payments of none": func() error {
				return p.l.Payments(ctx, ledger.PaymentFilter{}, p.h.Seq, p.h.Seq-1, noPayment)
			},
			"History of a time": func() error {
				q := p.history(true, 10)
				q.Until = p.h.At
				_, err := p.l.History(ctx, q)
				return err
			},
			"History newest first": func() error {
				q := p.history(true, 10)
				q.Cursor = p.cursors[0]
				_, err := p.l.History(ctx, q)
				return err
			},
			"History oldest first": func() error {
				q := p.history(false, 10)
				q.Cursor = p.cursors[1]
				_, err := p.l.History(ctx, q)
				return err
			},
		}
		for i, id := range p.old {
			asks[fmt.Sprint("Tx ", i)] = func() error { _, err := p.l.Tx(ctx, id); return err }
			asks[fmt.Sprint("Prove ", i)] = func() error { _, err := p.l.Prove(ctx, id, 0); return err }
		}
		for m := range reflect.TypeFor[ledger.Client]().Methods() {
			asked := strings.Contains(notOfRecords, " "+m.Name+" ")
			for name := range asks {
				asked = asked || strings.HasPrefix(name+" ", m.Name+" ")
			}
			if !asked {
				t.Errorf("nothing is asked for by %s", m.Name)
			}
		}
		for name, ask := range asks {
			if n, closed := isClosed(ask()); !closed || n != p.h.Period {
				t.Errorf("%s: %v, want that period %d is closed", name, ask(), p.h.Period)
			}
		}
		for _, id := range []record.TxID{p.ended, forged} {
			for _, code := range []record.Op{record.OpCapture, record.OpRelease} {
				out := p.commit(ledger.Op{Code: code, Hold: id})[0]
				if out.Reject == nil || out.Reject.Code != record.PeriodClosed {
					t.Errorf("%v of a hold in the period: %+v", code, out)
				}
			}
		}
		p.sound()
	})
}

// What counts after the horizon is answered as before.
func TestClosedState(t *testing.T) {
	eachPast(t, func(t *testing.T, p *past) {
		ctx := p.ctx()
		same := func(name string, got, want any, err error) {
			t.Helper()
			if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); err != nil || g != w {
				t.Errorf("%s: %v %v\nwant %v", name, g, err, w)
			}
		}
		balance, err := p.l.Balance(ctx, "alice", "ron", 0)
		balance.Cold, balance.At, balance.Seq = p.balance.Cold, p.balance.At, p.balance.Seq
		same("balance", balance, p.balance, err)
		alice, err := p.l.Account(ctx, "alice")
		same("account", alice, p.alice, err)
		assets, err := p.l.Assets(ctx)
		same("assets", assets, p.assets, err)
		holds, err := p.l.Holds(ctx, ledger.HoldsQuery{Account: "alice", Limit: 10})
		same("holds", holds, p.holds, err)
		for i, id := range p.open {
			hold, err := p.l.Hold(ctx, id)
			same("hold", hold, p.holds.Holds[i], err)
		}
		accounts, err := p.l.Accounts(ctx, ledger.AccountsQuery{Limit: 100, Asset: "ron"})
		for i := range accounts.Accounts {
			b, was := &accounts.Accounts[i].Balance, p.accounts.Accounts[i].Balance
			b.Cold, b.At, b.Seq = was.Cold, was.At, was.Seq
		}
		same("accounts", accounts, p.accounts, err)
		out := p.commit(transfer("alice", "bob", 1, p.alice.LastNonce))[0]
		if out.Reject == nil || out.Reject.Code != record.NonceReused || out.Reject.Committed != p.alice.LastTx {
			t.Errorf("an old nonce: %+v", out.Reject)
		}
		batch := p.commit(ledger.Op{Code: record.OpBatch, Atomic: true,
			Ops: []ledger.Op{issue("bob", 1, 0), transfer("alice", "bob", 1, p.alice.LastNonce)}})[0]
		if batch.Reject == nil || batch.Reject.Committed != p.alice.LastTx {
			t.Errorf("an old nonce in a batch: %+v", batch.Reject)
		}
		if b, err := p.l.Balance(ctx, "carol", "ron", 0); err != nil || !b.Posted.IsZero() || !b.Known {
			t.Errorf("a balance without postings: %+v %v", b, err)
		}
		p.sound()
	})
}

// A hold that was open at the end of a closed period ends after it, and can be asked for until the
// period of its end is closed.
func TestClosedHolds(t *testing.T) {
	eachPast(t, func(t *testing.T, p *past) {
		ctx := p.ctx()
		captured := p.accept(ledger.Op{Code: record.OpCapture, Hold: p.open[1], Amount: amount(7)})[0]
		p.clock.Advance(90 * time.Minute)
		if err := p.l.Sweep(ctx); err != nil {
			t.Fatal(err)
		}
		check := func() {
			t.Helper()
			out, err := p.l.Tx(ctx, captured.Receipt.TxID)
			if err != nil || out.Receipt.Hold != p.open[1] || out.Parties != (ledger.Parties{From: "alice", To: "bob"}) {
				t.Errorf("the capture: %+v %v", out, err)
			}
			for i, want := range []record.Op{record.OpExpire, record.OpCapture, 0} {
				h, err := p.l.Hold(ctx, p.open[i])
				if err != nil || h.Closed != want || h.TxID != p.open[i] {
					t.Errorf("hold %d: %+v %v", i, h, err)
				}
			}
			out = p.commit(ledger.Op{Code: record.OpCapture, Hold: p.open[0]})[0]
			if out.Reject == nil || out.Reject.Code != record.HoldExpired {
				t.Errorf("a capture of an expired hold: %+v", out)
			}
			if page, err := p.l.Holds(ctx, ledger.HoldsQuery{Account: "bob", Limit: 10}); err != nil || len(page.Holds) != 1 {
				t.Errorf("open holds: %+v %v", page, err)
			}
		}
		check()
		p.reopen()
		check()
		first := p.h
		p.h = p.closeHead()
		for _, d := range allDropped {
			p.drop(d)
			for i := range p.open[:2] {
				if _, err := p.l.Hold(ctx, p.open[i]); !closedIn(err, 1) {
					t.Errorf("hold %d after the period of its end: %v", i, err)
				}
				out := p.commit(ledger.Op{Code: record.OpRelease, Hold: p.open[i]})[0]
				if out.Reject == nil || out.Reject.Code != record.PeriodClosed {
					t.Errorf("release of hold %d after the period of its end: %+v", i, out)
				}
			}
			if _, err := p.l.Tx(ctx, captured.Receipt.TxID); !closedIn(err, 2) {
				t.Errorf("the capture after its period: %v", err)
			}
			if _, err := p.l.Roots(ctx, first.Batch-1, 1); !closedIn(err, 1) {
				t.Errorf("a root of the first period: %v", err)
			}
			if _, err := p.l.Roots(ctx, first.Batch, 1); !closedIn(err, 2) {
				t.Errorf("a root of the second period: %v", err)
			}
			p.reopen()
		}
		out := p.accept(ledger.Op{Code: record.OpRelease, Hold: p.open[2]})[0]
		if tx, err := p.l.Tx(ctx, out.Receipt.TxID); err != nil || tx.Receipt.Hold != p.open[2] {
			t.Errorf("release of a hold of two periods ago: %+v %v", tx, err)
		}
		p.sound()
	})
}
