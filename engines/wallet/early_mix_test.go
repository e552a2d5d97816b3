package wallet

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/ledger"
)

// mixStep is one thing that happens to a wallet.
type mixStep struct {
	nonce, n      int // a batch of n, a single request if n is 0
	leaves, pause time.Duration
	reload        func(*Config)
	fails         bool
}

func drawMix(rt *rapid.T) (steps []mixStep) {
	for range rapid.IntRange(1, 60).Draw(rt, "steps") {
		s := mixStep{
			nonce: rapid.IntRange(1, 25).Draw(rt, "nonce"), pause: time.Duration(rapid.IntRange(0, 30).Draw(rt, "pause")) * time.Millisecond,
			fails: rapid.IntRange(0, 9).Draw(rt, "fails") == 0,
		}
		switch rapid.IntRange(0, 9).Draw(rt, "kind") {
		case 0, 1:
			s.n = rapid.IntRange(1, 4).Draw(rt, "batch")
		case 2, 3:
			s.leaves = time.Duration(rapid.IntRange(1, 80).Draw(rt, "leaves")) * time.Millisecond
		case 4:
			wait, pipeline, mode := millis(rapid.IntRange(0, 200).Draw(rt, "wait")), rapid.IntRange(1, 9).Draw(rt, "pipeline"), NonceStrict
			if rapid.Bool().Draw(rt, "skip") {
				mode = NonceMonotonic
			}
			s.reload = func(c *Config) { c.NonceWait, c.NoncePipeline, c.NonceMode = wait, pipeline, mode }
		}
		steps = append(steps, s)
	}
	return steps
}

// mix is a wallet to which steps happen.
type mix struct {
	*rig
	all     sync.WaitGroup
	failing atomic.Int32 // calls of the ledger that fail next

	mu   sync.Mutex
	paid int
	used map[uint64]int // receipts by nonce
}

func newMix(t *testing.T, workers, most int, slow time.Duration) *mix {
	m := &mix{used: map[uint64]int{}}
	m.rig = newRig(t, with(func(c *Config) {
		c.Workers, c.WorkerBurst, c.CircuitBreaker.FailureThreshold = workers, most, 1_000_000
	}),
		commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
			time.Sleep(slow)
			if m.failing.Add(-1) >= 0 {
				return nil, unavailable(true)
			}
			return next.Commit(ctx, ops)
		})).start()
	m.fund("alice", 1000)
	return m
}

// ask makes the request of the i-th step, to its answer.
func (m *mix) ask(i int, s mixStep) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if s.leaves > 0 {
		defer time.AfterFunc(s.leaves, cancel).Stop()
	}
	began := time.Now()
	if s.n > 0 {
		var ops []Request
		for k := range s.n {
			ops = append(ops, transfer("alice", "shop", 1, uint64(s.nonce+k)))
		}
		_, _ = m.e.Batch(ctx, alice, fmt.Sprint("k", i), "", i%2 == 0, ops)
	} else if a, err := m.e.Post(ctx, alice, fmt.Sprint("k", i), "", transfer("alice", "shop", 1, uint64(s.nonce))); err == nil {
		m.mu.Lock()
		m.paid++
		m.used[parse(m.t, a.bytes()).Nonce]++
		m.mu.Unlock()
	}
	if took := time.Since(began); took > 3*time.Second {
		m.t.Errorf("step %d: answered after %s", i, took)
	}
}

func (m *mix) do(i int, s mixStep) {
	if s.fails {
		m.failing.Store(3)
	}
	if s.reload != nil {
		cfg := m.cfg
		s.reload(&cfg)
		m.e.Reload(cfg)
	}
	m.all.Go(func() { m.ask(i, s) })
	time.Sleep(s.pause)
	synctest.Wait()
}

// check holds what was told against the ledger, once all is over.
func (m *mix) check(drained bool) {
	for nonce, n := range m.used {
		if n > 1 {
			m.t.Errorf("nonce %d: used %d times", nonce, n)
		}
	}
	m.nothingLeft()
	if drained {
		return
	}
	if v, err := m.model.Balance(context.Background(), "shop", "ron", 0); err != nil || v.Available.Cmp(amountOf(uint64(m.paid))) < 0 {
		m.t.Errorf("the shop has %s of %d, %v", v.Available, m.paid, err)
	}
	if n := len(m.e.turn.free) + held(m.e.turn); n != 1 {
		m.t.Errorf("%d turns", n)
	}
}

// Whatever comes early, in batches, twice, from callers who leave, while the settings change and the ledger fails: everybody is answered in time,
// each nonce is used once, and nothing is left.
func TestEarlyMix(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		steps := drawMix(rt)
		workers, most := rapid.IntRange(1, 4).Draw(rt, "workers"), rapid.IntRange(1, 9).Draw(rt, "burst")
		slow, drain := time.Duration(rapid.IntRange(0, 9).Draw(rt, "slow"))*time.Millisecond, rapid.Bool().Draw(rt, "drain")
		synctest.Test(t, func(t *testing.T) {
			m := newMix(t, workers, most, slow)
			for i, s := range steps {
				m.do(i, s)
			}
			if drain {
				m.stop()
			}
			m.all.Wait()
			time.Sleep(10 * time.Second)
			m.check(drain)
			m.stop()
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}
