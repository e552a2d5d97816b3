package pipeline_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/registrytest"
	"ronbox/store"
)

// gated holds the committer while it is applied.
type gated struct{ held, gate chan struct{} }

func (gated) Kind() string { return "registry.gated/1" }

func (g gated) Apply(store.Reader, store.Stamp, *store.Writes) (struct{}, error) {
	close(g.held)
	<-g.gate
	return struct{}{}, nil
}

// While the outcome of a batch is unknown, its rows decide nothing: no repeated call is answered
// from them before HEAD is published.
func TestUndecidedBatchIsWaitedFor(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys...)
	busy := gated{held: make(chan struct{}), gate: make(chan struct{})}
	before := gated{held: make(chan struct{}), gate: make(chan struct{})}
	close(before.gate)
	unpublished := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = store.Commit(r.Ctx(), r.Store, store.Work, busy)
	}()
	<-busy.held
	go func() {
		_, _ = store.Commit(r.Ctx(), r.Store, store.Work, before, func(struct{}) { <-unpublished })
	}()
	r.WaitFor("the one before the batch to queue", func() bool { return lane(r) == 1 })
	ctx, leave := context.WithCancel(r.Ctx())
	defer leave()
	first, second := make(chan error, 1), make(chan uint64, 1)
	go func() {
		_, err := r.Engine.Commit(ctx, alice, p.ID, "")
		first <- err
	}()
	r.WaitFor("the batch to queue", func() bool { return lane(r) == 2 })
	leave()
	close(busy.gate)
	<-done
	if err := <-first; !errors.Is(err, flow.ErrUnknown) {
		t.Errorf("the first: %v, want ErrUnknown", err)
	}
	go func() {
		a, err := submit(r.Ctx(), r, pipeline.CommitOf(mustID(p.ID)))
		if err != nil || a.Committed().Version != 2 || !a.Committed().Replayed {
			t.Errorf("the repeat: %+v, %v", a.Committed(), err)
		}
		second <- r.Engine.Head().Head.Version
	}()
	window := time.NewTimer(300 * time.Millisecond)
	defer window.Stop()
	select {
	case v := <-second:
		t.Errorf("the repeat is answered while HEAD is version %d", v)
		close(unpublished)
	case <-window.C:
		close(unpublished)
		if v := <-second; v != 2 {
			t.Errorf("the repeat is answered while HEAD is version %d", v)
		}
	}
}

// lane is how many commands wait in the work lane.
func lane(r *registrytest.Rig) int {
	families, err := r.Metrics.Registry().Gather()
	if err != nil {
		r.T.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "queue_depth" && registrytest.Matches(m, map[string]string{"service": "store", "queue": "work"}) {
				return int(m.GetGauge().GetValue())
			}
		}
	}
	return -1
}
