package ledger_test

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// Members that name a payer are refused, not ignored, if the code of the op has no payer.
func TestIssueHasNoPayer(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("victim", 100, 1))
	for _, op := range []ledger.Op{
		{Code: record.OpIssue, From: "victim", To: "thief", Asset: "ron", Amount: amount(5), Nonce: 1},
		{Code: record.OpBurn, From: "victim", To: "thief", Asset: "ron", Amount: amount(5), Nonce: 1},
	} {
		var bad *ledger.OpError
		if outs, err := r.l.Commit(r.ctx(), []ledger.Op{op}); !errors.As(err, &bad) {
			t.Errorf("%v: %+v, %v, want an OpError", op.Code, outs, err)
		}
	}
	if b, err := r.l.Balance(r.ctx(), "victim", "ron", 0); err != nil || b.Posted != amount(100) {
		t.Errorf("the victim has %v, %v", b.Posted, err)
	}
}

// A key that can never take effect is refused as a mistake of the caller.
func TestKeysAreChecked(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	eternal, null := keyed(issue("alice", 1, 1), "k"), keyed(issue("alice", 1, 1), "k")
	eternal.TTL, null.Dedupe.Key = 0, "a\x00b"
	for _, op := range []ledger.Op{eternal, null} {
		var bad *ledger.OpError
		if _, err := r.l.Commit(r.ctx(), []ledger.Op{op}); !errors.As(err, &bad) {
			t.Errorf("%q, %v: %v, want an OpError", op.Dedupe.Key, op.TTL, err)
		}
	}
}

// Keys survive a wall clock that was ahead for a while.
func TestKeysOutliveAWrongClock(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock, func(c *ledger.Config) { c.SlotMax = 2 }).declare("ron")
	var ops []ledger.Op
	for i := range uint64(6) {
		ops = append(ops, keyed(issue("alice", 1, i+1), fmt.Sprint("k", i)))
		r.accept(ops[i])
		clock.Advance(time.Second)
	}
	replayed := func(when string) {
		t.Helper()
		for i, out := range r.commit(ops...) {
			if !out.Replayed {
				t.Errorf("%s: op %d is not replayed: %+v", when, i, out.Reject)
			}
		}
	}
	clock.Advance(48 * time.Hour)
	r.reopen() // no commit while the clock is wrong
	clock.Advance(-48 * time.Hour)
	replayed("after a boot in the future")
	if err := r.l.Seal(r.ctx()); err != nil {
		t.Fatal(err)
	}
	first := newStop()
	r.hold(first)
	<-first.in
	clock.Advance(48 * time.Hour)
	out := make(chan ledger.Outcome, 1)
	r.bg.Go(func() { out <- r.commit(ops[0])[0] })
	waitFor(t, func() bool { return r.backlog() == 1 })
	clock.Advance(-48 * time.Hour)
	close(first.out)
	if o := <-out; !o.Replayed {
		t.Errorf("asked in the future, done now: not replayed: %+v", o.Reject)
	}
}

// A boot drops a slot that was half sealed when the process ended, and seals it again.
func TestHalfSealed(t *testing.T) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock, func(c *ledger.Config) { c.SlotMax = 2 }).declare("ron")
	var ops []ledger.Op
	for i := range uint64(8) {
		ops = append(ops, keyed(issue("alice", 1, i+1), fmt.Sprint("k", i)))
		r.accept(ops[i])
	}
	if err := r.l.SealSlice(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if n := r.panics(); n != 0 {
		t.Errorf("%v commands of the boot panicked", n)
	}
	for i, out := range r.commit(ops...) {
		if !out.Replayed {
			t.Errorf("op %d is not replayed: %+v", i, out.Reject)
		}
	}
	if err := r.l.Seal(r.ctx()); err != nil {
		t.Fatal(err)
	}
	r.verify()
}

// panics returns the number of commands that panicked.
func (r *rig) panics() float64 { return r.counted("store_command_panics_total") }

// counted returns the sum of a metric's series.
func (r *rig) counted(name string) (n float64) {
	r.t.Helper()
	families, err := r.metrics.Registry().Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return n
}

// Only the first part of a batch's results records the key and the principal. No other record of
// the batch holds either.
func TestBatchIsAskedOnce(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	whole := keyed(ledger.Op{Code: record.OpBatch, Principal: "org:alice", CapID: "cap"}, "k")
	for i := range uint64(record.MaxResults + 1) {
		whole.Ops = append(whole.Ops, issue("alice", 1, i+1))
		whole.Ops[i].Principal, whole.Ops[i].CapID = "org:alice", "cap"
	}
	r.accept(whole)
	first := 0
	err := r.l.Export(r.ctx(), 1, 0, func(line record.Line) error {
		rec := line.Record
		if line.Kind != record.LineRecord {
			return nil
		}
		asked := rec.Dedupe.Kind != record.DedupeNone || rec.Idem != ""
		if head := rec.Op == record.OpBatch && rec.Part == 0; head != asked {
			t.Errorf("record %d, %v, part %d: a key: %v", rec.Seq, rec.Op, rec.Part, asked)
		} else if head {
			first++
		}
		if who := rec.Principal != [8]byte{} || rec.CapID != [8]byte{}; who != (rec.Op == record.OpBatch) {
			t.Errorf("record %d, %v: somebody: %v", rec.Seq, rec.Op, who)
		}
		return nil
	})
	if err != nil || first != 1 {
		t.Errorf("%d first parts, %v", first, err)
	}
}

// A slow reader of an export holds little memory, however long the journal and its records are.
func TestSlowExportsHoldLittle(t *testing.T) {
	r := newRig(t, ledgertest.NewClock()).declare("ron")
	for call := range 12 {
		ops := make([]ledger.Op, 60)
		for i := range ops {
			ops[i] = issue("alice", 1, uint64(call*60+i+1))
			ops[i].Memo = strings.Repeat("m", record.MaxMemo)
		}
		r.accept(ops...)
	}
	const readers = 64
	var stopped, all sync.WaitGroup
	gate := make(chan struct{})
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	stopped.Add(readers)
	for range readers {
		all.Go(func() {
			records := 0
			err := r.l.Export(r.ctx(), 1, 0, func(line record.Line) error {
				if line.Kind == record.LineRecord {
					if records++; records == 1 {
						stopped.Done()
						<-gate
					}
				}
				return nil
			})
			if err != nil || records < 720 {
				t.Errorf("%d records, %v", records, err)
			}
		})
	}
	stopped.Wait()
	if each := (int64(held()) - int64(before)) / readers; each > 200<<10 {
		t.Errorf("%d bytes for each slow reader", each)
	}
	close(gate)
	all.Wait()
}
