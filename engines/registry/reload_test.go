package registry_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/registry"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/registrytest"
)

// A reloaded key counts for the next call; a key that needs a restart keeps its value.
func TestReload(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	r.Propose(2, "a")
	next := r.Config
	next.Proposals.MaxPending, next.Proposals.MaxPerCap = 1, 1
	next.Queues.Proposals = 7
	next.Verify.Period = unit.Duration(time.Second)
	r.Engine.Reload(next)
	_, err := r.Engine.Propose(r.Ctx(), alice, delta(2, "b"), "", "")
	var limit *document.PendingLimitError
	if !errors.As(err, &limit) {
		t.Errorf("beyond the new limit: %v", err)
	}
	r.Engine.Reload(r.Config)
	r.Propose(2, "b")
	if got := r.Metric("queue_capacity", "queue", "proposals"); got != float64(r.Config.Queues.Proposals) {
		t.Errorf("the queue holds %v", got)
	}
}

// A purged cache answers as before, from the file.
func TestPurge(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	r.Genesis(newSigners(1, 1))
	before, err := r.Engine.Version(t.Context(), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	r.Engine.Purge()
	after, err := r.Engine.Version(t.Context(), 1, true)
	if err != nil || string(after.JSON) != string(before.JSON) {
		t.Errorf("%s, %v, want %s", after.JSON, err, before.JSON)
	}
}

// A boot reports each step of its verification, so that a long one is not mistaken for a hang.
func TestRecoverTellsItsSteps(t *testing.T) {
	t.Parallel()
	r := registrytest.New(t).Start()
	signers := newSigners(1, 1)
	r.Genesis(signers)
	for v := range uint64(registry.RecoverSlice + 1) {
		p := r.Propose(v+2, fmt.Sprint("a", v))
		r.Approve(p, signers.Keys...)
		r.Commit(p)
	}
	r.Stop()
	before := r.Steps.Load()
	r.Open()
	if got := r.Steps.Load() - before; got < 2 {
		t.Errorf("%d steps of a log of two slices", got)
	}
}
