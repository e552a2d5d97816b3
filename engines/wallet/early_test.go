package wallet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/ledgertest"
	"ronbox/engines/ledger/record"
)

// heard is what a request that was sent by itself was told, and after how long.
type heard struct {
	code  string
	after time.Duration
	err   error
}

// send posts a transfer of alice's beside the caller, who goes on when it stands where it has to wait.
func (r *rig) send(ctx context.Context, nonce uint64) chan heard {
	out := make(chan heard, 1)
	began := time.Now()
	go func() {
		_, err := r.e.Post(ctx, alice, "n"+name(int(nonce)), "", transfer("alice", "bo", 1, nonce))
		out <- heard{code(err), time.Since(began), err}
	}()
	synctest.Wait()
	return out
}

// nothingLeft fails if a job has left something behind.
func (r *rig) nothingLeft() {
	r.t.Helper()
	if slots, early, flights := r.e.nonces.live.Load(), r.e.nonces.early.Load(), r.e.flights.Len(); slots != 0 || early != 0 || flights != 0 {
		r.t.Errorf("left: %d slots, %d early, %d flights", slots, early, flights)
	}
}

// What becomes of a nonce that comes before those it follows.
func TestEarly(t *testing.T) {
	bg := context.Background()
	for _, tt := range []struct {
		name string
		set  func(*Config)
		do   func(t *testing.T, r *rig)
	}{
		{"comes in time", nil, func(t *testing.T, r *rig) {
			two := r.send(bg, 2)
			time.Sleep(20 * time.Millisecond)
			one := r.send(bg, 1)
			if a, b := <-one, <-two; a.code != "" || b.code != "" || b.after != 20*time.Millisecond {
				t.Errorf("%+v, %+v", a, b)
			}
		}},
		{"never comes", nil, func(t *testing.T, r *rig) {
			got := <-r.send(bg, 2)
			var reject *ledger.Reject
			if !errors.As(got.err, &reject) || reject.Code != record.NonceGap || reject.Expected != 1 || !CodeOf(got.err).Retryable {
				t.Errorf("%v", got.err)
			}
			if wait := r.cfg.NonceWait.D(); got.after < wait || got.after > wait+watchEvery {
				t.Errorf("told after %s", got.after)
			}
			r.want(1, "wallet_nonce_conflicts_total", "service", service)
			if again := <-r.send(bg, 2); again.code != "NONCE_CONFLICT" {
				t.Errorf("again: %+v", again)
			}
		}},
		{"is told the number of now", nil, func(t *testing.T, r *rig) {
			three := r.send(bg, 3)
			<-r.send(bg, 1)
			var reject *ledger.Reject
			if got := <-three; !errors.As(got.err, &reject) || reject.Expected != 2 {
				t.Errorf("%v", got.err)
			}
		}},
		{"each has its own time", nil, func(t *testing.T, r *rig) {
			var all []chan heard
			for n := range uint64(10) {
				all = append(all, r.send(bg, 2+n))
			}
			for n, c := range all {
				if got := <-c; got.code != "NONCE_CONFLICT" || got.after > r.cfg.NonceWait.D()+watchEvery {
					t.Errorf("%d: %+v", n+2, got)
				}
			}
		}},
		{"in reverse", nil, func(t *testing.T, r *rig) {
			var all []chan heard
			for n := uint64(64); n >= 1; n-- {
				all = append(all, r.send(bg, n))
			}
			for n, c := range all {
				if got := <-c; got.code != "" || got.after != 0 {
					t.Errorf("%d: %+v", 64-n, got)
				}
			}
		}},
		{"too far ahead", func(c *Config) { c.NoncePipeline = 4 }, func(t *testing.T, r *rig) {
			if got := <-r.send(bg, 6); got.code != "NONCE_CONFLICT" || got.after != 0 {
				t.Errorf("6: %+v", got)
			}
			five := r.send(bg, 5)
			if got := <-r.send(bg, 6); got.code != "NONCE_CONFLICT" || got.after != 0 { // the slot knows now
				t.Errorf("6 behind 5: %+v", got)
			}
			if got := <-five; got.code != "NONCE_CONFLICT" || got.after == 0 {
				t.Errorf("5: %+v", got)
			}
		}},
		{"as many as may", func(c *Config) { c.NoncePipeline = 2 }, func(t *testing.T, r *rig) {
			three, another := r.send(bg, 3), r.sendAs(bg, "other", 3)
			if got := <-r.send(bg, 2); got.code != "NONCE_CONFLICT" || got.after != 0 {
				t.Errorf("one too many: %+v", got)
			}
			if a, b := <-three, <-another; a.after == 0 || b.after == 0 {
				t.Errorf("%+v, %+v", a, b)
			}
		}},
		{"two have it", nil, func(t *testing.T, r *rig) {
			two, other := r.send(bg, 2), r.sendAs(bg, "other", 2)
			one := <-r.send(bg, 1)
			codes := []string{one.code, (<-two).code, (<-other).code}
			if slices.Sort(codes); !slices.Equal(codes, []string{"", "", "NONCE_CONFLICT"}) {
				t.Errorf("%q", codes)
			}
		}},
		{"behind one that waits", nil, func(t *testing.T, r *rig) {
			four, two := r.send(bg, 4), r.send(bg, 2)
			three, one := r.send(bg, 3), r.send(bg, 1)
			for i, c := range []chan heard{one, two, three, four} {
				if got := <-c; got.code != "" || got.after != 0 {
					t.Errorf("%d: %+v", i+1, got)
				}
			}
		}},
		{"after a batch", nil, func(t *testing.T, r *rig) {
			four := r.send(bg, 4)
			ops := []Request{transfer("alice", "bo", 1, 1), transfer("alice", "bo", 1, 2), transfer("alice", "bo", 1, 3)}
			if _, err := r.e.Batch(bg, alice, "batch", "", true, ops); err != nil {
				t.Error(err)
			}
			if got := <-four; got.code != "" || got.after != 0 {
				t.Errorf("%+v", got)
			}
		}},
		{"after a batch that fills its burst", func(c *Config) { c.WorkerBurst = 1 }, func(t *testing.T, r *rig) {
			two := r.send(bg, 2)
			if _, err := r.e.Batch(bg, alice, "batch", "", true, []Request{transfer("alice", "bo", 1, 1)}); err != nil {
				t.Error(err)
			}
			if got := <-two; got.code != "" || got.after != 0 {
				t.Errorf("%+v", got)
			}
		}},
		{"the caller has no time", nil, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithTimeout(bg, 10*time.Millisecond)
			defer cancel()
			if got := <-r.send(ctx, 2); got.code != "NONCE_CONFLICT" || got.after != 0 { // before anybody would have looked
				t.Errorf("%+v", got)
			}
		}},
		{"the caller's time is short", func(c *Config) { c.NonceWait = seconds(1) }, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithTimeout(bg, 200*time.Millisecond)
			defer cancel()
			three, two := r.send(bg, 3), r.send(ctx, 2) // the slot knows now, so the ledger was not asked for 2
			if got := <-two; got.code != "NONCE_CONFLICT" || got.after > 100*time.Millisecond {
				t.Errorf("%+v", got)
			}
			<-three
		}},
		{"the caller leaves", nil, func(t *testing.T, r *rig) {
			ctx, cancel := context.WithCancel(bg)
			three, two := r.send(bg, 3), r.send(ctx, 2) // the slot knows now, so the ledger was not asked for 2
			cancel()
			if got := <-two; got.code != "RETRY_LATER" {
				t.Errorf("%+v", got)
			}
			if got := <-r.send(bg, 1); got.code != "" {
				t.Errorf("%+v", got)
			}
			if got := <-three; got.code != "NONCE_CONFLICT" {
				t.Errorf("%+v", got)
			}
		}},
		{"drain", nil, func(t *testing.T, r *rig) {
			two := r.send(bg, 2)
			r.catalog.CloseFedBy(service, flow.HTTP)
			if aborted := r.sup.Drain(service, time.Second, time.Second); aborted != 0 {
				t.Errorf("%d aborted", aborted)
			}
			if got := <-two; got.code != "NONCE_CONFLICT" || got.after != 0 {
				t.Errorf("%+v", got)
			}
		}},
		{"abort", nil, func(t *testing.T, r *rig) {
			two := r.send(bg, 2)
			r.sup.Close()
			if got := <-two; got.code != "RETRY_LATER" || got.after != 0 {
				t.Errorf("%+v", got)
			}
		}},
		{"reload to 0", func(c *Config) { c.NonceWait = seconds(1) }, func(t *testing.T, r *rig) {
			two := r.send(bg, 2)
			cfg := r.cfg
			cfg.NonceWait = 0
			r.e.Reload(cfg)
			if got := <-two; got.code != "NONCE_CONFLICT" || got.after > watchEvery {
				t.Errorf("%+v", got)
			}
			if got := <-r.send(bg, 2); got.code != "NONCE_CONFLICT" || got.after != 0 {
				t.Errorf("the next: %+v", got)
			}
		}},
		{"nonces may skip", func(c *Config) { c.NonceMode = NonceMonotonic }, func(t *testing.T, r *rig) {
			if got := <-r.send(bg, 2_000_000); got.code != "NONCE_CONFLICT" || got.after != 0 {
				t.Errorf("%+v", got)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, with(func(c *Config) {
					if tt.set != nil {
						tt.set(c)
					}
				})).start()
				r.fund("alice", 1000)
				tt.do(t, r)
				time.Sleep(2 * time.Second)
				r.nothingLeft()
				r.stop()
			})
		})
	}
}

// sendAs is send by another principal.
func (r *rig) sendAs(ctx context.Context, who string, nonce uint64) chan heard {
	out := make(chan heard, 1)
	began, by := time.Now(), alice
	by.Principal = who
	go func() {
		_, err := r.e.Post(ctx, by, "n"+name(int(nonce)), "", transfer("alice", "bo", 1, nonce))
		out <- heard{code(err), time.Since(began), err}
	}()
	synctest.Wait()
	return out
}

// In whatever order the nonces of some accounts come, within what may wait: all are done, in their order, each once, whatever the workers,
// their bursts, and the pace of the ledger.
func TestAnyOrderIsDone(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		accounts := rapid.IntRange(1, 3).Draw(rt, "accounts")
		var order []uint64 // account and nonce
		for a := range accounts {
			for n := range rapid.IntRange(1, 40).Draw(rt, "nonces") {
				order = append(order, uint64(a)<<32|uint64(n+1))
			}
		}
		order = rapid.Permutation(order).Draw(rt, "order")
		pause := time.Duration(rapid.IntRange(0, 2).Draw(rt, "pause")) * time.Millisecond
		slow := time.Duration(rapid.IntRange(0, 2).Draw(rt, "slow")) * time.Millisecond
		workers, most := rapid.IntRange(1, 4).Draw(rt, "workers"), rapid.IntRange(1, 20).Draw(rt, "burst")
		synctest.Test(t, func(t *testing.T) {
			var calls atomic.Int64
			r := newRig(t, with(func(c *Config) { c.Workers, c.WorkerBurst, c.NonceWait = workers, most, seconds(1) }),
				commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					calls.Add(1)
					time.Sleep(slow)
					return next.Commit(ctx, ops)
				})).start()
			var wg sync.WaitGroup
			for a := range accounts {
				r.fund(name(a), 1000)
			}
			for _, o := range order {
				from, nonce := name(int(o>>32)), o&(1<<32-1)
				wg.Go(func() {
					if _, err := r.post(fmt.Sprintf("%s-%d", from, nonce), transfer(from, "shop", 1, nonce)); err != nil {
						t.Errorf("%s, nonce %d: %v", from, nonce, err)
					}
				})
				time.Sleep(pause)
				synctest.Wait()
			}
			wg.Wait()
			if got := r.available("shop"); got != fmt.Sprint(len(order)) {
				t.Errorf("the shop has %s of %d", got, len(order))
			}
			if most := int64(3*len(order) + 3); calls.Load() > most {
				t.Errorf("%d calls of the ledger for %d requests", calls.Load(), len(order))
			}
			r.nothingLeft()
			r.stop()
		})
		if t.Failed() {
			rt.FailNow()
		}
	})
}

// Over a wire that stalls, loses, repeats and delays, each client's requests come in any order and are asked again until they are done: each is
// done once, by its own nonce.
func TestAnyOrderOverABadWire(t *testing.T) {
	t.Parallel()
	for seed := range uint64(fromEnv(t, "WALLET_SIM_SEEDS", few(30))) {
		synctest.Test(t, func(t *testing.T) {
			const requests, clients = 20, 3
			r := newRig(t, over(func(c ledger.Client) ledger.Client { return ledgertest.NewFaulty(c, ledgertest.Storm(seed)) })).start()
			d := rand.New(rand.NewPCG(seed, 0))
			var wg sync.WaitGroup
			for c := range clients {
				r.fund(name(c), requests)
				for _, i := range d.Perm(requests) {
					q, key := transfer(name(c), "shop", 1, uint64(i+1)), name(c)+name(i)
					pause := time.Duration(d.Int64N(int64(100 * time.Millisecond)))
					wg.Go(func() {
						time.Sleep(pause)
						a, err := r.post(key, q)
						for n := 0; err != nil && CodeOf(err).Retryable && n < 1000; n++ {
							time.Sleep(50 * time.Millisecond)
							a, err = r.post(key, q)
						}
						if err != nil || parse(t, a.bytes()).Nonce != q.Nonce {
							t.Errorf("seed %d: %s: %s, %v", seed, key, a.bytes(), err)
						}
					})
				}
			}
			wg.Wait()
			if got := r.available("shop"); got != fmt.Sprint(clients*requests) {
				t.Errorf("seed %d: the shop has %s", seed, got)
			}
			time.Sleep(2 * time.Second)
			r.nothingLeft()
			r.stop()
		})
		if t.Failed() {
			return
		}
	}
}
