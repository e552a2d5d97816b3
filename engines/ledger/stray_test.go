package ledger_test

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"ronbox/engines/ledger"
	"ronbox/store"
)

// stop is a command that blocks the committer until it is released.
type stop struct {
	in, out chan struct{}
}

func newStop() *stop { return &stop{make(chan struct{}), make(chan struct{})} }

func (*stop) Kind() string { return "ledger.stop/1" }

func (c *stop) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	close(c.in)
	<-c.out
	return struct{}{}, errors.New("no trace")
}

// If the deadline of a caller passes while the committer has its op, the caller gets an unknown
// outcome. The same call later replays the op.
func TestRetryWaitsForItsOp(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 100, 1))
	first, second := newStop(), newStop()
	var wg sync.WaitGroup
	hold := func(s *stop) {
		wg.Go(func() { _, _ = store.Commit[struct{}](r.ctx(), r.store, store.Work, s) })
	}
	hold(first)
	<-first.in
	op := keyed(transfer("alice", "bob", 7, 1), "k1")
	ctx, cancel := context.WithCancel(r.ctx())
	wg.Go(func() {
		_, err := r.l.Commit(ctx, []ledger.Op{op})
		var gone *ledger.UnavailableError
		if !errors.As(err, &gone) || !gone.Unknown {
			t.Errorf("the caller that left: %v, want that it is not known", err)
		}
	})
	waitFor(t, func() bool { return r.backlog() == 1 })
	hold(second)
	waitFor(t, func() bool { return r.backlog() == 2 })
	close(first.out) // the group that follows has the op and then the second stop
	<-second.in
	cancel()
	waitFor(t, func() bool { return r.l.Strays() == 1 })
	var outs []ledger.Outcome
	wg.Go(func() {
		var err error
		if outs, err = r.l.Commit(r.ctx(), []ledger.Op{op}); err != nil {
			t.Errorf("the retry: %v", err)
		}
	})
	waitFor(t, func() bool { return r.backlog() == 1 })
	close(second.out)
	wg.Wait()
	if len(outs) != 1 || outs[0].Reject != nil || !outs[0].Replayed {
		t.Fatalf("the retry got %+v, want the outcome of the first call", outs)
	}
	if n := r.l.Strays(); n != 0 {
		t.Errorf("%d keys are still on their way", n)
	}
	if again := r.accept(op); receipts(again[0]) != receipts(outs[0]) || !again[0].Replayed {
		t.Errorf("asked once more: %+v", again[0])
	}
	if b, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err != nil || b.Posted != amount(7) {
		t.Errorf("bob has %v, %v", b.Posted, err)
	}
}

// backlog returns the number of commands that wait in the work lane.
func (r *rig) backlog() int {
	for _, c := range r.catalog.Channels() {
		if c.Service == "store" && c.Name == "work" {
			return c.Len
		}
	}
	return -1
}

// waitFor yields until ok returns true.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}

// The keys of a group with an unknown outcome are kept. A failing call with one of them reports
// that the outcome is unknown.
func TestStrayUnknown(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	op := keyed(issue("alice", 1, 1), "k")
	r.l.StrayUnknown(op)
	if n := r.l.Strays(); n != 1 {
		t.Errorf("%d keys are on their way, want the one", n)
	}
	first := newStop()
	r.hold(first)
	<-first.in
	ctx, cancel := context.WithCancel(r.ctx())
	again := make(chan error, 1)
	r.bg.Go(func() {
		_, err := r.l.Commit(ctx, []ledger.Op{op})
		again <- err
	})
	waitFor(t, func() bool { return r.backlog() == 1 })
	cancel()
	var gone *ledger.UnavailableError
	if err := <-again; !errors.As(err, &gone) || !gone.Unknown {
		t.Errorf("the retry: %v, want that it is not known", err)
	}
	close(first.out)
}

// A request finds its key in progress, waits for that command, and then cannot be queued. It
// reports an unknown outcome although the command has ended.
func TestStrayThatWasApplied(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	op := keyed(issue("alice", 1, 1), "k")
	early, err := r.l.Prepare(r.ctx(), &op) // before the op is applied, so its key is not known
	if err != nil || early.Known != nil {
		t.Fatalf("%+v, %v", early, err)
	}
	second := r.strayed(op)
	close(second.out)
	waitFor(t, func() bool { return r.l.Strays() == 0 })
	first := newStop()
	r.hold(first)
	<-first.in
	again := func() *ledger.UnavailableError {
		ctx, cancel := context.WithCancel(r.ctx())
		answer := make(chan error, 1)
		r.bg.Go(func() {
			pending, err := r.l.Submit(ctx, []*ledger.Prepared{early})
			if err == nil {
				_, err = pending.Wait(ctx)
			}
			answer <- err
		})
		waitFor(t, func() bool { return r.backlog() == 1 })
		cancel()
		var gone *ledger.UnavailableError
		if err := <-answer; !errors.As(err, &gone) {
			t.Fatalf("again: %v", err)
		}
		return gone
	}
	if gone := again(); !gone.Unknown {
		t.Errorf("just after: %v, want that it is not known", gone)
	}
	close(first.out)
}
