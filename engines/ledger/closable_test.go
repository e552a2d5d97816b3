package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/period"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// Once keys have ended, their records can be closed, also if nothing was paid since; the keys are
// free again, and what the file has of them is sound. The clock must not go back meanwhile.
func TestClosableAfterKeys(t *testing.T) {
	clock := ledgertest.NewClock()
	small := func(c *ledger.Config) { c.SlotMax, c.KeyTTL = 2, unit.Duration(time.Hour) }
	for _, sealed := range []bool{true, false} {
		r := newRig(t, clock, small).declare("ron")
		for i := range uint64(5) {
			r.accept(keyed(issue("alice", 1, i+1), fmt.Sprint("k", i)))
		}
		if err := r.l.Flush(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if sealed {
			if err := r.l.Seal(r.ctx()); err != nil {
				t.Fatal(err)
			}
		}
		head, err := r.l.Head(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		begun := clock.Now()
		clock.Advance(2 * time.Hour)
		if seq, keys := r.l.Closable(); seq != head.Seq || keys {
			t.Errorf("closable up to %d of %d, keys %v", seq, head.Seq, keys)
		}
		clock.Set(begun)
		if _, err := ledgertest.Close(r.ctx(), r.store, head.Seq); !errors.Is(err, ledger.ErrKeys) {
			t.Errorf("closed while keys count: %v", err)
		}
		clock.Advance(2 * time.Hour)
		if _, err := ledger.ClosePeriod(r.ctx(), r.store, 1); err != nil {
			t.Fatal(err)
		}
		r.drop(droppedAll)
		for i := range 3 {
			r.accept(keyed(issue("alice", 1, uint64(6+i)), fmt.Sprint("k", i)))
			if err := r.l.Seal(r.ctx()); err != nil {
				t.Fatal(err)
			}
			r.verify()
			if i == 1 {
				r.reopen()
			}
		}
		if outs := r.commit(keyed(issue("alice", 1, 8), "k2")); !outs[0].Replayed {
			t.Errorf("a key of after the closing is forgotten: %+v", outs[0])
		}
		r.stop()
	}
}

// nearlyCloses builds a period that ends with the last batch that can be closed, and closes it not.
func (r *rig) nearlyCloses() (p period.Plan) {
	r.t.Helper()
	if err := r.l.Flush(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	seq, keys := r.l.Closable()
	err := r.store.View(r.ctx(), func(rd store.Reader) (err error) {
		p, err = period.Next(rd, 1<<62, seq, keys)
		return err
	})
	if err == nil {
		err = period.Begin(r.ctx(), r.store, p, period.Request{By: "test"})
	}
	if err == nil {
		err = period.Build(r.ctx(), r.store, nil, nil)
	}
	if err == nil {
		err = period.Turn(r.ctx(), r.store, p.Period, tables.Exporting, tables.Sealing, nil)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

// A slot that is sealed during a closing covers records of before its first key. Its period is closed.
func TestSlotIsSealedDuringClosing(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock, func(c *ledger.Config) { c.SlotMax = 2 }).declare("ron")
	for i := range uint64(5) {
		r.accept(issue("alice", 1, i+1))
	}
	clock.Advance(time.Minute)
	first := r.accept(keyed(issue("alice", 1, 6), "k6"))[0].Receipt.Seq
	p := r.nearlyCloses()
	for i := range uint64(3) {
		clock.Advance(time.Minute)
		r.accept(keyed(issue("alice", 1, 7+i), fmt.Sprint("k", 7+i)))
	}
	if err := r.l.Seal(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if h, err := ledger.ClosePeriod(r.ctx(), r.store, p.Period); err != nil || h.Seq != first-1 {
		t.Errorf("closed up to %d: %v; the first key is of record %d", h.Seq, err, first)
	}
	r.stop()
}

// A closing that a restart has interrupted waits until the clock is settled.
func TestRestartDuringClosing(t *testing.T) {
	m := &machine{}
	r := (&rig{t: t, machine: m}).create(func(c *ledger.Config) { c.KeyTTL = unit.Duration(time.Hour) })
	r.declare("ron")
	r.accept(keyed(issue("alice", 1, 1), "k1"))
	m.passed += 5 * time.Hour
	r.accept(issue("alice", 1, 2))
	p := r.nearlyCloses()
	r.stop()
	m.passed += time.Minute
	r.open()
	if _, err := ledger.ClosePeriod(r.ctx(), r.store, p.Period); !errors.Is(err, ledger.ErrKeys) {
		t.Errorf("closed before the clock is settled: %v", err)
	}
	m.passed += 2 * lawQuiet
	if _, err := ledger.ClosePeriod(r.ctx(), r.store, p.Period); err != nil {
		t.Error(err)
	}
	r.stop()
}
