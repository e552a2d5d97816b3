package lverify_test

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"testing"
	"time"

	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// closingOf makes a ledger whose second period is about to be closed: its base is built.
func closingOf(t testing.TB, seed uint64, calls int) *bench {
	t.Helper()
	f := newFile(t).open(true)
	f.fill(seed, calls)
	f.flush()
	f.clock.Advance(25 * time.Hour) // keys end
	if _, err := ledgertest.Close(t.Context(), f.s, 1<<62); err != nil {
		t.Fatal(err)
	}
	idle := forgery(func(_ store.Reader, w *store.Writes) { tables.PutClosing(w, tables.Closing{}) })
	if _, err := store.Commit(t.Context(), f.s, store.Work, idle); err != nil {
		t.Fatal(err)
	}
	f.calls(calls)
	f.flush()
	var p period.Plan
	f.view(func(r store.Reader) {
		var err error
		if p, err = period.Next(r, 1<<62, 1<<62, false); err != nil {
			t.Fatal(err)
		}
	})
	f.calls(calls / 4)
	err := period.Begin(t.Context(), f.s, p, period.Request{})
	if err := errors.Join(err, period.Build(t.Context(), f.s, nil, nil)); err != nil {
		t.Fatal(err)
	}
	var all []row
	f.view(func(r store.Reader) { all = rows(r) })
	f.close()
	return newBench(t, all)
}

func (b *bench) closing(t testing.TB) lverify.Report {
	t.Helper()
	view := func(_ context.Context, fn func(r store.Reader) error) error { return fn(b.tx.Reader()) }
	rep, err := lverify.Closing(t.Context(), view, lverify.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return rep
}

// restate lets the statement of the closing have the root of its base as it is now.
func restate(r store.Reader, w *store.Writes) {
	c := tables.GetClosing(r)
	s, _ := record.ParseStatement(c.File.Statement)
	s.StateRoot = tables.BaseAt(r, c.Period).StateRoot()
	c.File.Statement = s.Text()
	tables.PutClosing(w, c)
}

// A closing that was built of sound records is sound, in views of any length.
func TestClosingIsSound(t *testing.T) {
	for seed := range uint64(4) {
		b := closingOf(t, 60+seed, 60)
		rep := b.closing(t)
		s, _ := record.ParseStatement(tables.GetClosing(b.tx.Reader()).File.Statement)
		if !rep.OK || rep.Records != s.Records() {
			t.Errorf("%+v", rep)
		}
	}
}

// A changed byte in any row of the new base is noticed, though the statement has its root; a
// missing row, too.
func TestClosingOfAnotherBase(t *testing.T) {
	b := closingOf(t, 64, 30)
	closing := tables.GetClosing(b.tx.Reader())
	statement := forgery(func(_ store.Reader, w *store.Writes) { tables.PutClosing(w, closing) })
	check := func(r row, what string, i int) {
		t.Helper()
		if _, err := storetest.Do(b.tx, forgery(restate)); err != nil {
			t.Fatal(err)
		}
		if b.closing(t).OK {
			t.Errorf("row %c %x, %s %d: not noticed", r.key[8], r.key[9:], what, i)
		}
		b.put(t, r)
		if _, err := storetest.Do(b.tx, statement); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, r := range b.rows {
		if r.b.Name != "ledger/base" || binary.BigEndian.Uint64(r.key) != closing.Period {
			continue
		}
		n++
		value, err := store.CutSum(r.key, r.value)
		if err != nil {
			t.Fatal(err)
		}
		for i := range value {
			wrong := slices.Clone(value)
			wrong[i] ^= 1
			b.put(t, row{r.b, r.key, store.AddSum(r.key, wrong)})
			check(r, "byte", i)
		}
		b.put(t, row{r.b, r.key, nil})
		check(r, "missing", 0)
	}
	if rep := b.closing(t); !rep.OK || n < 20 {
		t.Errorf("%d rows; it was not put back: %+v", n, rep)
	}
}

// A changed byte in any record of the period is noticed.
func TestClosingOfOtherRecords(t *testing.T) {
	b := closingOf(t, 65, 10)
	from, to := tables.GetHorizon(b.tx.Reader()).Seq, tables.GetClosing(b.tx.Reader()).Seq
	for _, r := range b.rows {
		if seq := binary.BigEndian.Uint64(append(slices.Clone(r.key), make([]byte, 8)...)); r.b.Name != "ledger/journal" ||
			seq <= from || seq > to {
			continue
		}
		for i := range r.value {
			flip(r, 8*i)
			if b.put(t, r); b.closing(t).OK {
				t.Errorf("record %x, byte %d: not noticed", r.key, i)
			}
			flip(r, 8*i)
		}
		b.put(t, row{r.b, r.key, nil})
		if b.closing(t).OK {
			t.Errorf("record %x is missing: not noticed", r.key)
		}
		b.put(t, r)
	}
}

// A statement that says something else than the base and the records is noticed, whichever member of
// it that is, and a changed node of the log of names, too.
func TestClosingOfAnotherStatement(t *testing.T) {
	b := closingOf(t, 66, 30)
	closing := tables.GetClosing(b.tx.Reader())
	says := func(text string) {
		t.Helper()
		another := closing
		another.File.Statement = text
		put := forgery(func(_ store.Reader, w *store.Writes) { tables.PutClosing(w, another) })
		if _, err := storetest.Do(b.tx, put); err != nil {
			t.Fatal(err)
		}
	}
	for name, change := range map[string]func(s *record.Statement){
		"from_at":    func(s *record.Statement) { s.FromAt-- },
		"to_at":      func(s *record.Statement) { s.ToAt++ },
		"log_root":   func(s *record.Statement) { s.LogRoot[0]++ },
		"last_root":  func(s *record.Statement) { s.LastRoot[0]++ },
		"peaks":      func(s *record.Statement) { s.Peaks[len(s.Peaks)-1][0]++ },
		"more peaks": func(s *record.Statement) { s.Peaks = append(s.Peaks, s.Peaks[0]) },
		"accounts":   func(s *record.Statement) { s.Accounts++ },
		"assets":     func(s *record.Statement) { s.Assets++ },
		"holds_open": func(s *record.Statement) { s.HoldsOpen++ },
		"names_root": func(s *record.Statement) { s.NamesRoot[0]++ },
		"state_root": func(s *record.Statement) { s.StateRoot[0]++ },
		"references": func(s *record.Statement) { s.References++ },
	} {
		s, err := record.ParseStatement(closing.File.Statement)
		if err != nil {
			t.Fatal(err)
		}
		change(&s)
		if says(s.Text()); b.closing(t).OK {
			t.Errorf("%s: not noticed", name)
		}
	}
	says(closing.File.Statement)
	for _, r := range b.rows {
		if r.b.Name != "ledger/nlog" {
			continue
		}
		value, err := store.CutSum(r.key, r.value)
		if err != nil {
			t.Fatal(err)
		}
		wrong := slices.Clone(value)
		wrong[0] ^= 1
		b.put(t, row{r.b, r.key, store.AddSum(r.key, wrong)})
		if b.closing(t).OK {
			t.Errorf("node %x of the log of names: not noticed", r.key)
		}
		b.put(t, r)
	}
	if rep := b.closing(t); !rep.OK {
		t.Errorf("it was not put back: %+v", rep)
	}
}
