package store

import (
	"context"
	"errors"
	"os"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
)

// rewriteBytes is what one transaction of a rewrite takes, so that memory stays bounded.
const rewriteBytes = 64 << 20

// walkRows visits every bucket of a transaction and every row in it, sub-buckets included, in byte order. A nil value is a bucket, which
// comes before its rows; path is where the row is.
func walkRows(tx *bolt.Tx, fn func(path [][]byte, k, v []byte) error) error {
	return tx.ForEach(func(name []byte, b *bolt.Bucket) error {
		if err := fn(nil, name, nil); err != nil {
			return err
		}
		return walkBucket(b, [][]byte{name}, fn)
	})
}

func walkBucket(b *bolt.Bucket, path [][]byte, fn func(path [][]byte, k, v []byte) error) error {
	return b.ForEach(func(k, v []byte) error {
		if err := fn(path, k, v); err != nil || v != nil {
			return err
		}
		return walkBucket(b.Bucket(k), append(path[:len(path):len(path)], k), fn)
	})
}

// contentHash is over every row of the file, the store's own included, whatever its class.
func contentHash(tx *bolt.Tx) (b3.Digest, error) {
	h := rowHasher{h: b3.New()}
	err := walkRows(tx, func(path [][]byte, k, v []byte) error {
		name := ""
		for _, p := range path {
			name += string(p) + "\x00"
		}
		h.row(name, k, v)
		return nil
	})
	h.flush()
	return h.h.Sum32(), err
}

// rewriter copies all rows of one transaction into a new file, page after full page.
type rewriter struct {
	ctx      context.Context
	dst      *bolt.DB
	tx       *bolt.Tx // of dst
	into     *bolt.Bucket
	path     [][]byte // of into
	pending  int64    // bytes in tx
	done     int64
	total    int64
	progress func(done, total int64) // may be nil
}

// rewrite makes the file at path out of src, synced, without what was deleted and without free pages. It gives the size of the file.
// Progress counts bytes of keys and values against total.
func rewrite(ctx context.Context, src *bolt.Tx, path string, total int64, progress func(done, total int64)) (size int64, err error) {
	db, err := openBolt(path, &opening{fresh: true, noSync: true})
	if err != nil {
		return 0, err
	}
	w := &rewriter{ctx: ctx, dst: db, total: total, progress: progress}
	if err = w.begin(); err == nil {
		err = walkRows(src, w.row)
	}
	if err == nil {
		err = w.tx.Commit()
	} else if w.tx != nil {
		err = errors.Join(err, w.tx.Rollback())
	}
	if err == nil {
		err = db.View(func(tx *bolt.Tx) error {
			size = tx.Size()
			return nil
		})
	}
	if err = errors.Join(err, db.Close()); err != nil {
		return 0, roomError(err)
	}
	return size, roomError(trim(path, size))
}

// trim cuts off what the file has grown beyond its pages, and syncs it.
func trim(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Sync(), f.Close())
}

func (w *rewriter) begin() (err error) {
	w.into, w.path, w.pending = nil, nil, 0
	w.tx, err = w.dst.Begin(true)
	return err
}

// row takes one row, or makes one bucket.
func (w *rewriter) row(path [][]byte, k, v []byte) error {
	if w.ctx.Err() != nil {
		return context.Cause(w.ctx)
	}
	if w.pending > rewriteBytes {
		err := w.tx.Commit()
		if w.tx = nil; err != nil {
			return err
		}
		if err := w.begin(); err != nil {
			return err
		}
	}
	n := int64(len(k) + len(v))
	w.pending, w.done = w.pending+n, w.done+n
	if w.progress != nil && w.done>>20 != (w.done-n)>>20 { // once a MiB
		w.progress(min(w.done, w.total), w.total)
	}
	if len(path) == 0 {
		_, err := w.tx.CreateBucket(k)
		return err
	}
	b := w.bucket(path)
	if v == nil {
		_, err := b.CreateBucket(k)
		return err
	}
	return b.Put(k, v)
}

// bucket is the one at path in the transaction that is open.
func (w *rewriter) bucket(path [][]byte) *bolt.Bucket {
	if w.into != nil && samePath(w.path, path) {
		return w.into
	}
	b := w.tx.Bucket(path[0])
	for _, name := range path[1:] {
		b = b.Bucket(name)
	}
	b.FillPercent = 1
	w.into, w.path = b, path
	return b
}

func samePath(a, b [][]byte) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if string(a[i]) != string(b[i]) {
			return false
		}
	}
	return true
}
