package lverify_test

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// filled makes a file, whose ledger does not run, of rows.
func filled(t testing.TB, all []row) *file {
	t.Helper()
	f := newFile(t).open(false)
	if _, err := store.Commit(t.Context(), f.s, store.Work, put(all)); err != nil {
		t.Fatal(err)
	}
	return f
}

// sameButEnd compares the rows of a ledger with what they were before its last records, which close
// periods, were flushed. Only flush and log show these records.
func sameButEnd(t testing.TB, got, want []row) {
	t.Helper()
	ends := func(r row) bool { return r.b.Name == "ledger/flush" || r.b.Name == "ledger/mlog" }
	same(t, slices.DeleteFunc(slices.Clone(got), ends), slices.DeleteFunc(athome(t, want), ends))
}

// authoritative reports whether a row of a derived table cannot be derived.
func authoritative(r store.Reader, x row) bool {
	h := tables.GetHorizon(r)
	kept := h.Kept(x.b)
	return x.b.Class != store.Derived || kept != nil && kept(x.key, x.value)
}

// A rebuild of a ledger with closed periods makes what the running ledger had, after any damage to
// what it can make.
func TestRebuildClosed(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		all, left := closed(t, rapid.Uint64().Draw(rt, "seed"), rapid.SliceOfN(rapid.IntRange(1, 30), 2, 4).Draw(rt, "calls")...)
		all = dropped(all, left)
		f := filled(t, all)
		damage := put{}
		f.view(func(r store.Reader) {
			for _, x := range all {
				if !authoritative(r, x) && rapid.IntRange(0, 3).Draw(rt, "damage") == 0 {
					damage = append(damage, row{x.b, x.key, []byte("damaged")})
				}
			}
		})
		if _, err := store.Commit(t.Context(), f.s, store.Work, damage); err != nil {
			rt.Fatal(err)
		}
		slices := lverify.Options{}.InSlices(rapid.SampledFrom([]int{7, 80, 10_000}).Draw(rt, "rows"))
		if err := lverify.Rebuild(t.Context(), f.s, slices); err != nil {
			rt.Fatal(err)
		}
		f.view(func(r store.Reader) { sameButEnd(t, rows(r), all) })
		if rep := f.verify(lverify.Options{}); !rep.OK {
			rt.Fatal(rep.Findings)
		}
		f.close()
	})
}

// A rebuild that is killed at any of its commands leaves a ledger that says so, and that can be
// rebuilt.
func TestRebuildClosedKilledAtEachCommand(t *testing.T) {
	all, left := closed(t, 22, 20, 20)
	all = dropped(all, left)
	for n := 1; ; n++ {
		f := filled(t, all)
		ctx, done := f.killed(n)
		err := lverify.Rebuild(ctx, f.s, lverify.Options{}.InSlices(40))
		done()
		rep := f.verify(lverify.Options{})
		if !rep.OK && (len(rep.Findings) != 1 || rep.Findings[0].Where != "flush") || err == nil && !rep.OK {
			t.Fatalf("killed at command %d: %+v", n, rep.Findings)
		}
		if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
			t.Fatal(err)
		}
		f.view(func(r store.Reader) { sameButEnd(t, rows(r), all) })
		f.close()
		if err == nil {
			t.Logf("%d commands", n-1)
			return
		}
	}
}

// A ledger with closed periods runs on after a rebuild. After one that was interrupted it is in safe
// mode until the next rebuild.
func TestClosedRunsAfterRebuild(t *testing.T) {
	all, left := closed(t, 23, 20, 20, 20)
	f := filled(t, dropped(all, left))
	f.clock.Advance(time.Hour)
	pay := ledger.Op{Code: record.OpIssue, To: "shop:till", Asset: "ron", Amount: engines.AmountOf(0, 3)}
	for _, killed := range []int{9, 0} {
		ctx, done := t.Context(), func() {}
		if killed > 0 {
			ctx, done = f.killed(killed)
		}
		err := lverify.Rebuild(ctx, f.s, lverify.Options{}.InSlices(40))
		done()
		f.close()
		f.open(true)
		if (err != nil) != (f.l.SafeMode() != "") || (err == nil) != (killed == 0) {
			t.Fatalf("rebuild: %v, safe mode: %q", err, f.l.SafeMode())
		}
		if err == nil {
			f.clock.Advance(time.Hour)
			for _, out := range f.do(pay, pay) {
				if out.Reject != nil {
					t.Fatal(out.Reject)
				}
			}
			f.flush()
		}
		f.close()
		f.open(false)
		if rep := f.verify(lverify.Options{}); rep.OK != (err == nil) {
			t.Fatalf("%+v", rep)
		}
	}
}

// A balance whose postings pass the horizon keeps its count. Its marks after the horizon are
// verified and rebuilt; those before may be there or not.
func TestClosedMarks(t *testing.T) {
	pay := func(from, n int) func(f *file) {
		return func(f *file) {
			if from == 0 {
				f.do(ledger.Op{Code: record.OpAsset, Asset: "ron"})
			}
			for i := range n {
				f.do(ledger.Op{
					Code: record.OpIssue, To: "alice", Asset: "ron", Amount: engines.AmountOf(0, 1),
					Nonce: uint64(from + i + 1),
				})
			}
		}
	}
	for _, n := range []int{255, 256, 257, 300} {
		all, left := closedAfter(t, pay(0, n), pay(n, 2*tables.MarkEvery))
		if b := newBench(t, all); !b.verify(t, lverify.Options{}).OK {
			t.Errorf("%d: %v", n, b.verify(t, lverify.Options{}).Findings)
		}
		all = dropped(all, left)
		b := newBench(t, all)
		if rep := b.verify(t, lverify.Options{}); !rep.OK {
			t.Fatalf("%d: %v", n, rep.Findings)
		}
		marks := 0
		for _, r := range all {
			if r.b.Name != "ledger/marks" {
				continue
			}
			marks++
			b.put(t, row{r.b, r.key, nil})
			if b.verify(t, lverify.Options{}).OK {
				t.Errorf("%d: mark %x is lost, and not noticed", n, r.key)
			}
			wrong := slices.Clone(r.value[:9])
			wrong[1]--
			b.put(t, row{r.b, r.key, store.AddSum(r.key, wrong)})
			if b.verify(t, lverify.Options{}).OK {
				t.Errorf("%d: mark %x is wrong, and not noticed", n, r.key)
			}
			b.put(t, r)
		}
		if marks != 4 {
			t.Errorf("%d: %d marks, want 2 of each of two balances", n, marks)
		}
		f := filled(t, all)
		if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
			t.Fatal(err)
		}
		f.view(func(r store.Reader) { sameButEnd(t, rows(r), all) })
		f.close()
	}
}
