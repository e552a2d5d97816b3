package registry

import (
	"errors"
	"sync"
	"testing"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/tables"
	"ronbox/store"
)

// bloated decides a step that no store accepts, so that its batch fails as a whole.
type bloated struct{ commitReq }

func (bloated) decide(p *plan, j *job) (answer, error) {
	p.add(j, nil, j.audit("bloated"))
	p.steps[len(p.steps)-1].Audit = make([]byte, store.MaxValue+1)
	return answer{}, nil
}

// together queues requests while the pipeline is held, so that they share a batch in this order,
// and returns their outcomes.
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

// An answer that rests on another request of its batch counts only if the batch succeeds. A failed
// batch takes back repeats, duplicates and conflicts.
func TestFailedBatchTakesBackWhatItImplied(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(1, 1)
	r.genesis(s)
	winner, loser := r.propose(2, "winner"), r.propose(2, "loser")
	r.approve(winner, s.keys...)
	commit := commitReq{id: mustID(winner.ID)}
	sign := func(p document.Proposed) approveReq {
		return approveReq{
			id: mustID(p.ID), approval: s.keys[0].Sign(p.PayloadB3, r.now()),
			key: tables.KeyOf(s.set().Signers[0]),
		}
	}
	early := approveReq{id: testID(9), approval: sign(loser).approval, key: sign(loser).key}
	answers, errs := r.together(early, sign(loser), sign(loser), commit, commit, sign(loser), bloated{})
	for i, err := range errs {
		if want := store.ErrInternal; i > 0 && !errors.Is(err, want) {
			t.Errorf("%d: %+v, %v, want %v", i, answers[i], err, want)
		}
	}
	if !errors.Is(errs[0], document.ErrNotFound) {
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
	if _, errs = r.together(commitReq{id: mustID(loser.ID)}); !errors.Is(errs[0], document.ErrConflict) ||
		errors.Is(errs[0], record.ErrQuorum) {
		t.Errorf("the loser: %v", errs[0])
	}
}
