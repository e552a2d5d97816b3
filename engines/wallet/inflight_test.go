package wallet_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/ledger/record"
	"ronbox/engines/wallet"
)

// In-flight requests are counted by operation from admission to answer. Requests refused because of
// the bound are not counted. After all answers the count is zero.
func TestInflightAtItsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := newRig(
			t,
			with(func(c *wallet.Config) { c.Workers, c.WorkerBurst = 1, 1 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-gate
				return next.Commit(ctx, ops)
			}),
		).start()
		const places = wallet.WorkCap + 1 // the queue, and the request that the worker holds
		r.fund("alice", 2*places)
		counts := func(transfers, batches, burns float64) {
			t.Helper()
			for op, want := range map[record.Op]float64{record.OpTransfer: transfers, record.OpBatch: batches, record.OpBurn: burns, record.OpIssue: 0} {
				r.want(want, "wallet_inflight", "service", wallet.Service, "op", op.String())
			}
			r.want(transfers+batches+burns, "wallet_inflight", "service", wallet.Service)
		}
		answers := make(chan error, places)
		for i := range places {
			q := transfer("alice", "bo", 1, uint64(i+1))
			go func() {
				var err error
				switch i % 3 {
				case 0:
					_, err = r.post("t"+name(i), q)
				case 1:
					_, err = r.e.Batch(context.Background(), alice, "b"+name(i), "", true, []ledger.Op{q})
				default:
					q.Code, q.To = record.OpBurn, ""
					_, err = r.post("u"+name(i), q)
				}
				answers <- err
			}()
			synctest.Wait()
		}
		counts(places/3, places/3, places/3)
		for i := range 5 {
			if _, err := r.post("over"+name(i), transfer("alice", "bo", 1, 1)); !errors.Is(err, flow.ErrBusy) {
				t.Errorf("beyond the bound: %v", err)
			}
		}
		counts(places/3, places/3, places/3)
		close(gate)
		for range places {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		counts(0, 0, 0)
		r.want(places/3+5, "wallet_requests_total", "op", "transfer")
		synctest.Wait()
		r.nothingLeft()
		r.stop()
	})
}
