package lverify_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// periodText returns the lines of the file of a period, of a ledger of which nothing was dropped.
func periodText(t testing.TB, r store.Reader, n uint64) (text []byte) {
	t.Helper()
	prev, s := tables.StatementOf(r, n-1), tables.StatementOf(r, n)
	put := func(l record.PeriodLine) { text = l.Append(text) }
	put(record.PeriodLine{Kind: record.LinePeriod, Opening: record.NewPeriodOpening(&prev)})
	for row := range tables.BaseAt(r, n-1).Rows() {
		l, err := row.Line("")
		if err != nil {
			t.Fatal(err)
		}
		switch row.Kind {
		case tables.BaseOfAccount:
			l.Name, _ = tables.Name(r, l.Ref)
		case tables.BaseOfAsset:
			l.Name, _ = tables.AssetName(r, l.Asset)
		}
		put(record.PeriodLine{Kind: record.LineBase, Base: l})
	}
	text = linesOf(r, text, s.FromBatch, s.ToBatch)
	put(record.PeriodLine{Kind: record.LineClose, Close: s.Text()})
	return text
}

// periodTexts returns the files of all closed periods of a ledger, and the ledger.
func periodTexts(t testing.TB, seed uint64, calls ...int) (texts [][]byte, b *bench) {
	t.Helper()
	all, left := closed(t, seed, calls...)
	r := newBench(t, all).tx.Reader()
	for n := range tables.Periods(r, 1) {
		texts = append(texts, periodText(t, r, n))
	}
	return texts, newBench(t, dropped(all, left))
}

func next(t testing.TB, p *lverify.Periods, text []byte) lverify.Report {
	t.Helper()
	rep, err := p.Next(t.Context(), bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// The files of all periods verify in order, and each alone.
func TestVerifyPeriods(t *testing.T) {
	for seed := range uint64(6) {
		texts, b := periodTexts(t, 30+seed, 25, 25, 25, 25, 25)
		p, records := lverify.NewPeriods(lverify.Options{}), uint64(0)
		for i, text := range texts {
			want := tables.StatementOf(b.tx.Reader(), uint64(i+1))
			for _, rep := range []lverify.Report{
				next(t, p, text), next(t, lverify.NewPeriods(lverify.Options{}), text),
			} {
				if !rep.OK || !rep.Whole || rep.Records != want.Records() || rep.Head.Root != want.LogRoot ||
					rep.Accounts != want.Accounts || rep.Holds != want.HoldsOpen || rep.Periods != uint64(i) {
					t.Fatalf("period %d: %+v", i+1, rep)
				}
			}
			if records += want.Records(); p.Last().Digest() != want.Digest() {
				t.Fatalf("period %d: statement %+v", i+1, p.Last())
			}
		}
		if h := tables.GetHorizon(b.tx.Reader()); records != h.Seq || len(texts) != 4 {
			t.Fatalf("%d files have %d records of %d", len(texts), records, h.Seq)
		}
	}
}

// A file that lacks a line, has one twice or in another place, or is cut, is bad.
func TestPeriodLinesMissing(t *testing.T) {
	texts, _ := periodTexts(t, 40, 8, 8, 8)
	for n, text := range texts {
		lines := slices.Collect(bytes.Lines(text))
		check := func(what string, i int, bad ...[]byte) {
			t.Helper()
			p := lverify.NewPeriods(lverify.Options{})
			if n > 0 {
				next(t, p, texts[0])
			}
			if rep := next(t, p, bytes.Join(bad, nil)); rep.OK {
				t.Errorf("period %d, line %d, %s: not noticed: %s", n+1, i+1, what, lines[min(i, len(lines)-1)])
			}
		}
		for i := range lines {
			check("missing", i, slices.Delete(slices.Clone(lines), i, i+1)...)
			check("twice", i, slices.Insert(slices.Clone(lines), i, lines[i])...)
			check("cut", i, lines[:i]...)
			if i > 0 {
				swapped := slices.Clone(lines)
				swapped[i-1], swapped[i] = swapped[i], swapped[i-1]
				check("moved", i, swapped...)
			}
		}
		check("more", len(lines), slices.Concat(lines, lines[len(lines)-1:])...)
		check("empty line", len(lines), slices.Concat(lines, [][]byte{{'\n'}})...)
	}
	if rep := next(t, lverify.NewPeriods(lverify.Options{}), bytes.Repeat([]byte{0}, 1<<20)); rep.OK {
		t.Error("zeros are a file")
	}
}

// A file whose lines are well-formed, and whose contents are wrong, is bad.
func TestForgedPeriods(t *testing.T) {
	texts, _ := periodTexts(t, 41, 40, 40, 40)
	var guard record.Guard // that the first period has bound
	for line := range bytes.Lines(texts[0]) {
		if l, _ := record.ParsePeriodLine(line); l.Entry.Record.Op.MovesMoney() && l.Entry.Record.Guard != (record.Guard{}) {
			guard = l.Entry.Record.Guard
		}
	}
	statement := func(change func(s *record.Statement)) func(l *record.PeriodLine) bool {
		return func(l *record.PeriodLine) bool {
			if l.Kind != record.LineClose {
				return false
			}
			s, _ := record.ParseStatement(l.Close)
			change(&s)
			l.Close = s.Text()
			return true
		}
	}
	row := func(kind string, change func(l *record.BaseLine)) func(l *record.PeriodLine) bool {
		return func(l *record.PeriodLine) bool {
			if l.Kind != record.LineBase || l.Base.Base != kind {
				return false
			}
			change(&l.Base)
			return true
		}
	}
	for _, tt := range []struct {
		name, want string
		edit       func(l *record.PeriodLine) bool
	}{
		{"a balance", "root", row(record.BaseBalance, func(l *record.BaseLine) { l.Row[1]++ })},
		{"an account", "root", row(record.BaseAccount, func(l *record.BaseLine) { l.Row[len(l.Row)-1]++ })},
		{"the name of an account", "in the file before", row(record.BaseAccount, func(l *record.BaseLine) {
			l.Name = "mallory"
		})},
		{"the name of an asset", "in the file before", row(record.BaseAsset, func(l *record.BaseLine) { l.Name = "usd" })},
		{"another opening", "file before", func(l *record.PeriodLine) bool {
			if l.Kind != record.LinePeriod {
				return false
			}
			s, _ := record.ParseStatement(l.Opening.Opening)
			s.LogRoot[0]++
			l.Opening = record.NewPeriodOpening(&s)
			return true
		}},
		{"the last root", "last_root", statement(func(s *record.Statement) { s.LastRoot[0]++ })},
		{"the root of the log", "log_root", statement(func(s *record.Statement) { s.LogRoot[0]++ })},
		{"a peak", "peaks", statement(func(s *record.Statement) { s.Peaks[0][0]++ })},
		{"a peak more", "peaks", statement(func(s *record.Statement) { s.Peaks = append(s.Peaks, b3.Sum(nil)) })},
		{"accounts", "accounts", statement(func(s *record.Statement) { s.Accounts++ })},
		{"assets", "assets", statement(func(s *record.Statement) { s.Assets++ })},
		{"open holds", "holds_open", statement(func(s *record.Statement) { s.HoldsOpen++ })},
		{"references", "references", statement(func(s *record.Statement) { s.References++ })},
		{"the state", "state_root", statement(func(s *record.Statement) { s.StateRoot[0]++ })},
		{"the past", "does not follow", statement(func(s *record.Statement) { s.Prev[0]++ })},
		{"the begin", "from_at", statement(func(s *record.Statement) { s.FromAt++ })},
		{"the end", "to_at", statement(func(s *record.Statement) { s.ToAt++ })},
		{"the last record", "to_seq", statement(func(s *record.Statement) { s.ToSeq++ })},
		{"a reference of the file before", "was done under its reference", func(l *record.PeriodLine) bool {
			r := &l.Entry.Record
			if l.Kind != record.LineRecord || !r.Op.MovesMoney() || r.Guard == (record.Guard{}) {
				return false
			}
			r.Guard = guard
			l.Entry.Raw = r.Append(nil)
			return true
		}},
		{"a record", "", func(l *record.PeriodLine) bool {
			if l.Kind != record.LineRecord || l.Entry.Record.Op != record.OpTransfer {
				return false
			}
			l.Entry.Record.Amount, _ = l.Entry.Record.Amount.Add(engines.AmountOf(0, 1))
			l.Entry.Raw = l.Entry.Record.Append(nil)
			return true
		}},
	} {
		done := false
		var text []byte
		for line := range bytes.Lines(texts[1]) {
			l, err := record.ParsePeriodLine(line)
			if err != nil {
				t.Fatal(err)
			}
			if !done {
				done = tt.edit(&l)
			}
			text = l.Append(text)
		}
		p := lverify.NewPeriods(lverify.Options{})
		next(t, p, texts[0])
		rep := next(t, p, text)
		if !done || rep.OK || !strings.Contains(fmt.Sprint(rep.Findings), tt.want) {
			t.Errorf("%s: %v", tt.name, rep.Findings)
		}
	}
}

// A file does not follow on another than the one before its period, nor on one of another ledger.
func TestPeriodsOfOthers(t *testing.T) {
	texts, _ := periodTexts(t, 42, 12, 12, 12, 12)
	others, _ := periodTexts(t, 43, 12, 12, 12, 12)
	for name, files := range map[string][][]byte{
		"one is missing": {texts[0], texts[2]}, "one is twice": {texts[0], texts[0]},
		"another ledger": {texts[0], others[1]}, "backwards": {texts[1], texts[0]},
	} {
		p := lverify.NewPeriods(lverify.Options{})
		if rep := next(t, p, files[0]); !rep.OK {
			t.Fatal(rep.Findings)
		}
		if rep := next(t, p, files[1]); rep.OK {
			t.Errorf("%s: not noticed", name)
		}
	}
}

// FuzzPeriod checks that any lines are a sound file or have findings.
func FuzzPeriod(f *testing.F) {
	texts, _ := periodTexts(f, 44, 6, 6, 6)
	for _, text := range texts {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		if rep := next(t, lverify.NewPeriods(lverify.Options{}), text); rep.OK == (len(rep.Findings) > 0) {
			t.Errorf("%+v", rep)
		}
	})
}
