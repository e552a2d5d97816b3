package lverify_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// exported is the export of a ledger, and its head.
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
		all = rows(r)
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

// An export imported into an empty file comes to the same rows: journal, batches, head and all that is derived.
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

// same compares rows.
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

// An import that was cut short goes on; another ledger is left alone.
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

func TestImportRefuses(t *testing.T) {
	text, _, _, _ := exported(t, 2, 10)
	f := newFile(t).open(false)
	o := lverify.ImportOptions{Now: f.clock.Now} // earlier than the export's end
	if _, err := lverify.Import(t.Context(), f.s, bytes.NewReader(text), o); err == nil || !strings.Contains(err.Error(), "future") {
		t.Errorf("of the future: %v", err)
	}
	f.clock.Advance(1e15)
	lines := bytes.SplitAfter(text, []byte("\n"))
	if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(nil), o); err != nil || rep.OK {
		t.Errorf("nothing: %+v, %v", rep, err)
	}
	if rep, err := lverify.Import(t.Context(), f.s, bytes.NewReader(bytes.Join(lines[1:], nil)), o); err != nil || rep.OK {
		t.Errorf("without its first line: %+v, %v", rep, err)
	}
}

// One byte changed anywhere in an export is noticed, and so is a line that is gone or stands elsewhere.
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
		if rep := verifyExport(t, bytes.Join(slices.Delete(slices.Clone(lines), i, i+1), nil)); rep.OK && i < len(lines)-1 {
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

// A part of an export is proven as far as it goes.
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
		if rep := verifyExport(t, text.Bytes()); !rep.OK || rep.Whole || rep.Head.LastRoot != head.LastRoot || rep.Records != head.Seq-from+1 {
			t.Fatalf("from %d: %+v", from, rep)
		}
	}
}

// forge takes an export apart, lets edit change records, and seals it anew with all digests: what is wrong now is what it says.
func forge(t testing.TB, text []byte, edit func(r *record.Record) bool) []byte {
	t.Helper()
	var out []byte
	var leaves []b3.Digest
	var prev b3.Digest
	for line := range bytes.Lines(text) {
		l, err := record.ParseLine(line)
		if err != nil {
			t.Fatal(err)
		}
		switch l.Kind {
		case record.LineRecord:
			if edit(&l.Record) {
				l.Raw = l.Record.Append(nil)
			}
			leaves = append(leaves, record.Leaf(l.Raw))
		case record.LineBatch:
			l.Batch.Merkle, l.Batch.Prev = record.MerkleRoot(leaves), prev
			prev, leaves = l.Batch.Root(), nil
		}
		out = l.Append(out)
	}
	return out
}

// Records that are well-formed and sealed, but say what cannot be, are found.
func TestForgedRecords(t *testing.T) {
	text, _, _, _ := exported(t, 6, 150)
	one := engines.AmountOf(0, 1)
	if rep := verifyExport(t, forge(t, text, func(*record.Record) bool { return false })); !rep.OK {
		t.Fatalf("%v", rep.Findings)
	}
	is := func(op record.Op) func(*record.Record) bool { return func(r *record.Record) bool { return r.Op == op } }
	for _, tt := range []struct {
		doc  string
		of   func(*record.Record) bool
		edit func(*record.Record)
	}{
		{"more is moved than the states say", is(record.OpTransfer), func(r *record.Record) { r.Amount, _ = r.Amount.Add(one) }},
		{"money out of nothing", is(record.OpTransfer), func(r *record.Record) {
			r.Images[1].State.CreditsPosted, _ = r.Images[1].State.CreditsPosted.Add(one)
		}},
		{"a payer who pays less", is(record.OpBurn), func(r *record.Record) {
			r.Images[0].State.DebitsPosted, _ = r.Images[0].State.DebitsPosted.Sub(one)
		}},
		{"a day forgotten", is(record.OpTransfer), func(r *record.Record) { r.Images[0].State.DayDebits = engines.Amount{} }},
		{"a state forked", func(r *record.Record) bool { return r.Op == record.OpTransfer && r.Images[0].Prev != 0 }, func(r *record.Record) { r.Images[0].Prev = 0 }},
		{"a nonce used again", func(r *record.Record) bool { return r.Op == record.OpTransfer && r.Nonce > 1 }, func(r *record.Record) { r.Nonce = 1 }},
		{"no nonce", is(record.OpBurn), func(r *record.Record) { r.Nonce = 0 }},
		{"a hold that ends before it begins", is(record.OpHold), func(r *record.Record) { r.Expires = r.At }},
		{"a hold captured too late", is(record.OpCapture), func(r *record.Record) { r.Op = record.OpExpire }},
		{"a capture of another hold", is(record.OpCapture), func(r *record.Record) { r.Hold = 1 }},
		{"a release called a capture", is(record.OpRelease), func(r *record.Record) { r.Op = record.OpCapture }},
		{"a batch that was done otherwise", is(record.OpBatch), func(r *record.Record) {
			if r.Results[0] == 0 {
				r.Results[0] = byte(record.Aborted)
			} else {
				r.Results[0] = 0
			}
		}},
		{"a batch's op outside of it", func(r *record.Record) bool { return r.Op.MovesMoney() && r.Flags&record.FlagInner != 0 }, func(r *record.Record) { r.Flags = 0 }},
		{"an account frozen all along", is(record.OpOpen), func(r *record.Record) { r.Op, r.Name, r.Set = record.OpFlags, "", record.Frozen }},
		{"a name that is another's", func(r *record.Record) bool { return r.Op == record.OpOpen && r.From > 3 }, func(r *record.Record) { r.Name += "x" }},
		{"another time than its batch", is(record.OpTransfer), func(r *record.Record) { r.At++ }},
		{"a transfer called an issue", is(record.OpTransfer), func(r *record.Record) { r.Op = record.OpIssue }},
		{"a burn called a transfer", is(record.OpBurn), func(r *record.Record) { r.Op = record.OpTransfer }},
		{"a settlement in the middle", is(record.OpIssue), func(r *record.Record) {
			r.Dedupe = record.Dedupe{Kind: record.DedupeOnce, Key: [16]byte{1}}
		}},
	} {
		done := false
		forged := forge(t, text, func(r *record.Record) bool {
			if done || !tt.of(r) {
				return false
			}
			done = true
			r.Images = slices.Clone(r.Images)
			tt.edit(r)
			return true
		})
		if !done {
			t.Errorf("%s: no record to forge", tt.doc)
		}
		if rep := verifyExport(t, forged); rep.OK {
			t.Errorf("%s: not noticed", tt.doc)
		}
	}
}

// A rebuild comes to the tables that the ledger wrote as it went, whatever was done and however damaged they are.
func TestRebuildIsLiveState(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64().Draw(rt, "seed")
		f := newFile(t).open(true)
		f.fill(seed, rapid.IntRange(1, 40).Draw(rt, "calls"))
		f.flush()
		var want []row
		f.view(func(r store.Reader) { want = rows(r) })
		f.close()
		f.open(false)
		damage := put{}
		for _, r := range want {
			if r.b.Class == store.Derived && rapid.IntRange(0, 3).Draw(rt, "damage") == 0 {
				damage = append(damage, row{r.b, r.key, []byte("damaged")})
			}
		}
		if _, err := store.Commit(t.Context(), f.s, store.Work, damage); err != nil {
			rt.Fatal(err)
		}
		if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
			rt.Fatal(err)
		}
		f.view(func(r store.Reader) { same(t, rows(r), want) })
		f.close()
	})
}

// No bytes make it panic.
func FuzzVerifyExport(f *testing.F) {
	text, _, _, _ := exported(f, 3, 3)
	f.Add(text)
	f.Add(text[:len(text)/2])
	f.Add([]byte(""))
	f.Fuzz(func(t *testing.T, in []byte) {
		if rep := verifyExport(t, in); rep.OK != (len(rep.Findings) == 0) {
			t.Errorf("a report of two minds: %+v", rep)
		}
	})
}
