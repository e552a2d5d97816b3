package wallet_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
	"ronbox/engines/ledger"
	"ronbox/engines/wallet"
)

// Without workers the queue accepts 512 requests and refuses further ones. All are counted, and
// every queued request is answered once a worker starts.
func TestBackpressure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &shared{}
		r := newRig(
			t,
			func(r *rig) { r.log = hclog.New(&hclog.LoggerOptions{Output: out, Level: hclog.Info}) },
		).startBut(wallet.TaskWorker)
		r.fund("alice", 10_000)
		answers := make(chan error, wallet.WorkCap)
		for i := range wallet.WorkCap {
			go func() {
				_, err := r.post("q"+name(i), transfer("alice", "bo", 1, uint64(i+1)))
				answers <- err
			}()
			synctest.Wait() // queued in the order of the nonces
		}
		r.want(wallet.WorkCap, "queue_depth", "service", wallet.Service, "queue", "work")
		for i := range 7 {
			if _, err := r.post("over"+name(i), transfer("alice", "bo", 1, 1)); !errors.Is(err, flow.ErrBusy) {
				t.Fatalf("one more: %v", err)
			}
		}
		r.want(wallet.WorkCap, "queue_depth", "service", wallet.Service, "queue", "work")
		r.want(7, "queue_dropped_total", "service", wallet.Service, "queue", "work")
		r.want(7, "wallet_rejects_total", "reason", "busy")
		if keys := r.failing(); !slices.Equal(keys, []string{wallet.KeyQueue}) {
			t.Errorf("failing: %v", keys)
		}
		if err := r.e.WriteReady(); err != nil {
			t.Errorf("a full queue refuses by itself: %v", err)
		}
		worker := r.e.Tasks()[0]
		worker.Count = 1
		*r.e.Workers() = 1
		r.sup.Start(worker)
		for range wallet.WorkCap {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		r.want(0, "queue_depth", "service", wallet.Service, "queue", "work")
		time.Sleep(time.Second)
		if keys := r.failing(); len(keys) != 0 {
			t.Errorf("failing: %v", keys)
		}
		if got := r.available("bo"); got != "512" {
			t.Errorf("bo has %s", got)
		}
		r.stop()
		for _, line := range []string{"not ready: probe=" + wallet.KeyQueue, "ready again: probe=" + wallet.KeyQueue} {
			if n := strings.Count(out.String(), line); n != 1 {
				t.Errorf("%d times %q in\n%s", n, line, out)
			}
		}
	})
}

// The queue's readiness key fails at 90 % of the capacity, before any request is refused, and
// recovers at 50 %.
func TestQueueIsNearlyFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t).startBut(wallet.TaskWorker)
		answers := make(chan error, wallet.WorkCap)
		bad := (wallet.WorkCap*9 + 9) / 10
		fails := func(at int) {
			t.Helper()
			time.Sleep(wallet.TickEvery)
			if got := slices.Contains(r.failing(), wallet.KeyQueue); got != (at == bad) {
				t.Errorf("%d of %d jobs wait: %s fails: %t", at, wallet.WorkCap, wallet.KeyQueue, got)
			}
		}
		for i := range bad {
			if i == bad-1 {
				fails(i)
			}
			go func() {
				_, err := r.post("q"+name(i), transfer("alice", "bo", 1, uint64(i+1)))
				answers <- err
			}()
		}
		fails(bad)
		r.stop()
		for range bad {
			<-answers
		}
	})
}

// A burst takes all queued jobs up to its size, so that one sync serves many. A worker that was
// busy with one request takes the next hundred in two bursts.
func TestBursts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var sizes []int
		hold := make(chan struct{})
		r := newRig(
			t,
			with(func(c *wallet.Config) { c.Workers, c.WorkerBurst = 1, 64 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-hold
				sizes = append(sizes, len(ops))
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 1000)
		answers := make(chan error, 101)
		for i := range 101 {
			go func() {
				_, err := r.post("b"+name(i), transfer("alice", "bo", 1, uint64(i+1)))
				answers <- err
			}()
			synctest.Wait()
		}
		close(hold)
		for range 101 {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(sizes, []int{1, 64, 36}) {
			t.Errorf("bursts of %v", sizes)
		}
		r.stop()
	})
}

// The ops of all batches in flight have a separate bound. A batch releases its share when it is
// answered.
func TestBatchRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(
			t,
			with(func(c *wallet.Config) { c.BatchMaxOps, c.BatchInflightOps = 10, 15 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-hold
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 1000)
		ops := func(first, n int) (out []ledger.Op) {
			for i := range n {
				out = append(out, transfer("alice", "bo", 1, uint64(first+i)))
			}
			return out
		}
		batch := func(key string, ops []ledger.Op) error {
			_, err := r.e.Batch(context.Background(), alice, key, "", false, ops)
			return err
		}
		if err := batch("long", ops(1, 11)); reasonOf(err) != "limits_exceeded" {
			t.Errorf("11 operations: %v", err)
		}
		if err := batch("none", nil); reasonOf(err) != "malformed" {
			t.Errorf("no operation: %v", err)
		}
		done := make(chan error, 1)
		go func() { done <- batch("a", ops(1, 10)) }()
		synctest.Wait()
		if err := batch("b", ops(11, 6)); !errors.Is(err, flow.ErrBusy) {
			t.Errorf("16 operations at once: %v", err)
		}
		close(hold)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := batch("b", ops(11, 10)); err != nil {
			t.Errorf("after that: %v", err)
		}
		synctest.Wait()
		if n, _ := r.e.Batched().Used(); n != 0 {
			t.Errorf("%d places are not given back", n)
		}
		r.stop()
	})
}

// If a client leaves while its request is queued, the request is dropped. If the request is already
// in progress, it is completed.
func TestClientsLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		r := newRig(
			t,
			with(func(c *wallet.Config) { c.Workers = 1 }),
			commits(func(ctx context.Context, next ledger.Client, ops []ledger.Op) ([]ledger.Outcome, error) {
				<-hold
				return next.Commit(ctx, ops)
			}),
		).start()
		r.fund("alice", 100)
		ctx, cancel := context.WithCancel(context.Background())
		post := func(key string, nonce uint64) chan error {
			out := make(chan error, 1)
			go func() {
				_, err := r.e.Post(ctx, alice, key, "", transfer("alice", "bo", 1, nonce))
				out <- err
			}()
			synctest.Wait()
			return out
		}
		begun, queued := post("begun", 1), post("queued", 2)
		cancel()
		var not *wallet.NotReadyError
		if err := <-queued; !errors.As(err, &not) || not.Cause != wallet.CauseCanceled {
			t.Errorf("queued: %v", err)
		}
		var out *wallet.OutcomeError
		if err := <-begun; !errors.As(err, &out) || !out.Unknown {
			t.Errorf("begun: %v", err)
		}
		close(hold)
		time.Sleep(time.Second)
		if got := r.available("bo"); got != "1" {
			t.Errorf("bo has %s", got)
		}
		r.want(1, "tasks_canceled_total", "service", wallet.Service, "kind", wallet.TaskWorker)
		r.stop()
	})
}
