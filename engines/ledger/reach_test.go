package ledger_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// waitingContext counts the first call of Done, which marks the start of a wait.
type waitingContext struct {
	context.Context
	once    sync.Once
	waiting *atomic.Int64
}

// Done counts its first call.
func (c *waitingContext) Done() <-chan struct{} {
	c.once.Do(func() { c.waiting.Add(1) })
	return c.Context.Done()
}

// The committer wakes only one of the readers that wait for a record, and that reader wakes the
// others. If it leaves, another takes its place.
func TestReadersWaitTogether(t *testing.T) {
	const readers = 200
	r := newRig(t, nil).declare("ron")
	r.accept(issue("alice", 1, 1))
	head, err := r.l.Head(r.ctx())
	if err != nil {
		t.Fatal(err)
	}
	var waiting atomic.Int64
	type ended struct {
		reader int
		err    error
	}
	out := make(chan ended, readers)
	leave := make([]context.CancelFunc, readers)
	begin := func(i int) {
		ctx, cancel := context.WithCancel(r.ctx())
		leave[i] = cancel
		t.Cleanup(cancel)
		go func() {
			b, err := r.l.Balance(&waitingContext{Context: ctx, waiting: &waiting}, "alice", "ron", head.Seq+2)
			if err == nil && b.Seq < head.Seq+2 {
				err = errors.New("too early")
			}
			out <- ended{i, err}
		}()
		for end := time.Now().Add(time.Minute); waiting.Load() <= int64(i); time.Sleep(50 * time.Microsecond) {
			if time.Now().After(end) {
				t.Fatalf("reader %d does not wait", i)
			}
		}
	}
	for i := range readers {
		begin(i)
	}
	if n := r.readers.Load(); n != 1 {
		t.Errorf("%d readers wait with %d subscriptions, want 1", readers, n)
	}
	r.accept(issue("alice", 1, 2)) // not far enough for anyone
	for i := range readers / 2 {   // the one that follows is among them
		leave[i]()
		if e := <-out; e.reader != i || !errors.Is(e.err, context.Canceled) {
			t.Fatalf("reader %d has left: %+v", i, e)
		}
	}
	r.accept(issue("alice", 1, 3))
	for range readers / 2 {
		select {
		case e := <-out:
			if e.err != nil || e.reader < readers/2 {
				t.Fatalf("%+v", e)
			}
		case <-time.After(time.Minute):
			t.Fatal("a reader still waits")
		}
	}
}
