package registry

import (
	"context"
	"errors"
	"testing"

	"ronbox/engines/registry/document"
	"ronbox/engines/registry/record"
)

// Each series counts as its help says, once, and agrees with the audit chain.
func TestCountsAreExact(t *testing.T) {
	t.Parallel()
	r, s := newRig(t).start(), newSigners(2, 2)
	r.genesis(s)
	p := r.propose(2, "b")
	r.approve(p, s.keys[0])
	again := s.keys[0].Sign(p.PayloadB3, r.now())
	if _, err := r.e.Approve(r.ctx(), alice, p.ID, again, ""); err == nil {
		t.Error("a duplicate was taken")
	}
	wrong := s.keys[1].Sign(digest("another payload"), r.now())
	if _, err := r.e.Approve(r.ctx(), alice, p.ID, wrong, ""); !errors.Is(err, record.ErrInvalidSig) {
		t.Errorf("a wrong signature: %v", err)
	}
	if _, err := r.e.Commit(r.ctx(), alice, p.ID, ""); !errors.Is(err, record.ErrQuorum) {
		t.Errorf("commit without a quorum: %v", err)
	}
	for range cap(r.e.slots) { // all slots taken: late, not refused
		r.e.slots <- struct{}{}
	}
	gone, leave := context.WithCancel(r.ctx())
	leave()
	if _, err := r.e.Approve(gone, alice, p.ID, again, ""); !errors.Is(err, context.Canceled) {
		t.Errorf("without a slot: %v", err)
	}
	for range cap(r.e.slots) {
		<-r.e.slots
	}
	r.approve(p, s.keys[1])
	r.commit(p)
	r.commit(p)
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
		if got := r.metric(row.name[0], row.name[1:]...); got != row.want {
			t.Errorf("%v = %v, want %v", row.name, got, row.want)
		}
	}
}
