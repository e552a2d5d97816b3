package wallet

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
)

// waiter is a job that waits in the slot of an earlier one, whose handler has not got to the queue yet.
func waiter(t *testing.T, r *rig) (before *job, answer chan error) {
	t.Helper()
	make1 := func(key string, nonce uint64) *job {
		q := transfer("alice", "bo", 1, nonce)
		j, err := r.e.newJob(context.Background(), &ask{by: alice, one: q})
		if err != nil {
			t.Fatal(err)
		}
		c, first, err := r.e.flights.Join(flightKey{"alice", key}, r.e.prints.single(&q))
		if err != nil || !first {
			t.Fatal(first, err)
		}
		j.call = c
		j.op.Dedupe = ledger.DedupeKey{Scope: "alice", Key: key}
		j.deadline = time.Now().Add(time.Minute)
		r.e.nonces.note(j)
		return j
	}
	before = make1("one", 1)
	after := make1("two", 2)
	if err := r.e.work.TrySend(after); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	answer = make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		_, err := after.call.Wait(ctx)
		answer <- err
	}()
	synctest.Wait()
	return before, answer
}

func draining(t *testing.T, answer chan error, began time.Time) {
	t.Helper()
	var not *NotReadyError
	if err := <-answer; !errors.As(err, &not) || not.Cause != CauseDraining {
		t.Errorf("%v, want that it was not begun", err)
	}
	if took := time.Since(began); took != 0 {
		t.Errorf("told after %s", took)
	}
}

// A job that waits for one whose handler is late is answered when that one finds the queue closed, whether the workers have drained or were
// aborted, and whichever of the two comes last.
func TestLateHandler(t *testing.T) {
	for _, abort := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t).start()
			before, answer := waiter(t, r)
			if abort {
				r.sup.Close()
			} else {
				r.catalog.CloseFedBy(service, flow.HTTP)
				r.sup.Drain(service, time.Second, time.Second)
			}
			began := time.Now()
			if err := r.e.work.TrySend(before); !errors.Is(err, flow.ErrClosed) {
				t.Fatal(err)
			}
			before.fail(joinError(flow.ErrClosed))
			draining(t, answer, began)
			if n := r.e.nonces.live.Load(); n != 0 || r.e.flights.Len() != 0 {
				t.Errorf("%d slots and %d flights are left", n, r.e.flights.Len())
			}
			r.stop()
		})
	}
}

// The last worker looks once more when it has told that it goes: what was woken between its last look and that is not left behind.
func TestWokenBeforeTheLastWorkerGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t) // no worker
		q := transfer("alice", "bo", 1, 1)
		c, _, err := r.e.flights.Join(flightKey{"alice", "k"}, r.e.prints.single(&q))
		if err != nil {
			t.Fatal(err)
		}
		r.e.wake([]*job{{e: r.e, call: c, op: ledger.Op{Code: record.OpTransfer}}})
		for range r.e.workers {
			r.e.workerGone()
		}
		answer := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := c.Wait(ctx)
			answer <- err
		}()
		draining(t, answer, time.Now())
		r.stop()
	})
}
