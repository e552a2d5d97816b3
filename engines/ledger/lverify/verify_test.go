package lverify_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/lverify"
)

// What the ledger writes is found good: flushed or not, as a whole and from any batch on.
func TestVerifySound(t *testing.T) {
	f := newFile(t).open(true)
	check := func(when string) {
		t.Helper()
		rep := f.verify(lverify.Options{})
		head, err := f.l.Head(t.Context())
		if err != nil || !rep.OK || !rep.Whole || rep.Head != head {
			t.Fatalf("%s: %+v\nthe head is %+v, %v", when, rep, head, err)
		}
	}
	check("empty")
	f.fill(1, 60)
	check("not flushed")
	f.flush()
	check("flushed")
	for seed := range uint64(30) {
		f.clock.Advance(time.Second)
		if _, err := f.l.Commit(t.Context(), ledgertest.NewDice(100+seed).Call()); err != nil {
			t.Fatal(err)
		}
	}
	check("half flushed")
	f.close()
	f.open(true)
	check("opened again")
	last := f.verify(lverify.Options{}).Batches
	for from := uint64(2); from <= last; from += 1 + last/20 {
		calls := 0
		rep := f.verify(lverify.Options{From: from, Progress: func(done, total uint64) { calls++ }})
		if !rep.OK || rep.Whole || rep.Batches != last-from+1 {
			t.Fatalf("from %d: %+v", from, rep)
		}
	}
	if rep := f.verify(lverify.Options{From: last + 2}); rep.OK {
		t.Fatal("a check from beyond the end passed")
	}
}

func TestVerifyStops(t *testing.T) {
	b := newBench(t, full(t, 1, 5))
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if rep, err := lverify.Verify(ctx, b.tx.Reader(), lverify.Options{}); !errors.Is(err, gone) || rep.OK {
		t.Errorf("%+v, %v", rep, err)
	}
}

// Wherever in its course a check is told to stop, it does, and calls nothing missing that it did not come to.
func TestVerifyStopsAnywhere(t *testing.T) {
	b := newBench(t, full(t, 1, 1100)) // so that each table has its part of some 4096 steps
	gone := errors.New("gone")
	for at := 1; ; at++ {
		ctx, cancel := context.WithCancelCause(t.Context())
		calls := 0
		rep, err := lverify.Verify(ctx, b.tx.Reader(), lverify.Options{Progress: func(uint64, uint64) {
			if calls++; calls == at {
				cancel(gone)
			}
		}})
		cancel(nil)
		if len(rep.Findings) != 0 || err != nil && !errors.Is(err, gone) {
			t.Fatalf("stopped at report %d: %+v, %v", at, rep, err)
		}
		if rep.OK {
			return
		}
	}
}

func TestCheck(t *testing.T) {
	b := newBench(t, full(t, 1, 5))
	var rep lverify.Report
	checks := append(lverify.Checks(), lverify.Check(t.Context(), lverify.Options{}, &rep))
	for _, c := range checks {
		if err := c.Run(b.tx.Reader()); err != nil || c.Name != "ledger" {
			t.Errorf("%s: %v", c.Name, err)
		}
	}
	if !rep.OK {
		t.Errorf("%+v", rep)
	}
	flip(b.rows[0], 0)
	b.put(t, b.rows[0])
	for _, c := range checks {
		if err := c.Run(b.tx.Reader()); err == nil {
			t.Error("a bad ledger passed")
		}
	}
}

func flip(r row, bit int) { r.value[bit/8] ^= 1 << (bit % 8) }

// One bit flipped anywhere is noticed: in journal, batches and head, and in each derived table. Every byte is tried with one bit here,
// TestAnyFlippedBit tries others.
func TestEveryFlippedByte(t *testing.T) {
	b := newBench(t, full(t, 3, 6))
	tried := map[string]int{}
	for n, r := range b.rows {
		if string(r.key) == "store_key" { // any key is as good as another
			continue
		}
		for i := range r.value {
			flip(r, 8*i+(n+i)%8)
			b.put(t, r)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("%s %x, byte %d of %d: not noticed", r.b.Name, r.key, i, len(r.value))
			}
			flip(r, 8*i+(n+i)%8)
			tried[r.b.Name]++
		}
		b.put(t, r)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
	t.Logf("bytes tried: %v", tried)
}

func TestAnyFlippedBit(t *testing.T) {
	b := newBench(t, full(t, 4, 40))
	rapid.Check(t, func(rt *rapid.T) {
		r := b.rows[rapid.IntRange(0, len(b.rows)-1).Draw(rt, "row")]
		if len(r.value) == 0 || string(r.key) == "store_key" {
			return
		}
		bit := rapid.IntRange(0, 8*len(r.value)-1).Draw(rt, "bit")
		flip(r, bit)
		b.put(t, r)
		rep := b.verify(t, lverify.Options{})
		flip(r, bit)
		b.put(t, r)
		if rep.OK {
			rt.Fatalf("%s %x, bit %d: not noticed", r.b.Name, r.key, bit)
		}
	})
}

// So is a row that is gone, and one that stands elsewhere.
func TestEveryLostRow(t *testing.T) {
	b := newBench(t, full(t, 5, 14))
	for _, r := range b.rows {
		if string(r.key) == "store_key" || r.b.Name == "ledger/flush" { // without the latter all is redone
			continue
		}
		b.put(t, row{r.b, r.key, nil})
		if rep := b.verify(t, lverify.Options{}); rep.OK {
			t.Errorf("%s %x: lost, and not noticed", r.b.Name, r.key)
		}
		if r.b.Name != "ledger/meta" {
			moved := row{r.b, slices.Clone(r.key), r.value}
			moved.key[len(moved.key)-1] ^= 0x40
			b.put(t, moved)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("%s %x: moved, and not noticed", r.b.Name, r.key)
			}
			b.put(t, r)
			if rep := b.verify(t, lverify.Options{}); rep.OK {
				t.Errorf("%s %x: doubled, and not noticed", r.b.Name, r.key)
			}
			b.put(t, row{moved.b, moved.key, nil})
		}
		b.put(t, r)
	}
	if rep := b.verify(t, lverify.Options{}); !rep.OK {
		t.Errorf("the ledger was not put back: %v", rep.Findings)
	}
}
