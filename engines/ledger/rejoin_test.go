package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// strayed commits ops and lets their caller leave while the committer still has them. The group is
// blocked at the returned stop.
func (r *rig) strayed(ops ...ledger.Op) *stop {
	r.t.Helper()
	first, second := newStop(), newStop()
	r.hold(first)
	<-first.in
	ctx, cancel := context.WithCancel(r.ctx())
	gone := make(chan error, 1)
	r.bg.Go(func() {
		_, err := r.l.Commit(ctx, ops)
		gone <- err
	})
	waitFor(r.t, func() bool { return r.backlog() == 1 })
	r.hold(second)
	waitFor(r.t, func() bool { return r.backlog() == 2 })
	close(first.out)
	<-second.in
	cancel()
	var left *ledger.UnavailableError
	if err := <-gone; !errors.As(err, &left) || !left.Unknown {
		r.t.Errorf("the caller that left: %v, want that it is not known", err)
	}
	return second
}

// hold submits s, which blocks the committer.
func (r *rig) hold(s store.Command[struct{}]) {
	r.bg.Go(func() { _, _ = store.Commit(r.ctx(), r.store, store.Work, s) })
}

// If many callers wait for one refused op, each gets its own refusal, completed from the journal.
func TestManyRejoin(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	first := r.accept(issue("alice", 100, 1))
	op := keyed(issue("alice", 100, 1), "again")
	second := r.strayed(op)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			outs, err := r.l.Commit(r.ctx(), []ledger.Op{op})
			if err != nil || outs[0].Reject == nil || outs[0].Reject.Committed != first[0].Receipt.TxID {
				t.Errorf("%+v, %v, want the record that used the nonce", outs, err)
			}
		})
	}
	waitFor(t, func() bool { return r.backlog() == 4 })
	close(second.out)
	wg.Wait()
}

// A call with the key of an op in progress but other contents is refused, because it is not a
// retry.
func TestRejoinOtherFingerprint(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	second := r.strayed(keyed(issue("alice", 100, 1), "k"))
	other := keyed(issue("alice", 7, 2), "k")
	out := make(chan ledger.Outcome, 1)
	r.bg.Go(func() {
		outs, err := r.l.Commit(r.ctx(), []ledger.Op{other})
		if err != nil {
			t.Error(err)
		}
		out <- outs[0]
	})
	waitFor(t, func() bool { return r.backlog() == 1 })
	close(second.out)
	if o := <-out; o.Reject == nil || o.Reject.Code != record.IdemConflict {
		t.Errorf("%+v, want idem_conflict", o)
	}
}

// A call may combine an op in progress with a new one. The first is replayed, the second is
// applied.
func TestRejoinInPart(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	a, b, c := keyed(issue("alice", 1, 1), "a"), keyed(issue("alice", 2, 2), "b"), keyed(issue("alice", 4, 3), "c")
	second := r.strayed(a, b)
	got := make(chan []ledger.Outcome, 1)
	r.bg.Go(func() {
		outs, err := r.l.Commit(r.ctx(), []ledger.Op{c, b})
		if err != nil {
			t.Error(err)
		}
		got <- outs
	})
	waitFor(t, func() bool { return r.backlog() == 1 })
	close(second.out)
	outs := <-got
	if len(outs) != 2 || outs[0].Reject != nil || outs[1].Reject != nil || outs[0].Receipt.Amount != amount(4) ||
		outs[1].Receipt.Amount != amount(2) {
		t.Errorf("%+v", outs)
	}
	if v, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err != nil || v.Posted != amount(7) {
		t.Errorf("alice has %v, %v", v.Posted, err)
	}
}

// bomb is a command that fails the store after the other commands of its group were applied.
type bomb struct{ *stop }

func (bomb) Kind() string { return "ledger.bomb/1" }

func (c bomb) Apply(r store.Reader, at store.Stamp, w *store.Writes) (struct{}, error) {
	_, _ = c.stop.Apply(r, at, w)
	w.Then(func() { panic("a bug") })
	return struct{}{}, nil
}

// If the store fails while it has an op, every waiting call returns. Once a group that was not
// sealed has ended, the outcome is known: nothing was applied.
func TestRejoinPoisoned(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	op := keyed(issue("alice", 100, 1), "k")
	first, second := newStop(), bomb{newStop()}
	r.hold(first)
	<-first.in
	ctx, cancel := context.WithCancel(r.ctx())
	r.bg.Go(func() { _, _ = r.l.Commit(ctx, []ledger.Op{op}) })
	waitFor(t, func() bool { return r.backlog() == 1 })
	r.hold(second)
	waitFor(t, func() bool { return r.backlog() == 2 })
	close(first.out)
	<-second.in
	cancel()
	waitFor(t, func() bool { return r.l.Strays() == 1 })
	if n := r.counted("io_timeouts_total"); n != 1 {
		t.Errorf("%v waits that were too long are counted, want 1", n)
	}
	ended := make(chan error, 1)
	again := func(unknown bool) {
		t.Helper()
		var gone *ledger.UnavailableError
		if err := <-ended; !errors.As(err, &gone) || gone.Unknown != unknown || !errors.Is(err, store.ErrPoisoned) {
			t.Errorf("the retry: %v, want that the store has failed, and unknown %v", err, unknown)
		}
	}
	retry := func() {
		_, err := r.l.Commit(r.ctx(), []ledger.Op{op})
		ended <- err
	}
	r.bg.Go(retry)
	waitFor(t, func() bool { return r.backlog() == 1 })
	close(second.out)
	<-r.store.Failed()
	again(true) // it arrived before the first one had ended
	waitFor(t, func() bool { return r.l.Strays() == 0 })
	r.bg.Go(retry)
	again(false)
	r.bg.Wait()
}

// Commands that are queued when the ledger enters safe mode are not written.
func TestSafeModeStopsTheQueue(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	id := r.accept(issue("alice", 10, 1))[0].Receipt.TxID
	if _, err := store.Commit[struct{}](r.ctx(), r.store, store.Work, spoil{0, []byte{7: 4}, 60}); err != nil {
		t.Fatal(err)
	}
	first := newStop()
	r.hold(first)
	<-first.in
	errs := make(chan error, 3)
	for i := range uint64(3) {
		r.bg.Go(func() {
			_, err := r.l.Commit(r.ctx(), []ledger.Op{issue(fmt.Sprint("user", i), 1, 2)})
			errs <- err
		})
		waitFor(t, func() bool { return r.backlog() == int(i)+1 })
	}
	if _, err := r.l.Tx(r.ctx(), id); !errors.Is(err, store.ErrCorrupt) {
		t.Fatalf("tx: %v, want ErrCorrupt", err)
	}
	head, _ := r.l.Head(r.ctx())
	close(first.out)
	for range 3 {
		if err := <-errs; !errors.Is(err, ledger.ErrSafeMode) {
			t.Errorf("commit: %v, want ErrSafeMode", err)
		}
	}
	if after, err := r.l.Head(r.ctx()); err != nil || after != head {
		t.Errorf("the head went from %+v to %+v, %v", head, after, err)
	}
}

// If a call that repeats an op in progress is refused as a whole, its error does not claim that
// nothing was applied.
func TestRejoinWhoseRestFails(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	a, b, c := keyed(issue("alice", 1, 1), "a"), keyed(issue("alice", 2, 2), "b"), keyed(issue("alice", 4, 3), "c")
	second := r.strayed(a, b)
	got := make(chan error, 1)
	r.bg.Go(func() {
		_, err := r.l.Commit(r.ctx(), []ledger.Op{b, c})
		got <- err
	})
	waitFor(t, func() bool { return r.backlog() == 1 })
	r.l.Bar()
	close(second.out)
	var gone *ledger.UnavailableError
	if err := <-got; !errors.As(err, &gone) || !gone.Unknown {
		t.Errorf("%v, want that it is not known", err)
	}
	if v, err := r.l.Balance(r.ctx(), "alice", "ron", 0); err != nil || v.Posted != amount(3) {
		t.Errorf("alice has %v, %v", v.Posted, err)
	}
}
