package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// meddler moves HEAD each time it is decided, so that its batch never applies.
type meddler struct{ commitReq }

func (m meddler) decide(p *plan, j *job) (answer, error) {
	cur, err := p.e.Load(p.ctx, p.from)
	if err != nil {
		return answer{}, err
	}
	foreign := p.e.newPlan(p.ctx, cur, p.now)
	foreign.reject(j, "foreign")
	if _, err := store.Commit(p.ctx, p.e.store, store.Work, foreign.batch()); err != nil {
		return answer{}, err
	}
	p.reject(j, "never")
	return answer{}, nil
}

func TestRebuildsAreBounded(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	_, err := r.e.submit(r.ctx(), r.e.approvals, meddler{}, alice, "")
	if !errors.Is(err, record.ErrChainMismatch) {
		t.Errorf("err = %v, want ErrChainMismatch", err)
	}
	if n := r.metric("commit_cas_fail_total"); n != rebuilds+1 {
		t.Errorf("commit_cas_fail_total = %v, want %d", n, rebuilds+1)
	}
	r.propose(2, "b")
	if n := r.metric("service_restarts_total", "task", taskPipeline); n != 0 {
		t.Errorf("restarts = %v", n)
	}
}

// A guard that refuses one op answers its job; the other jobs of the batch succeed.
func TestOffenderAloneIsRefused(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	b := newBlocker()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = r.e.submit(r.ctx(), r.e.approvals, b, alice, "") })
	<-b.held
	var bad, good error
	wg.Go(func() { _, bad = r.e.submit(r.ctx(), r.e.approvals, badOp{}, alice, "") })
	wg.Go(func() { _, good = r.e.Propose(r.ctx(), alice, delta(2, "b"), "", "") })
	r.waitFor("both to queue", func() bool { return r.e.approvals.Len() == 1 && r.e.proposals.Len() == 1 })
	close(b.gate)
	wg.Wait()
	var guard *tables.GuardError
	if !errors.As(bad, &guard) || guard.Guard != "live" || good != nil {
		t.Errorf("offender: %v, other: %v", bad, good)
	}
}

// badOp decides an op that its guard refuses.
type badOp struct{ commitReq }

func (badOp) decide(p *plan, j *job) (answer, error) {
	p.add(j, tables.EndOp{ID: testID(1), State: document.StateStale}, j.audit("proposal.stale"))
	return answer{}, nil
}

// blocker holds the pipeline from the time it is decided until its gate opens.
type blocker struct {
	commitReq
	held, gate chan struct{}
}

func newBlocker() blocker { return blocker{held: make(chan struct{}), gate: make(chan struct{})} }

func (b blocker) decide(*plan, *job) (answer, error) {
	close(b.held)
	<-b.gate
	return answer{}, nil
}

// Past its drain deadline the pipeline stops at once, and every waiting caller is answered.
func TestAbortAnswersAll(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	b := abortedOnly{newBlocker()}
	var wg sync.WaitGroup
	answers := make([]error, 20)
	wg.Go(func() { _, answers[0] = r.e.submit(r.ctx(), r.e.approvals, b, alice, "") })
	<-b.held
	for i := range answers[1:] {
		wg.Go(func() {
			_, answers[i+1] = r.e.Propose(r.ctx(), engines.Actor{CapID: fmt.Sprint(i)}, delta(2, fmt.Sprint("x", i)),
				"", "")
		})
	}
	r.waitFor("the others to queue", func() bool { return r.e.proposals.Len() == len(answers)-1 })
	r.sup.Drain(service, 0, patience)
	wg.Wait()
	if n := r.metric("tasks_aborted_total", "kind", taskPipeline); n != 1 {
		t.Errorf("%v aborts are counted", n)
	}
	for i, err := range answers {
		if i > 0 && !errors.Is(err, flow.ErrCanceled) {
			t.Errorf("%d: %v", i, err)
		}
	}
}

// abortedOnly holds the pipeline until it is aborted.
type abortedOnly struct{ blocker }

func (b abortedOnly) decide(p *plan, _ *job) (answer, error) {
	close(b.held)
	<-p.ctx.Done()
	return answer{}, nil
}

// A caller that leaves while its job is queued leaves no trace. One that leaves while it runs gets
// an unknown outcome.
func TestLeavingCallers(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	b := newBlocker()
	var wg sync.WaitGroup
	defer wg.Wait()
	inHand, leave := context.WithCancel(r.ctx())
	var held error
	wg.Go(func() { _, held = r.e.submit(inHand, r.e.approvals, b, alice, "") })
	<-b.held
	queued, goAway := context.WithCancel(r.ctx())
	wg.Go(func() { _, _ = r.e.Propose(queued, alice, delta(2, "gone"), "", "") })
	r.waitFor("the other to queue", func() bool { return r.e.proposals.Len() == 1 })
	goAway()
	leave()
	r.waitFor("the grace to pass", func() bool { return r.metric("io_timeouts_total", "op", "commit") == 1 })
	close(b.gate)
	p := r.propose(2, "b")
	if live := r.e.pub.State.Load().Live; len(live) != 1 || live[mustID(p.ID)] == nil {
		t.Errorf("%d proposals", len(live))
	}
	wg.Wait()
	if !errors.Is(held, flow.ErrUnknown) {
		t.Errorf("the one in hand: %v, want ErrUnknown", held)
	}
	if n := r.metric("tasks_canceled_total", "kind", taskPipeline); n != 1 {
		t.Errorf("%v counted as cancelled, want the one in the queue", n)
	}
}

// With all slots taken, a caller waits until its deadline and nothing is written.
func TestWorkSlotsHaveADeadline(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	for range cap(r.e.slots) {
		r.e.slots <- struct{}{}
	}
	ctx, cancel := context.WithTimeout(r.ctx(), 10*time.Millisecond)
	defer cancel()
	var late *document.TimeoutError
	if _, err := r.e.Propose(ctx, alice, delta(2, "b"), "", ""); !errors.As(err, &late) {
		t.Errorf("err = %v, want a TimeoutError", err)
	}
	gone, leave := context.WithCancel(r.ctx())
	leave()
	if _, err := r.e.Propose(gone, alice, delta(2, "b"), "", ""); !errors.Is(err, context.Canceled) {
		t.Errorf("err = %v, want Canceled", err)
	}
	for range cap(r.e.slots) {
		<-r.e.slots
	}
	r.propose(2, "b")
}
