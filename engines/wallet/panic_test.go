package wallet_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// If a worker panics at any job of a burst, every job is answered exactly once. Jobs answered
// before the panic are done. The others have an unknown outcome, which a retry resolves, and other
// requests continue.
func TestPanicAmidABurst(t *testing.T) {
	const jobs = 12
	for at := range jobs {
		synctest.Test(t, func(t *testing.T) {
			var left atomic.Int32 // jobs until the panic, counted from the answer of the ledger
			gate, calls := make(chan struct{}), 0
			r := newRig(
				t,
				with(func(c *wallet.Config) { c.Workers = 1 }),
				commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
					if calls++; calls > 2 {
						return next.Commit(ctx, ops)
					}
					<-gate // until the next burst is complete
					outs, err := next.Commit(ctx, ops)
					if calls == 2 && len(ops) == jobs {
						left.Store(int32(at) + 1)
					}
					return outs, err
				}),
			)
			wall := *r.e.Now()
			*r.e.Now() = func() time.Time { // called once for the audit event of each answered job
				if left.Load() > 0 && left.Add(-1) == 0 {
					panic("made to")
				}
				return wall()
			}
			r.startBut(wallet.TaskInvalidator) // the invalidator calls now too
			for i := range jobs + 1 {
				r.fund(name(i), 1)
			}
			post := func(i int) error { _, err := r.post("p"+name(i), transfer(name(i), "shop", 1, 1)); return err }
			var all sync.WaitGroup
			answers := make([][]error, jobs+1)
			for i := range jobs + 1 {
				all.Go(func() { answers[i] = append(answers[i], post(i)) })
				synctest.Wait()
			}
			began := time.Now()
			close(gate)
			all.Wait()
			if took := time.Since(began); took != 0 {
				t.Errorf("job %d: they hear after %s", at, took)
			}
			good, unknown := 0, 0
			for i, got := range answers {
				var out *wallet.OutcomeError
				switch {
				case got[0] == nil:
					good++
				case errors.As(got[0], &out) && out.Unknown:
					unknown++
				default:
					t.Errorf("job %d of %d: %v", i, at, got[0])
				}
			}
			if good != at+1 || unknown != jobs-at { // the first job was a burst by itself
				t.Errorf("job %d: %d done, %d unknown", at, good, unknown)
			}
			synctest.Wait() // the supervisor has handled the panic
			r.nothingLeft()
			if got := r.available("shop"); got != "13" {
				t.Errorf("job %d: the shop has %s", at, got)
			}
			r.want(1, "tasks_panicked_total", "service", wallet.Service, "kind", wallet.TaskWorker)
			began = time.Now()
			for i := range answers {
				if err := post(i); err != nil {
					t.Errorf("job %d, asked again: %v", i, err)
				}
			}
			if took := time.Since(began); took > 400*time.Millisecond {
				t.Errorf("the worker is back after %s", took)
			}
			if got := r.available("shop"); got != "13" {
				t.Errorf("asked again: the shop has %s", got)
			}
			synctest.Wait()
			r.want(0, "worker_inflight", "service", wallet.Service)
			r.stop()
		})
	}
}
