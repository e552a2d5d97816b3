package registry_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"ronbox/appliance/flow"
	"ronbox/appliance/unit"
	"ronbox/engines/registry"
	"ronbox/engines/registry/record"
	"ronbox/engines/registry/registrytest"
	"ronbox/engines/registry/retain"
	"ronbox/engines/registry/seal"
	"ronbox/engines/registry/tables"
	"ronbox/store"
	"ronbox/store/storetest"
)

// coveredLog stores the rows on which PutRetention decides: HEAD is 14, versions below 3 are
// pruned, checkpoints over 8 and 14 are archived, and version 5 lacks its entry, 11 its items.
type coveredLog struct{}

func (coveredLog) Kind() string { return "registry.test_covered_log/1" }

func (coveredLog) Apply(_ store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	tables.MetaHead.Put(w, tables.KeyHead, record.Head{Version: 14})
	tables.MetaNumber.Put(w, tables.KeyMin, 3)
	for _, size := range []uint64{8, 14} {
		tables.Checkpoints.Put(w, size, []byte("note"))
	}
	for _, v := range []uint64{7, 9, 11} {
		tables.Entries.Put(w, v, []byte("entry"))
		tables.Audits.Put(w, v, []byte("record"))
	}
	for _, v := range []uint64{5, 7, 9} {
		tables.SetHeaders.Put(w, tables.SetKey{Version: v, Part: 0}, tables.SetHeader{})
	}
	return struct{}{}, nil
}

// A statement is stored only if it lets go whole segments below an archived checkpoint, leaves a
// segment below HEAD, and keeps a version whose items, entry and audit record are stored.
func TestGuardsOfPutRetention(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		doc   string
		put   tables.PutRetention
		guard string // "": stored
	}{
		{"covered", tables.PutRetention{Min: 7, Audit: 7, Size: 8, Segment: 2}, ""},
		{"covered by a later checkpoint", tables.PutRetention{Min: 9, Audit: 9, Size: 14, Segment: 2}, ""},
		{"covered to the last version", tables.PutRetention{Min: 7, Audit: 7, Size: 8, Segment: 6}, ""},
		{"pruned already", tables.PutRetention{Min: 3, Audit: 7, Size: 8, Segment: 2}, "segment"},
		{"below what is pruned", tables.PutRetention{Min: 1, Audit: 7, Size: 8, Segment: 2}, "segment"},
		{"no segment", tables.PutRetention{Min: 7, Audit: 7, Size: 8}, "segment"},
		{"half a segment", tables.PutRetention{Min: 7, Audit: 7, Size: 8, Segment: 4}, "segment"},
		{"all but less than a segment", tables.PutRetention{Min: 9, Audit: 9, Size: 14, Segment: 8}, "head"},
		{"beyond HEAD", tables.PutRetention{Min: 15, Audit: 9, Size: 14, Segment: 2}, "head"},
		{"beyond the checkpoint", tables.PutRetention{Min: 9, Audit: 9, Size: 8, Segment: 2}, "checkpoint"},
		{"a checkpoint that is not archived", tables.PutRetention{Min: 9, Audit: 9, Size: 12, Segment: 2},
			"checkpoint"},
		{"no checkpoint", tables.PutRetention{Min: 7, Audit: 7, Segment: 2}, "checkpoint"},
		{"items not stored", tables.PutRetention{Min: 11, Audit: 11, Size: 14, Segment: 2}, "snapshot"},
		{"entry not stored", tables.PutRetention{Min: 5, Audit: 7, Size: 8, Segment: 2}, "snapshot"},
		{"audit record not stored", tables.PutRetention{Min: 7, Audit: 6, Size: 8, Segment: 2}, "snapshot"},
	} {
		tx := storetest.NewTx(t, registry.Buckets()...)
		if _, err := storetest.Do(tx, coveredLog{}); err != nil {
			t.Fatal(err)
		}
		_, err := storetest.Do(tx, tt.put)
		guard, first := &tables.GuardError{}, uint64(3)
		if tt.guard == "" {
			first = tt.put.Min
		} else if !errors.As(err, &guard) {
			t.Errorf("%s: err = %v, want guard %q", tt.doc, err, tt.guard)
		}
		if kept, _ := tables.MetaNumber.Get(tx.Reader(), tables.KeyMin); guard.Guard != tt.guard || kept != first {
			t.Errorf("%s: guard %q, first version %d, want %q, %d", tt.doc, guard.Guard, kept, tt.guard, first)
		}
	}
}

// However far apart checkpoints are archived, no version above the last one goes: not even if the
// policy keeps fewer, and the pruner runs again and again.
func TestPruneStaysBelowTheCheckpoint(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.Stop()
	r.Open()
	r.Freeze() // the checkpointor archives nothing without a request
	r.Sup.Start(slices.DeleteFunc(r.Engine.Tasks(), func(t flow.Task) bool { return t.Name == retain.TaskName })...)
	r.Genesis(s)
	covered(r)
	setPolicy(r, retain.ByCount, 4)
	p, head := r.Engine.Retainer().Begin(), uint64(1)
	for _, tt := range []struct{ covered, head, first uint64 }{
		{1, 6, 1}, {7, 40, 7}, {41, 60, 41}, {61, 62, 59},
	} {
		for _, until := range []uint64{tt.covered, tt.head} {
			for head < until {
				head++
				commitNext(r, s, head)
			}
			if until == tt.covered {
				cover(r)
			}
		}
		for range 2 {
			if err := p.Cycle(r.Ctx()); err != nil {
				t.Fatalf("HEAD %d, checkpoint over %d: %v", tt.head, tt.covered, err)
			}
		}
		if first := r.Engine.Head().MinVersion; first != tt.first {
			t.Fatalf("HEAD %d, checkpoint over %d: kept from %d on, want %d", tt.head, tt.covered, first, tt.first)
		}
		if tt.first > 1 {
			wantPruned(r, tt.first, tt.head)
		}
	}
	if rep := r.VerifyFile(); !rep.OK {
		t.Errorf("%+v: %v", rep, rep.Problem)
	}
}

// rowless deletes rows, as no command of the registry does.
type rowless struct{}

func (rowless) Kind() string { return "registry.test_no_checkpoints/1" }

func (rowless) Apply(r store.Reader, _ store.Stamp, w *store.Writes) (struct{}, error) {
	for size := range tables.Checkpoints.All(r) {
		tables.Checkpoints.Delete(w, size)
	}
	return struct{}{}, nil
}

// If any part of a verifiable statement is missing, no row is deleted, and the reason is logged and
// counted.
func TestNothingGoes(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		reason string
		spoil  func(r *registrytest.Rig, s registrytest.Signers)
	}{
		{"policy_none", func(r *registrytest.Rig, _ registrytest.Signers) { setPolicy(r, retain.All, 4) }},
		{"not_due", func(r *registrytest.Rig, _ registrytest.Signers) { setPolicy(r, retain.ByCount, 11) }},
		{"not_due", func(r *registrytest.Rig, _ registrytest.Signers) { setPolicy(r, retain.ByAge, 4) }},
		{"no_checkpoint", func(r *registrytest.Rig, _ registrytest.Signers) {
			if _, err := store.Commit(r.Ctx(), r.Store, store.Work, rowless{}); err != nil {
				r.T.Fatal(err)
			}
		}},
		{"no_key", func(r *registrytest.Rig, s registrytest.Signers) {
			head := r.Engine.Head()
			p, _ := change(r, 13, head.Head.PayloadB3, head.Signers, func(n *record.SignerSet) { n.LogKeys = nil })
			r.Approve(p, s.Keys...)
			r.Commit(p)
		}},
		{"not_ready", func(r *registrytest.Rig, _ registrytest.Signers) {
			r.Engine.Seal().Trip(&seal.Rollback{Reason: seal.RollbackFork})
		}},
	} {
		r, s := newPruneRig(t)
		r.Genesis(s)
		commitDeltas(r, s, 11)
		cover(r)
		r.Config.Retention = registry.RetentionConfig{Policy: retain.ByCount, MaxAge: unit.Duration(time.Hour), MaxCount: 4}
		r.Engine.Reload(r.Config)
		tt.spoil(r, s)
		before := tallyOf(r)
		p := r.Engine.Retainer().Begin()
		for range 2 {
			if err := p.Cycle(r.Ctx()); err != nil {
				t.Errorf("%s: %v", tt.reason, err)
			}
		}
		if w, err := r.Engine.HighWater(r.Ctx()); err != nil || w.Retention.Reason != tt.reason ||
			w.Retention.Next != w.Retention.MinVersion {
			t.Errorf("%s: %+v, %v", tt.reason, w.Retention, err)
		}
		if after := tallyOf(r); !slices.Equal(after.entries, before.entries) || len(after.audits) < len(before.audits) ||
			r.Engine.Head().MinVersion != 1 {
			t.Errorf("%s: %+v were there, %+v are left", tt.reason, before, after)
		}
		if counted := !slices.Contains(kept, tt.reason); counted != (skipped(r, tt.reason) == 2) {
			t.Errorf("%s: counted %v times", tt.reason, skipped(r, tt.reason))
		}
		r.Stop()
	}
}

// kept are the reasons to keep versions that are no skipped cycle.
var kept = []string{"policy_none", "not_due"}

func skipped(r *registrytest.Rig, reason string) float64 {
	if slices.Contains(kept, reason) {
		return 0
	}
	return r.Metric("registry_retention_skipped_total", "reason", reason)
}

// A full queue of the pruner does not delay the checkpointor: the cycle is skipped.
func TestFullRetentionQueue(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.Stop()
	r.Open()
	r.Sup.Start(slices.DeleteFunc(r.Engine.Tasks(), func(t flow.Task) bool { return t.Name == retain.TaskName })...)
	r.Genesis(s)
	setPolicy(r, retain.ByCount, 4)
	for skipped(r, "queue_full") == 0 {
		cover(r)
	}
	before := skipped(r, "queue_full")
	cover(r)
	if n := skipped(r, "queue_full"); n != before+1 {
		t.Errorf("skipped %v times, %v before", n, before)
	}
}

// Retention by age removes whole segments in which every version is older than max_age. An idle log
// is checked once in a checkpoint interval.
func TestPruneByAge(t *testing.T) {
	t.Parallel()
	r, s := newPruneRig(t)
	r.Genesis(s)
	commitDeltas(r, s, 6)
	cover(r)
	r.Advance(2 * time.Hour)
	for v := uint64(8); v <= 12; v++ {
		commitNext(r, s, v)
	}
	cover(r)
	setPolicy(r, retain.ByAge, 4)
	if plan, err := r.Engine.Retention(r.Ctx()); err != nil || plan.Next != 7 || plan.Versions != 5 {
		t.Fatalf("%+v, %v", plan, err)
	}
	r.Advance(r.Config.Storage.CheckpointInterval.D() + time.Second)
	swept(r, 7)
	wantPruned(r, 7, 12)
}
