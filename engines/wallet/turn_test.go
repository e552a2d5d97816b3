package wallet_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// gated is a rig with a ledger that waits for a token before each commit and records the size of
// the commit.
type gated struct {
	*rig
	leave chan struct{} // one token per call
	mu    sync.Mutex
	sizes []int // number of ops of each call that has begun
	all   sync.WaitGroup
}

func newGated(t *testing.T, opts ...option) *gated {
	t.Helper()
	g := &gated{leave: make(chan struct{})}
	g.rig = newRig(
		t,
		append(opts, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			g.mu.Lock()
			g.sizes = append(g.sizes, len(ops))
			g.mu.Unlock()
			<-g.leave
			return next.Commit(ctx, ops)
		}))...).start()
	return g
}

// pay starts one payment from each of the accounts, and waits until each payment blocks.
func (g *gated) pay(accounts ...int) {
	for _, i := range accounts {
		g.fund(name(i), 10)
		g.all.Go(func() {
			if _, err := g.post("pay"+name(i), transfer(name(i), "shop", 1, 0)); err != nil {
				g.t.Errorf("%s: %v", name(i), err)
			}
		})
		synctest.Wait()
	}
}

// begun compares the sizes of the calls without their order, because workers released together may
// begin in any order.
func (g *gated) begun(want ...int) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Sort(g.sizes); !slices.Equal(g.sizes, slices.Sorted(slices.Values(want))) {
		g.t.Errorf("calls of %v ops, want %v", g.sizes, want)
	}
}

// While the ledger has a light burst, no other worker gathers a burst. Requests that arrive
// meanwhile form one burst, which is sent after the ledger answers.
func TestLightBurstsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t)
		g.pay(1, 2, 3, 4)
		g.begun(1)
		g.leave <- struct{}{}
		synctest.Wait()
		g.begun(1, 3)
		g.pay(5)
		g.begun(1, 3)
		close(g.leave)
		g.all.Wait()
		g.begun(1, 3, 1)
		g.stop()
	})
}

// Heavy bursts without nonces overlap, both full bursts of single requests and batches.
func TestHeavyBurstsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, with(func(c *wallet.Config) { c.Workers, c.WorkerBurst = 3, 2 }))
		g.fund("alice", 100)
		g.all.Go(func() {
			ops := []ledger.Op{transfer("alice", "shop", 1, 0), transfer("alice", "shop", 1, 0)}
			if _, err := g.e.Batch(context.Background(), alice, "batch", "", true, ops); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		g.pay(1, 2, 3, 4)
		g.begun(1, 1) // a batch alongside a light burst that has the turn
		g.leave <- struct{}{}
		g.leave <- struct{}{}
		synctest.Wait()
		g.begun(1, 1, 2, 1)
		close(g.leave)
		g.all.Wait()
		g.stop()
	})
}

// A worker stuck in a ledger call loses the turn, so that another worker tries the ledger.
func TestStalledCallLosesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, quick)
		g.pay(1, 2)
		g.begun(1)
		time.Sleep(g.stall + 2*wallet.WatchEvery)
		synctest.Wait()
		g.begun(1, 1)
		close(g.leave)
		g.all.Wait()
		time.Sleep(time.Second) // ready again
		g.pay(3)
		g.all.Wait()
		if g.e.Turns() != 1 {
			t.Error("the turn is lost, or is there twice")
		}
		g.stop()
	})
}

// A worker gives up the turn while it waits to retry, so that another worker tries the ledger.
func TestNoTurnBetweenTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := newRig(t, with(func(c *wallet.Config) { c.Retry.Base, c.Retry.Max, c.Retry.Jitter = seconds(2), seconds(2), 0 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if calls.Add(1) == 1 {
					return nil, unavailable(false)
				}
				return next.Commit(ctx, ops)
			})).start()
		r.fund("alice", 10)
		r.fund("carol", 10)
		again, first := make(chan error, 1), time.Now()
		go func() {
			_, err := r.post("again", transfer("alice", "bo", 1, 1))
			again <- err
		}()
		synctest.Wait()
		began := time.Now()
		r.must("k", transfer("carol", "shop", 1, 1))
		if took := time.Since(began); took != 0 {
			t.Errorf("carol waits %s for alice", took)
		}
		if err := <-again; err != nil || time.Since(first) != 2*time.Second {
			t.Errorf("alice: %v after %s", err, time.Since(first))
		}
		r.stop()
	})
}
