package wallet_test

import (
	"context"
	"errors"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// A drain answers every accepted request, refuses new requests, and aborts no task.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(
			t,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				time.Sleep(100 * time.Millisecond)
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 1000)
		answers := make(chan error, 200)
		for i := range 200 {
			go func() {
				_, err := r.post("d"+name(i), transfer("alice", "bo", 1, uint64(i+1)))
				answers <- err
			}()
			synctest.Wait()
		}
		r.catalog.CloseFedBy(wallet.Service, flow.HTTP)
		var not *wallet.NotReadyError
		if _, err := r.post("late", transfer("alice", "bo", 1, 201)); !errors.As(err, &not) ||
			not.Cause != wallet.CauseDraining {
			t.Errorf("a late one: %v", err)
		}
		if _, err := r.e.Balance(context.Background(), alice, "alice", "ron", 0); err != nil {
			t.Errorf("a read meanwhile: %v", err)
		}
		began := time.Now()
		if aborted := r.sup.Drain(wallet.Service, 5*time.Second, time.Second); aborted != 0 {
			t.Errorf("%d tasks aborted", aborted)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the drain takes %s", took)
		}
		for range 200 {
			if err := <-answers; err != nil {
				t.Error(err)
			}
		}
		if got := r.available("bo"); got != "200" {
			t.Errorf("bo has %s", got)
		}
		r.stop()
	})
}

// Workers that do not finish by the deadline are aborted. Requests submitted to the ledger have an
// unknown outcome unless the ledger reports that it applied nothing. Queued requests were not
// applied. Every caller is answered, and each canceled job is counted once.
func TestAbort(t *testing.T) {
	const jobs, inHand, first = 20, 4, 1
	for _, unknown := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			gate, calls := make(chan struct{}), 0
			r := newRig(t, with(func(c *wallet.Config) {
				c.Workers, c.WorkerBurst, c.ReqTimeout = 1, inHand, seconds(30)
				c.Retry.RPCTimeout = seconds(10)
			}), commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				if calls++; calls == 1 {
					<-gate // until more than one burst is queued
					return next.Commit(ctx, ops)
				}
				<-ctx.Done()
				return nil, &ledger.UnavailableError{Unknown: unknown, Cause: context.Cause(ctx)}
			})).start()
			r.fund("alice", 1000)
			answers := make(chan error, jobs)
			for i := range jobs {
				go func() {
					_, err := r.post("a"+name(i), transfer("alice", "bo", 1, uint64(i+1)))
					answers <- err
				}()
				synctest.Wait()
			}
			close(gate)
			synctest.Wait()
			r.catalog.CloseFedBy(wallet.Service, flow.HTTP)
			if aborted := r.sup.Drain(wallet.Service, time.Second, time.Second); aborted == 0 {
				t.Error("nothing aborted")
			}
			told := map[string]int{}
			for range jobs {
				err := <-answers
				var out *wallet.OutcomeError
				var not *wallet.NotReadyError
				switch {
				case err == nil:
					told["done"]++
				case errors.As(err, &out) && out.Unknown:
					told["unknown"]++
				case errors.As(err, &not) && not.Cause == wallet.CauseDraining:
					told["draining"]++
				default:
					t.Error(err)
				}
			}
			want := map[string]int{"done": first, "draining": jobs - first}
			if unknown {
				want = map[string]int{"done": first, "unknown": inHand, "draining": jobs - first - inHand}
			}
			if !maps.Equal(told, want) {
				t.Errorf("told %v, want %v", told, want)
			}
			synctest.Wait()
			r.want(1, "tasks_aborted_total", "service", wallet.Service, "kind", wallet.TaskWorker)
			r.want(float64(want["draining"]), "tasks_canceled_total", "service", wallet.Service, "kind", wallet.TaskWorker)
			r.stop()
		})
	}
}

// A worker that panics with a burst answers its jobs with an unknown outcome and is restarted.
// Other requests continue, and no request is applied twice.
func TestWorkerPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		r := newRig(
			t,
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				outs, err := next.Commit(ctx, ops)
				if calls.Add(1)%5 == 0 {
					panic("made to")
				}
				return outs, err
			}),
		).start()
		const clients = 16
		for i := range clients {
			r.fund(name(i), 1000)
		}
		done := make(chan int, clients)
		for i := range clients {
			go func() {
				again := 0
				for n := uint64(1); n <= 10; n++ {
					for {
						_, err := r.post("p"+name(i)+name(int(n)), transfer(name(i), "shop", 1, n))
						if err == nil {
							break
						}
						if !rowOf(err).Retry {
							t.Errorf("%v", err)
							break
						}
						again++
						time.Sleep(50 * time.Millisecond)
					}
				}
				done <- again
			}()
		}
		again := 0
		for range clients {
			again += <-done
		}
		if got := r.available("shop"); got != "160" {
			t.Errorf("the shop has %s, want 160", got)
		}
		if again == 0 || r.sum("tasks_panicked_total", "service", wallet.Service, "kind", wallet.TaskWorker) == 0 {
			t.Error("no worker has panicked")
		}
		synctest.Wait()
		if n := r.e.Flights(); n != 0 {
			t.Errorf("%d flights are left", n)
		}
		r.stop()
	})
}
