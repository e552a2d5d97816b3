package rewarder_test

import (
	"os"
	"testing"
	"time"

	"ronbox/engines/rewarder"
)

// Each cause of readiness is provoked and then removed. Tests of damaged and full files cover
// store_ok, tests of refused payees cover payment.
func TestReadinessCauses(t *testing.T) {
	var ill syncBool
	r := newRig(t, func(r *rig) { r.ledger = deaf{r.model, ill.Load} }).only(rewarder.TaskHealth)
	r.e.Tick().Set(10 * time.Millisecond)
	r.e.Look().Set(10 * time.Millisecond)
	fails := func(cause string, want float64) {
		t.Helper()
		r.eventually(cause, func() bool { return r.count("readyz_degraded{cause="+cause+"}") == want })
	}
	for _, cause := range []string{rewarder.KeyQueue, rewarder.KeyLedger, rewarder.KeyStore, rewarder.KeyArtifact,
		rewarder.KeyPayment} {
		fails(cause, 0)
	}

	for range rewarder.QueueCap {
		if err := r.e.Requests().TrySend(rewarder.NewRequest(rewarder.Call{}, rewarder.Job{},
			rewarder.ComputeRequest{})); err != nil {
			t.Fatal(err)
		}
	}
	fails(rewarder.KeyQueue, 1)
	for range rewarder.QueueCap {
		<-r.e.Requests().C()
	}
	fails(rewarder.KeyQueue, 0)

	p := policy()
	r.put(p)
	up, err := r.e.OpenInput(r.ctx(), alice, inputOf("e", 1000))
	if err == nil {
		_, err = r.e.PutPart(r.ctx(), alice, up.ID, 0, false, usage("a requests 1"))
	}
	if err != nil {
		t.Fatal(err)
	}
	ill.Store(true)
	r.eventually("the breaker opens", func() bool {
		_, _ = r.e.SealInput(r.ctx(), alice, up.ID)
		return r.count("readyz_degraded{cause="+rewarder.KeyLedger+"}") == 1
	})
	ill.Store(false)
	r.eventually("the breaker closes", func() bool {
		_, _ = r.e.SealInput(r.ctx(), alice, up.ID)
		return r.count("readyz_degraded{cause="+rewarder.KeyLedger+"}") == 0
	})

	in := r.seal(inputOf("f", 1000), usage("a requests 1"))
	next := r.seal(inputOf("g", 1000), usage("a requests 1"))
	if err := os.WriteFile(r.artifacts, nil, 0o600); err != nil { // where the folder would be
		t.Fatal(err)
	}
	r.only(rewarder.TaskScheduler, rewarder.TaskWorker, rewarder.TaskEmitter, rewarder.TaskWriter)
	r.mustCompute("f", in, p)
	fails(rewarder.KeyArtifact, 1)
	if err := os.Remove(r.artifacts); err != nil {
		t.Fatal(err)
	}
	r.mustCompute("g", next, p)
	fails(rewarder.KeyArtifact, 0)
}
