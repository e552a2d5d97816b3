package store

import (
	"context"
	"errors"
	"os"
	"time"

	bolt "go.etcd.io/bbolt"
)

// ReadOnly is a file opened for reading, which no one writes meanwhile: a stopped node's, or a snapshot.
type ReadOnly struct {
	db      *bolt.DB
	path    string
	size    int64
	info    Info
	buckets []*Bucket
}

// OpenReader opens a file that no process has open for writing; else a LockedError names that process. ErrCorrupt is a file that cannot
// be read at all.
func OpenReader(path string) (*ReadOnly, error) {
	return openReader(path, 0)
}

func openReader(path string, wait time.Duration) (*ReadOnly, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	db, err := openBolt(path, opening{readOnly: true, wait: wait})
	if err != nil {
		return nil, err
	}
	r := &ReadOnly{db: db, path: path, size: st.Size()}
	if err := guarded(func() error { return db.View(r.readMeta) }); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return r, nil
}

func (r *ReadOnly) readMeta(tx *bolt.Tx) (err error) {
	if r.info, err = readInfo(tx); err != nil {
		return err
	}
	r.buckets, err = readBuckets(tx)
	return err
}

// Info is what the file says of itself.
func (r *ReadOnly) Info() Info { return r.info }

// Size is the length of the file in bytes.
func (r *ReadOnly) Size() int64 { return r.size }

// Buckets are the declarations the last node recorded in the file.
func (r *ReadOnly) Buckets() []*Bucket { return r.buckets }

// View runs fn in a read transaction. A fault of the file is ErrCorrupt.
func (r *ReadOnly) View(ctx context.Context, fn func(Reader) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return readRows(r.db, nil, fn)
}

// Close lets the file go.
func (r *ReadOnly) Close() error { return r.db.Close() }

// FreeBytes is the room inside the file that new rows would take first; 0 if it cannot be told.
func (r *ReadOnly) FreeBytes() int64 {
	f, err := os.Open(r.path)
	if err != nil {
		return 0
	}
	defer func() { _ = f.Close() }() // read only
	m, err := preflight(f, r.size)
	if err != nil {
		return 0
	}
	w := &pageWalk{f: f, meta: m, seen: make([]bool, m.highWater)}
	free, err := w.freelist()
	if err != nil {
		return 0
	}
	return int64(free) * PageSize
}

// checkPages walks all pages, first with bounds on every step, so that a damaged page cannot lead a mapped read astray, then as bbolt does.
func (r *ReadOnly) checkPages() error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	err = walkPages(f, r.size)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return checkPages(r.db)
}
