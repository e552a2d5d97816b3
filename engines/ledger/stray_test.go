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

// stop is a command that holds the committer until it is let go.
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

// A caller whose deadline passes while the committer has his op does not know how it ended; the same call again waits for it, and queues
// nothing.
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
	waitFor(t, func() bool { return r.l.Pending() == 1 })
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
	if len(outs) != 1 || outs[0].Reject != nil || outs[0].Replayed {
		t.Fatalf("the retry got %+v, want the outcome of the first call", outs)
	}
	if r.l.Pending() != 0 {
		t.Errorf("%d ops are still pending", r.l.Pending())
	}
	if again := r.accept(op); receipts(again[0]) != receipts(outs[0]) || !again[0].Replayed {
		t.Errorf("asked once more: %+v", again[0])
	}
	if b, err := r.l.Balance(r.ctx(), "bob", "ron", 0); err != nil || b.Posted != amount(7) {
		t.Errorf("bob has %v, %v", b.Posted, err)
	}
}

// backlog is how many commands wait in the lane of work.
func (r *rig) backlog() int {
	for _, c := range r.catalog.Channels() {
		if c.Service == "store" && c.Name == "work" {
			return c.Len
		}
	}
	return -1
}

// waitFor lets others run until ok is true.
func waitFor(t testing.TB, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("it does not happen")
		}
	}
}
