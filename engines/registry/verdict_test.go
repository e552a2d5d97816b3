package registry

import (
	"errors"
	"sync"
	"testing"

	"ronbox/engines/registry/record"
	"ronbox/store"
)

// bloated decides an op that no store takes, so that the batch it is in fails whole.
type bloated struct{ commitReq }

func (bloated) decide(p *plan, j *job) (answer, error) {
	p.add(j, Op{Do: OpReject}, j.audit("bloated"))
	p.ops[len(p.ops)-1].Audit = make([]byte, store.MaxValue+1)
	return answer{}, nil
}

// together queues requests behind a held pipeline, so that they share a batch in this order, and gives their outcomes.
func (r *rig) together(reqs ...request) (answers []answer, errs []error) {
	r.t.Helper()
	b := newBlocker()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = r.e.submit(r.ctx(), r.e.approvals, b, alice, "") })
	<-b.held
	answers, errs = make([]answer, len(reqs)), make([]error, len(reqs))
	for i, req := range reqs {
		wg.Go(func() { answers[i], errs[i] = r.e.submit(r.ctx(), r.e.approvals, req, alice, "") })
		r.waitFor("the request to queue", func() bool { return r.e.approvals.Len() == i+1 })
	}
	close(b.gate)
	wg.Wait()
	return answers, errs
}

// What a request was told because of another one in its batch is true only if the batch is: a batch that fails takes back
// repeats, duplicates and conflicts alike.
func TestFailedBatchTakesBackWhatItImplied(t *testing.T) {
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s)
	winner, loser := r.propose(2, "winner"), r.propose(2, "loser")
	r.approve(winner, s.keys...)
	commit := commitReq{id: mustID(winner.ID)}
	sign := func(p Proposed) approveReq {
		return approveReq{id: mustID(p.ID), approval: s.keys[0].Sign(p.PayloadB3, r.now()), key: keyOf(s.set().Signers[0])}
	}
	early := approveReq{id: testID(9), approval: sign(loser).approval, key: sign(loser).key}
	answers, errs := r.together(early, sign(loser), sign(loser), commit, commit, sign(loser), bloated{})
	for i, err := range errs {
		if want := store.ErrInternal; i > 0 && !errors.Is(err, want) {
			t.Errorf("%d: %+v, %v, want %v", i, answers[i], err, want)
		}
	}
	if !errors.Is(errs[0], ErrNotFound) {
		t.Errorf("what was refused before the batch had an op: %v, want ErrNotFound", errs[0])
	}
	if v := r.e.Head().Head.Version; v != 1 {
		t.Errorf("HEAD is version %d", v)
	}
	r.approve(loser, s.keys...)
	answers, errs = r.together(commit, commit)
	if errs[0] != nil || errs[1] != nil || answers[0].committed.Replayed || !answers[1].committed.Replayed {
		t.Errorf("commit twice in a batch: %+v, %v", answers, errs)
	}
	if _, errs = r.together(commitReq{id: mustID(loser.ID)}); !errors.Is(errs[0], ErrConflict) || errors.Is(errs[0], record.ErrQuorum) {
		t.Errorf("the loser: %v", errs[0])
	}
}
