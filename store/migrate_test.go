package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
)

var (
	testNew   = &Bucket{Name: "test/new"}
	errOfStep = errors.New("step failed")
)

// lifts are two migrations: to the next schema, values double, a slice of rows in each step; to the
// one after it, rows move to another bucket.
func lifts(slice int) *migrations {
	return &migrations{schema: Schema + 2, list: []Migration{
		{From: Schema + 1, Make: []*Bucket{testNew}, Step: moveRows(slice)},
		{From: Schema, Step: doubleRows(slice)},
	}}
}

func doubleRows(slice int) func(Reader, *Writes, []byte) ([]byte, error) {
	return func(r Reader, w *Writes, cursor []byte) (next []byte, err error) {
		n := 0
		for k, v := range r.Range(testRows, cursor, nil) {
			if n++; n > slice {
				return append([]byte{}, k...), nil
			}
			w.Put(testRows, append([]byte{}, k...), binary.BigEndian.AppendUint64(nil, 2*binary.BigEndian.Uint64(v)))
		}
		return nil, nil
	}
}

func moveRows(slice int) func(Reader, *Writes, []byte) ([]byte, error) {
	return func(r Reader, w *Writes, _ []byte) (next []byte, err error) {
		n := 0
		for k, v := range r.Range(testRows, nil, nil) {
			if n++; n > slice {
				return []byte("more"), nil
			}
			key := append([]byte{}, k...)
			w.Put(testNew, key, append([]byte("v3 "), v...))
			w.Delete(testRows, key)
		}
		return nil, nil
	}
}

// counted fills a file with n numbers.
func counted(t testing.TB, n int) string {
	t.Helper()
	path := newFile(t)
	r := open(t, path)
	for i := range n {
		mustCommit(r, add{fmt.Sprintf("%05d", i)})
	}
	r.stop()
	return path
}

// lifted opens path with migrations, as a program with a newer schema does.
func lifted(path string, m *migrations, progress func(stage string, done, total int64)) *Store {
	s := New(
		testConfig(),
		Options{
			Path:       path,
			Strict:     true,
			Progress:   progress,
			Now:        func() time.Time { return day },
			Migrations: m.list,
			schema:     m.schema,
		},
	)
	s.Declare("test", testRows, testNew, testLog, testSubs, testDerived)
	return s
}

func liftedHash(t testing.TB, s *Store) (hash string, info Info) {
	t.Helper()
	err := s.View(t.Context(), func(r Reader) error {
		hash = StateHash(r, []*Bucket{testRows, testNew, testLog}).String()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	info = *s.Info()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return hash, info
}

// A migration that is interrupted anywhere, any number of times, ends in the same state as an
// uninterrupted one. Until it is done, the file keeps the state that the old schema left. The
// snapshot taken before it has the old state.
func TestMigrationResumes(t *testing.T) {
	const n = 40
	plain := counted(t, n)
	raw, err := os.ReadFile(plain)
	if err != nil {
		t.Fatal(err)
	}
	s := lifted(plain, lifts(7), nil)
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	want, info := liftedHash(t, s)
	if info.Schema != Schema+2 || info.AuditSeq != 2 {
		t.Fatalf("%+v", info)
	}
	for stop := range 18 {
		path, slice := filepath.Join(t.TempDir(), "ronbox.db"), 5+45*(stop%2)
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		interrupted(t, path, slice, 1+stop/2)
		interrupted(t, path, slice, 1+stop%5)
		s := lifted(path, lifts(slice), nil)
		if err := ready(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if got, info := liftedHash(t, s); got != want || info.Schema != Schema+2 {
			t.Fatalf("stop %d: state %s of schema %d, want %s", stop, got, info.Schema, want)
		}
		taken, err := filepath.Glob(filepath.Join(filepath.Dir(path), "*.db"))
		if err != nil || len(taken) != 2 {
			t.Fatalf("stop %d: files %v, %v", stop, taken, err)
		}
		rep, err := Verify(t.Context(), taken[0], nil, nil, nil)
		if err != nil || !rep.OK || !rep.Manifest || rep.Info.Schema != Schema || rep.Buckets["test/rows"] != n {
			t.Fatalf("stop %d: snapshot %+v, %v", stop, rep, err)
		}
	}
}

// interrupted opens the file and ends the context after so many steps; one that was done by then
// opens.
func interrupted(t *testing.T, path string, slice, after int) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	steps := 0
	s := lifted(path, lifts(slice), func(stage string, _, _ int64) {
		if strings.HasPrefix(stage, "migrate") {
			if steps++; steps >= after {
				cancel()
			}
		}
	})
	err := s.Open(ctx)
	if err == nil {
		err = s.Prepare(ctx)
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// Killed in the middle of a step, the file goes on from the step before.
func TestMigrationKilled(t *testing.T) {
	path, plain := counted(t, 30), ""
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	plain = filepath.Join(t.TempDir(), "plain.db")
	if err := os.WriteFile(plain, raw, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		cmd, said, in := childProcess(t, "migrate", path)
		if line, err := said.ReadString('\n'); err != nil || line != "midway\n" {
			t.Fatalf("child says %q, %v", line, err)
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_, _ = cmd.Process.Wait()
		_ = in.Close()
	}
	var hashes [2]string
	for i, p := range []string{path, plain} {
		s := lifted(p, lifts(7), nil)
		if err := ready(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		hashes[i], _ = liftedHash(t, s)
	}
	if hashes[0] != hashes[1] {
		t.Errorf("killed %s, plain %s", hashes[0], hashes[1])
	}
}

// childMigrate stops inside the third step of this life, and waits there to be killed.
func childMigrate(path string) int {
	steps, m := 0, lifts(3)
	for i := range m.list {
		step := m.list[i].Step
		m.list[i].Step = func(r Reader, w *Writes, cursor []byte) ([]byte, error) {
			next, err := step(r, w, cursor)
			if steps++; steps == 3 {
				fmt.Println("midway")
				select {}
			}
			return next, err
		}
	}
	if err := ready(context.Background(), lifted(path, m, nil)); err != nil {
		fmt.Println(err)
		return 1
	}
	return 0
}

// A failed migration leaves the old schema and returns the cause.
func TestMigrationFails(t *testing.T) {
	fail := func(r Reader, w *Writes, cursor []byte) ([]byte, error) {
		w.Put(testRows, []byte("half"), make([]byte, 8))
		return nil, errOfStep
	}
	large := func(r Reader, w *Writes, cursor []byte) ([]byte, error) {
		for i := range uint64(MigrationKeys + 1) {
			w.Put(testRows, auditKey(i), nil)
		}
		return nil, nil
	}
	for _, tt := range []struct {
		name string
		step func(Reader, *Writes, []byte) ([]byte, error)
		want error
		says string
	}{
		{"an error", fail, errOfStep, fmt.Sprintf("migrate v%d to v%d", Schema, Schema+1)},
		{"a panic", func(Reader, *Writes, []byte) ([]byte, error) { panic("a bug") }, ErrInternal, "a bug"},
		{"too many rows", large, nil, "the limit is 10000"},
	} {
		path := counted(t, 3)
		s := lifted(path, &migrations{schema: Schema + 1, list: []Migration{{From: Schema, Step: tt.step}}}, nil)
		err := ready(t.Context(), s)
		if err == nil || tt.want != nil && !errors.Is(err, tt.want) || !strings.Contains(err.Error(), tt.says) ||
			errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", tt.name, err)
		}
		rep, err := Verify(t.Context(), path, nil, nil, nil)
		if err != nil || !rep.OK || rep.Info.Schema != Schema || rep.Buckets["test/rows"] != 3 {
			t.Errorf("%s: %+v, %v", tt.name, rep, err)
		}
	}
}

// No room for the snapshot, no migration.
func TestMigrationNeedsItsSnapshot(t *testing.T) {
	path := counted(t, 3)
	s := lifted(path, lifts(7), nil)
	c := *s.config()
	c.SnapshotDir = filepath.Join(path, "not-a-folder")
	s.SetConfig(c)
	if err := ready(t.Context(), s); err == nil || errors.Is(err, ErrCorrupt) {
		t.Error("migrated without a snapshot")
	}
	r, err := OpenReader(path)
	if err != nil || r.Info().Schema != Schema {
		t.Fatalf("%+v, %v", r.Info(), err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}

// Offline, a file of this schema is left as it is, and one in use is refused.
func TestMigrateOffline(t *testing.T) {
	path := counted(t, 3)
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	done, err := Migrate(t.Context(), path, "", nil, nil)
	if err != nil || done != (Migrated{From: Schema, To: Schema}) {
		t.Errorf("%+v, %v", done, err)
	}
	if now, err := os.ReadFile(path); err != nil || string(now) != string(raw) {
		t.Errorf("the file was changed, %v", err)
	}
	s := lifted(path, lifts(2), nil)
	done, err = s.migrateOffline(t.Context())
	if err != nil || done.From != Schema || done.To != Schema+2 || done.Rows != 3+6 || done.Snapshot == "" {
		t.Errorf("%+v, %v", done, err)
	}
	if _, err := Migrate(t.Context(), path, "", nil, nil); !errors.Is(err, ErrSchema) {
		t.Errorf("a newer file: %v", err)
	}
	r := open(t, newFile(t))
	if _, err := Migrate(t.Context(), r.Path(), "", nil, nil); !errors.Is(err, ErrLocked) {
		t.Errorf("beside a node: %v", err)
	}
	r.stop()
}

// A row of a migration under way that cannot be is damage.
func TestMigrationRowIsChecked(t *testing.T) {
	for name, row := range map[string]any{"another schema": migrationRow{From: Schema + 1}, "garbage": "x"} {
		path := counted(t, 1)
		db, err := openBolt(path, &opening{})
		if err != nil {
			t.Fatal(err)
		}
		raw, err := encodeCBOR(row)
		if err == nil {
			err = db.Update(
				func(tx *bolt.Tx) error { return localRows(tx).Put(keyMigration, raw) },
			)
		}
		if err = errors.Join(err, db.Close()); err != nil {
			t.Fatal(err)
		}
		if err := ready(t.Context(), lifted(path, lifts(7), nil)); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// AddSums seals every row of its buckets once, over as many steps as the rows need.
func TestAddSums(t *testing.T) {
	const n = 4
	path := counted(t, n)
	fill := func(_ Reader, w *Writes, cursor []byte) ([]byte, error) {
		if cursor != nil {
			w.Put(testDerived, []byte("k"), []byte("w"))
			return nil, nil
		}
		for i := range MigrationKeys {
			w.Put(testRows, fmt.Appendf(nil, "x%05d", i), []byte("v"))
		}
		return []byte("more"), nil
	}
	list := []Migration{
		{From: Schema, Make: []*Bucket{testDerived}, Step: fill},
		{From: Schema + 1, Step: AddSums([]*Bucket{testRows, testDerived})},
	}
	s := lifted(path, &migrations{schema: Schema + 2, list: list}, nil)
	if err := ready(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	err := s.View(t.Context(), func(r Reader) error {
		rows := 0
		for _, b := range []*Bucket{testRows, testDerived} {
			for k, v := range r.Range(b, nil, nil) {
				rows++
				if _, err := CutSum(k, v); err != nil {
					return fmt.Errorf("%s %q: %w", b.Name, k, err)
				}
			}
		}
		if rows != n+MigrationKeys+1 {
			return fmt.Errorf("%d rows", rows)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}
