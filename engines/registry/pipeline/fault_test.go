package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// meddler moves HEAD each time it is decided, so that its batch never applies.
func meddler(r *registrytest.Rig) pipeline.Call {
	return func(p *pipeline.Plan, j *pipeline.Job) error {
		cur, err := r.Engine.Load(r.Ctx(), r.Engine.Pub().State.Load())
		if err != nil {
			return err
		}
		foreign := pipeline.NewPlan(r.Engine.Pipeline(), r.Ctx(), cur, r.Now())
		pipeline.Reject(foreign, j, "foreign")
		if _, err := store.Commit(r.Ctx(), r.Store, store.Work, pipeline.Batch(foreign)); err != nil {
			return err
		}
		pipeline.Reject(p, j, "never")
		return nil
	}
}

// submit queues a request to approve, commit or withdraw, and waits for its answer.
func submit(ctx context.Context, r *registrytest.Rig, req pipeline.Request) (pipeline.Answer, error) {
	p := r.Engine.Pipeline()
	return pipeline.Submit(p, ctx, r.Engine.Approving(), req, alice, "")
}

func TestRebuildsAreBounded(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	_, err := submit(r.Ctx(), r, meddler(r))
	if !errors.Is(err, record.ErrChainMismatch) {
		t.Errorf("err = %v, want ErrChainMismatch", err)
	}
	if n := r.Metric("commit_cas_fail_total"); n != pipeline.Rebuilds+1 {
		t.Errorf("commit_cas_fail_total = %v, want %d", n, pipeline.Rebuilds+1)
	}
	r.Propose(2, "b")
	if n := r.Metric("service_restarts_total", "task", pipeline.TaskName); n != 0 {
		t.Errorf("restarts = %v", n)
	}
}

// A guard that refuses one op answers its job; the other jobs of the batch succeed.
func TestOffenderAloneIsRefused(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	b := newBlocker()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = submit(r.Ctx(), r, b.call()) })
	<-b.held
	var bad, good error
	wg.Go(func() { _, bad = submit(r.Ctx(), r, pipeline.Call(badOp)) })
	wg.Go(func() { _, good = r.Engine.Propose(r.Ctx(), alice, delta(2, "b"), "", "") })
	r.WaitFor("both to queue", func() bool { return r.Engine.Approving().Len() == 1 && r.Engine.Proposing().Len() == 1 })
	close(b.gate)
	wg.Wait()
	var guard *tables.GuardError
	if !errors.As(bad, &guard) || guard.Guard != "live" || good != nil {
		t.Errorf("offender: %v, other: %v", bad, good)
	}
}

// badOp decides an op that its guard refuses.
func badOp(p *pipeline.Plan, j *pipeline.Job) error {
	p.Add(j, tables.EndOp{ID: testID(1), State: document.StateStale}, "proposal.stale")
	return nil
}

// blocker holds the pipeline from the time it is decided until its gate opens.
type blocker struct {
	held, gate chan struct{}
}

func newBlocker() blocker { return blocker{held: make(chan struct{}), gate: make(chan struct{})} }

// call returns the request that holds the pipeline.
func (b blocker) call() pipeline.Call {
	return func(*pipeline.Plan, *pipeline.Job) error {
		close(b.held)
		<-b.gate
		return nil
	}
}

// Past its drain deadline the pipeline stops at once, and every waiting caller is answered.
func TestAbortAnswersAll(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	b := newBlocker()
	var wg sync.WaitGroup
	answers := make([]error, 20)
	wg.Go(func() { _, answers[0] = submit(r.Ctx(), r, b.untilAborted()) })
	<-b.held
	for i := range answers[1:] {
		wg.Go(func() {
			_, answers[i+1] = r.Engine.Propose(r.Ctx(), engines.Actor{CapID: fmt.Sprint(i)}, delta(2, fmt.Sprint("x", i)),
				"", "")
		})
	}
	r.WaitFor("the others to queue", func() bool { return r.Engine.Proposing().Len() == len(answers)-1 })
	r.Sup.Drain(tables.Service, 0, registrytest.Patience)
	wg.Wait()
	if n := r.Metric("tasks_aborted_total", "kind", pipeline.TaskName); n != 1 {
		t.Errorf("%v aborts are counted", n)
	}
	for i, err := range answers {
		if i > 0 && !errors.Is(err, flow.ErrCanceled) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// untilAborted returns a request that holds the pipeline until it is aborted.
func (b blocker) untilAborted() pipeline.Call {
	return func(p *pipeline.Plan, _ *pipeline.Job) error {
		close(b.held)
		<-p.Done()
		return nil
	}
}

// A caller that leaves while its job is queued leaves no trace. One that leaves while it runs gets
// an unknown outcome.
func TestLeavingCallers(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	b := newBlocker()
	var wg sync.WaitGroup
	defer wg.Wait()
	inHand, leave := context.WithCancel(r.Ctx())
	var held error
	wg.Go(func() { _, held = submit(inHand, r, b.call()) })
	<-b.held
	queued, goAway := context.WithCancel(r.Ctx())
	wg.Go(func() { _, _ = r.Engine.Propose(queued, alice, delta(2, "gone"), "", "") })
	r.WaitFor("the other to queue", func() bool { return r.Engine.Proposing().Len() == 1 })
	goAway()
	leave()
	r.WaitFor("the grace to pass", func() bool { return r.Metric("io_timeouts_total", "op", "commit") == 1 })
	close(b.gate)
	p := r.Propose(2, "b")
	if live := r.Engine.Pub().State.Load().Live; len(live) != 1 || live[mustID(p.ID)] == nil {
		t.Errorf("%d proposals", len(live))
	}
	wg.Wait()
	if !errors.Is(held, flow.ErrUnknown) {
		t.Errorf("the one in hand: %v, want ErrUnknown", held)
	}
	if n := r.Metric("tasks_canceled_total", "kind", pipeline.TaskName); n != 1 {
		t.Errorf("%v counted as cancelled, want the one in the queue", n)
	}
}

// With all slots taken, a caller waits until its deadline and nothing is written.
func TestWorkSlotsHaveADeadline(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	for range r.Engine.Slots().Cap() {
		r.Engine.Slots().TryAcquire()
	}
	ctx, cancel := context.WithTimeout(r.Ctx(), 10*time.Millisecond)
	defer cancel()
	var late *document.TimeoutError
	if _, err := r.Engine.Propose(ctx, alice, delta(2, "b"), "", ""); !errors.As(err, &late) {
		t.Errorf("err = %v, want a TimeoutError", err)
	}
	gone, leave := context.WithCancel(r.Ctx())
	leave()
	if _, err := r.Engine.Propose(gone, alice, delta(2, "b"), "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want Canceled", err)
	}
	for range r.Engine.Slots().Cap() {
		r.Engine.Slots().Release()
	}
	r.Propose(2, "b")
}
