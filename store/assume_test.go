package store

import (
	"errors"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
)

// The tests of this file check properties of bbolt that this package depends on. Each failure after
// an upgrade of bbolt shows which part of the package must be reviewed.

func rawFile(t *testing.T, o opening) *bolt.DB {
	t.Helper()
	o.fresh = true
	db, err := openBolt(filepath.Join(t.TempDir(), "raw.db"), &o)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func putRaw(db *bolt.DB, value string) error {
	return db.Update(func(tx *bolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists([]byte("b"))
		if err != nil {
			return err
		}
		return b.Put([]byte("k"), []byte(value))
	})
}

func getRaw(t *testing.T, db *bolt.DB) (v string) {
	t.Helper()
	if err := db.View(func(tx *bolt.Tx) error {
		v = string(tx.Bucket([]byte("b")).Get([]byte("k")))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return v
}

// After a failed sync of the meta page Commit returns an error, but readers see the new page. The
// store must therefore be poisoned.
func TestAssumeFailedMetaSyncIsVisible(t *testing.T) {
	db := rawFile(t, opening{})
	if err := putRaw(db, "old"); err != nil {
		t.Fatal(err)
	}
	file := fileOf(t, db)
	hookWrites(t, db, func(b []byte, off int64) (int, error) {
		n, err := file.WriteAt(b, off)
		if off < 2*PageSize && err == nil {
			breakSync(t, &rig{Store: &Store{db: db}, t: t}) // after the meta page was written, before its sync
		}
		return n, err
	})
	err := putRaw(db, "new")
	var errno syscall.Errno
	if !errors.As(err, &errno) || clean(err) {
		t.Errorf("a failed sync is %T %v, not a bare errno", err, err)
	}
	if got := getRaw(t, db); got != "new" {
		t.Errorf("readers see %q: the poison rule could be relaxed", got)
	}
	_ = db.Close()
}

// At the size limit even a delete fails, because copy-on-write needs pages.
func TestAssumeDeleteFailsAtMaxSize(t *testing.T) {
	db := rawFile(t, opening{maxBytes: minBytes})
	var err error
	for n := 0; err == nil && n < 1000; n++ {
		err = db.Update(func(tx *bolt.Tx) error {
			b, err := tx.CreateBucketIfNotExists([]byte("b"))
			if err != nil {
				return err
			}
			for i := range 64 {
				if err := b.Put([]byte{byte(n >> 8), byte(n), byte(i)}, make([]byte, 4000)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if !errors.Is(err, berrors.ErrMaxSizeReached) {
		t.Fatalf("filling ended with %v", err)
	}
	err = db.Update(func(tx *bolt.Tx) error {
		c := tx.Bucket([]byte("b")).Cursor()
		for k, _ := c.First(); k != nil; k, _ = c.Next() {
			if k[2] == 0 {
				if err := tx.Bucket([]byte("b")).Delete(k); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if !errors.Is(err, berrors.ErrMaxSizeReached) {
		t.Errorf("a wide delete at the limit: %v", err)
	}
	if err := db.Close(); err != nil {
		t.Error(err)
	}
}

// A zero-length value reads as empty, not as absent. If the map is as large as the limit, a writer
// grows the file beside an open reader. With a smaller map the writer would wait for the reader
// forever here.
func TestAssumeReads(t *testing.T) {
	db := rawFile(t, opening{maxBytes: minBytes})
	if err := putRaw(db, ""); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(false)
	if err != nil {
		t.Fatal(err)
	}
	if err := putRaw(db, strings.Repeat("later", 1<<20)); err != nil {
		t.Fatal(err)
	}
	if v := tx.Bucket([]byte("b")).Get([]byte("k")); v == nil || len(v) != 0 {
		t.Errorf("an empty value reads as %q (nil: %v)", v, v == nil)
	}
	if err := errors.Join(tx.Rollback(), db.Close()); err != nil {
		t.Error(err)
	}
}
