package registry

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"ronbox/appliance/unit"
	"ronbox/engines/registry/document"
)

// A reloaded key counts for the next call; a key that needs a restart keeps its value.
func TestReload(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	r.propose(2, "a")
	next := r.cfg
	next.Proposals.MaxPending, next.Proposals.MaxPerCap = 1, 1
	next.Queues.Proposals = 7
	next.Verify.Period = unit.Duration(time.Second)
	r.e.Reload(next)
	_, err := r.e.Propose(r.ctx(), alice, delta(2, "b"), "", "")
	var limit *document.PendingLimitError
	if !errors.As(err, &limit) {
		t.Errorf("beyond the new limit: %v", err)
	}
	r.e.Reload(r.cfg)
	r.propose(2, "b")
	if got := r.e.proposals.Cap(); got != r.cfg.Queues.Proposals {
		t.Errorf("the queue holds %d", got)
	}
}

// A purged cache answers as before, from the file.
func TestPurge(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	before, err := r.e.Version(t.Context(), 1, true)
	if err != nil {
		t.Fatal(err)
	}
	r.e.Purge()
	after, err := r.e.Version(t.Context(), 1, true)
	if err != nil || string(after.JSON) != string(before.JSON) {
		t.Errorf("%s, %v, want %s", after.JSON, err, before.JSON)
	}
}

// A boot reports each step of its verification, so that a long one is not mistaken for a hang.
func TestRecoverTellsItsSteps(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	signers := newSigners(1, 1)
	r.genesis(signers)
	for v := range uint64(recoverSlice + 1) {
		p := r.propose(v+2, fmt.Sprint("a", v))
		r.approve(p, signers.keys...)
		r.commit(p)
	}
	r.stop()
	before := r.steps.Load()
	r.open()
	if got := r.steps.Load() - before; got < 2 {
		t.Errorf("%d steps of a log of two slices", got)
	}
}
