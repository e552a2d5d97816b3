package store

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
)

// rowsOf hashes all rows of a file, the store's own included.
func rowsOf(t testing.TB, path string) (sum b3.Digest) {
	t.Helper()
	r, err := OpenReader(path)
	if err != nil {
		t.Fatal(err)
	}
	err = r.db.View(func(tx *bolt.Tx) (err error) {
		sum, err = contentHash(tx)
		return err
	})
	if err = errors.Join(err, r.Close()); err != nil {
		t.Fatal(err)
	}
	return sum
}

// A file of schema 1 that a kill leaves at any step of its way to schema 3 is migrated to the same
// rows as one that no kill has met, and is readable meanwhile.
func TestLocalRowsMove(t *testing.T) {
	path := counted(t, 40)
	asSchema2(t, path)
	edited(t, path, func(tx *bolt.Tx) error {
		info, err := readInfo(tx)
		info.Schema = 1
		return errors.Join(err, writeInfo(tx, info))
	})
	table := &migrations{schema: localSchema, list: []Migration{{From: 1, Step: doubleRows(7)}}}
	var left []string
	finish := func(path string, progress func(string, int64, int64)) {
		t.Helper()
		s := lifted(path, table, progress)
		if err := errors.Join(ready(t.Context(), s), s.Close()); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	finish(path, func(string, int64, int64) {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		copied := filepath.Join(dir, fmt.Sprintf("%d.db", len(left)))
		left = append(left, copied)
		if err := os.WriteFile(copied, raw, 0o600); err != nil {
			t.Fatal(err)
		}
	})
	if len(left) < 8 {
		t.Fatalf("%d steps", len(left))
	}
	for i, copied := range left {
		if rep, err := Verify(t.Context(), copied, nil, nil, nil); err != nil || !rep.OK {
			t.Errorf("step %d: %+v, %v", i, rep.Steps, err)
		}
		finish(copied, nil)
		if rowsOf(t, copied) != rowsOf(t, path) {
			t.Errorf("step %d: other rows", i)
		}
	}
}

// A snapshot of schema 2 is restored as such, and migrated by the first boot.
func TestRestoreOfOlderSchema(t *testing.T) {
	path, dst := counted(t, 3), filepath.Join(t.TempDir(), "restored.db")
	asSchema2(t, path)
	if _, err := Restore(t.Context(), path, dst, RestoreOptions{Now: day}, nil); err != nil {
		t.Fatal(err)
	}
	if r, err := OpenReader(dst); err != nil || r.Info().Schema != 2 || !r.Info().Clean || r.Close() != nil {
		t.Fatalf("restored: %v", err)
	}
	s := newStore(dst, testConfig())
	if err := errors.Join(ready(t.Context(), s), s.Close()); err != nil {
		t.Fatal(err)
	}
	if info := s.Info(); info.Schema != Schema || !info.Restored || !info.Clean {
		t.Errorf("%+v", info)
	}
}

// A program of schema 2 finds its rows of meta, as far as its comparison of the schemas. A file
// without its local rows is damaged, not that of a node alone.
func TestMetaOfOlderPrograms(t *testing.T) {
	path := counted(t, 1)
	edited(t, path, func(tx *bolt.Tx) error {
		meta := tx.Bucket([]byte(metaBucket.Name))
		if clean, err := parseClean(meta); clean || err != nil {
			t.Errorf("clean of meta: %t, %v", clean, err)
		}
		for _, key := range [][]byte{keyBuckets, keyMigration, keyApplied, keyMembers} {
			if meta.Get(key) != nil {
				t.Errorf("meta has %s", key)
			}
		}
		return tx.DeleteBucket([]byte(localBucket.Name))
	})
	if _, err := OpenReader(path); !errors.Is(err, ErrCorrupt) {
		t.Errorf("without local rows: %v", err)
	}
}
