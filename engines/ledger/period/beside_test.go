package period_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// next begins the closing of what the node has.
func (n *node) next() (p period.Plan) {
	n.Helper()
	n.view(func(r store.Reader) {
		var err error
		p, err = period.Next(r, 1<<62, n.state().seq, false)
		n.must(err)
	})
	n.must(period.Begin(n.Context(), n.s, p, period.Request{}))
	return p
}

// left returns the number of records at or below the horizon that are not dropped.
func (n *node) left() (records int) {
	n.view(func(r store.Reader) {
		for range tables.Raws(r, 0, tables.GetHorizon(r).Seq+1) {
			records++
		}
	})
	return records
}

// TestDropBesideTheNextClosing drops rows of a period while the next one is being closed. It goes on
// from there after that is canceled, and after it is closed.
func TestDropBesideTheNextClosing(t *testing.T) {
	for _, commands := range []int{1, 5, 0} { // 0: until none is left
		n := newNode(t, uint64(commands))
		n.pay(100)
		_, err := ledgertest.Close(t.Context(), n.s, n.state().seq)
		n.must(err)
		rows := n.left()
		n.pay(100)
		for _, cancels := range []bool{true, false} {
			p := n.next()
			done, err := ledgertest.Drop(t.Context(), n.s, commands, 40)
			n.must(err)
			if now := n.left(); done != (commands == 0) || commands > 1 && now >= rows || done && now > 0 {
				t.Fatalf("%d records are left of %d, done: %v", now, rows, done)
			}
			var c tables.Closing
			n.view(func(r store.Reader) { c = tables.GetClosing(r) })
			if c.Step != tables.Building || c.Period != p.Period {
				t.Fatalf("the closing is %+v", c)
			}
			if cancels {
				n.must(period.Cancel(t.Context(), n.s, 0, ""))
				continue
			}
			n.must(period.Build(t.Context(), n.s, nil, nil))
			n.must(period.Turn(t.Context(), n.s, p.Period, tables.Exporting, tables.Sealing, nil))
			_, err = ledger.ClosePeriod(t.Context(), n.s, p.Period)
			n.must(err)
		}
		want := n.state()
		_, err = ledgertest.Drop(t.Context(), n.s, 0, 97)
		n.must(err)
		n.dropped()
		if now := n.state(); now.seq != want.seq {
			t.Errorf("the ledger ends with record %d, before with %d", now.seq, want.seq)
		}
	}
}

// TestClosingDropsBeside closes a period while rows of the one before are left and few pages are
// free. Rows are dropped before the closing ends, so that payments beside it have pages.
func TestClosingDropsBeside(t *testing.T) {
	n := newNode(t, 2)
	n.pay(300)
	_, err := ledgertest.Close(t.Context(), n.s, n.state().seq)
	n.must(err)
	n.pay(10)
	for n.s.PageUse().Free >= 64 {
		n.pay(10)
	}
	rows := n.left()
	var c *period.Closer
	now := func() time.Time {
		n.view(func(r store.Reader) {
			if c == nil || c.State().State == "idle" {
				return
			}
			if row := tables.GetClosing(r); c.Reclaimable() != row.Reclaimable() {
				t.Errorf("%d bytes are to be dropped, and %d are told", row.Reclaimable(), c.Reclaimable())
			}
		})
		return n.clock.Now()
	}
	c = period.NewCloser(period.Config{Dir: t.TempDir()}, n.heldAtSealing(now))
	n.clock.Advance(time.Hour)
	_, err = c.Close(t.Context(), period.Ask{Before: n.clock.Now()})
	n.must(err)
	defer n.runs(c)() // from here on the task alone asks for the time
	n.await(c, "closing")
	if now := n.left(); now >= rows {
		t.Errorf("%d records are left of %d", now, rows)
	}
}

// TestAnotherNodeHasItsOwnFolder lets a node take over a closing from one whose folder it does not
// have, as the next leader of a cluster does. The file is in the folder of the node that ends it.
func TestAnotherNodeHasItsOwnFolder(t *testing.T) {
	n := newNode(t, 3)
	n.pay(50)
	first := filepath.Join(t.TempDir(), "gone")
	c := period.NewCloser(period.Config{Dir: first, Make: true}, period.Deps{
		Store: n.s, Ledger: n.l, Catalog: flow.NewCatalog(nil, nil), Now: n.clock.Now,
	})
	n.clock.Advance(time.Hour)
	p, err := c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	dir := t.TempDir()
	other, stop := n.closer(period.Config{Dir: dir})
	defer stop()
	n.closed(other, p.Period)
	if len(n.lines(filepath.Join(dir, record.PeriodFile(p.Period)))) == 0 {
		t.Error("the file is empty")
	}
}

// TestDropsWhileTheArchiveHangs closes a period with an archive that does not answer, while rows of
// the one before are left. They are dropped meanwhile, and a cancel ends the waiting.
func TestDropsWhileTheArchiveHangs(t *testing.T) {
	n := newNode(t, 3)
	n.pay(200)
	_, err := ledgertest.Close(t.Context(), n.s, n.state().seq)
	n.must(err)
	n.pay(10)
	c, stop := n.keeps(holding{&shelf{}}, period.Config{Dir: t.TempDir()})
	defer stop()
	n.clock.Advance(time.Hour)
	_, err = c.Close(t.Context(), period.Ask{Before: n.clock.Now(), Fast: true})
	n.must(err)
	n.await(c, "copying")
	n.until(func() bool { return n.left() == 0 })
	n.must(c.Cancel(t.Context()))
	n.until(func() bool { // rows of other tables may be left
		now := c.State().State
		return now == "idle" || now == "dropping"
	})
	if h := n.horizon(); h.Period != 1 {
		t.Errorf("period %d is closed", h.Period)
	}
}

// TestRefusedClosingLeavesTheDropping has a closing that is due and cannot begin, while rows of the
// one before are left. The failure names the period, and the rows count as to be dropped as before.
func TestRefusedClosingLeavesTheDropping(t *testing.T) {
	n := newNode(t, 4)
	ops := make([]ledger.Op, 512)
	for i := range ops {
		ops[i] = ledger.Op{
			Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 1),
			Memo: strings.Repeat("x", record.MaxMemo),
		}
	}
	for range 100 { // more pages than are kept free
		n.do(ops...)
	}
	n.must(n.l.Flush(t.Context()))
	_, err := ledgertest.Close(t.Context(), n.s, n.state().seq)
	n.must(err)
	n.pay(10)
	n.clock.Advance(30 * 24 * time.Hour)
	day := unit.Duration(24 * time.Hour)
	c, stop := n.keeps(&shelf{away: errors.New("the archive is away")}, period.Config{
		Dir: t.TempDir(), Retention: 7 * day, Period: day,
	})
	defer stop()
	n.await(c, "failed")
	if s := c.State(); s.Period != 2 || !strings.Contains(s.Error, "away") {
		t.Errorf("the state is %+v", s)
	}
	n.view(func(r store.Reader) {
		if row := tables.GetClosing(r); row.Reclaimable() == 0 || c.Reclaimable() != row.Reclaimable() {
			t.Errorf("%d bytes are to be dropped, and %d are told", row.Reclaimable(), c.Reclaimable())
		}
	})
}
