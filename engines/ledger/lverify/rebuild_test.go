package lverify_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/idem"
	"ronbox/engines/ledger/lverify"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// A rebuild produces the same tables as the running ledger, after any calls and any damage to the
// tables.
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
		f.view(func(r store.Reader) { same(t, rows(r), athome(t, want)) })
		f.close()
	})
}

// A rebuild that is killed at any of its commands leaves a ledger that opens, runs, finds all keys,
// and can be rebuilt.
func TestRebuildKilledAtEachCommand(t *testing.T) {
	want, _ := apart(t, 21)
	for n := 1; ; n++ {
		f := newFile(t).open(false)
		f.clock.Advance(time.Hour)
		if _, err := store.Commit(t.Context(), f.s, store.Work, put(want)); err != nil {
			t.Fatal(err)
		}
		sealRuns(t, f.s)
		ctx, done := f.killed(n)
		err := lverify.Rebuild(ctx, f.s, lverify.Options{}.InSlices(80))
		done()
		f.view(func(r store.Reader) { allKeysKnown(t, n, r) })
		if rep := f.verify(lverify.Options{}); !rep.OK {
			t.Fatalf("killed at command %d: %+v", n, rep.Findings)
		}
		f.close()
		f.open(true)
		if n%2 == 0 {
			f.flush()
		}
		if rep := f.verify(lverify.Options{}); !rep.OK {
			t.Fatalf("killed at command %d, then run: %+v", n, rep.Findings)
		}
		f.close()
		f.open(false)
		if err := lverify.Rebuild(t.Context(), f.s, lverify.Options{}); err != nil {
			t.Fatal(err)
		}
		f.view(func(r store.Reader) { same(t, rows(r), athome(t, want)) })
		f.close()
		if err == nil {
			t.Logf("%d commands", n-1)
			return
		}
	}
}

// sealRuns seals the keys of a ledger that is not running, in small runs.
func sealRuns(t *testing.T, s *store.Store) {
	t.Helper()
	x := idem.New(4, idem.Cut{Width: 1000 * time.Hour, Max: 5})
	err := s.View(t.Context(), func(r store.Reader) error {
		loadKeys(t, x, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	sealer, n := x.Sealer(), 0
	for slice, ok := sealer.Next(); ok; slice, ok = sealer.Next() {
		if _, err := store.Commit(t.Context(), s, store.Work, sealing{x, &slice}); err != nil {
			t.Fatal(err)
		}
		x.Committed()
		n++
	}
	if n < 3 {
		t.Fatalf("%d runs are too few", n)
	}
}

// loadKeys reads an index as a boot does.
func loadKeys(t *testing.T, x *idem.Index, r store.Reader) {
	t.Helper()
	load := x.Loader()
	for !load.Step(r) {
	}
	for next, end := load.From(), tables.LastSeq(r)+1; next < end; {
		next = x.Read(r, next, end, 3)
	}
}

func allKeysKnown(t *testing.T, n int, r store.Reader) {
	t.Helper()
	x := idem.New(4, idem.Cut{Width: 1000 * time.Hour, Max: 5})
	loadKeys(t, x, r)
	newest := map[idem.Key]uint64{}
	for seq, rec := range tables.Records(r, 1, math.MaxUint64) {
		if key, ok := tables.IdemKey(rec); ok {
			newest[key] = seq
		}
	}
	for key, want := range newest {
		if seq, _ := x.Lookup(r, key, 0, math.MinInt64); seq != want {
			t.Fatalf("killed at command %d: the key of record %d leads to %d", n, want, seq)
		}
	}
}
