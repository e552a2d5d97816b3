package registry

import (
	"slices"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/registry/record"
	"ronbox/store"
)

// rowless deletes rows, as no command of the registry does.
type rowless struct{}

func (rowless) Kind() string { return "registry.test_no_checkpoints/1" }

func (rowless) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for size := range checkpoints.All(r) {
		checkpoints.Delete(w, size)
	}
	return struct{}{}, nil
}

// If any part of a verifiable statement is missing, no row is deleted, and the reason is logged and
// counted.
func TestNothingGoes(t *testing.T) {
	for _, tt := range []struct {
		reason string
		spoil  func(r *rig, s signers)
	}{
		{keepPolicy, func(r *rig, _ signers) { r.retain(RetainAll, 4) }},
		{keepNotDue, func(r *rig, _ signers) { r.retain(RetainByCount, 11) }},
		{keepNotDue, func(r *rig, _ signers) { r.retain(RetainByAge, 4) }},
		{skipNoCheckpoint, func(r *rig, _ signers) {
			if _, err := store.Commit(r.ctx(), r.store, store.Work, rowless{}); err != nil {
				r.t.Fatal(err)
			}
		}},
		{skipNoKey, func(r *rig, s signers) {
			head := r.e.Head()
			p, _ := r.change(13, head.Head.PayloadB3, head.Signers, func(n *record.SignerSet) { n.LogKeys = nil })
			r.approve(p, s.keys...)
			r.commit(p)
		}},
		{skipNotReady, func(r *rig, _ signers) { r.e.trip(&Rollback{Reason: RollbackFork}) }},
	} {
		r, s := newPruneRig(t)
		r.genesis(s)
		r.commitDeltas(s, 11)
		r.cover()
		r.cfg.Retention = RetentionConfig{Policy: RetainByCount, MaxAge: unit.Duration(time.Hour), MaxCount: 4}
		r.e.Reload(r.cfg)
		tt.spoil(r, s)
		before := r.tally()
		p := &pruner{e: r.e}
		for range 2 {
			if err := p.cycle(r.ctx()); err != nil {
				t.Errorf("%s: %v", tt.reason, err)
			}
		}
		if w, err := r.e.HighWater(r.ctx()); err != nil || w.Retention.Reason != tt.reason ||
			w.Retention.Next != w.Retention.MinVersion {
			t.Errorf("%s: %+v, %v", tt.reason, w.Retention, err)
		}
		if after := r.tally(); !slices.Equal(after.entries, before.entries) || len(after.audits) < len(before.audits) ||
			r.e.Head().MinVersion != 1 {
			t.Errorf("%s: %+v were there, %+v are left", tt.reason, before, after)
		}
		if count, counted := r.e.m.pruneSkipped[tt.reason]; counted != (r.skipped(tt.reason) == 2) {
			t.Errorf("%s: counted %v times, %t", tt.reason, r.skipped(tt.reason), count != nil)
		}
		r.stop()
	}
}

func (r *rig) skipped(reason string) float64 {
	if _, counted := r.e.m.pruneSkipped[reason]; !counted {
		return 0
	}
	return r.metric("registry_retention_skipped_total", "reason", reason)
}

// A full queue of the pruner does not delay the checkpointor: the cycle is skipped.
func TestFullRetentionQueue(t *testing.T) {
	r, s := newPruneRig(t)
	r.stop()
	r.open()
	r.sup.Start(slices.DeleteFunc(r.e.Tasks(), func(t flow.Task) bool { return t.Name == taskPruner })...)
	r.genesis(s)
	r.retain(RetainByCount, 4)
	for r.e.retentionCmd.Len() < r.e.retentionCmd.Cap() {
		r.cover()
	}
	before := r.skipped(skipQueueFull)
	r.cover()
	if n := r.skipped(skipQueueFull); n != before+1 {
		t.Errorf("skipped %v times, %v before", n, before)
	}
}

// Retention by age removes whole segments in which every version is older than max_age. An idle log
// is checked once in a checkpoint interval.
func TestPruneByAge(t *testing.T) {
	r, s := newPruneRig(t)
	r.genesis(s)
	r.commitDeltas(s, 6)
	r.cover()
	r.advance(2 * time.Hour)
	for v := uint64(8); v <= 12; v++ {
		r.commitNext(s, v)
	}
	r.cover()
	r.retain(RetainByAge, 4)
	if plan, err := r.e.Retention(r.ctx()); err != nil || plan.Next != 7 || plan.Versions != 5 {
		t.Fatalf("%+v, %v", plan, err)
	}
	r.advance(r.cfg.Storage.CheckpointInterval.D() + time.Second)
	r.swept(7)
	r.wantPruned(7, 12)
}
