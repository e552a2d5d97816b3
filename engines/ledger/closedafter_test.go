package ledger_test

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// A statement goes down to the horizon, and ends with the balance there.
func TestClosedHistory(t *testing.T) {
	eachPast(t, func(t *testing.T, p *past) {
		want := ledger.Opening{
			Period: 1, At: p.h.At, Postings: uint64(p.postings), Posted: p.balance.Posted, Available: p.balance.Available,
		}
		check := func(n int) {
			t.Helper()
			for _, newest := range []bool{true, false} {
				for _, limit := range []int{1, 7, 500} {
					p.statement(newest, limit, n, want)
				}
			}
			q := p.history(true, 500)
			q.Since = p.h.At + 1
			if page, err := p.l.History(p.ctx(), q); err != nil || len(page.Entries) != n || page.Opening != nil {
				t.Errorf("since the horizon: %d entries, %+v, %v", len(page.Entries), page.Opening, err)
			}
			q.Since, q.Until = p.h.At, p.h.At+1
			if page, err := p.l.History(p.ctx(), q); err != nil || len(page.Entries) != 0 || page.Opening == nil {
				t.Errorf("at the horizon: %+v, %v", page, err)
			}
		}
		check(0)
		for n := range 300 { // past a mark
			p.clock.Advance(time.Second)
			p.accept(transfer("alice", "erin", 1, 0))
			if n == 5 {
				check(6)
			}
		}
		check(300)
		p.reopen()
		check(300)
		q := ledger.HistoryQuery{Account: "erin", Asset: "ron", Limit: 500, Until: p.h.At}
		if page, err := p.l.History(p.ctx(), q); err != nil || len(page.Entries) != 0 || page.Opening != nil {
			t.Errorf("of an account that was opened later: %+v, %v", page, err)
		}
		p.sound()
	})
}

// statement reads a whole statement of alice, which must have n entries.
func (p *past) statement(newest bool, limit, n int, want ledger.Opening) {
	p.t.Helper()
	var got *ledger.Opening
	q, entries := p.history(newest, limit), 0
	for pages := 0; ; pages++ {
		page, err := p.l.History(p.ctx(), q)
		if err != nil {
			p.t.Fatal(err)
		}
		if first, last := pages == 0, page.Next == ""; (page.Opening != nil) != (newest && last || !newest && first) {
			p.t.Errorf("newest first %v, page %d: opening %+v", newest, pages, page.Opening)
		}
		if page.Opening != nil {
			got = page.Opening
		}
		entries += len(page.Entries)
		if q.Cursor = page.Next; q.Cursor == "" {
			break
		}
	}
	if entries != n || got == nil || *got != want {
		p.t.Errorf("newest first %v: %d entries, want %d; opening %+v, want %+v", newest, entries, n, got, want)
	}
}

// What came after the horizon is listed, exported and proven from there on.
func TestClosedAfter(t *testing.T) {
	eachPast(t, func(t *testing.T, p *past) {
		ctx := p.ctx()
		p.declare("new")
		var ids []record.TxID
		for n := range uint64(9) {
			o := issue("zoe", 10, 0)
			o.Asset = "new"
			ids = append(ids, p.accept(o)[0].Receipt.TxID)
			if n == 4 {
				p.reopen()
			}
		}
		head, err := p.l.Head(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			proof, err := p.l.Prove(ctx, id, 0)
			if err == nil {
				_, err = proof.Verify()
			}
			if err != nil || proof.Head != head {
				t.Errorf("proof: %v, of head %+v, want %+v", err, proof.Head, head)
			}
		}
		p.accept(transfer("alice", "bob", 1, 0))
		c, err := p.l.Consistency(ctx, p.h.Batch, head.Batches)
		if err == nil {
			err = c.Verify()
		}
		if err != nil || c.From.Root != p.root.Root || c.To.Root != head.Root {
			t.Errorf("consistency with the head before the closing: %+v, %v", c, err)
		}
		if c, err := p.l.Consistency(ctx, 0, head.Batches); err != nil || c.Verify() != nil {
			t.Errorf("consistency with nothing: %v", err)
		}
		roots, err := p.l.Roots(ctx, p.h.Batch-2, 4)
		if err != nil || len(roots) != 4 || roots[0].No != p.h.Batch+1 || roots[0].Prev != p.h.LastRoot {
			t.Errorf("roots: %+v, %v", roots, err)
		}
		if first, err := p.l.Roots(ctx, 0, 1); err != nil || first[0] != roots[0] {
			t.Errorf("the first root: %+v, %v", first, err)
		}
		var lines []record.Line
		err = p.l.Export(ctx, p.h.Seq+1, 0, func(l record.Line) error { lines = append(lines, l); return nil })
		if err != nil || lines[0].Prev != p.h.LastRoot || lines[1].Record.Op != record.OpClose {
			t.Errorf("export: %+v, %v", lines, err)
		}
		n := 0
		err = p.l.Payments(ctx, ledger.PaymentFilter{Newest: true}, 1, head.Seq, func(o *ledger.Outcome) error {
			n++
			return nil
		})
		if !closedIn(err, 1) || n != len(ids) {
			t.Errorf("%d payments, %v", n, err)
		}
		out, err := p.l.Tx(ctx, lines[1].Record.TxID())
		if err != nil || out.Receipt.Op != record.OpClose {
			t.Errorf("the record of the closing: %+v, %v", out, err)
		}
		p.sound()
	})
}

// The horizon may be any batch: the first, one of those that wait in the row of the head, the last
// of a log of any shape.
func TestClosedAtAnyBatch(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1000, 1))
	for round := range 24 {
		h := r.closeHead()
		r.drop(droppedAll)
		r.reopen()
		for range round % 3 {
			r.accept(transfer("alice", "bob", 1, 0))
		}
		head, err := r.l.Head(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.l.Consistency(r.ctx(), h.Batch, head.Batches)
		if err != nil || c.Verify() != nil || c.To.Root != head.Root {
			t.Errorf("from batch %d to %d: %+v, %v", h.Batch, head.Batches, c, err)
		}
	}
}

// A boot checks the newest records of a closed ledger, be it in full, in its tail, or after an
// election.
func TestClosedTail(t *testing.T) {
	for _, tt := range []struct {
		verify  string
		elected bool
	}{{ledger.VerifyFull, false}, {ledger.VerifyTail, false}, {ledger.VerifyTail, true}} {
		p := newPast(t, func(c *ledger.Config) { c.VerifyOnOpen = tt.verify })
		p.drop(droppedAll)
		p.elected = tt.elected
		p.sound()
		p.accept(slices.Repeat([]ledger.Op{transfer("alice", "bob", 1, 0)}, 3000)...) // more than a tail
		last := p.accept(transfer("alice", "bob", 1, 0))[0].Receipt.Seq
		if err := p.l.Flush(p.ctx()); err != nil {
			t.Fatal(err)
		}
		p.sound()
		p.edit(func(r store.Reader, _ store.Stamp, w *store.Writes) {
			row := slices.Clone(r.Get(bucketOf(t, "journal"), seqKey(last)))
			row[len(row)/2] ^= 1
			w.Put(bucketOf(t, "journal"), seqKey(last), row)
		})
		p.safe = true
		p.reopen()
		if p.l.SafeMode() == "" {
			t.Errorf("%+v: a damaged record is not noticed", tt)
		}
	}
}

// While periods are closed and dropped, a read finds what it asks for or hears that it is closed.
func TestClosedWhileRead(t *testing.T) {
	p := newPast(t)
	last := p.accept(transfer("alice", "bob", 1, 0))[0].Receipt
	ids := append(slices.Clone(p.old), last.TxID)
	asks := []func() error{
		func() error { _, err := p.l.Head(p.ctx()); return err },
		func() error { _, err := p.l.History(p.ctx(), p.history(true, 500)); return err },
		func() error { _, err := p.l.History(p.ctx(), p.history(false, 500)); return err },
		func() error { _, err := p.l.Holds(p.ctx(), ledger.HoldsQuery{Account: "bob", Limit: 10}); return err },
		func() error {
			_, err := p.l.Accounts(p.ctx(), ledger.AccountsQuery{Limit: 100, Asset: "ron"})
			return err
		},
		func() error { _, err := p.l.Assets(p.ctx()); return err },
		func() error { _, err := p.l.Account(p.ctx(), "alice"); return err },
		func() error { _, err := p.l.Roots(p.ctx(), p.h.Batch, 1000); return err },
		func() error {
			f := ledger.PaymentFilter{Newest: true}
			return p.l.Payments(p.ctx(), f, 1, last.Seq, func(*ledger.Outcome) error { return nil })
		},
		func() error {
			return p.l.Export(p.ctx(), p.h.Seq+1, 0, func(record.Line) error { return nil })
		},
	}
	for _, id := range append(ids, p.open...) {
		asks = append(asks, func() error { _, err := p.l.Tx(p.ctx(), id); return err },
			func() error { _, err := p.l.Prove(p.ctx(), id, 0); return err })
	}
	for _, id := range p.open {
		asks = append(asks, func() error { _, err := p.l.Hold(p.ctx(), id); return err })
	}
	var readers sync.WaitGroup
	var done atomic.Bool
	for k := range 3 {
		readers.Go(func() {
			for i := k; !done.Load(); i += 7 {
				if err := asks[i%len(asks)](); err != nil {
					if _, closed := isClosed(err); !closed {
						t.Errorf("ask %d: %v", i%len(asks), err)
					}
				}
			}
		})
	}
	for round := range 6 {
		p.accept(ledger.Op{Code: record.OpCapture, Hold: p.open[round]})
		for range 40 {
			p.accept(transfer("alice", "bob", 1, 0))
		}
		if round%2 == 0 {
			o := transfer("bob", "dave", 1, 0)
			o.Code, o.ExpiresIn = record.OpHold, time.Hour
			p.open = append(p.open, p.accept(o)[0].Receipt.TxID)
		}
		p.closeHead()
		p.drop(droppedHalf)
	}
	done.Store(true)
	readers.Wait()
	p.sound()
}

// A row of the horizon, or of what it leads to, that is missing or damaged is damage: what was
// closed never counts as open or as unknown.
func TestClosedRowsLost(t *testing.T) {
	period := func(*past) []byte { return []byte{7: 1} }
	for _, tt := range []struct {
		name, bucket string
		key          func(*past) []byte
		needs        func(*past) error
	}{
		{"the horizon", "meta", func(*past) []byte { return []byte("horizon") }, nil},
		{"the statement", "periods", period, nil},
		{"the record that closes", "journal", func(p *past) []byte { return seqKey(p.h.Seq + 1) }, nil},
		{"how far the rows are", "flush", func(*past) []byte { return []byte("low_seq") }, nil},
		{"an open hold", "base", func(p *past) []byte { return append([]byte{7: 1, 8: 'h'}, seqKey(p.open[0].Seq())...) },
			func(p *past) error {
				_, err := p.l.Commit(p.ctx(), []ledger.Op{{Code: record.OpRelease, Hold: p.open[0]}})
				return err
			}},
		{"an account", "base", func(*past) []byte { return []byte{7: 1, 8: 'a', 16: 3} },
			func(p *past) error { _, err := p.l.Account(p.ctx(), "alice"); return err }},
		{"an asset", "base", func(*past) []byte { return []byte{7: 1, 8: 's', 12: 1} },
			func(p *past) error { _, err := p.l.Assets(p.ctx()); return err }},
		{"a node of the log of names", "nlog", func(*past) []byte { return seqKey(0) }, nil},
		{"a balance that the base has", "state", func(*past) []byte { return []byte{7: 6, 11: 1} },
			func(p *past) error { _, err := p.l.Balance(p.ctx(), "dave", "ron", 0); return err }},
	} {
		for _, d := range []dropped{droppedNone, droppedAll} {
			t.Run(tt.name+", "+string(d), func(t *testing.T) { closedRowLost(t, d, tt.bucket, tt.key, tt.needs) })
		}
	}
}

func closedRowLost(t *testing.T, d dropped, bucket string, keyOf func(*past) []byte, needs func(*past) error) {
	p := newPast(t)
	p.drop(d)
	key := keyOf(p)
	p.edit(func(rd store.Reader, _ store.Stamp, w *store.Writes) {
		if rd.Get(bucketOf(t, bucket), key) == nil {
			t.Errorf("there is no row %x", key)
		}
		w.Delete(bucketOf(t, bucket), key)
	})
	p.safe = true
	p.stop()
	if err := p.boot(); err != nil {
		t.Logf("no boot: %v", err)
		return
	}
	if needs != nil {
		if err := needs(p); err == nil {
			t.Error("it was not needed")
		}
		return
	}
	if p.l.SafeMode() == "" {
		t.Error("not in safe mode")
	}
	if _, err := p.l.Tx(p.ctx(), p.old[0]); !errors.Is(err, ledger.ErrSafeMode) && !closedIn(err, 1) {
		t.Errorf("tx: %v", err)
	}
}
