package pipeline_test

import (
	"errors"
	"sync"
	"testing"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/pipeline"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/store"
)

// bloated decides a step that no store accepts, so that its batch fails as a whole.
func bloated(p *pipeline.Plan, j *pipeline.Job) error {
	p.Add(j, nil, "bloated")
	p.Bloat(store.MaxValue + 1)
	return nil
}

// together queues requests while the pipeline is held, so that they share a batch in this order,
// and returns their outcomes.
func together(r *registrytest.Rig, reqs ...pipeline.Request) (answers []pipeline.Answer, errs []error) {
	r.T.Helper()
	b := newBlocker()
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = submit(r.Ctx(), r, b.call()) })
	<-b.held
	answers, errs = make([]pipeline.Answer, len(reqs)), make([]error, len(reqs))
	for i, req := range reqs {
		wg.Go(func() {
			answers[i], errs[i] = submit(r.Ctx(), r, req)
		})
		r.WaitFor("the request to queue", func() bool { return r.Engine.Approving().Len() == i+1 })
	}
	close(b.gate)
	wg.Wait()
	return answers, errs
}

// An answer that rests on another request of its batch counts only if the batch succeeds. A failed
// batch takes back repeats, duplicates and conflicts.
func TestFailedBatchTakesBackWhatItImplied(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(1, 1)
	r.Genesis(s)
	winner, loser := r.Propose(2, "winner"), r.Propose(2, "loser")
	r.Approve(winner, s.Keys...)
	commit := pipeline.CommitOf(mustID(winner.ID))
	by := s.Set().Signers[0]
	sign := func(p document.Proposed) pipeline.Request {
		return pipeline.ApproveOf(mustID(p.ID), s.Keys[0].Sign(p.PayloadB3, r.Now()), by)
	}
	early := pipeline.ApproveOf(testID(9), s.Keys[0].Sign(loser.PayloadB3, r.Now()), by)
	answers, errs := together(r, early, sign(loser), sign(loser), commit, commit, sign(loser), pipeline.Call(bloated))
	for i, err := range errs {
		if want := store.ErrInternal; i > 0 && !errors.Is(err, want) {
			t.Errorf("%d: %+v, %v, want %v", i, answers[i], err, want)
		}
	}
	if !errors.Is(errs[0], document.ErrNotFound) {
		t.Errorf("what was refused before the batch had an op: %v, want ErrNotFound", errs[0])
	}
	if v := r.Engine.Head().Head.Version; v != 1 {
		t.Errorf("HEAD is version %d", v)
	}
	r.Approve(loser, s.Keys...)
	answers, errs = together(r, commit, commit)
	if errs[0] != nil || errs[1] != nil || answers[0].Committed().Replayed || !answers[1].Committed().Replayed {
		t.Errorf("commit twice in a batch: %+v, %v", answers, errs)
	}
	if _, errs = together(r, pipeline.CommitOf(mustID(loser.ID))); !errors.Is(errs[0], document.ErrConflict) ||
		errors.Is(errs[0], record.ErrQuorum) {
		t.Errorf("the loser: %v", errs[0])
	}
}
