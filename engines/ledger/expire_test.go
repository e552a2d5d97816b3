package ledger_test

import (
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// overdue returns a ledger with an overdue hold of 10 of alice's 10.
func overdue(t *testing.T) (*rig, record.TxID) {
	clock := ledgertest.NewClock()
	r := newRig(t, clock, func(c *ledger.Config) { c.StallAfter = unit.Duration(time.Second) }).declare("ron")
	h := r.accept(issue("alice", 10, 1), ledger.Op{
		Code: record.OpHold, From: "alice", To: "shop", Asset: "ron", Amount: amount(10), ExpiresIn: time.Minute,
	})[1].Receipt
	clock.Set(time.Unix(0, h.At).Add(time.Minute))
	return r, h.TxID
}

// heldOf returns the held amount of alice in one call, and the time that the call took.
func (r *rig) heldOf() (uint64, time.Duration) {
	r.t.Helper()
	began := time.Now()
	b, err := r.l.Balance(r.ctx(), "alice", "ron", 0)
	if err != nil {
		r.t.Error(err)
	}
	_, held := b.Held.Parts()
	return held, time.Since(began)
}

// Many callers that meet an overdue hold wait for one of them, which ends it once.
func TestManyCallersEndAHoldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, _ := overdue(t)
		before, err := r.l.Head(r.ctx())
		if err != nil {
			t.Fatal(err)
		}
		busy := newStop()
		r.hold(busy)
		<-busy.in
		var callers sync.WaitGroup
		for i := range 50 {
			callers.Go(func() {
				if i%2 == 0 {
					r.accept(issue("bob", 1, 0))
				} else if held, _ := r.heldOf(); held != 0 {
					t.Errorf("%d is held", held)
				}
			})
		}
		synctest.Wait()
		close(busy.out)
		callers.Wait()
		after, err := r.l.Head(r.ctx())
		if err != nil || after.Seq != before.Seq+1+1+25 { // the end, an account, and its issues
			t.Errorf("%d records after %d, %v", after.Seq, before.Seq, err)
		}
		r.stop()
	})
}

// A ledger that stalls keeps a call for stall_after, and answers it and later calls by the state
// that is stored. The expirer ends the hold once the ledger goes on.
func TestOverdueHoldOfAStalledLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, hold := overdue(t)
		busy := newStop()
		r.hold(busy)
		<-busy.in
		for _, wait := range []time.Duration{time.Second, 0, 0} {
			if held, took := r.heldOf(); held != 10 || took != wait {
				t.Errorf("%d is held after %s, want 10 after %s", held, took, wait)
			}
		}
		if h, err := r.l.Hold(r.ctx(), hold); err != nil || h.Closed != 0 {
			t.Errorf("%+v, %v", h, err)
		}
		close(busy.out)
		r.start()
		time.Sleep(2 * time.Second) // a tick
		synctest.Wait()
		if held, took := r.heldOf(); held != 0 || took != 0 {
			t.Errorf("%d is held, after %s", held, took)
		}
		r.stop()
	})
}

// In safe mode nothing ends, and every call says so.
func TestOverdueHoldInSafeMode(t *testing.T) {
	r, hold := overdue(t)
	r.l.Bar()
	if held, _ := r.heldOf(); held != 10 {
		t.Errorf("%d is held", held)
	}
	if h, err := r.l.Hold(r.ctx(), hold); err != nil || h.Closed != 0 {
		t.Errorf("%+v, %v", h, err)
	}
	_, err := r.l.Commit(r.ctx(), []ledger.Op{{Code: record.OpCapture, Hold: hold}})
	if !errors.Is(err, ledger.ErrSafeMode) {
		t.Errorf("capture: %v", err)
	}
}

// After a boot the first call finds an overdue hold, in the journal and in its table.
func TestOverdueHoldAfterABoot(t *testing.T) {
	for _, flushed := range []bool{false, true} {
		r, _ := overdue(t)
		if flushed {
			if err := r.l.Flush(r.ctx()); err != nil {
				t.Fatal(err)
			}
		}
		r.reopen()
		r.accept(transfer("alice", "bob", 10, 0))
	}
}
