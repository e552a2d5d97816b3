package store

import (
	"context"
	"errors"
	"os"

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
	return openReader(path, opening{}, Schema)
}

// openReader takes files of up to a schema.
func openReader(path string, o opening, schema int) (*ReadOnly, error) {
	o.readOnly = true
	db, err := openBolt(path, &o)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(path) // after the lock: nobody writes any more
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	r := &ReadOnly{db: db, path: path, size: st.Size()}
	err = guarded(func() error { return db.View(r.readMeta) })
	if err == nil {
		err = r.info.known(schema)
	}
	if err != nil {
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
	return readRows(r.db, nil, func(rd *txReader) error { return fn(rd) })
}

// Close lets the file go.
func (r *ReadOnly) Close() error { return r.db.Close() }

// FreeBytes is the room inside the file that new rows would take first; 0 if it cannot be told.
func (r *ReadOnly) FreeBytes() (free int64) {
	_ = r.walk(func(w *pageWalk) error { // 0 is said then
		n, err := w.freelist()
		free = int64(n) * PageSize
		return err
	})
	return free
}

// checkPages walks all pages. It looks before it reads, so that a damaged page leads nowhere; the map is not used.
func (r *ReadOnly) checkPages(ctx context.Context) error {
	return r.walk(func(w *pageWalk) error {
		w.each = func(uint64) error { return context.Cause(ctx) }
		return w.all()
	})
}

func (r *ReadOnly) walk(fn func(*pageWalk) error) error {
	f, err := os.Open(r.path)
	if err != nil {
		return err
	}
	w, err := newPageWalk(f, r.size)
	if err == nil {
		err = fn(w)
	}
	return errors.Join(err, f.Close())
}
