package registry

import (
	"fmt"
	"testing"
)

// A stalled stream delays no commit and not the publisher. It alone loses the oldest events, gets
// their number, and finds HEAD.
func TestStalledReaderHoldsUpNoCommit(t *testing.T) {
	t.Parallel()
	const bound, versions = 64, 80
	r := newRig(t, func(c *Config) { c.Bus.ChannelBound = bound }).start()
	s := newSigners(1, 1)
	r.genesis(s)
	r.waitFor("genesis to be told", func() bool { return r.e.told.Load() == 1 })
	stalled := r.e.Subscribe("sse")
	defer stalled.Close()
	for v := uint64(2); v < 2+versions; v++ {
		p := r.propose(v, fmt.Sprintf("node-%d", v))
		r.approve(p, s.keys...)
		if c := r.commit(p); c.Version != v {
			t.Fatalf("committed version %d, want %d", c.Version, v)
		}
	}
	r.waitFor("HEAD to be told", func() bool { return r.e.told.Load() == 1+versions })
	e, lagged, err := stalled.Recv(r.ctx())
	if err != nil || lagged != versions-bound || e.Version != 2+versions-bound {
		t.Errorf("the stalled reader got version %d after losing %d (%v), want %d after %d", e.Version, lagged, err,
			2+versions-bound, versions-bound)
	}
	if got := r.metric("bus_lagged_total", "bus", "updated", "consumer", "sse"); got != versions-bound {
		t.Errorf("bus_lagged_total = %v, want %d", got, versions-bound)
	}
	if head := r.e.Head().Head.Version; head != 1+versions {
		t.Errorf("HEAD is %d, want %d", head, 1+versions)
	}
}
