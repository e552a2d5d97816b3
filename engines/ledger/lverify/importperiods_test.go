package lverify_test

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// split is a ledger with closed periods in files, and in an export that goes on from them.
type split struct {
	dir   string
	rest  []byte
	whole []byte // the export of a ledger that has closed nothing
	head  record.Head
	key   tables.StoreKey
	texts [][]byte
	rows  []row // of the ledger, that do not depend on closed periods
}

// everRows returns the rows that a ledger has whether its periods are closed or not, if nothing was
// dropped.
func everRows(all []row) []row {
	others := []string{"ledger/meta", "ledger/moved", "ledger/once"} // references are merged
	for _, b := range tables.PeriodBuckets() {
		others = append(others, b.Name)
	}
	return slices.DeleteFunc(all, func(r row) bool { return slices.Contains(others, r.b.Name) })
}

func newSplit(t *testing.T, seed uint64, calls ...int) (s split, r store.Reader) {
	t.Helper()
	all, _ := closed(t, seed, calls...)
	r = newBench(t, all).tx.Reader()
	for n := range tables.Periods(r, 1) {
		s.texts = append(s.texts, periodText(t, r, n))
	}
	s.dir, s.whole = folder(t, s.texts), exportOf(t, all)
	head, _ := tables.GetHead(r)
	h := tables.GetHorizon(r)
	s.rest = (&record.Line{Kind: record.LineFormat, From: h.Seq + 1, Prev: h.LastRoot}).Append(nil)
	s.rest = linesOf(r, s.rest, h.Batch+1, head.Batches)
	s.key, _ = tables.GetStoreKey(r)
	s.head, s.rows = verifyExport(t, s.whole).Head, everRows(all)
	return s, r
}

// importPeriods imports files, and an export unless it is nil.
func importPeriods(t *testing.T, f *file, dir string, export []byte, key tables.StoreKey) (lverify.Report, error) {
	t.Helper()
	o := lverify.ImportOptions{Key: key, Now: f.clock.Now}
	if export == nil {
		return lverify.ImportPeriods(t.Context(), f.s, dir, nil, o)
	}
	return lverify.ImportPeriods(t.Context(), f.s, dir, bytes.NewReader(export), o)
}

// A ledger that is imported from the files of its periods and the export after them has the same
// records, roots and rows as one that has never closed a period, and goes on as any.
func TestImportPeriods(t *testing.T) {
	s, _ := newSplit(t, 70, 25, 25, 25, 25)
	f := newFile(t).open(false)
	f.clock.Advance(1e15)
	for range 2 { // the second time there is nothing to do
		if rep, err := importPeriods(t, f, s.dir, s.rest, s.key); err != nil || !rep.OK || rep.Head != s.head {
			t.Fatalf("%+v, %v", rep, err)
		}
		if rep := f.verify(lverify.Options{}); !rep.OK || rep.Head != s.head || rep.Periods != 0 {
			t.Fatalf("%+v", rep)
		}
	}
	f.view(func(r store.Reader) { sameButEnd(t, everRows(rows(r)), s.rows) })
	f.close()
	f.open(true)
	if !bytes.Equal(f.export(), s.whole) {
		t.Error("the export of the import is another one")
	}
	f.clock.Advance(1e9)
	for k := range 5 { // one in each period, and two in the first
		pay := ledger.Op{
			Code: record.OpIssue, To: "shop:till", Asset: "ron", Amount: engines.AmountOf(0, 3), Principal: "shop",
			Reference: fmt.Sprint("invoice ", k),
		}
		if out := f.do(pay)[0]; out.Reject != nil || !out.Replayed {
			t.Errorf("%s is paid again: %+v", pay.Reference, out)
		}
		pay.Amount = engines.AmountOf(0, 4)
		if out := f.do(pay)[0]; out.Reject == nil || out.Reject.Code != record.ReferenceConflict {
			t.Errorf("another payment of %s: %+v", pay.Reference, out)
		}
	}
	once := ledger.Once{Domain: "payout", ID: "epoch 1", Digest: b3.Sum([]byte("epoch 1"))}
	ops := []ledger.Op{{Code: record.OpIssue, To: "pool", Asset: "ron", Amount: engines.AmountOf(0, 1)}}
	if out, err := f.l.Settle(t.Context(), once, ops); err != nil || out.Reject != nil || !out.Replayed {
		t.Errorf("an epoch is paid again: %+v, %v", out, err)
	}
}

// An imported ledger closes its periods again, and is sound then.
func TestCloseImportedPeriods(t *testing.T) {
	s, _ := newSplit(t, 71, 20, 20, 20, 20)
	f := newFile(t).open(false)
	f.clock.Advance(1e15)
	if rep, err := importPeriods(t, f, s.dir, s.rest, s.key); err != nil || !rep.OK {
		t.Fatalf("%+v, %v", rep, err)
	}
	f.close()
	f.open(true).dice = ledgertest.NewDice(9)
	p := lverify.NewPeriods(lverify.Options{})
	for n := range uint64(2) {
		f.closeChecked(n+1, s.head.Seq/3*(n+1))
		if rep := f.verify(lverify.Options{}); !rep.OK || rep.Periods != n+1 {
			t.Fatalf("%+v", rep)
		}
		f.view(func(r store.Reader) {
			if rep := next(t, p, periodText(t, r, n+1)); !rep.OK {
				t.Fatalf("%+v", rep)
			}
		})
		if _, err := ledgertest.Drop(t.Context(), f.s, 0, 50); err != nil {
			t.Fatal(err)
		}
		f.calls(5)
		f.flush()
		if rep := f.verify(lverify.Options{}); !rep.OK {
			t.Fatalf("%+v", rep)
		}
	}
}

// closeChecked closes a period, with the check that a node makes before it does.
func (f *file) closeChecked(n, seq uint64) {
	f.t.Helper()
	ctx := f.t.Context()
	var p period.Plan
	err := f.s.View(ctx, func(r store.Reader) (err error) {
		p, err = period.Next(r, 1<<62, seq, false)
		return err
	})
	err = errors.Join(err, period.Begin(ctx, f.s, p, period.Request{}), period.Build(ctx, f.s, nil, nil))
	if err != nil || p.Period != n {
		f.t.Fatalf("%+v, %v", p, err)
	}
	if rep, err := lverify.Closing(ctx, f.s.View, lverify.Options{}); err != nil || !rep.OK {
		f.t.Fatalf("%+v, %v", rep, err)
	}
	err = period.Turn(ctx, f.s, n, tables.Exporting, tables.Sealing, nil)
	if _, closed := ledger.ClosePeriod(ctx, f.s, n); errors.Join(err, closed) != nil {
		f.t.Fatal(err, closed)
	}
}

// Files alone make a ledger up to the last of them. An import that was interrupted goes on.
func TestImportPeriodsGoesOn(t *testing.T) {
	s, r := newSplit(t, 72, 12, 12, 12, 12)
	f := newFile(t).open(false)
	f.clock.Advance(1e15)
	for n := 1; n <= len(s.texts); n++ {
		want := tables.StatementOf(r, uint64(n))
		rep, err := importPeriods(t, f, folder(t, s.texts[:n]), nil, s.key)
		if err != nil || !rep.OK || rep.Head != want.Head() {
			t.Fatalf("%d files: %+v, %v", n, rep, err)
		}
		if rep := f.verify(lverify.Options{}); !rep.OK || rep.Head != want.Head() {
			t.Fatalf("%d files: %+v", n, rep)
		}
	}
	if rep, err := importPeriods(t, f, s.dir, s.rest, s.key); err != nil || !rep.OK || rep.Head != s.head {
		t.Fatalf("%+v, %v", rep, err)
	}
	if _, err := importPeriods(t, f, folder(t, s.texts[:1]), nil, s.key); !errors.Is(err, lverify.ErrNotEmpty) {
		t.Errorf("a file of what the ledger has more of: %v", err)
	}
	other, _ := newSplit(t, 73, 12, 12, 12, 12)
	if _, err := importPeriods(t, f, other.dir, other.rest, s.key); !errors.Is(err, lverify.ErrNotEmpty) {
		t.Errorf("another ledger: %v", err)
	}
}

// Files that are missing or bad, and an export that does not go on from them, are not imported.
func TestImportPeriodsRefuses(t *testing.T) {
	s, _ := newSplit(t, 74, 10, 10, 10, 10)
	other, _ := newSplit(t, 75, 10, 10, 10, 10)
	without := func(period uint64) func(dir string) error {
		return func(dir string) error { return os.Remove(filepath.Join(dir, record.PeriodFile(period))) }
	}
	for name, tt := range map[string]struct {
		change func(dir string) error
		export []byte
		want   string
	}{
		"no files": {func(dir string) error {
			return errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o700))
		}, nil, record.PeriodFile(1)},
		"no first file":  {without(1), s.rest, record.PeriodFile(1)},
		"no second file": {without(2), s.rest, record.PeriodFile(2)},
		"no last file":   {without(3), s.rest, "line 1"},
		"another ledger": {nil, other.rest, "line 1"},
		"a whole export": {nil, s.whole, "line 1"},
		"a cut export":   {nil, s.rest[:len(s.rest)-20], "line "},
	} {
		dir := folder(t, s.texts)
		if tt.change != nil {
			if err := tt.change(dir); err != nil {
				t.Fatal(err)
			}
		}
		f := newFile(t).open(false)
		f.clock.Advance(1e15)
		rep, err := importPeriods(t, f, dir, tt.export, s.key)
		if rep.OK || !strings.Contains(fmt.Sprint(rep.Findings, err), tt.want) {
			t.Errorf("%s: %v, %v", name, rep.Findings, err)
		}
		if rep := f.verify(lverify.Options{}); !rep.OK {
			t.Errorf("%s: what was imported is not sound: %v", name, rep.Findings)
		}
		f.close()
	}
}

// TestImportPeriodsIntoClosed imports into a ledger that has closed a period itself: its next period
// would not be the next one of the records.
func TestImportPeriodsIntoClosed(t *testing.T) {
	s, _ := newSplit(t, 76, 10, 10, 10)
	f := newFile(t).open(false)
	f.clock.Advance(1e15)
	defer f.close()
	dir := folder(t, s.texts)
	rep, err := importPeriods(t, f, dir, nil, s.key)
	if err != nil || !rep.OK {
		t.Fatal(rep.Findings, err)
	}
	f.close()
	f.open(true)
	if _, err := ledgertest.Close(t.Context(), f.s, rep.Head.Seq); err != nil {
		t.Fatal(err)
	}
	f.close()
	f.open(false)
	if rep, err := importPeriods(t, f, dir, s.rest, s.key); !errors.Is(err, lverify.ErrNotEmpty) {
		t.Errorf("%v, %v", rep.Findings, err)
	}
}
