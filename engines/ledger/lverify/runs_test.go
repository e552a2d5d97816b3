package lverify_test

import (
	"bytes"
	"testing"
	"time"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// sealing is a command that writes one slice of a run.
type sealing struct {
	x     *idem.Index
	slice *idem.Slice
}

func (sealing) Kind() string { return "ledger.sealing/1" }

func (c sealing) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (done struct{}, err error) {
	return done, c.x.Seal(r, w, c.slice)
}

// sealed seals the keys of a ledger in small runs.
func (b *bench) sealed(t testing.TB) (runs []row) {
	t.Helper()
	x := idem.New(4, idem.Cut{Width: 1000 * time.Hour, Max: 5})
	for load := x.Loader(); !load.Step(b.tx.Reader()); {
		t.Fatal("there are runs already")
	}
	for next := uint64(1); next <= tables.LastSeq(b.tx.Reader()); {
		next = x.Read(b.tx.Reader(), next, tables.LastSeq(b.tx.Reader())+1, 3)
	}
	s := x.Sealer()
	for slice, ok := s.Next(); ok; slice, ok = s.Next() {
		if _, err := storetest.Do(b.tx, sealing{x, &slice}); err != nil {
			t.Fatal(err)
		}
		x.Committed()
	}
	for run := range store.Subs(b.tx.Reader(), tables.Idem) {
		for k, v := range b.tx.Reader().Range(run, nil, nil) {
			runs = append(runs, row{run, bytes.Clone(k), bytes.Clone(v)})
		}
	}
	return runs
}

// The sealed runs of the idempotency index are verified against the journal.
func TestVerifySealedRuns(t *testing.T) {
	b := newBench(t, full(t, 8, 40))
	runs := b.sealed(t)
	rep := b.verify(t, lverify.Options{})
	if !rep.OK || rep.Keys < 10 {
		t.Fatalf("%d keys, %v", rep.Keys, rep.Findings)
	}
	for _, r := range runs {
		for i := range r.value {
			if r.key[len(r.key)-1] != 'm' && i%5 != 0 {
				continue
			}
			flip(r, 8*i+i%8)
			b.put(t, r)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("run %x, key %x, byte %d: not noticed", r.b.Name, r.key, i)
			}
			flip(r, 8*i+i%8)
		}
		b.put(t, row{r.b, r.key, nil})
		newest := r.b.Name == runs[len(runs)-1].b.Name // that without its meta row is one that is being sealed
		if rep := b.verify(t, lverify.Options{}); rep.OK && (r.key[len(r.key)-1] != 'm' || !newest) {
			t.Errorf("run %x, key %x: lost, and not noticed", r.b.Name, r.key)
		}
		b.put(t, r)
	}
}

// An account with many postings has marks. They are verified and rebuilt.
func TestVerifyMarks(t *testing.T) {
	f := newFile(t).open(true)
	pay := make([]ledger.Op, 700)
	for i := range pay {
		pay[i] = ledger.Op{
			Code:   record.OpIssue,
			To:     "alice",
			Asset:  "ron",
			Amount: engines.AmountOf(0, 1),
			Nonce:  uint64(i + 1),
		}
	}
	if _, err := f.l.Commit(t.Context(), []ledger.Op{{Code: record.OpAsset, Asset: "ron"}}); err != nil {
		t.Fatal(err)
	}
	if _, err := f.l.Commit(t.Context(), pay); err != nil {
		t.Fatal(err)
	}
	f.flush()
	var all []row
	f.view(func(r store.Reader) { all = athome(t, rows(r)) })
	f.close()
	f.open(false)
	if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
		t.Fatal(err)
	}
	f.view(func(r store.Reader) { same(t, rows(r), all) })
	b := newBench(t, all)
	marks := 0
	for _, r := range all {
		if r.b.Name != "ledger/marks" {
			continue
		}
		marks++
		for i := range r.value {
			flip(r, 8*i)
			b.put(t, r)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("mark %x, byte %d: not noticed", r.key, i)
			}
			flip(r, 8*i)
		}
		b.put(t, row{r.b, r.key, nil})
		if rep := b.verify(t, lverify.Options{}); rep.OK {
			t.Errorf("mark %x lost, and not noticed", r.key)
		}
		b.put(t, r)
	}
	if marks != 4 {
		t.Errorf("%d marks, want 2 of each of two accounts", marks)
	}
}
