package wallet_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// nothingLeft fails the test if a request is in flight or a batch still has slots reserved.
func (r *rig) nothingLeft() {
	r.t.Helper()
	places, _ := r.e.Batched().Used()
	if flights := r.e.Flights(); flights != 0 || places != 0 {
		r.t.Errorf("%d flights and %d places of batches are left", flights, places)
	}
}

// Of concurrent requests with the same account and nonce, exactly one succeeds, for any assignment
// to workers.
func TestOneSuccessANonce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, commits(disk), with(func(c *wallet.Config) { c.Workers, c.WorkerBurst = 8, 4 })).start()
		const rounds, rivals = 50, 8
		r.fund("alice", rounds)
		for round := range rounds {
			var won, reused atomic.Int32
			done := make(chan struct{}, rivals)
			for i := range rivals {
				go func() {
					_, err := r.post(name(round)+"-"+name(i), transfer("alice", "bo", 1, uint64(round+1)))
					switch {
					case err == nil:
						won.Add(1)
					case wallet.ReasonOf(err) == "nonce_reused":
						reused.Add(1)
					default:
						t.Errorf("round %d: %v", round, err)
					}
					done <- struct{}{}
				}()
			}
			for range rivals {
				<-done
			}
			if won.Load() != 1 || reused.Load() != rivals-1 {
				t.Fatalf("round %d: %d successes, %d refusals", round, won.Load(), reused.Load())
			}
		}
		r.nothingLeft()
		r.stop()
	})
}

// Consecutive nonces queued in order are all accepted: in one burst, in the bursts of several
// workers, and in batches as heavy as a burst.
func TestNoncesInQueueOrder(t *testing.T) {
	for doc, cfg := range map[string]func(*wallet.Config){
		"one burst":     func(c *wallet.Config) { c.Workers = 1 },
		"small bursts":  func(c *wallet.Config) { c.Workers, c.WorkerBurst = 4, 3 },
		"heavy batches": func(c *wallet.Config) { c.Workers, c.WorkerBurst = 4, 1 },
	} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, over(func(c ledger.Client) ledger.Client { return queued{c} }), with(cfg)).start()
			const n = 60
			r.fund("alice", 10*n)
			answers := make(chan error, n)
			nonce := uint64(1)
			for i := range n {
				first := nonce
				if i%3 == 2 {
					nonce++
				}
				nonce++
				go func() {
					if i%3 != 2 {
						_, err := r.post("k"+name(i), transfer("alice", "bo", 1, first))
						answers <- err
						return
					}
					ops := []ledger.Op{transfer("alice", "bo", 1, first), transfer("alice", "bo", 1, first+1)}
					_, err := r.e.Batch(context.Background(), alice, "k"+name(i), "", true, ops)
					answers <- err
				}()
				synctest.Wait()
			}
			for range n {
				if err := <-answers; err != nil {
					t.Errorf("%s: %v", doc, err)
				}
			}
			r.stop()
		})
	}
}

// queued is a ledger that applies ops in the order of submission and takes 10 ms to sync.
type queued struct{ ledger.Client }

func (q queued) Submit(ctx context.Context, ops []*ledger.Prepared) (ledger.Pending, error) {
	sent, err := q.Client.Submit(ctx, ops)
	if err != nil {
		return nil, err
	}
	return pendingFunc(func(ctx context.Context) ([]ledger.Outcome, error) {
		time.Sleep(10 * time.Millisecond)
		return sent.Wait(ctx)
	}), nil
}

// A nonce gap is refused immediately. A refused nonce makes the next queued nonce a gap. The
// refusal names the nonce that the ledger expects.
func TestNonceGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(t, with(func(c *wallet.Config) { c.Workers = 1 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-gate
				return next.Commit(ctx, ops)
			})).start()
		r.fund("alice", 10)
		type asked struct {
			q      ledger.Op
			reason string
		}
		all := []asked{
			{transfer("alice", "bo", 1, 1), ""},
			{transfer("alice", "bo", 1, 3), "nonce_gap"},
			{transfer("alice", "bo", 100, 2), "insufficient_funds"},
			{transfer("alice", "bo", 1, 3), "nonce_gap"},
			{transfer("alice", "bo", 1, 2), ""},
			{transfer("alice", "bo", 1, 0), ""}, // assigned nonce 3
			{transfer("alice", "bo", 1, 4), ""},
			{transfer("alice", "bo", 1, 4), "nonce_reused"},
		}
		answers := make([]chan error, len(all))
		for i, one := range all {
			answers[i] = make(chan error, 1)
			go func() {
				_, err := r.post("k"+name(i), one.q)
				answers[i] <- err
			}()
			synctest.Wait()
		}
		close(gate)
		for i, one := range all {
			got := ""
			if err := <-answers[i]; err != nil {
				got = wallet.ReasonOf(err)
			}
			if got != one.reason {
				t.Errorf("request %d: %q, want %q", i, got, one.reason)
			}
		}
		r.stop()
	})
}

// A reference identifies one op permanently. The same op under another key returns the first
// receipt, and a different op is refused. Each op of a batch has its own reference.
func TestReference(t *testing.T) {
	r := newRig(t).start()
	r.fund("alice", 100)
	q := transfer("alice", "bo", 10, 0)
	q.Reference = "march/7"
	first := r.must("one", q)
	again, err := r.post("two", q)
	if err != nil || !again.Replayed || parse(t, bytesOf(again)).TxID != first.TxID {
		t.Errorf("the same: %+v, %v", again, err)
	}
	other := q
	other.Amount = amountOf(11)
	if _, err := r.post("three", other); wallet.ReasonOf(err) != "reference_conflict" || rowOf(err).Status != 409 {
		t.Errorf("another: %v", err)
	}
	fresh := transfer("alice", "carol", 1, 0)
	fresh.Reference = "march/8"
	a, err := r.e.Batch(context.Background(), alice, "four", "", false, []ledger.Op{q, fresh, other})
	if err != nil || len(a.Results) != 3 || a.Results[0].Receipt.TxID != first.id(t) || a.Results[1].Reject != nil ||
		a.Results[2].Reject == nil {
		t.Errorf("a batch: %s, %v", bytesOf(a), err)
	}
	if bo, carol := r.available("bo"), r.available("carol"); bo != "10" || carol != "1" {
		t.Errorf("bo has %s, carol %s", bo, carol)
	}
}
