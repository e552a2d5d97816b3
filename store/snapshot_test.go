package store

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// A snapshot under load is one moment: as many rows as its seq says, and no write was refused
// meanwhile.
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
		m, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, nil)
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
	m, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, func(done, total int64) {
		if _, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, nil); !errors.Is(err, ErrBusy) {
			t.Errorf("a second snapshot at the same time: %v", err)
		}
		end = [2]int64{done, total}
	})
	if err != nil || end != [2]int64{2 * m.Size, 2 * m.Size} {
		t.Errorf("progress ended at %v of a snapshot of %d bytes, %v", end, m.Size, err)
	}
	if read, err := ReadManifest(m.Path); err != nil || read.B3 != m.B3 || read.StateHash != m.StateHash ||
		!read.At.Equal(m.At) {
		t.Errorf("manifest %+v, %v; want %+v", read, err, m)
	}
	for step := range 2 {
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		_, err := r.Snapshot(ctx, dir, SnapshotOptions{}, func(int64, int64) {
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

// A panic of the progress function is its owner's: the store is well and no partial file stays.
func TestPanicInProgress(t *testing.T) {
	r := open(t, newFile(t))
	defer r.stop()
	dir := t.TempDir()
	for step := range 2 {
		func() {
			defer func() {
				if v := recover(); v != "a bug" {
					t.Errorf("recovered %v", v)
				}
			}()
			calls := 0
			_, _ = r.Snapshot(t.Context(), dir, SnapshotOptions{}, func(int64, int64) {
				if calls++; calls > 3*step {
					panic("a bug")
				}
			})
		}()
		if left, err := os.ReadDir(dir); err != nil || len(left) != 0 || r.Err() != nil {
			t.Errorf("left %v, %v; store %v", left, err, r.Err())
		}
	}
	if _, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, nil); err != nil {
		t.Error(err)
	}
}

// A store that fails while a snapshot is taken gives none.
func TestPoisonDuringSnapshot(t *testing.T) {
	r := open(t, newFile(t))
	dir := t.TempDir()
	_, err := r.Snapshot(t.Context(), dir, SnapshotOptions{}, func(done, total int64) {
		if done == total {
			r.poison(errRefused, false)
		}
	})
	if !errors.Is(err, ErrPoisoned) {
		t.Errorf("err = %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("the folder holds %v, %v", left, err)
	}
	r.abandon()
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
		if err != nil || rep.OK || !strings.HasPrefix(rep.Problem, tt.step+": ") ||
			rep.Steps[len(rep.Steps)-1].Name != tt.step {
			t.Errorf("%s: %+v, %v", tt.step, rep, err)
		}
	}
	if err := os.WriteFile(m.ManifestPath, []byte(`{"format":1,"format":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if rep, err := Verify(t.Context(), snapshot, nil, nil, nil); err != nil || rep.OK ||
		!strings.HasPrefix(rep.Problem, "manifest: ") && rep.Steps[0].Name != "manifest" {
		t.Errorf("a garbled manifest: %+v, %v", rep, err)
	}
	if err := m.write(); err != nil {
		t.Fatal(err)
	}
	panics := Check{Name: "row", Run: func(r Reader) error { panic(&RowError{Bucket: "b", Cause: errRefused}) }}
	if rep, err := Verify(t.Context(), snapshot, nil, []Check{panics}, nil); err != nil || rep.OK ||
		!strings.HasPrefix(rep.Problem, "row: ") {
		t.Errorf("a check that meets a bad row: %+v, %v", rep, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Verify(ctx, snapshot, nil, nil, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}
