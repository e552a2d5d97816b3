package pipeline_test

import (
	"context"
	"errors"
	"testing"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
)

// Each series counts as its help says, once, and agrees with the audit chain.
func TestCountsAreExact(t *testing.T) {
	t.Parallel()
	r, s := registrytest.New(t).Start(), newSigners(2, 2)
	r.Genesis(s)
	p := r.Propose(2, "b")
	r.Approve(p, s.Keys[0])
	again := s.Keys[0].Sign(p.PayloadB3, r.Now())
	if _, err := r.Engine.Approve(r.Ctx(), alice, p.ID, again, ""); err == nil {
		t.Error("a duplicate was taken")
	}
	wrong := s.Keys[1].Sign(digest("another payload"), r.Now())
	if _, err := r.Engine.Approve(r.Ctx(), alice, p.ID, wrong, ""); !errors.Is(err, record.ErrInvalidSig) {
		t.Errorf("a wrong signature: %v", err)
	}
	if _, err := r.Engine.Commit(r.Ctx(), alice, p.ID, ""); !errors.Is(err, record.ErrQuorum) {
		t.Errorf("commit without a quorum: %v", err)
	}
	for range r.Engine.Slots().Cap() { // all slots taken: late, not refused
		r.Engine.Slots().TryAcquire()
	}
	gone, leave := context.WithCancel(r.Ctx())
	leave()
	if _, err := r.Engine.Approve(gone, alice, p.ID, again, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("without a slot: %v", err)
	}
	for range r.Engine.Slots().Cap() {
		r.Engine.Slots().Release()
	}
	r.Approve(p, s.Keys[1])
	r.Commit(p)
	r.Commit(p)
	for _, row := range []struct {
		want float64
		name []string
	}{
		{2, []string{"governance_approvals_total", "result", "accepted"}},
		{1, []string{"governance_approvals_total", "result", "duplicate"}},
		{1, []string{"governance_approvals_total", "result", "rejected"}}, {2, []string{"governance_commits_total"}},
		{2, []string{"commit_latency_seconds"}}, {2, []string{"registry_updates_total", "result", "accepted"}},
		{1, []string{"registry_updates_total", "result", "rejected"}},
		{1, []string{"governance_proposals_total", "status", document.StatePending}},
		{2, []string{"governance_proposals_total", "status", document.StateCommitted}},
		{0, []string{"io_timeouts_total", "op", "commit"}},
	} {
		if got := r.Metric(row.name[0], row.name[1:]...); got != row.want {
			t.Errorf("%v = %v, want %v", row.name, got, row.want)
		}
	}
}
