package store

import (
	"bytes"
	"errors"
	"testing"

	bolt "go.etcd.io/bbolt"
)

// A row that was lost, or whose key was changed, is found, also after the store has written the row
// again, other rows, and the row under the changed key.
func TestLostNames(t *testing.T) {
	for name, spoil := range map[string]func(*bolt.Bucket) error{
		"lost": func(b *bolt.Bucket) error { return b.Delete([]byte("b")) },
		"changed": func(b *bolt.Bucket) error {
			row := bytes.Clone(b.Get([]byte("b")))
			return errors.Join(b.Delete([]byte("b")), b.Put([]byte("j"), row))
		},
	} {
		path := newFile(t)
		r := open(t, path)
		for _, key := range []string{"a", "b", "c"} {
			mustCommit(r, put{Key: key, Value: "1"})
		}
		r.stop()
		soundNames(t, path, name, true)
		inFile(t, path, func(tx *bolt.Tx) error { return spoil(tx.Bucket([]byte(testRows.Name))) })
		soundNames(t, path, name, false)
		r = open(t, path)
		for _, key := range []string{"b", "d", "j"} {
			mustCommit(r, put{Key: key, Value: "2"})
		}
		err := r.View(t.Context(), func(rd Reader) error { return CheckNames(rd, 0, testRows) })
		if !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: the running store finds %v", name, err)
		}
		r.stop()
		soundNames(t, path, name, false)
	}
}

// The names of a file of schema 3 are counted at its first boot. A lost count is damage.
func TestLostCounts(t *testing.T) {
	for _, key := range [][]byte{keyNamed, keyBuckets, namesKey(testRows.Name)} {
		path := counted(t, 3)
		soundNames(t, path, string(key), true)
		inFile(t, path, func(tx *bolt.Tx) error { return localRows(tx).Delete(key) })
		soundNames(t, path, string(key), false)
	}
}

// A file without counts, as a first boot without room leaves it, is used without them, and the next
// boot counts.
func TestUncountedNames(t *testing.T) {
	path := counted(t, 3)
	r := open(t, path)
	uncounted := func(tx *bolt.Tx) error {
		var err error
		for key, _ := localRows(tx).Cursor().Seek([]byte("name")); key != nil && err == nil; {
			err = localRows(tx).Delete(key)
			key, _ = localRows(tx).Cursor().Seek([]byte("name"))
		}
		return err
	}
	if err := r.db.Update(uncounted); err != nil {
		t.Fatal(err)
	}
	mustCommit(r, put{Key: "later", Value: "1"})
	err := r.View(t.Context(), func(rd Reader) error { return CheckNames(rd, 0, testRows) })
	if err != nil {
		t.Error(err)
	}
	r.stop()
	soundNames(t, path, "uncounted", true)
	r = open(t, path)
	mustCommit(r, put{Key: "latest", Value: "1"})
	r.stop()
	soundNames(t, path, "counted", true)
	inFile(t, path, func(tx *bolt.Tx) error { return tx.Bucket([]byte(testRows.Name)).Delete([]byte("later")) })
	soundNames(t, path, "lost", false)
}

// soundNames checks a file.
func soundNames(t *testing.T, path, name string, want bool) {
	t.Helper()
	if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || rep.OK != want {
		t.Errorf("%s: sound %v, %v, want %v: %s", name, rep.OK, err, want, rep.Problem)
	}
}

// inFile changes a file that no store has open.
func inFile(t *testing.T, path string, fn func(*bolt.Tx) error) {
	t.Helper()
	db, err := openBolt(path, &opening{})
	if err == nil {
		err = errors.Join(db.Update(fn), db.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}
