package pipeline_test

import (
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
)

// An expired proposal is expired, not stale, even if its base expires with it.
func TestStackExpiresTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := registrytest.New(t, func(c *registry.Config) { c.Proposals.TTL = 60e9 }).Start()
		r.Genesis(newSigners(1, 1))
		stack := r.Stack(3)
		r.Advance(2 * time.Minute)
		r.WaitFor("the sweep", func() bool { return len(r.Engine.Pub().State.Load().Live) == 0 })
		for i, p := range stack {
			if got := r.StateOf(p); got != document.StateExpired {
				t.Errorf("%d is %s, want expired", i, got)
			}
		}
	})
}

// largest adds as much to a batch as the largest payload.
func largest(p *pipeline.Plan, j *pipeline.Job) error {
	p.Add(j, nil, "large")
	p.Grow(record.MaxPayload)
	return nil
}

// A batch never exceeds the size of a command, whatever its last job adds.
func TestBatchesFitACommand(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	var jobs []*pipeline.Job
	for range pipeline.MaxBatchJobs {
		jobs = append(jobs, pipeline.NewJob(r.Ctx(), pipeline.Call(largest), r.Now()))
	}
	bytes, decided := pipeline.PlanOf(r.Engine.Pipeline(), r.Ctx(), jobs)
	if bytes > pipeline.MaxBatchBytes || decided < 2 {
		t.Errorf("%d jobs of %d bytes", decided, bytes)
	}
}

// A queue that stays nearly full for five seconds makes the node write-unready; a short burst does
// not.
func TestQueuePressure(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t, func(c *registry.Config) { c.Queues.Proposals = 10 })
	r.Freeze()
	p, queue := r.Engine.Pipeline(), r.Engine.Proposing()
	for range 10 {
		j := pipeline.NewJob(r.Ctx(), pipeline.CommitOf(testID(1)), r.Now())
		if err := queue.TrySend(j); err != nil {
			t.Fatal(err)
		}
	}
	p.Running().Store(true)
	if err := p.OK(); err != nil {
		t.Errorf("a burst: %v", err)
	}
	r.Advance(5 * time.Second)
	if err := p.OK(); err == nil {
		t.Error("full for 5 s, and ready")
	}
	for range 5 {
		<-queue.C()
	}
	if err := p.OK(); err != nil {
		t.Errorf("half full: %v", err)
	}
	p.Busy().Store(r.Now().Add(-3 * time.Second).UnixNano())
	if err := p.OK(); err == nil {
		t.Error("an op in hand for 3 s, and ready")
	}
	for range 5 {
		<-queue.C()
	}
}
