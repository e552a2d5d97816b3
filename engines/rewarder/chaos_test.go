package rewarder_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/rewarder"
)

// epochs computes n epochs, each sharing paid among actors, and returns the expected balance of
// each actor.
func (r *rig) epochs(n, actors int, paid uint64) map[string]engines.Amount {
	p := policy()
	r.put(p)
	for i := range n {
		epoch := fmt.Sprint("e", i)
		r.mustCompute(epoch, r.seal(inputOf(epoch, paid), many(actors)), p)
	}
	want := map[string]engines.Amount{}
	out := make([]engines.Amount, actors)
	total := uint64(0)
	for i := range out {
		total += uint64(1 + i%97)
	}
	if paid%total != 0 {
		r.t.Fatalf("%d is no multiple of %d", paid, total)
	}
	for i := range out {
		want[fmt.Sprintf("acct_%07d", i)] = n64(uint64(n) * uint64(1+i%97) * (paid / total))
	}
	return want
}

// scoreOf returns the total score of many(n).
func scoreOf(n int) (total uint64) {
	for i := range n {
		total += uint64(1 + i%97)
	}
	return total
}

// Half of the workers are killed at any step, repeatedly: all epochs end paid once, the supervisor
// has restarted each worker, and no goroutine leaks.
func TestWorkersAreKilled(t *testing.T) {
	t.Parallel()
	epochs, actors := 16, 600
	if testing.Short() {
		epochs = 6
	}
	paid := 2 * scoreOf(actors)
	r := newRig(t, inMemory)
	var mu sync.Mutex
	dice, kills, flipped := rand.New(rand.NewPCG(5, 6)), 0, make(chan struct{})
	kill := func() bool {
		mu.Lock()
		defer mu.Unlock()
		yes := kills < 2 // half of the workers; the others wait until readiness has flipped
		select {
		case <-flipped:
			yes = kills < epochs && dice.IntN(2) == 0
		default:
		}
		if yes {
			kills++
		}
		return yes
	}
	r.onStep(func(s string) {
		if !slices.Contains([]string{"staging", "seal_before", "sealed"}, s) {
			return
		}
		if kill() {
			panic("killed at " + s)
		}
		<-flipped
	})
	r.e.Look().Set(20 * time.Millisecond)
	r.e.Tick().Set(10 * time.Millisecond)
	flip := sync.OnceFunc(func() { close(flipped) })
	t.Cleanup(flip)
	r.start()
	want := r.epochs(epochs, actors, paid)
	fill := func() { // a backlog of handles of nothing
		for r.e.Todo(rewarder.ToCompute).Len()*10 < rewarder.QueueCap*8 {
			if err := r.e.Todo(rewarder.ToCompute).TrySend(rewarder.JobOf("none", b3.Sum([]byte("none")))); err != nil {
				t.Fatal(err)
			}
		}
	}
	degraded := func(want float64) func() bool {
		return func() bool { return r.count("readyz_degraded{cause="+rewarder.KeyQueue+"}") == want }
	}
	r.eventually("readiness flips", func() bool {
		fill() // a worker that was restarted drops the backlog until it waits, too
		return degraded(1)()
	})
	flip()
	r.eventually("readiness returns", degraded(0))
	repeats := 0
	for i := range epochs {
		epoch := fmt.Sprint("e", i)
		r.eventually(epoch+" is settled", func() bool {
			run := r.await(epoch, rewarder.Accepted, rewarder.Sealed, rewarder.Settling, rewarder.Settled, rewarder.Failed)
			if run.State == rewarder.Failed && run.Reason == "panic" { // killed three times: request it again
				repeats++
				r.mustCompute(epoch, rewarder.Input{InputsCID: run.InputsCID}, policy())
			}
			return run.State == rewarder.Settled
		})
	}
	r.paidOnce(want, n64(funded-uint64(epochs)*paid))
	mu.Lock()
	defer mu.Unlock()
	if kills < epochs/2 {
		t.Errorf("%d kills", kills)
	}
	r.eventually(
		"each worker was restarted",
		func() bool { return int(r.count("service_restarts_total{task=worker}")) == kills },
	)
	if n := r.count("tasks_spawned_total{kind=worker}"); int(n) < 4 {
		t.Errorf("%v workers were started", n)
	}
	t.Logf("%d kills, %d repeats", kills, repeats)
}

// A run fails after its computation was killed three times, and its epoch is free.
func TestKilledThriceFails(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.onStep(func(s string) {
		if s == "seal_before" {
			panic("killed")
		}
	})
	r.e.Look().Set(20 * time.Millisecond)
	r.start()
	p := policy()
	r.put(p)
	in := r.seal(inputOf("e", 1000), usage("a requests 1"))
	r.mustCompute("e", in, p)
	if run := r.await("e", rewarder.Failed); run.Reason != "panic" {
		t.Errorf("%+v", run)
	}
	r.onStep(nil)
	r.mustCompute("e", in, p)
	if run := r.await("e", rewarder.Settled); run.Attempt != 2 || r.balance("a") != "1000" {
		t.Errorf("%+v, a has %s", run, r.balance("a"))
	}
}

// Orderly and abrupt shutdowns cut runs off at any point. After the last start all runs are paid
// once.
func TestShutdownLosesNothing(t *testing.T) {
	t.Parallel()
	const epochs, actors = 8, 1100
	paid := scoreOf(actors)
	r := newRig(t).start()
	want := r.epochs(epochs, actors, paid)
	dice := rand.New(rand.NewPCG(7, 8))
	for range 5 {
		var steps atomic.Int64
		stopAt, reached := dice.Int64N(12), make(chan struct{})
		r.onStep(func(string) {
			if steps.Add(1) == stopAt+1 {
				close(reached)
			}
		})
		select {
		case <-reached:
		case <-time.After(time.Second): // all runs are done
		}
		r.onStep(nil)
		r.stopWithin(time.Duration(dice.IntN(2)) * 20 * time.Millisecond)
		r.open()
		r.start()
	}
	for i := range epochs {
		epoch := fmt.Sprint("e", i)
		r.await(epoch, rewarder.Settled)
		r.eventually("files of "+epoch, func() bool {
			run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, epoch)
			return err == nil && run.Artifact == rewarder.ArtifactDone
		})
	}
	r.paidOnce(want, n64(funded-epochs*paid))
}

// A stuck writer is aborted at the end of the drain. Its file and those queued are counted and are
// written after the next start. The same holds for a worker in the middle of a run.
func TestAbortIsCounted(t *testing.T) {
	r := newRig(t, func(r *rig) { r.cfg.Concurrency.ComputeWorkers = 1 })
	stuck, release := make(chan string, 64), make(chan struct{})
	r.onStep(func(s string) {
		if s == "artifact_temp" || s == "staging" && len(stuck) == 1 {
			stuck <- s
			<-release
		}
	})
	r.start()
	p := policy()
	r.put(p)
	for _, epoch := range []string{"e0", "e1"} { // e1 stages once the writer is stuck with e0
		r.mustCompute(epoch, r.seal(inputOf(epoch, 1000), usage("a requests 1")), p)
		r.eventually("a task is stuck", func() bool { return len(stuck) > 0 })
	}
	r.eventually("both are stuck", func() bool { return len(stuck) == 2 })
	// is aborted with them, once the drain is over
	r.sup.Start(flow.Task{Service: rewarder.Service, Name: "witness", Run: func(ctx context.Context) error {
		<-ctx.Done()
		close(release)
		return nil
	}})
	if aborted := r.stopWithin(10 * time.Millisecond); aborted < 3 {
		t.Errorf("%d tasks were aborted", aborted)
	}
	if writers, workers := r.count("tasks_aborted_total{kind=artifact_writer}"), r.count(
		"tasks_aborted_total{kind=worker}",
	); writers != 1 ||
		workers != 1 {
		t.Errorf("%v writers, %v workers", writers, workers)
	}
	// the witness may learn of the abort before the worker, which then drops a result
	lost, canceled := r.count("dropped_results_total"), r.count("tasks_canceled_total{kind=worker}")
	if lost < 1 || lost+canceled != 2 {
		t.Errorf("%v results dropped, %v computations cancelled", lost, canceled)
	}
	r.onStep(nil)
	r.open()
	r.start()
	for _, epoch := range []string{"e0", "e1"} {
		r.await(epoch, rewarder.Settled)
		r.eventually("files of "+epoch, func() bool {
			run, err := r.e.Epoch(r.ctx(), rewarder.DefaultTenant, epoch)
			return err == nil && run.Artifact == rewarder.ArtifactDone
		})
	}
	if got := r.balance("a"); got != "2000" {
		t.Errorf("a has %s", got)
	}
}

// The commitment does not depend on the number of workers or on which worker computes the run.
func TestWorkersAgree(t *testing.T) {
	t.Parallel()
	var first []string
	for _, workers := range []int{1, 2, 4} {
		r := newRig(t, inMemory, vector, func(r *rig) { r.cfg.Concurrency.ComputeWorkers = workers }).start()
		p := policy()
		r.put(p)
		var all []string
		for i := range 6 {
			epoch := fmt.Sprint("e", i)
			r.mustCompute(epoch, r.seal(inputOf(epoch, 100_003), many(300*i+1)), p)
		}
		for i := range 6 {
			all = append(all,
				r.await(fmt.Sprint("e", i), rewarder.Sealed, rewarder.Settling, rewarder.Settled).Commitment.String())
		}
		if first == nil {
			first = all
		}
		if !slices.Equal(all, first) {
			t.Errorf("%d workers: %v, want %v", workers, all, first)
		}
		r.stop()
	}
}

func TestQuarantineNamesNewEpochsOnly(t *testing.T) {
	r := newRig(t)
	for i := range rewarder.MaxEpochs + 3 {
		r.e.Quarantine(fmt.Sprint("e", i))
		r.e.Quarantine(fmt.Sprint("e", i))
	}
	if older, gone, newest := r.count("quarantine_total{epoch=older}"), r.count("quarantine_total{epoch=e2}"), r.count(
		"quarantine_total{epoch=e66}",
	); older != 6 || gone != 0 ||
		newest != 2 {
		t.Errorf("older %v, e2 %v, e66 %v", older, gone, newest)
	}
}

// queue_ok fails while a queue is 80 % full.
func TestBackpressure(t *testing.T) {
	r := newRig(t)
	for n := range rewarder.QueueCap {
		if bad := rewarder.Backpressure(r.e) != nil; bad != (n >= 410) {
			t.Fatalf("%d of %d: bad = %v", n, rewarder.QueueCap, bad)
		}
		if err := r.e.Todo(rewarder.ToPay).TrySend(rewarder.Job{}); err != nil {
			t.Fatal(err)
		}
	}
}

// The files of a run are tried three times if they cannot be written. Payment does not wait for
// them.
func TestUnwritableFolder(t *testing.T) {
	r := newRig(t, func(r *rig) { r.artifacts = "/dev/null/rewarder" }).start()
	r.e.Tick().Set(20 * time.Millisecond)
	p := policy()
	r.put(p)
	r.mustCompute("e", r.seal(inputOf("e", 1000), usage("a requests 1")), p)
	r.await("e", rewarder.Settled)
	r.eventually("it is given up", func() bool { return r.await("e", rewarder.Settled).Artifact == rewarder.ArtifactFailed })
	r.eventually("readiness says so", func() bool { return r.count("readyz_degraded{cause=artifact}") == 1 })
	if page, err := r.e.Epochs(r.ctx(), rewarder.DefaultTenant, "", 5); err != nil || len(page.Epochs) != 1 ||
		r.balance("a") != "1000" {
		t.Errorf("%+v, %v", page, err)
	}
}
