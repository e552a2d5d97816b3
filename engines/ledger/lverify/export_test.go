package lverify_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// exported returns the export of a ledger, its head, its store key and its rows.
func exported(t testing.TB, seed uint64, n int) ([]byte, record.Head, tables.StoreKey, []row) {
	t.Helper()
	f := newFile(t).open(true)
	defer f.close()
	f.fill(seed, n)
	f.flush()
	head, err := f.l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var key tables.StoreKey
	var all []row
	f.view(func(r store.Reader) {
		key, _ = tables.GetStoreKey(r)
		// tokens are of one node
		all = slices.DeleteFunc(athome(t, rows(r)), func(r row) bool { return r.b.Name == "ledger/moved" })
	})
	return f.export(), head, key, all
}

func verifyExport(t testing.TB, text []byte) lverify.Report {
	t.Helper()
	rep, err := lverify.VerifyExport(t.Context(), bytes.NewReader(text), lverify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// An export imported into an empty file produces the same rows: journal, batches, head and all
// derived tables.
func TestImportReproduces(t *testing.T) {
	text, head, key, want := exported(t, 1, 60)
	if rep := verifyExport(t, text); !rep.OK || rep.Head != head {
		t.Fatalf("%+v\nthe head is %+v", rep, head)
	}
	f := newFile(t).open(false)
	o := lverify.ImportOptions{Key: key, Now: f.clock.Now}
	f.clock.Advance(1e15)
	for _, again := range []bool{false, true} { // the same export again finds nothing to do
		rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text), o)
		if err != nil || !rep.OK || rep.Head != head {
			t.Fatalf("again %t: %+v, %v", again, rep, err)
		}
		f.view(func(r store.Reader) { same(t, rows(r), want) })
	}
	if rep := f.verify(lverify.Options{}); !rep.OK || rep.Head != head {
		t.Fatalf("%+v", rep)
	}
	f.close()
	f.open(true)
	if got, err := f.l.Head(t.Context()); err != nil || got != head {
		t.Fatalf("%+v, %v", got, err)
	}
	if !bytes.Equal(f.export(), text) {
		t.Fatal("an export of the import is another one")
	}
	f.clock.Advance(1e9)
	f.fill(9, 5) // it goes on as any ledger
}

// The empty lines that a node sends to an idle follower are skipped, and findings keep their line
// numbers.
func TestExportThatFollowed(t *testing.T) {
	text, head, key, _ := exported(t, 1, 60)
	quiet := bytes.ReplaceAll(text, []byte("\n"), []byte("\n\n"))
	if rep := verifyExport(t, quiet); !rep.OK || rep.Head != head {
		t.Errorf("%+v\nthe head is %+v", rep, head)
	}
	f := newFile(t).open(false)
	f.clock.Advance(1e15)
	rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(quiet),
		lverify.ImportOptions{Key: key, Now: f.clock.Now})
	if err != nil || !rep.OK || rep.Head != head {
		t.Errorf("imported: %+v, %v", rep, err)
	}
	wrong := append(bytes.Clone(quiet), "x\n"...)
	line := fmt.Sprintf("line %d", bytes.Count(wrong, []byte("\n")))
	if rep := verifyExport(t, wrong); rep.OK || rep.Findings[0].Where != line {
		t.Errorf("%+v, want %s", rep, line)
	}
	if rep := verifyExport(t, append([]byte("\n"), text...)); rep.OK {
		t.Error("an export that begins with nothing is good")
	}
}

func same(t testing.TB, got, want []row) {
	t.Helper()
	for i := range min(len(got), len(want)) {
		g, w := got[i], want[i]
		if g.b != w.b || !bytes.Equal(g.key, w.key) || !bytes.Equal(g.value, w.value) {
			t.Fatalf("row %d: %s %x = %x\nwant %s %x = %x", i, g.b.Name, g.key, g.value, w.b.Name, w.key, w.value)
		}
	}
	if len(got) != len(want) {
		t.Fatalf("%d rows, want %d", len(got), len(want))
	}
}

// An interrupted import can be resumed. An import into another ledger fails and does not change it.
func TestImportGoesOn(t *testing.T) {
	text, head, key, want := exported(t, 2, 40)
	other, _, _, _ := exported(t, 3, 40)
	f := newFile(t).open(false)
	f.clock.Advance(1e15)
	o := lverify.ImportOptions{Key: key, Now: f.clock.Now}
	cut := bytes.LastIndexByte(text[:len(text)/2], '\n') + 1
	if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text[:cut+10]), o); err != nil || rep.OK {
		t.Fatalf("half an export passed: %+v, %v", rep, err)
	}
	if rep := f.verify(lverify.Options{}); !rep.OK || rep.Head.Seq == 0 || rep.Head.Seq >= head.Seq {
		t.Fatalf("after half an export: %+v", rep)
	}
	for _, bad := range [][]byte{other, text[:cut/2]} {
		if _, err := lverify.Import(t.Context(), f.s, bytes.NewReader(bad), o); !errors.Is(err, lverify.ErrNotEmpty) {
			t.Fatalf("import over another ledger: %v", err)
		}
	}
	if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text), o); err != nil || rep.Head != head {
		t.Fatalf("%+v, %v", rep, err)
	}
	f.view(func(r store.Reader) { same(t, rows(r), want) })
}

// An import of an export that ends anywhere produces a whole ledger up to the last complete batch,
// and continues with a longer export.
func TestImportOfEveryCut(t *testing.T) {
	text, _, key, want := exported(t, 11, 12)
	for end, b := range text {
		if b != '\n' {
			continue
		}
		f := newFile(t).open(false)
		f.clock.Advance(1e15)
		o := lverify.ImportOptions{Key: key, Now: f.clock.Now}
		rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text[:end+1]), o)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.verify(lverify.Options{}); !got.OK || got.Head.Batches != rep.Head.Batches {
			t.Fatalf("after %d bytes: %+v\nthe import said %+v", end+1, got, rep)
		}
		if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text), o); err != nil || !rep.OK {
			t.Fatalf("after %d bytes, then all: %+v, %v", end+1, rep, err)
		}
		f.view(func(r store.Reader) { same(t, rows(r), want) })
		f.close()
	}
}

// An import that is killed at any of its commands leaves a whole ledger and can be resumed.
func TestImportKilledAtEachCommand(t *testing.T) {
	text, _, key, want := exported(t, 12, 12)
	for n := 1; ; n++ {
		f := newFile(t).open(false)
		f.clock.Advance(1e15)
		o := lverify.ImportOptions{Key: key, Now: f.clock.Now, Options: lverify.Options{}.InSlices(15)}
		ctx, done := f.killed(n)
		_, err := lverify.Import(ctx, f.s, bytes.NewReader(text), o)
		done()
		if rep := f.verify(lverify.Options{}); !rep.OK && len(rep.Findings) > 0 {
			t.Fatalf("killed at command %d: %+v", n, rep)
		}
		if n%3 == 1 { // a node may run in between
			f.close()
			f.open(true)
			f.flush()
			f.close()
			f.open(false)
		}
		if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text), o); err != nil || !rep.OK {
			t.Fatalf("killed at command %d, gone on: %+v, %v", n, rep, err)
		}
		f.view(func(r store.Reader) { same(t, rows(r), want) })
		f.close()
		if err == nil {
			t.Logf("%d commands", n-1)
			return
		}
	}
}

func TestImportRefuses(t *testing.T) {
	text, _, _, _ := exported(t, 2, 10)
	f := newFile(t).open(false)
	o := lverify.ImportOptions{Now: f.clock.Now} // earlier than the export's end
	if _, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text), o); err == nil ||
		!strings.Contains(err.Error(), "future") {
		t.Errorf("of the future: %v", err)
	}
	f.clock.Advance(1e15)
	lines := bytes.SplitAfter(text, []byte("\n"))
	if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(nil), o); err != nil || rep.OK {
		t.Errorf("nothing: %+v, %v", rep, err)
	}
	if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(bytes.Join(lines[1:], nil)), o); err != nil ||
		rep.OK {
		t.Errorf("without its first line: %+v, %v", rep, err)
	}
}

// Any changed byte, missing line or moved line of an export is noticed.
func TestEveryFlippedByteOfAnExport(t *testing.T) {
	text, _, _, _ := exported(t, 3, 4)
	for i := range text {
		for _, by := range []byte{1 << (i % 7), 0x20} {
			text[i] ^= by
			if rep := verifyExport(t, text); rep.OK {
				t.Errorf("byte %d of %d, now %q: not noticed", i, len(text), text[max(0, i-20):min(len(text), i+20)])
			}
			text[i] ^= by
		}
	}
	lines := bytes.SplitAfter(text, []byte("\n"))
	lines = lines[:len(lines)-1]
	for i := range lines {
		if rep := verifyExport(t, bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil)); rep.OK &&
			i < len(lines)-1 {
			t.Errorf("line %d lost, and not noticed", i+1)
		}
		if i > 0 {
			moved := slices.Clone(lines)
			moved[i], moved[i-1] = moved[i-1], moved[i]
			if rep := verifyExport(t, bytes.Join(moved, nil)); rep.OK {
				t.Errorf("lines %d and %d exchanged, and not noticed", i, i+1)
			}
		}
	}
}

// A part of an export is verified as far as it goes.
func TestVerifyPartOfAnExport(t *testing.T) {
	f := newFile(t).open(true)
	f.fill(4, 40)
	head, err := f.l.Head(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for from := uint64(2); from <= head.Seq; from++ {
		var text bytes.Buffer
		err := f.l.Export(t.Context(), from, 0, func(l record.Line) error {
			text.Write(l.Append(nil))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if rep := verifyExport(t, text.Bytes()); !rep.OK || rep.Whole || rep.Head.LastRoot != head.LastRoot ||
			rep.Records != head.Seq-from+1 {
			t.Fatalf("from %d: %+v", from, rep)
		}
	}
}

// FuzzVerifyExport checks that no input causes a panic.
func FuzzVerifyExport(f *testing.F) {
	text, _, _, _ := exported(f, 3, 3)
	lines := bytes.SplitAfterN(text, []byte("\n"), 5)
	f.Add(bytes.Join(lines[:4], nil)) // long inputs take minutes to be minimized
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, in []byte) {
		if rep := verifyExport(t, in); rep.OK != (len(rep.Findings) == 0) {
			t.Errorf("a report of two minds: %+v", rep)
		}
	})
}

// A ledger from before receipts named flags and before the second form of batch answers remains
// valid. It can be checked, imported, rebuilt and proven, and each of its receipts has its original
// bytes. New records have the new forms.
func TestOlderFlags(t *testing.T) {
	old := forge(t, little(t), func(r *record.Record) bool {
		named := r.Named
		r.Named = false
		return named
	})
	rep := verifyExport(t, old)
	if !rep.OK || !verifyJournal(t, old, 0).OK {
		t.Fatalf("%+v", rep)
	}
	f := newFile(t).open(false)
	f.clock.Advance(1e15)
	if got, err := lverify.Import(t.Context(), f.s, bytes.NewReader(old),
		lverify.ImportOptions{Key: tables.StoreKey{1}, Now: f.clock.Now}); err != nil ||
		got.Head != rep.Head {
		t.Fatalf("%+v, %v", got, err)
	}
	if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
		t.Fatal(err)
	}
	f.close()
	f.open(true)
	out := f.do(ledger.Op{Code: record.OpFlags, From: "bob", Set: record.NoCredit})[0]
	if r := out.Receipt; r.Version != record.ReceiptNamed || r.Set != record.NoCredit || r.Clear != 0 {
		t.Errorf("%s", r.AppendJSON(nil))
	}
	one := func(n uint64) ledger.Op {
		return ledger.Op{Code: record.OpBurn, From: "bob", Asset: "ron", Amount: engines.AmountOf(0, 1), Nonce: n}
	}
	f.do(
		ledger.Op{Code: record.OpFlags, From: "bob", Clear: record.NoCredit},
		ledger.Op{Code: record.OpBatch, Ops: []ledger.Op{one(1), one(3)}},
	)
	versions, batches := map[uint8]int{}, map[uint8]int{}
	err := f.l.Export(t.Context(), 0, 0, func(l record.Line) error {
		if l.Record.Op == record.OpBatch {
			out, err := f.l.Tx(t.Context(), l.Record.TxID())
			batches[out.Receipt.Version]++
			return err
		}
		if l.Record.Op != record.OpFlags {
			return nil
		}
		out, err := f.l.Tx(t.Context(), l.Record.TxID())
		if err != nil {
			return err
		}
		p, err := f.l.Prove(t.Context(), l.Record.TxID(), 0)
		if err != nil {
			return err
		}
		if proven, err := p.Verify(); err != nil || proven != out.Receipt {
			t.Errorf("%+v is proven as %+v, %v", out.Receipt, proven, err)
		}
		text := out.Receipt.AppendJSON(nil)
		if back, err := record.ParseReceipt(text); err != nil || !bytes.Equal(back.AppendJSON(nil), text) {
			t.Errorf("%s: %v", text, err)
		}
		versions[out.Receipt.Version]++
		return nil
	})
	if err != nil || versions[record.ReceiptVersion] != 2 || versions[record.ReceiptNamed] != 2 {
		t.Errorf("%v, %v", versions, err)
	}
	if batches[record.ReceiptVersion] != 2 || batches[0] != 1 {
		t.Errorf("answers of batches: %v", batches)
	}
}
