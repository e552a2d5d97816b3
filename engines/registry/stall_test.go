package registry_test

import (
	"fmt"
	"testing"

	"ronbox/engines/registry"
	"ronbox/engines/registry/registrytest"
)

// A stalled stream delays no commit and not the publisher. It alone loses the oldest events, gets
// their number, and finds HEAD.
func TestStalledReaderHoldsUpNoCommit(t *testing.T) {
	t.Parallel()
	const bound, versions = 64, 80
	r := registrytest.New(t, func(c *registry.Config) { c.Bus.ChannelBound = bound }).Start()
	s := newSigners(1, 1)
	r.Genesis(s)
	r.WaitFor("genesis to be told", func() bool { return r.Engine.Told().Load() == 1 })
	stalled := r.Engine.Subscribe("sse")
	defer stalled.Close()
	for v := uint64(2); v < 2+versions; v++ {
		p := r.Propose(v, fmt.Sprintf("node-%d", v))
		r.Approve(p, s.Keys...)
		if c := r.Commit(p); c.Version != v {
			t.Fatalf("committed version %d, want %d", c.Version, v)
		}
	}
	r.WaitFor("HEAD to be told", func() bool { return r.Engine.Told().Load() == 1+versions })
	e, lagged, err := stalled.Recv(r.Ctx())
	if err != nil || lagged != versions-bound || e.Version != 2+versions-bound {
		t.Errorf("the stalled reader got version %d after losing %d (%v), want %d after %d", e.Version, lagged, err,
			2+versions-bound, versions-bound)
	}
	if got := r.Metric("bus_lagged_total", "bus", "updated", "consumer", "sse"); got != versions-bound {
		t.Errorf("bus_lagged_total = %v, want %d", got, versions-bound)
	}
	if head := r.Engine.Head().Head.Version; head != 1+versions {
		t.Errorf("HEAD is %d, want %d", head, 1+versions)
	}
}
