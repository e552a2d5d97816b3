package wallet

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/engines/ledger"
)

// Whatever comes early, in batches, twice, from callers who leave, while the settings change and the ledger fails: everybody is answered in time,
// each nonce is used once, and nothing is left.
func TestEarlyMix(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type step struct {
			nonce, n int // a batch of n, a single request if n is 0
			leaves   time.Duration
			reload   func(*Config)
			pause    time.Duration
			fails    bool
		}
		var steps []step
		for range rapid.IntRange(1, 60).Draw(rt, "steps") {
			s := step{
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
		workers, most := rapid.IntRange(1, 4).Draw(rt, "workers"), rapid.IntRange(1, 9).Draw(rt, "burst")
		slow, drain := time.Duration(rapid.IntRange(0, 9).Draw(rt, "slow"))*time.Millisecond, rapid.Bool().Draw(rt, "drain")
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			failing := 0
			r := newRig(t, with(func(c *Config) { c.Workers, c.WorkerBurst, c.CircuitBreaker.FailureThreshold = workers, most, 1_000_000 }),
				commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					time.Sleep(slow)
					mu.Lock()
					fails := failing > 0
					failing = max(failing-1, 0)
					mu.Unlock()
					if fails {
						return nil, unavailable(true)
					}
					return next.Commit(ctx, ops)
				})).start()
			r.fund("alice", 1000)
			var wg sync.WaitGroup
			paid, used := 0, map[uint64]int{}
			for i, s := range steps {
				if s.fails {
					mu.Lock()
					failing += 3
					mu.Unlock()
				}
				if s.reload != nil {
					cfg := r.cfg
					s.reload(&cfg)
					r.e.Reload(cfg)
				}
				wg.Go(func() {
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
						_, _ = r.e.Batch(ctx, alice, fmt.Sprint("k", i), "", i%2 == 0, ops)
					} else if a, err := r.e.Post(ctx, alice, fmt.Sprint("k", i), "", transfer("alice", "shop", 1, uint64(s.nonce))); err == nil {
						mu.Lock()
						paid++
						used[parse(t, a.Body).Nonce]++
						mu.Unlock()
					}
					if took := time.Since(began); took > 3*time.Second {
						t.Errorf("step %d: answered after %s", i, took)
					}
				})
				time.Sleep(s.pause)
				synctest.Wait()
			}
			if drain {
				r.stop()
			}
			wg.Wait()
			time.Sleep(10 * time.Second)
			for nonce, n := range used {
				if n > 1 {
					t.Errorf("nonce %d: used %d times", nonce, n)
				}
			}
			if !drain {
				if v, err := r.model.Balance(context.Background(), "shop", "ron", 0); err != nil || v.Available.Cmp(amountOf(uint64(paid))) < 0 {
					t.Errorf("the shop has %s of %d, %v", v.Available, paid, err)
				}
				if n := len(r.e.turn.free) + held(r.e.turn); n != 1 {
					t.Errorf("%d turns", n)
				}
			}
			r.nothingLeft()
			r.stop()
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}
