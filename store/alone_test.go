package store

import (
	"context"
	"testing"

	"ronbox/appliance/host/hosttest"
)

// The commit of a node alone allocates what it did before there were clusters, and keeps no rows
// for an entry.
func TestAloneAllocates(t *testing.T) {
	if hosttest.UnderRace() {
		t.Skip("under the race detector a sync.Pool drops at random what is put back")
	}
	const before = 130 + 19 // most by bbolt; 19 count the names of three rows
	r := idle(t, newFile(t), testConfig())
	r.db.NoSync, r.db.StrictMode = true, false
	var g group
	g.open(r.Store)
	commit := func() {
		q := newRequest[uint64](context.Background(), 0, Work, put{Key: "k", Value: "v"}, nil)
		if err := g.run(context.Background(), []job{q}); err != nil {
			t.Fatal(err)
		}
	}
	for range 50 { // until the free list has its size
		commit()
	}
	if n := testing.AllocsPerRun(200, commit); n > before {
		t.Errorf("%v allocations, want %d", n, before)
	}
	if g.pen.raw != nil {
		t.Errorf("the pen holds %d bytes", cap(g.pen.raw))
	}
	r.stop()
}
