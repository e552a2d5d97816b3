package ledger_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/store"
)

// crowd is callers that come while the committer is held: each has a share in the command that waits.
type crowd struct {
	*rig
	held *stop
	outs []ledger.Outcome
	errs []error
}

func newCrowd(t *testing.T, n int) *crowd {
	c := &crowd{rig: newRig(t, nil).declare("ron"), held: newStop(), outs: make([]ledger.Outcome, n), errs: make([]error, n)}
	for i := range n {
		c.accept(issue(fmt.Sprint("user", i), 10, uint64(i+1)))
	}
	c.hold(c.held)
	<-c.held.in
	return c
}

// pay has caller i pay n, and returns once his op waits.
func (c *crowd) pay(ctx context.Context, i int, n uint64) {
	before := c.l.Waiting()
	c.bg.Go(func() {
		outs, err := c.l.Commit(ctx, []ledger.Op{transfer(fmt.Sprint("user", i), "shop", n, 1)})
		if c.errs[i] = err; err == nil {
			c.outs[i] = outs[0]
		}
	})
	waitFor(c.t, func() bool { return c.l.Waiting() == before+1 })
}

// settle lets the committer go on and waits for everyone.
func (c *crowd) settle() {
	close(c.held.out)
	c.bg.Wait()
}

// Callers that come while the committer is busy share a command, hence a batch, and each has the outcome of his own op. Who leaves before its
// turn, were it the one who opened it, has nothing done, and the others do not notice.
func TestSharedCommand(t *testing.T) {
	const callers = 9
	c := newCrowd(t, callers)
	ctx, cancel := context.WithCancel(c.ctx())
	for i := range callers {
		switch i {
		case 0, 4:
			c.pay(ctx, i, 1)
		case 6:
			c.pay(c.ctx(), i, 11) // more than there is
		default:
			c.pay(c.ctx(), i, uint64(i))
		}
	}
	head, err := c.l.Head(c.ctx())
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	waitFor(t, func() bool { return c.l.Calls() == callers-2 })
	c.settle()
	paid := uint64(0)
	for i := range callers {
		out, err := c.outs[i], c.errs[i]
		var gone *ledger.UnavailableError
		switch {
		case i == 0 || i == 4:
			if !errors.As(err, &gone) || gone.Unknown {
				t.Errorf("caller %d, who left: %v, want that nothing was done", i, err)
			}
		case i == 6:
			if err != nil || out.Reject == nil || out.Reject.Code != record.InsufficientFunds {
				t.Errorf("caller 6: %+v, %v, want insufficient_funds", out, err)
			}
		case err != nil || out.Reject != nil:
			t.Errorf("caller %d: %+v, %v", i, out, err)
		default:
			paid += uint64(i)
			if rec := out.Receipt; rec.Amount != amount(uint64(i)) || rec.From != fmt.Sprint("user", i) || rec.Batch != head.Batches+1 {
				t.Errorf("caller %d: %+v, want batch %d", i, rec, head.Batches+1)
			}
			if tx, err := c.l.Tx(c.ctx(), out.Receipt.TxID); err != nil || receipts(tx) != receipts(out) {
				t.Errorf("caller %d: by its id: %s, %v", i, receipts(tx), err)
			}
		}
	}
	if b, err := c.l.Balance(c.ctx(), "shop", "ron", 0); err != nil || b.Posted != amount(paid) {
		t.Errorf("the shop has %v, %v, want %d", b.Posted, err, paid)
	}
	if n := c.l.Pending(); n != 0 {
		t.Errorf("%d ops are pending", n)
	}
	c.verify()
}

// A bug in one op of a command refuses that op alone.
func TestSharedBug(t *testing.T) {
	const callers = 5
	c := newCrowd(t, callers)
	var bug error
	for i := range callers {
		if i == 2 {
			c.bg.Go(func() { bug = c.l.CommitBug(c.ctx(), transfer("user2", "shop", 1, 1)) })
			waitFor(t, func() bool { return c.l.Waiting() == 3 })
			continue
		}
		c.pay(c.ctx(), i, 1)
	}
	c.settle()
	if !errors.Is(bug, store.ErrInternal) {
		t.Errorf("the bug: %v, want ErrInternal", bug)
	}
	for i := range callers {
		if i != 2 && (c.errs[i] != nil || c.outs[i].Reject != nil) {
			t.Errorf("caller %d: %+v, %v", i, c.outs[i], c.errs[i])
		}
	}
	if b, err := c.l.Balance(c.ctx(), "shop", "ron", 0); err != nil || b.Posted != amount(callers-1) {
		t.Errorf("the shop has %v, %v", b.Posted, err)
	}
	c.verify()
}

// Who asks again alone, since the op of another has failed the command, and leaves, is told how that ended when he comes back.
func TestSharedBugLeft(t *testing.T) {
	c := newCrowd(t, 2)
	op := keyed(transfer("user0", "shop", 11, 1), "k") // more than there is
	ctx, cancel := context.WithCancel(c.ctx())
	gone := make(chan error, 1)
	c.bg.Go(func() {
		_, err := c.l.Commit(ctx, []ledger.Op{op})
		gone <- err
	})
	waitFor(t, func() bool { return c.l.Waiting() == 1 })
	c.bg.Go(func() { _ = c.l.CommitBug(c.ctx(), transfer("user1", "shop", 1, 1)) })
	waitFor(t, func() bool { return c.l.Waiting() == 2 })
	apart, together := newStop(), newStop()
	cfg := store.DefaultConfig()
	cfg.GroupMax = 1
	c.store.SetConfig(cfg)
	c.hold(apart)
	waitFor(t, func() bool { return c.backlog() == 2 })
	close(c.held.out)
	<-apart.in
	waitFor(t, func() bool { return c.backlog() == 2 }) // both have asked again
	c.store.SetConfig(store.DefaultConfig())
	c.hold(together)
	waitFor(t, func() bool { return c.backlog() == 3 })
	close(apart.out)
	<-together.in
	cancel()
	var left *ledger.UnavailableError
	if err := <-gone; !errors.As(err, &left) || !left.Unknown {
		t.Errorf("who left: %v, want that it is not known", err)
	}
	if n := c.l.Pending(); n != 1 {
		t.Errorf("%d calls are pending, want the one", n)
	}
	c.bg.Go(func() { c.accept(issue("user0", 1, 3)) }) // were the op done anew behind it, there would be enough
	waitFor(t, func() bool { return c.l.Waiting() == 1 })
	back := make(chan ledger.Outcome, 1)
	c.bg.Go(func() {
		outs, err := c.l.Commit(c.ctx(), []ledger.Op{op})
		if err != nil {
			t.Error(err)
			outs = make([]ledger.Outcome, 1)
		}
		back <- outs[0]
	})
	waitFor(t, func() bool { return c.backlog() == 2 || c.l.Waiting() == 2 })
	close(together.out)
	c.bg.Wait()
	if out := <-back; out.Reject == nil || out.Reject.Code != record.InsufficientFunds {
		t.Errorf("%+v, want insufficient_funds", out)
	}
	if n := c.l.Pending(); n != 0 {
		t.Errorf("%d calls are pending", n)
	}
}

// A command takes no more ops than it may, and who finds it full opens the next one. Ops in a batch count.
func TestSharedBound(t *testing.T) {
	flags := func(n int) (ops []ledger.Op) {
		for i := range n {
			ops = append(ops, ledger.Op{Code: record.OpFlags, From: fmt.Sprint("new", i), Set: record.NoDebit})
		}
		return ops
	}
	t.Run("ops", func(t *testing.T) { bound(t, flags(500)) })
	t.Run("a batch", func(t *testing.T) { bound(t, []ledger.Op{{Code: record.OpBatch, Ops: flags(499)}}) })
}

func bound(t *testing.T, burst []ledger.Op) {
	c := newCrowd(t, 3)
	batches := make(chan uint64, 2)
	for range 2 {
		before := c.backlog()
		c.bg.Go(func() {
			outs, err := c.l.Commit(c.ctx(), burst)
			if err != nil {
				t.Error(err)
				return
			}
			if out := outs[0]; out.Batch {
				batches <- out.Results[0].Receipt.Batch
				return
			}
			batches <- outs[0].Receipt.Batch
		})
		waitFor(t, func() bool { return c.backlog() == before+1 && c.l.Waiting() == 500 })
	}
	for i := range 3 {
		c.pay(c.ctx(), i, 1)
	}
	c.settle()
	if a, b := <-batches, <-batches; a == b {
		t.Errorf("both bursts are in batch %d", a)
	}
	for i := range 3 {
		if c.errs[i] != nil || c.outs[i].Reject != nil {
			t.Errorf("caller %d: %+v, %v", i, c.outs[i], c.errs[i])
		}
	}
}

// An op that may or may not be in the file stays on its way: whoever asks again is told that it is not known.
func TestStrayUnknown(t *testing.T) {
	r := newRig(t, nil).declare("ron")
	r.l.StrayUnknown(keyed(issue("alice", 1, 1), "k"))
	if n := r.l.Pending(); n != 1 {
		t.Errorf("%d ops are pending, want the one", n)
	}
}
