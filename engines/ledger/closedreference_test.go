package ledger_test

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"ronbox/appliance/b3"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
	"ronbox/engines/ledger/tables"
	"ronbox/store"
)

// referred is a payment of 1 to bob under a reference of p.
func referred(reference string) ledger.Op {
	op := transfer("alice", "bob", 1, 0)
	op.Reference, op.Principal = reference, "p"
	return op
}

// batchOf is a batch of p.
func batchOf(atomic bool, ops ...ledger.Op) ledger.Op {
	for i := range ops {
		ops[i].Principal = ""
	}
	return ledger.Op{Code: record.OpBatch, Principal: "p", Atomic: atomic, Ops: ops}
}

var payout = ledger.Once{
	Domain: "payout", ID: "epoch 1", Digest: b3.Sum([]byte("1")), Guard: ledger.Guard{Key: "slot", Owner: "run"},
}

func (r *rig) settle(once ledger.Once) ledger.Outcome {
	r.t.Helper()
	out, err := r.l.Settle(r.ctx(), once, []ledger.Op{transfer("alice", "bob", 1, 0)})
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// closeAll closes a period with all records so far.
func (r *rig) closeAll() tables.Horizon {
	r.t.Helper()
	if err := r.l.Flush(r.ctx()); err != nil {
		r.t.Fatal(err)
	}
	head, err := r.l.Head(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	h, err := ledgertest.Close(r.ctx(), r.store, head.Seq)
	if err != nil || h.Seq != head.Seq {
		r.t.Fatalf("horizon %+v, head %+v, %v", h, head, err)
	}
	return h
}

// merging reports whether references of the closed period may be in ledger/once.
func (r *rig) merging() (yes bool) {
	r.t.Helper()
	if err := r.store.View(r.ctx(), func(rd store.Reader) error {
		c := tables.GetClosing(rd)
		yes = c.Step == tables.Dropping && c.Dropped.Table == 0
		return nil
	}); err != nil {
		r.t.Fatal(err)
	}
	return yes
}

// oldReferences is the number of references that the tests close.
const oldReferences = 24

// closedLedger is a ledger with references, a settlement and open references that repeat some.
func closedLedger(t *testing.T) (*rig, tables.Horizon) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1000, 1))
	for i := range oldReferences {
		r.accept(referred(fmt.Sprint("old/", i)))
	}
	r.settle(payout)
	h := r.closeAll()
	r.accept(referred("new/1"))
	return r, h
}

// mustBeClosed checks a refusal of what is in a closed period.
func mustBeClosed(t testing.TB, way string, reject *ledger.Reject, h tables.Horizon) {
	t.Helper()
	if reject == nil || reject.Code != record.PeriodClosed {
		t.Fatalf("%s: %+v", way, reject)
	}
	if c := reject.Closed; c == nil || c.Period != h.Period || c.ToSeq != h.Seq || c.ToAt != h.At ||
		c.FirstSeq <= h.Seq {
		t.Fatalf("%s: %+v, want %+v", way, reject.Closed, h)
	}
}

// refuses sends the reference old again in every way. Nothing is done.
func (r *rig) refuses(old string, h tables.Horizon) {
	r.t.Helper()
	before, err := r.l.Head(r.ctx())
	if err != nil {
		r.t.Fatal(err)
	}
	other := referred(old)
	other.Memo = "other words"
	ways := map[string]ledger.Op{
		"alone": referred(old), "with other words": other, "with a new key": keyed(referred(old), "key"),
		"in an atomic batch": batchOf(true, transfer("alice", "bob", 1, 0), referred(old)),
	}
	for way, op := range ways {
		op.Principal = "p"
		out := r.commit(op)[0]
		mustBeClosed(r.t, way, out.Reject, h)
		if op.Code == record.OpBatch && (out.Reject.Index != 1 || out.Results[0].Reject.Code != record.Aborted) {
			r.t.Fatalf("%s: %+v", way, out)
		}
		prepared, err := r.l.Prepare(r.ctx(), &op)
		if err != nil {
			r.t.Fatal(err)
		}
		pending, err := r.l.Submit(r.ctx(), []*ledger.Prepared{prepared})
		if err != nil {
			r.t.Fatal(err)
		}
		outs, err := pending.Wait(r.ctx())
		if err != nil {
			r.t.Fatal(err)
		}
		mustBeClosed(r.t, way+", prepared", outs[0].Reject, h)
	}
	rows := r.commit(batchOf(false, other, referred(old)))[0]
	for i := range rows.Results {
		if reject := rows.Results[i].Reject; rows.Reject != nil || reject == nil || reject.Code != record.PeriodClosed {
			r.t.Fatalf("row %d of a batch: %+v", i, rows)
		}
	}
	var closed *ledger.ClosedError
	if _, err := r.l.Reference(r.ctx(), "p", old); !errors.As(err, &closed) || closed.Period != h.Period {
		r.t.Fatalf("the reference is read: %v", err)
	}
	if after, err := r.l.Head(r.ctx()); err != nil || after != before {
		r.t.Fatalf("the head went from %+v to %+v, %v", before, after, err)
	}
}

// settled sends a settlement of a closed period again, and others under its id and its guard.
func (r *rig) settled(h tables.Horizon) {
	r.t.Helper()
	out := r.settle(payout)
	if out.Reject != nil || !out.Replayed || out.Period != h.Period || len(out.Results) != 0 {
		r.t.Fatalf("the settlement again: %+v", out)
	}
	for name, change := range map[string]func(*ledger.Once){
		"another digest": func(o *ledger.Once) { o.Digest[0]++ },
		"another owner":  func(o *ledger.Once) { o.ID, o.Guard.Owner = "epoch 2", "other" },
	} {
		other := payout
		change(&other)
		if out := r.settle(other); out.Reject == nil || out.Reject.Code != record.OnceConflict {
			r.t.Fatalf("%s: %+v", name, out)
		}
	}
}

// References of a closed period are refused from its closing on, whether their rows are in memory,
// in the file, or merged, and so are those of the period before. Settlements stay done.
func TestReferencesOfClosedPeriods(t *testing.T) {
	for name, after := range map[string]func(*rig){
		"in memory":  func(*rig) {},
		"in no row":  func(r *rig) { r.l.Forgetful(0) },
		"after boot": func(r *rig) { r.reopen() },
	} {
		t.Run(name, func(t *testing.T) {
			r, h := closedLedger(t)
			after(r)
			for step := 0; ; step++ {
				r.refuses(fmt.Sprint("old/", step%oldReferences), h)
				r.settled(h)
				if !r.merging() {
					break
				}
				if _, err := ledgertest.Drop(r.ctx(), r.store, 1, 3); err != nil {
					t.Fatal(err)
				}
			}
			for i := range oldReferences {
				r.refuses(fmt.Sprint("old/", i), h)
			}
			if out := r.commit(referred("new/1"))[0]; !out.Replayed {
				t.Errorf("a reference above the horizon: %+v", out)
			}
			if _, err := ledgertest.Drop(r.ctx(), r.store, 0, 100); err != nil {
				t.Fatal(err)
			}
			r.settled(h)
			second := r.closeAll()
			r.refuses("new/1", second)
			r.refuses("old/1", h)
			r.settled(h)
			if v, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err != nil || v.Posted != amount(oldReferences+2) {
				t.Errorf("bob has %s, %v", v.Posted, err)
			}
		})
	}
}

// What was looked up before a closing is decided after it, when all rows are merged and none is in
// memory.
func TestPreparedBeforeTheClosing(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1000, 1))
	r.accept(referred("old"))
	prepare := func(op ledger.Op) *ledger.Prepared {
		p, err := r.l.Prepare(r.ctx(), &op)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	free := prepare(referred("raced"))
	rows := prepare(batchOf(false, referred("old"), referred("raced"), referred("free")))
	whole := prepare(batchOf(true, referred("free 2"), referred("old")))
	known := prepare(referred("old"))
	r.accept(referred("raced"))
	h := r.closeAll()
	r.l.Forgetful(0)
	r.accept(transfer("alice", "bob", 1, 0)) // what is clean leaves memory
	for r.merging() {
		if _, err := ledgertest.Drop(r.ctx(), r.store, 1, 100); err != nil {
			t.Fatal(err)
		}
	}
	pending, err := r.l.Submit(r.ctx(), []*ledger.Prepared{free, rows, whole, known})
	if err != nil {
		t.Fatal(err)
	}
	outs, err := pending.Wait(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	mustBeClosed(t, "a free reference that was bound", outs[0].Reject, h)
	for i, want := range []record.Result{record.PeriodClosed, record.PeriodClosed, record.Accepted} {
		if got := outs[1].Results[i].Reject; (got == nil) != (want == record.Accepted) || got != nil && got.Code != want {
			t.Errorf("row %d: %+v", i, got)
		}
	}
	mustBeClosed(t, "an atomic batch", outs[2].Reject, h)
	if !outs[3].Replayed || outs[3].Receipt.Seq == 0 { // it was answered before the closing
		t.Errorf("a known outcome: %+v", outs[3])
	}
	if v, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err != nil || v.Posted != amount(4) {
		t.Errorf("bob has %s, %v", v.Posted, err)
	}
}

// A batch above the horizon that repeated what is closed now is answered again without those rows.
func TestBatchRepeatedWhatIsClosed(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1000, 1))
	r.accept(referred("old"))
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	head, err := r.l.Head(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	batch := keyed(batchOf(false, referred("mid"), referred("old")), "batch")
	first := r.accept(batch)[0]
	if err := r.l.Flush(r.ctx()); err != nil {
		t.Fatal(err)
	}
	h, err := ledgertest.Close(r.ctx(), r.store, head.Seq)
	if err != nil {
		t.Fatal(err)
	}
	for merged := false; ; merged = true {
		again := r.accept(batch)[0]
		if !again.Replayed || again.Results[0].Receipt.TxID != first.Results[0].Receipt.TxID ||
			again.Results[1].Reject == nil || again.Results[1].Reject.Code != record.PeriodClosed {
			t.Fatalf("merged %v: %+v", merged, again)
		}
		found, ok, err := r.l.Find(r.ctx(), batch.Dedupe, batch.Fingerprint, 0)
		if err != nil || !ok || found.Results[1].Reject == nil {
			t.Fatalf("merged %v: %+v, %v", merged, found, err)
		}
		if merged {
			break
		}
		r.l.Forgetful(0)
		for r.merging() {
			if _, err := ledgertest.Drop(r.ctx(), r.store, 1, 100); err != nil {
				t.Fatal(err)
			}
		}
		r.reopen() // which derives the batch again
	}
	r.refuses("old", h)
}

// Old references that are sent all the time, alone and in batches, are replayed until their period
// is closed and refused from then on, while it is closed and merged. None is done twice.
func TestReferencesWhileTheyAreMerged(t *testing.T) {
	r := newRig(t, nil).declare("ron").start()
	r.accept(issue("alice", 1000, 1))
	for i := range oldReferences {
		r.accept(referred(fmt.Sprint("old/", i)))
	}
	var ends atomic.Bool
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			closed := map[string]bool{}
			for n := 0; !ends.Load() || n < 2*oldReferences; n++ {
				old := fmt.Sprint("old/", (n*5+worker)%oldReferences)
				op := referred(old)
				if worker%2 == 1 {
					op = batchOf(worker == 1, referred(old))
				}
				outs, err := r.l.Commit(r.ctx(), []ledger.Op{op})
				if err != nil {
					t.Errorf("%s: %v", old, err)
					return
				}
				out := outs[0]
				if out.Batch && out.Results != nil {
					out = out.Results[0]
				}
				if out.Reject != nil && out.Reject.Code == record.PeriodClosed {
					closed[old] = true
				} else if out.Reject != nil || !out.Replayed || closed[old] {
					t.Errorf("%s: %+v", old, out)
				}
			}
		})
	}
	r.closeAll()
	for r.merging() {
		if _, err := ledgertest.Drop(r.ctx(), r.store, 1, 2); err != nil {
			t.Error(err)
			break
		}
	}
	ends.Store(true)
	wg.Wait()
	if v, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err != nil || v.Posted != amount(oldReferences) {
		t.Errorf("bob has %s, %v", v.Posted, err)
	}
}

// In safe mode a reference of a closed period is known.
func TestClosedReferenceInSafeMode(t *testing.T) {
	r, h := closedLedger(t)
	r.l.Bar()
	op := referred("old/3")
	p, err := r.l.Prepare(r.ctx(), &op)
	if err != nil || p.Known == nil {
		t.Fatalf("%+v, %v", p, err)
	}
	mustBeClosed(t, "prepared in safe mode", p.Known.Reject, h)
}
