package registry

import (
	"testing"
	"testing/synctest"
	"time"

	"ronbox/engines"
	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// An expired proposal is expired, not stale, even if its base expires with it.
func TestStackExpiresTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, func(c *Config) { c.Proposals.TTL = 60e9 }).start()
		r.genesis(newSigners(1, 1))
		stack := r.stack(3)
		r.advance(2 * time.Minute)
		r.waitFor("the sweep", func() bool { return len(r.e.pub.State.Load().Live) == 0 })
		for i, p := range stack {
			if got := r.stateOf(p); got != document.StateExpired {
				t.Errorf("%d is %s, want expired", i, got)
			}
		}
	})
}

// largest adds as much to a batch as the largest payload.
type largest struct{ commitReq }

func (largest) decide(p *plan, j *job) (answer, error) {
	p.add(j, nil, j.audit("large"))
	p.size += record.MaxPayload
	return answer{}, nil
}

// A batch never exceeds the size of a command, whatever its last job adds.
func TestBatchesFitACommand(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := &pipeline{e: r.e, cur: r.e.pub.State.Load()}
	var jobs []*job
	for range maxBatchJobs {
		jobs = append(jobs, &job{ctx: r.ctx(), req: largest{}, actor: engines.Actor{}})
	}
	made := p.plan(r.ctx(), jobs)
	if made.size > maxBatchBytes || len(made.verdict) < 2 {
		t.Errorf("%d jobs of %d bytes", len(made.verdict), made.size)
	}
}

// A job that was queued before a fault was found is refused too.
func TestLatchHoldsForQueuedJobs(t *testing.T) {
	t.Parallel()
	r := newRig(t).start()
	r.genesis(newSigners(1, 1))
	st := r.e.pub.State.Load()
	req, err := r.e.proposeRequest(r.ctx(), st, delta(2, "b"), "")
	if err != nil {
		t.Fatal(err)
	}
	fault := "test"
	r.e.chainError.Store(&fault)
	if _, err := r.e.submit(r.ctx(), r.e.proposals, req, alice, ""); !isCause(err, document.CauseChainError) {
		t.Errorf("err = %v, want chain_error", err)
	}
}
