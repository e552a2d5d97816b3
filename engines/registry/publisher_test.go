package registry_test

import (
	"errors"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/registrytest"
)

// Event streams get each version once it is committed, and then the end.
func TestPublisherTellsOfEachVersion(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	sub := r.Engine.Subscribe("sse")
	defer sub.Close()
	r.Attached()
	r.Genesis(s)
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys[0])
	c := r.Commit(p)
	for v := uint64(1); v <= 2; v++ {
		up, _, err := sub.Recv(r.Ctx())
		if err != nil || up.Version != v {
			t.Fatalf("update = %+v, %v, want version %d", up, err, v)
		}
		if v == 2 && (up.PayloadB3 != c.PayloadB3 || up.CorrID != "corr-commit") {
			t.Errorf("update = %+v, want %s", up, c.PayloadB3)
		}
	}
	r.Stop()
	if _, _, err := sub.Recv(r.Ctx()); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("after the stop: %v", err)
	}
}

// A restarted publisher sends HEAD, and the stream finds the gap.
func TestPublisherTellsOfHEADWhenItIsBack(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t), newSigners(1, 1)
	tasks := r.Engine.Tasks()
	for i, task := range tasks {
		if task.Name != registry.TaskPublisher {
			r.Sup.Start(tasks[i])
		}
	}
	sub := r.Engine.Subscribe("sse")
	defer sub.Close()
	r.Genesis(s)
	commitDeltas(r, s, 2)
	for _, task := range tasks {
		if task.Name == registry.TaskPublisher {
			r.Sup.Start(task)
		}
	}
	up, _, err := sub.Recv(r.Ctx())
	if err != nil || up.Version != 3 || up.Hash != r.Engine.Head().Head.Hash {
		t.Errorf("update = %+v, %v, want HEAD", up, err)
	}
	commitNext(r, s, 4)
	if up, _, err := sub.Recv(r.Ctx()); err != nil || up.Version != 4 {
		t.Errorf("update = %+v, %v, want version 4", up, err)
	}
}

// Versions that a publisher loses, because it lags by more than the bus holds, are counted, and the
// rest is sent.
func TestPublisherCountsWhatItLoses(t *testing.T) {
	t.Parallel()
	const lost = 7
	r := registrytest.New(t)
	sub, told := r.Engine.Committed().Subscribe(registry.TaskPublisher), r.Engine.Subscribe("sse")
	defer sub.Close()
	defer told.Close()
	last := uint64(r.Config.Bus.ChannelBound + lost)
	for v := uint64(1); v <= last; v++ {
		r.Engine.Committed().Publish(document.Update{Version: v})
	}
	r.Engine.Committed().Close()
	if err := registry.TellAll(r.Engine, r.Ctx(), sub); err != nil {
		t.Fatal(err)
	}
	if n := r.Metric("bus_overflow_dropped_total"); n != lost {
		t.Errorf("%v versions are counted as lost, want %d", n, lost)
	}
	if up, _, err := told.Recv(r.Ctx()); err != nil || up.Version != lost+1 || r.Engine.Told().Load() != last {
		t.Errorf("first update = %+v, %v, last %d", up, err, r.Engine.Told().Load())
	}
}

// While updates are off the publisher is silent.
func TestPublisherIsSilent(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t)
	sub := r.Engine.Subscribe("sse")
	defer sub.Close()
	cfg := r.Config
	cfg.Bus.EmitUpdates = false
	r.Engine.Reload(cfg)
	if err := r.Engine.Emits(); !isCause(err, document.CauseUpdatesOff) {
		t.Errorf("while they are off: %v", err)
	}
	r.Engine.Tell(r.Ctx(), document.Update{Version: 8})
	r.Engine.Reload(r.Config)
	r.Engine.Tell(r.Ctx(), document.Update{Version: 9})
	if up, lost, err := sub.Recv(r.Ctx()); err != nil || up.Version != 9 || lost != 0 || r.Engine.Emits() != nil {
		t.Errorf("update = %+v, %d lost, %v", up, lost, err)
	}
}
