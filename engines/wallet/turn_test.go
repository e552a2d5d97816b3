package wallet

import (
	"context"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
)

// gated is a rig whose ledger waits for leave before each call, and what it was called with.
type gated struct {
	*rig
	leave chan struct{} // one token a call
	mu    sync.Mutex
	sizes []int // ops of the calls begun
	all   sync.WaitGroup
}

func newGated(t *testing.T, opts ...option) *gated {
	t.Helper()
	g := &gated{leave: make(chan struct{})}
	g.rig = newRig(t, append(opts, commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
		g.mu.Lock()
		g.sizes = append(g.sizes, len(ops))
		g.mu.Unlock()
		<-g.leave
		return next.Commit(ctx, ops)
	}))...).start()
	return g
}

// pay has each of some accounts pay one, and waits until that stands where it has to wait.
func (g *gated) pay(accounts ...int) {
	for _, i := range accounts {
		g.fund(name(i), 10)
		g.all.Go(func() {
			if _, err := g.post("pay"+name(i), transfer(name(i), "shop", 1, 1)); err != nil {
				g.t.Errorf("%s: %v", name(i), err)
			}
		})
		synctest.Wait()
	}
}

// begun compares the calls without their order: workers that are let go at once may begin in any.
func (g *gated) begun(want ...int) {
	g.t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if slices.Sort(g.sizes); !slices.Equal(g.sizes, slices.Sorted(slices.Values(want))) {
		g.t.Errorf("calls of %v ops, want %v", g.sizes, want)
	}
}

// While the ledger has a light burst no other worker gathers, and what comes makes one burst. When the ledger has answered the next one goes.
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

// Heavy bursts overlap: full ones of single requests as well as batches.
func TestHeavyBurstsOverlap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, with(func(c *Config) { c.Workers, c.WorkerBurst = 3, 2 }))
		g.fund("alice", 100)
		g.all.Go(func() {
			ops := []Request{transfer("alice", "shop", 1, 1), transfer("alice", "shop", 1, 2)}
			if _, err := g.e.Batch(context.Background(), alice, "batch", "", true, ops); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		g.pay(1, 2, 3, 4)
		g.begun(1, 1) // a batch beside a light burst, which has the turn
		g.leave <- struct{}{}
		g.leave <- struct{}{}
		synctest.Wait()
		g.begun(1, 1, 2, 1)
		close(g.leave)
		g.all.Wait()
		g.stop()
	})
}

// Who is stuck in a call of the ledger loses the turn, so that the others find out for themselves.
func TestStalledCallLosesTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGated(t, quick)
		g.pay(1, 2)
		g.begun(1)
		time.Sleep(g.stall + 2*watchEvery)
		synctest.Wait()
		g.begun(1, 1)
		close(g.leave)
		g.all.Wait()
		time.Sleep(time.Second) // ready again
		g.pay(3)
		g.all.Wait()
		if len(g.e.turn.free)+held(g.e.turn) != 1 {
			t.Error("the turn is lost, or is there twice")
		}
		g.stop()
	})
}

// Who is to ask the ledger again has no turn while he waits for that: the others find out for themselves.
func TestNoTurnBetweenTries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := newRig(t, with(func(c *Config) { c.Retry.Base, c.Retry.Max, c.Retry.Jitter = seconds(2), seconds(2), 0 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if calls.Add(1) == 1 {
					return nil, unavailable(false)
				}
				return next.Commit(ctx, ops)
			})).start()
		r.fund("alice", 10)
		r.fund("carol", 10)
		again := r.send(context.Background(), 1)
		began := time.Now()
		r.must("k", transfer("carol", "shop", 1, 1))
		if took := time.Since(began); took != 0 {
			t.Errorf("carol waits %s for alice", took)
		}
		if got := <-again; got.code != "" || got.after != 2*time.Second {
			t.Errorf("alice: %+v", got)
		}
		r.stop()
	})
}

func held(t *turn) int {
	if t.who.Load() != nil {
		return 1
	}
	return 0
}

// However workers take, pass, and lose the turn, one has it at a time, and it is never lost.
func TestOneTurn(t *testing.T) {
	tn, workers := newTurn(), []*worker{{}, {}, {}, {}}
	var has sync.Mutex
	var wg sync.WaitGroup
	for _, w := range workers {
		wg.Go(func() {
			for range 1000 {
				if err := tn.take(context.Background(), w); err != nil {
					t.Error(err)
					return
				}
				if !has.TryLock() {
					t.Error("two have it")
					return
				}
				runtime.Gosched()
				has.Unlock()
				tn.pass(w)
				tn.pass(w)
			}
		})
	}
	wg.Wait()
	for range 4000 {
		tn.revoke()
	}
	if len(tn.free) != 1 {
		t.Error("it is lost")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	<-tn.free
	if tn.take(ctx, workers[0]) == nil || tn.who.Load() != nil {
		t.Error("taken by one who is told to stop")
	}
}
