package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A snapshot under load is one moment: as many rows as its seq says, and no write was refused meanwhile.
func TestSnapshotUnderLoad(t *testing.T) {
	r := open(t, newFile(t))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
					mustCommit(r, put{Key: fmt.Sprintf("%d/%d", i, n), Value: "1"})
				}
			}
		})
	}
	dir := t.TempDir()
	var last Manifest
	for range 5 {
		m, err := r.Snapshot(t.Context(), dir, nil)
		if err != nil {
			t.Fatal(err)
		}
		if m.Seq < last.Seq || m.Buckets["test/log"] != m.Seq || m.Buckets["test/rows"] != m.Seq {
			t.Errorf("seq %d after %d, rows %v", m.Seq, last.Seq, m.Buckets)
		}
		last = m
	}
	close(stop)
	wg.Wait()
	rep, err := Verify(t.Context(), last.Path, nil, nil, nil)
	if err != nil || !rep.OK || !rep.Manifest || rep.StateHash != last.StateHash {
		t.Errorf("%+v, %v", rep, err)
	}
	r.stop()
}

// One snapshot at a time; progress reaches its end; a cancelled one leaves nothing behind.
func TestSnapshotManners(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	mustCommit(r, put{Key: "k", Value: "v"})
	dir := filepath.Join(t.TempDir(), "new")
	var end [2]int64
	m, err := r.Snapshot(t.Context(), dir, func(done, total int64) {
		if _, err := r.Snapshot(t.Context(), dir, nil); !errors.Is(err, ErrBusy) {
			t.Errorf("a second snapshot at the same time: %v", err)
		}
		end = [2]int64{done, total}
	})
	if err != nil || end != [2]int64{2 * m.Size, 2 * m.Size} {
		t.Errorf("progress ended at %v of a snapshot of %d bytes, %v", end, m.Size, err)
	}
	if read, err := ReadManifest(m.Path); err != nil || read.B3 != m.B3 || read.StateHash != m.StateHash || !read.At.Equal(m.At) {
		t.Errorf("manifest %+v, %v; want %+v", read, err, m)
	}
	for step := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := r.Snapshot(ctx, dir, func(int64, int64) {
			if calls++; calls > step {
				cancel()
			}
		})
		cancel()
		if !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled at %d: %v", step, err)
		}
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 2 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
}

func TestRestoreNeedsAcceptance(t *testing.T) {
	snapshot := snapshotOf(t)
	path := filepath.Join(t.TempDir(), "data", "ronbox.db")
	by := Event{Event: "db.restore", Decision: "allow", Reason: "drill", UID: "0"}
	var pct []int64
	info, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day, By: by, KeepTokens: true}, func(done, total int64) {
		pct = append(pct, done*100/total)
	})
	if err != nil || !info.Restored || info.AuthEpoch != 1 || info.RestoredFrom == "" || info.RestoredFrom == info.Incarnation {
		t.Fatalf("%+v, %v", info, err)
	}
	if len(pct) == 0 || pct[len(pct)-1] != 100 {
		t.Errorf("progress %v", pct)
	}
	r := open(t, path)
	for _, l := range []Lane{Work, Bulk} {
		if _, err := Commit(t.Context(), r.Store, l, put{Key: "k"}); !errors.Is(err, ErrRestored) {
			t.Errorf("%s before acceptance: %v", l, err)
		}
	}
	if _, err := Commit(t.Context(), r.Store, Control, put{Key: "control", Value: "v"}); err != nil {
		t.Errorf("control before acceptance: %v", err)
	}
	r.stop()
	r = open(t, path)
	if i := r.Info(); !i.Restored {
		t.Errorf("a restart accepted the restore: %+v", i)
	}
	for range 2 { // the second one changes nothing
		if err := r.AcceptRestore(t.Context(), Event{Event: "db.accept_restore", Decision: "allow"}); err != nil {
			t.Fatal(err)
		}
	}
	mustCommit(r, put{Key: "k", Value: "v"})
	if i := r.Info(); i.Restored || i.AuditSeq != 2 || i.RestoredFrom != info.RestoredFrom || i.Incarnation != info.Incarnation {
		t.Errorf("accepted: %+v", i)
	}
	r.stop()
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK || rep.Info.Restored {
		t.Errorf("%+v, %v", rep, err)
	}
}

// A restore keeps the file it replaces, and one that fails leaves it where it is.
func TestRestoreKeepsTheOldFile(t *testing.T) {
	snapshot, path := snapshotOf(t), filled(t)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := copyOf(t, snapshot)
	truncate(t, bad, 3*PageSize)
	if _, err := Restore(t.Context(), bad, path, RestoreOptions{Now: day}, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged snapshot: %v", err)
	}
	if _, err := Restore(t.Context(), path+".none", path, RestoreOptions{Now: day}, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a missing snapshot: %v", err)
	}
	failing := Check{Name: "engine", Run: func(Reader) error { return errRefused }}
	if _, err := Restore(t.Context(), snapshot, path, RestoreOptions{Now: day, Checks: []Check{failing}}, nil); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a snapshot that an engine refuses: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if _, err := Restore(ctx, snapshot, path, RestoreOptions{Now: day}, func(done, total int64) {
		if done == total {
			cancel()
		}
	}); err != nil {
		t.Errorf("cancelled after the last byte: %v", err)
	}
	dir, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(dir) != 2 || !strings.HasPrefix(dir[1].Name(), "ronbox.db.before-restore-") {
		t.Fatalf("the folder holds %v, %v", dir, err)
	}
	kept, err := os.ReadFile(filepath.Join(filepath.Dir(path), dir[1].Name()))
	if err != nil || string(kept) != string(raw) {
		t.Errorf("the file kept is not the one that was there, %v", err)
	}
}

// Verify tells a manifest that does not belong, and runs the engines' checks.
func TestVerifyFinds(t *testing.T) {
	snapshot := snapshotOf(t)
	m, err := ReadManifest(snapshot)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		step string
		edit func(*Manifest)
	}{
		{"size", func(m *Manifest) { m.Size++ }},
		{"b3", func(m *Manifest) { m.B3[0] ^= 1 }},
		{"buckets", func(m *Manifest) { m.Buckets = map[string]uint64{"meta": 1} }},
		{"state_hash", func(m *Manifest) { m.StateHash[0] ^= 1 }},
	} {
		wrong := m
		tt.edit(&wrong)
		if err := wrong.write(); err != nil {
			t.Fatal(err)
		}
		rep, err := Verify(t.Context(), snapshot, nil, nil, nil)
		if err != nil || rep.OK || !strings.HasPrefix(rep.Problem, tt.step+": ") || rep.Steps[len(rep.Steps)-1].Name != tt.step {
			t.Errorf("%s: %+v, %v", tt.step, rep, err)
		}
	}
	if err := os.WriteFile(m.ManifestPath, []byte(`{"format":1,"format":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(t.Context(), snapshot, nil, nil, nil); err != nil || rep.OK || !strings.HasPrefix(rep.Problem, "manifest: ") && rep.Steps[0].Name != "manifest" {
		t.Errorf("a garbled manifest: %+v, %v", rep, err)
	}
	if err := m.write(); err != nil {
		t.Fatal(err)
	}
	panics := Check{Name: "row", Run: func(r Reader) error { panic(&RowError{Bucket: "b", Cause: errRefused}) }}
	if rep, err := Verify(t.Context(), snapshot, nil, []Check{panics}, nil); err != nil || rep.OK || !strings.HasPrefix(rep.Problem, "row: ") {
		t.Errorf("a check that meets a bad row: %+v, %v", rep, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, snapshot, nil, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
