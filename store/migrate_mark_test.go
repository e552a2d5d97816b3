package store

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// While a migration runs, the file is marked as in use: after a failed sync or a power cut the next
// boot must not trust the page cache. An orderly end restores the previous mark.
func TestMigrationIsMarked(t *testing.T) {
	path := counted(t, 30)
	cmd, said, in := childProcess(t, "migrate", path)
	if line, err := said.ReadString('\n'); err != nil || line != "midway\n" {
		t.Fatalf("child says %q, %v", line, err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_, _ = cmd.Process.Wait()
	_ = in.Close()
	expectClean(t, path, false)

	path = counted(t, 30)
	interrupted(t, path, 7, 2)
	expectClean(t, path, true)
	if _, err := lifted(path, lifts(7), nil).migrateOffline(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectClean(t, path, true)
}

func expectClean(t *testing.T, path string, want bool) {
	t.Helper()
	r, err := openReader(path, opening{}, Schema+2)
	if err != nil {
		t.Fatal(err)
	}
	if r.Info().Clean != want {
		t.Errorf("clean = %v, want %v", r.Info().Clean, want)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// A program of the schema that a migration is leaving must not take the half of it for the whole.
func TestHalfMigratedIsRefusedByTheOldProgram(t *testing.T) {
	path := counted(t, 30)
	interrupted(t, path, 7, 2)
	old := newStore(path, testConfig())
	if err := ready(t.Context(), old); !errors.Is(err, ErrSchema) {
		t.Errorf("err = %v", err)
	}
	s := lifted(path, lifts(7), nil)
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if _, info := liftedHash(t, s); info.Schema != Schema+2 {
		t.Errorf("%+v", info)
	}
}

// Nodes may share the folder of snapshots: none takes another's for its own, or away.
func TestMigrationsShareAFolder(t *testing.T) {
	dir := t.TempDir()
	for n := range 2 {
		path := filepath.Join(t.TempDir(), "ronbox.db")
		id, err := NewIdentity(day)
		if err != nil {
			t.Fatal(err)
		}
		if err := Create(path, id); err != nil {
			t.Fatal(err)
		}
		r := open(t, path)
		mustCommit(r, add{"00000"})
		r.stop()
		s := lifted(path, lifts(7), nil)
		c := *s.config()
		c.SnapshotDir = dir
		s.SetConfig(c)
		if err := ready(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		liftedHash(t, s)
		taken, err := filepath.Glob(filepath.Join(dir, fmt.Sprintf("pre-migrate-v%d-*.db", Schema)))
		if err != nil || len(taken) != n+1 {
			t.Errorf("after %d nodes: %v, %v", n+1, taken, err)
		}
	}
}

// Who stops the check of a snapshot that is there keeps the snapshot.
func TestMigrationStoppedKeepsItsSnapshot(t *testing.T) {
	path := counted(t, 3)
	fail := func(Reader, *Writes, []byte) ([]byte, error) { return nil, errOfStep }
	s := lifted(path, &migrations{schema: Schema + 1, list: []Migration{{From: Schema, Step: fail}}}, nil)
	if err := ready(t.Context(), s); !errors.Is(err, errOfStep) {
		t.Fatal(err)
	}
	taken := func() []string {
		names, err := filepath.Glob(filepath.Join(filepath.Dir(path), fmt.Sprintf("pre-migrate-v%d-*.db", Schema)))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	if len(taken()) != 1 {
		t.Fatalf("%v", taken())
	}
	s = lifted(path, lifts(7), nil)
	if err := s.Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Prepare(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(taken()) != 1 {
		t.Errorf("the snapshot is gone: %v", taken())
	}
}

// A migration of a clustered node's file does not move it: the log of the cluster goes on.
func TestMigrationOfAMemberMovesNothing(t *testing.T) {
	path := counted(t, 3)
	if err := SetMembership(path, testMembership()); err != nil {
		t.Fatal(err)
	}
	db, err := openBolt(path, &opening{})
	if err != nil {
		t.Fatal(err)
	}
	step := func(Reader, *Writes, []byte) ([]byte, error) { return nil, nil }
	m := &migrator{
		db:    db,
		dir:   t.TempDir(),
		table: migrations{schema: Schema + 1, list: []Migration{{From: Schema, Step: step}}},
		now:   func() int64 { return day.UnixNano() },
	}
	before, _, err := m.look()
	if err == nil {
		_, err = m.run(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	after, _, err := m.look()
	if err != nil || after.Schema != Schema+1 || after.position() != before.position() {
		t.Errorf("%+v, %v, was %+v", after, err, before)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
}
