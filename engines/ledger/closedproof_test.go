package ledger_test

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// proven fails unless the proof of a receipt holds, against the newest head and as the log of an
// older head goes on, and shows as many names of closed periods as closed.
func (p *past) proven(since record.Head, r *record.Receipt, closed int) {
	p.t.Helper()
	ctx := p.ctx()
	head, err := p.l.Head(ctx)
	if err != nil {
		p.t.Fatal(err)
	}
	proof, err := p.l.Prove(ctx, r.TxID, 0)
	if err != nil {
		p.t.Errorf("%v %s to %s: %v", r.Op, r.From, r.To, err)
		return
	}
	text, err := proof.MarshalJSON()
	var back record.Proof
	if err == nil {
		err = back.UnmarshalJSON(text)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	got, err := back.Verify()
	if err != nil || got != *r || back.Head != head {
		p.t.Errorf("%v %s to %s: it proves %+v, %v, in the log of %+v\nwant %+v in that of %+v", r.Op, r.From, r.To, got,
			err, back.Head, r, head)
	}
	n := 0
	if back.Past != nil {
		n = len(back.Past.Names)
	}
	if n != closed {
		p.t.Errorf("%v %s to %s: %d names of closed periods, want %d", r.Op, r.From, r.To, n, closed)
	}
	c, err := p.l.Consistency(ctx, since.Batches, head.Batches)
	if err != nil || c.Verify() != nil || c.From != since.Log() || c.To != back.Head.Log() {
		p.t.Errorf("consistency with an older head: %+v, %v", c, err)
	}
}

// Payments after two closed periods are proven by the node, whether their accounts, assets and holds
// are of the first, of the second or of none.
func TestClosedProofs(t *testing.T) {
	for _, d := range allDropped {
		t.Run(string(d), func(t *testing.T) {
			p := newPast(t)
			p.drop(droppedAll)
			p.declare("new")
			in := func(asset string, o ledger.Op) ledger.Op { o.Asset = asset; return o }
			one := func(o ledger.Op) *record.Receipt { return &p.accept(o)[0].Receipt }
			one(in("new", issue("nora", 1000, 0)))
			o := in("new", transfer("nora", "alice", 40, 0))
			o.Code, o.ExpiresIn = record.OpHold, 9*time.Hour
			second := one(o).TxID
			p.proven(p.root, one(transfer("alice", "nora", 1, 0)), 2)
			p.h = p.closeHead()
			since, err := p.l.Head(p.ctx())
			if err != nil {
				t.Fatal(err)
			}
			p.drop(d)
			p.declare("newest")
			done := []struct {
				*record.Receipt
				closed int
			}{
				{one(transfer("alice", "bob", 1, 0)), 3},
				{one(in("new", transfer("nora", "bob", 1, 0))), 3},
				{one(in("new", transfer("nora", "zoe", 1, 0))), 2},
				{one(issue("yves", 10, 0)), 2},
				{one(transfer("yves", "zoe", 1, 0)), 1},
				{one(in("newest", issue("alice", 5, 0))), 1},
				{one(in("newest", issue("xena", 5, 0))), 0},
				{one(ledger.Op{Code: record.OpFlags, From: "carol", Clear: record.NoDebit}), 1},
				{one(ledger.Op{Code: record.OpCapture, Hold: p.open[1], Amount: amount(7)}), 3},
				{one(ledger.Op{Code: record.OpRelease, Hold: p.open[2]}), 3},
				{one(ledger.Op{Code: record.OpCapture, Hold: second, Amount: amount(40)}), 3},
			}
			p.clock.Advance(90 * time.Minute)
			if err := p.l.Sweep(p.ctx()); err != nil { // the hold open[0] expires
				t.Fatal(err)
			}
			expired, err := p.l.Hold(p.ctx(), p.open[0])
			if err != nil || expired.Closed != record.OpExpire {
				t.Fatalf("%+v, %v", expired, err)
			}
			end, err := p.l.Tx(p.ctx(), expired.Closing)
			if err != nil {
				t.Fatal(err)
			}
			check := func() {
				t.Helper()
				p.proven(since, &end.Receipt, 3)
				for _, tx := range done {
					p.proven(since, tx.Receipt, tx.closed)
				}
			}
			check()
			p.reopen()
			check()
			p.sound()
		})
	}
}

// A payment before the record that closed the newest period is proven in the logs that have that
// record. In a log without it nothing shows the names of closed periods.
func TestClosedProofNeedsClosing(t *testing.T) {
	p := newPast(t)
	p.drop(droppedAll)
	ctx := p.ctx()
	last := p.accept(transfer("alice", "zoe", 1, 0))[0].Receipt
	later := p.accept(transfer("zoe", "bob", 1, 0))[0].Receipt
	paid := p.accept(transfer("alice", "bob", 2, 0))[0].Receipt
	if err := p.l.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	var reader sync.WaitGroup
	var done atomic.Bool
	reader.Go(func() { // in the newest log there is a proof at any moment
		for !done.Load() {
			if _, err := p.l.Prove(ctx, later.TxID, 0); err != nil {
				t.Errorf("while its names are closed: %v", err)
				return
			}
		}
	})
	h, err := ledgertest.Close(ctx, p.store, last.Seq)
	if err != nil || h.Seq != last.Seq {
		t.Errorf("%+v, %v", h, err)
	}
	p.drop(droppedAll)
	done.Store(true)
	reader.Wait()
	if proof, err := p.l.Prove(ctx, paid.TxID, paid.Batch); !closedIn(err, 1) {
		t.Errorf("before the closing: %+v, %v", proof, err)
	}
	for _, at := range []uint64{paid.Batch + 1, 0} {
		proof, err := p.l.Prove(ctx, paid.TxID, at)
		if err != nil || proof.Past == nil {
			t.Fatalf("in the log of %d: %+v, %v", at, proof, err)
		}
		if got, err := proof.Verify(); err != nil || got != paid {
			t.Errorf("in the log of %d: %+v, %v", at, got, err)
		}
	}
	p.sound()
}

// A read of the log that sees a closing before it is published waits for that: it does not look
// again and again.
func TestProofsWaitForTheClosing(t *testing.T) {
	p := newPast(t)
	ctx := p.ctx()
	covered := p.accept(transfer("alice", "bob", 1, 0))[0].Receipt
	paid := p.accept(transfer("alice", "bob", 2, 0))[0].Receipt
	for _, tt := range []struct {
		doc  string
		last uint64 // of the period
		read func() error
	}{
		{"a proof after the horizon", covered.Seq, func() error {
			_, err := p.l.Prove(ctx, paid.TxID, 0)
			return err
		}},
		{"the head, up to which all is closed", paid.Seq + 1, func() error {
			_, err := p.l.Head(ctx)
			return err
		}},
	} {
		if err := p.l.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		p.drop(droppedAll)
		older := p.l.KeepHead()
		if h, err := ledgertest.Close(ctx, p.store, tt.last); err != nil || h.Seq != tt.last {
			t.Fatalf("%s: %+v, %v", tt.doc, h, err)
		}
		publish, before := older(), p.readers.Load()
		answer := make(chan error, 1)
		go func() { answer <- tt.read() }()
		for end := time.Now().Add(time.Minute); p.readers.Load() == before; time.Sleep(50 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("%s: it does not wait", tt.doc)
			}
		}
		publish()
		if err := <-answer; err != nil {
			t.Errorf("%s: %v", tt.doc, err)
		}
	}
}
