package registry

import (
	"errors"
	"testing"

	"ronbox/appliance/flow"
	"ronbox/engines/registry/document"
)

// Event streams get each version once it is committed, and then the end.
func TestPublisherTellsOfEachVersion(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	sub := r.e.Subscribe("sse")
	defer sub.Close()
	r.attached()
	r.genesis(s)
	p := r.propose(2, "b")
	r.approve(p, s.keys[0])
	c := r.commit(p)
	for v := uint64(1); v <= 2; v++ {
		up, _, err := sub.Recv(r.ctx())
		if err != nil || up.Version != v {
			t.Fatalf("update = %+v, %v, want version %d", up, err, v)
		}
		if v == 2 && (up.PayloadB3 != c.PayloadB3 || up.CorrID != "corr-commit") {
			t.Errorf("update = %+v, want %s", up, c.PayloadB3)
		}
	}
	r.stop()
	if _, _, err := sub.Recv(r.ctx()); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("after the stop: %v", err)
	}
}

// A restarted publisher sends HEAD, and the stream finds the gap.
func TestPublisherTellsOfHEADWhenItIsBack(t *testing.T) {
	t.Parallel()
	r, s := newRig(t), newSigners(1, 1)
	tasks := r.e.Tasks()
	for i, task := range tasks {
		if task.Name != taskPublisher {
			r.sup.Start(tasks[i])
		}
	}
	sub := r.e.Subscribe("sse")
	defer sub.Close()
	r.genesis(s)
	r.commitDeltas(s, 2)
	for _, task := range tasks {
		if task.Name == taskPublisher {
			r.sup.Start(task)
		}
	}
	up, _, err := sub.Recv(r.ctx())
	if err != nil || up.Version != 3 || up.Hash != r.e.Head().Head.Hash {
		t.Errorf("update = %+v, %v, want HEAD", up, err)
	}
	r.commitNext(s, 4)
	if up, _, err := sub.Recv(r.ctx()); err != nil || up.Version != 4 {
		t.Errorf("update = %+v, %v, want version 4", up, err)
	}
}

// Versions that a publisher loses, because it lags by more than the bus holds, are counted, and the
// rest is sent.
func TestPublisherCountsWhatItLoses(t *testing.T) {
	t.Parallel()
	const lost = 7
	r := newRig(t)
	sub, told := r.e.committed.Subscribe(taskPublisher), r.e.Subscribe("sse")
	defer sub.Close()
	defer told.Close()
	last := uint64(r.cfg.Bus.ChannelBound + lost)
	for v := uint64(1); v <= last; v++ {
		r.e.committed.Publish(document.Update{Version: v})
	}
	r.e.committed.Close()
	if err := r.e.tellAll(r.ctx(), sub); err != nil {
		t.Fatal(err)
	}
	if n := r.metric("bus_overflow_dropped_total"); n != lost {
		t.Errorf("%v versions are counted as lost, want %d", n, lost)
	}
	if up, _, err := told.Recv(r.ctx()); err != nil || up.Version != lost+1 || r.e.told.Load() != last {
		t.Errorf("first update = %+v, %v, last %d", up, err, r.e.told.Load())
	}
}

// While updates are off the publisher is silent.
func TestPublisherIsSilent(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	sub := r.e.Subscribe("sse")
	defer sub.Close()
	cfg := r.cfg
	cfg.Bus.EmitUpdates = false
	r.e.Reload(cfg)
	if err := r.e.Emits(); !isCause(err, document.CauseUpdatesOff) {
		t.Errorf("while they are off: %v", err)
	}
	r.e.tell(r.ctx(), document.Update{Version: 8})
	r.e.Reload(r.cfg)
	r.e.tell(r.ctx(), document.Update{Version: 9})
	if up, lost, err := sub.Recv(r.ctx()); err != nil || up.Version != 9 || lost != 0 || r.e.Emits() != nil {
		t.Errorf("update = %+v, %d lost, %v", up, lost, err)
	}
}
