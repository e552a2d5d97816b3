package wallet_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// mallory is the misbehaving client.
var mallory = engines.Actor{CapID: "cap-mallory", Principal: "mallory", Admin: true}

// disk commits after a delay of 10 ms, as a slow sync would.
func disk(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
	time.Sleep(10 * time.Millisecond)
	return next.Commit(ctx, ops)
}

// One client cannot delay another, even at the full rate and with the maximum number of concurrent
// requests. The other client's payments wait only for a sync or two.
func TestNobodyIsKeptFromPaying(t *testing.T) {
	const most = 250 * time.Millisecond
	narrow := grant(func(g *engines.Grant) { g.NarrowAccount("mallory") })
	hour := time.Hour
	for doc, tt := range map[string]struct {
		within time.Duration // deadline of each of mallory's requests
		post   func(ctx context.Context, r *rig, hold record.TxID, n int) error
	}{
		"requests that she does not wait for": {time.Millisecond, func(ctx context.Context, r *rig, _ record.TxID, n int) error {
			_, err := r.e.Post(ctx, mallory, "m"+name(n), "", transfer("mallory", "bo", 1, uint64(n+1)))
			return err
		}},
		"one key": {hour, func(ctx context.Context, r *rig, _ record.TxID, _ int) error {
			_, err := r.e.Post(ctx, mallory, "m", "", transfer("mallory", "bo", 1, 1))
			return err
		}},
		"nonces far ahead": {hour, func(ctx context.Context, r *rig, _ record.TxID, n int) error {
			_, err := r.e.Post(ctx, mallory, "m"+name(n), "", transfer(name(n%500), "bo", 1, 60))
			return err
		}},
		"batches": {hour, func(ctx context.Context, r *rig, _ record.TxID, n int) error {
			ops := make([]ledger.Op, 16)
			for i := range ops {
				ops[i] = transfer("mallory", "bo", 1, uint64(16*n+i+1))
			}
			_, err := r.e.Batch(ctx, mallory, "m"+name(n), "", false, ops)
			return err
		}},
		"holds": {hour, func(ctx context.Context, r *rig, _ record.TxID, n int) error {
			q := ledger.Op{Code: record.OpHold, From: "mallory", To: "bo", Asset: "ron", Amount: amountOf(1), Nonce: uint64(n + 1), ExpiresIn: time.Hour}
			_, err := r.e.Post(ctx, mallory, "m"+name(n), "", q)
			return err
		}},
		"captures of what others hold": {hour, func(ctx context.Context, r *rig, hold record.TxID, n int) error {
			_, err := r.e.Post(ctx, narrow, "m"+name(n), "", ledger.Op{Code: record.OpCapture, Hold: hold})
			if reasonOf(err) != "hold_unknown" {
				t.Errorf("a capture: %v", err)
			}
			return err
		}},
		"records that never come": {hour, func(ctx context.Context, r *rig, _ record.TxID, _ int) error {
			_, err := r.e.Balance(ctx, mallory, "bo", "ron", 1<<40)
			return err
		}},
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, commits(disk),
				with(func(c *wallet.Config) { c.BatchMaxOps, c.BatchInflightOps = 16, 64 })).start()
			r.fund("mallory", 1_000_000)
			r.fund("carol", 1000)
			hold := r.must("hold", ledger.Op{Code: record.OpHold, From: "carol", To: "dora", Asset: "ron", Amount: amountOf(1), Nonce: 1, ExpiresIn: time.Hour}).
				id(t)
			var hers sync.WaitGroup
			flood := func(first, n int) {
				for i := range n {
					hers.Go(func() {
						ctx, cancel := context.WithTimeout(context.Background(), tt.within)
						defer cancel()
						_ = tt.post(ctx, r, hold, first+i)
					})
				}
			}
			flood(0, 400) // and then 1000 per second
			for n := range 50 {
				flood(400+20*n, 20)
				began := time.Now()
				_, err := r.e.Post(context.Background(), alice, "carol"+name(n), "",
					transfer("carol", "dora", 1, uint64(n+2)))
				if took := time.Since(began); err != nil || took > most {
					t.Errorf("%s: payment %d: %v after %s", doc, n, err, took)
				}
				time.Sleep(20 * time.Millisecond)
			}
			hers.Wait()
			synctest.Wait()
			r.nothingLeft()
			r.stop()
		})
	}
}

// If one key is sent ten thousand times at once, the ledger gets one op. Eight requests wait for
// its result, and the others are refused immediately with idem_in_flight.
func TestOneKeyTenThousandTimes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := newRig(
			t,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				calls += len(ops)
				return disk(ctx, next, ops)
			}),
		).start()
		r.fund("mallory", 100)
		const times = 10_000
		told := make(chan string, times)
		began := time.Now()
		for range times {
			go func() {
				_, err := r.e.Post(context.Background(), mallory, "m", "", transfer("mallory", "bo", 1, 1))
				told <- reasonOf(err)
			}()
		}
		synctest.Wait()
		if len(told) != times-1-wallet.FlightWaiters || r.e.Work().Len() != 0 || time.Since(began) != 0 {
			t.Errorf("%d told at once, %d jobs queued", len(told), r.e.Work().Len())
		}
		codes := map[string]int{}
		for range times {
			codes[<-told]++
		}
		if codes[""] != 1+wallet.FlightWaiters || codes["idem_in_flight"] != times-1-wallet.FlightWaiters || calls != 1 {
			t.Errorf("%v, %d ops", codes, calls)
		}
		synctest.Wait()
		r.nothingLeft()
		r.stop()
	})
}

// A client with the maximum number of batches in flight leaves room for a batch of the maximum size
// from another client. The room is released after the batches finish.
func TestBatchesOfOneLeaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(
			t,
			with(func(c *wallet.Config) { c.BatchMaxOps, c.BatchInflightOps = 10, 40 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-gate
				return next.Commit(ctx, ops)
			}),
		).start()
		batch := func(by engines.Actor, key string) error {
			ops := make([]ledger.Op, 10)
			for i := range ops {
				ops[i] = transfer(by.Principal, "bo", 1, uint64(i+1))
			}
			_, err := r.e.Batch(context.Background(), by, key, "", false, ops)
			return err
		}
		var all sync.WaitGroup
		begin := func(by engines.Actor, key string) {
			all.Go(func() {
				if err := batch(by, key); err != nil {
					t.Errorf("%s: %v", key, err)
				}
			})
			synctest.Wait()
		}
		for n := range 3 {
			begin(mallory, name(n))
		}
		if err := batch(mallory, "one-more"); !errors.Is(err, flow.ErrBusy) {
			t.Errorf("one more: %v", err)
		}
		begin(alice, "another")
		if err := batch(alice, "beyond-all"); !errors.Is(err, flow.ErrBusy) {
			t.Errorf("beyond all: %v", err)
		}
		close(gate)
		all.Wait()
		synctest.Wait()
		if n, clients := r.e.Batched().Used(); n != 0 || clients != 0 {
			t.Errorf("%d places are not given back, of %d clients", n, clients)
		}
		r.stop()
	})
}

// At most a quarter of the in-flight slots can wait for future records. A further reader is refused
// immediately with a BehindError.
func TestWaitsForRecordsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, with(func(c *wallet.Config) { c.Limits.MaxInflight = 600 })).start()
		r.fund("alice", 100)
		const places = 150
		ask := func() (took time.Duration) {
			began := time.Now()
			var behind *wallet.BehindError
			if _, err := r.balance("alice", 1<<40); !errors.As(err, &behind) || behind.Want != 1<<40 {
				t.Errorf("%v", err)
			}
			return time.Since(began)
		}
		var all sync.WaitGroup
		for range places {
			all.Go(func() {
				if took := ask(); took != time.Second {
					t.Errorf("told after %s", took)
				}
			})
		}
		synctest.Wait()
		if took := ask(); took != 0 {
			t.Errorf("one too many waits %s", took)
		}
		all.Wait()
		if took := ask(); took != time.Second || r.e.Awaiting().Load() != 0 {
			t.Errorf("after them one waits %s; %d places are taken", took, r.e.Awaiting().Load())
		}
		r.stop()
	})
}
