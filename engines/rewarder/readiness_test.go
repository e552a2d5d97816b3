package rewarder

import (
	"os"
	"testing"
	"time"

	"ronbox/appliance/flow"
)

// Each cause of readiness is provoked and then removed. Tests of damaged and full files cover
// store_ok, tests of refused payees cover payment.
func TestReadinessCauses(t *testing.T) {
	var ill syncBool
	r := newRig(t, func(r *rig) { r.ledger = deaf{r.model, ill.Load} }).only(taskHealth)
	r.e.tick.Set(10 * time.Millisecond)
	r.e.look.Set(10 * time.Millisecond)
	fails := func(cause string, want float64) {
		t.Helper()
		r.eventually(cause, func() bool { return r.count("readyz_degraded{cause="+cause+"}") == want })
	}
	for _, cause := range []string{keyQueue, keyLedger, keyStore, keyArtifact, keyPayment} {
		fails(cause, 0)
	}

	for range queueCap {
		if err := r.e.requests.TrySend(&request{reply: flow.NewReply[Run]()}); err != nil {
			t.Fatal(err)
		}
	}
	fails(keyQueue, 1)
	for range queueCap {
		<-r.e.requests.C()
	}
	fails(keyQueue, 0)

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
		return r.count("readyz_degraded{cause="+keyLedger+"}") == 1
	})
	ill.Store(false)
	r.eventually("the breaker closes", func() bool {
		_, _ = r.e.SealInput(r.ctx(), alice, up.ID)
		return r.count("readyz_degraded{cause="+keyLedger+"}") == 0
	})

	in := r.seal(inputOf("f", 1000), usage("a requests 1"))
	next := r.seal(inputOf("g", 1000), usage("a requests 1"))
	if err := os.WriteFile(r.artifacts, nil, 0o600); err != nil { // where the folder would be
		t.Fatal(err)
	}
	r.only(taskScheduler, taskWorker, taskEmitter, taskWriter)
	r.mustCompute("f", in, p)
	fails(keyArtifact, 1)
	if err := os.Remove(r.artifacts); err != nil {
		t.Fatal(err)
	}
	r.mustCompute("g", next, p)
	fails(keyArtifact, 0)
}
