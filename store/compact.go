package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
	"ronbox/store/lock"
)

// Suffixes of temporary files beside a database: a new, compacted or restored file, and the old
// file until the name of the compacted file is durable. Killed processes leave them behind.
const (
	newSuffix     = ".new"
	compactSuffix = ".compacting"
	restoreSuffix = ".restoring"
	keptSuffix    = ".before-compact"
)

// SweepBeside removes the temporary files that killed processes have left beside the Target of
// path, which the caller has open, and returns their paths. It removes nothing while such a process
// runs.
func SweepBeside(path string) (removed []string, err error) {
	path, folder, err := lock.Folder(path)
	if errors.Is(err, ErrLocked) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(folder, err) }()
	// make the name of the file durable before the file that it replaced is removed
	if err := folder.Sync(); err != nil {
		return nil, err
	}
	for _, suffix := range []string{newSuffix, compactSuffix, restoreSuffix, keptSuffix} {
		switch gone := os.Remove(path + suffix); {
		case gone == nil:
			removed = append(removed, path+suffix)
		case !errors.Is(gone, os.ErrNotExist):
			err = errors.Join(err, gone)
		}
	}
	return removed, err
}

// Compacted is the result of a compaction.
type Compacted struct {
	File      string    `json:"file"`
	Before    int64     `json:"before_bytes"` // bytes of the file
	After     int64     `json:"after_bytes"`
	StateHash b3.Digest `json:"state_hash"`
}

// Compact copies the rows of a file into a new file without deleted data and free pages, verifies
// that both hold the same rows, and atomically replaces the old file. A symbolic link at path
// stays: the file that it names is replaced. Compact needs as much disk space as the rows take. It
// returns ErrLocked if a process has the file open and ErrFull if the disk has too little space.
// After any error, cancellation or crash the file is the complete old or new one. progress, which
// may be nil, counts bytes against the size of the old file.
func Compact(ctx context.Context, path string, progress func(done, total int64)) (done Compacted, err error) {
	if _, err := os.Stat(path); err != nil { // before the folder is made
		return done, err
	}
	path, folder, err := lock.Folder(path)
	if err != nil {
		return done, fmt.Errorf("compact: %w", err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	old, err := OpenReader(path)
	if err != nil {
		return done, err
	}
	done = Compacted{File: path, Before: old.Size()}
	fresh := path + compactSuffix
	if err = removeIfThere(fresh); err == nil {
		err = done.make(ctx, old, fresh, progress)
	}
	if err == nil {
		err = swap(fresh, path, folder)
	}
	err = errors.Join(err, old.Close())
	if err != nil {
		return done, errors.Join(fmt.Errorf("compact: %w", err), removeIfThere(fresh))
	}
	if progress != nil {
		progress(done.Before, done.Before)
	}
	return done, nil
}

// make writes the new file and compares it, as it is on the disk, with the old one.
func (c *Compacted) make(ctx context.Context, old *ReadOnly, fresh string, progress func(done, total int64)) error {
	if err := old.checkPages(ctx); err != nil {
		return err
	}
	want, err := old.digest(ctx)
	if err != nil {
		return err
	}
	if err := readRows(old.db, nil, func(r *txReader) (err error) {
		r.inside = true
		c.After, err = rewrite(ctx, r.tx, fresh, old.Size(), progress)
		r.inside = false
		return err
	}); err != nil {
		return err
	}
	if err := errors.Join(ownedLike(fresh, old.path), dropPages(fresh)); err != nil {
		return err
	}
	made, err := OpenReader(fresh)
	if err != nil {
		return err
	}
	err = made.checkPages(ctx)
	if err == nil {
		var got digests
		if got, err = made.digest(ctx); err == nil && got != want {
			err = fmt.Errorf("%w: the new file holds other rows than the old one", ErrCorrupt)
		}
		c.StateHash = got.state
	}
	return errors.Join(err, made.Close())
}

// digests identify the contents of a file.
type digests struct{ state, content b3.Digest }

func (r *ReadOnly) digest(ctx context.Context) (d digests, err error) {
	err = r.View(ctx, func(rd Reader) error {
		d.state = StateHash(rd, r.buckets)
		if _, err := checkAudit(rd, r.info.position()); err != nil {
			return err
		}
		return guarded(func() error {
			return r.db.View(func(tx *bolt.Tx) (err error) {
				d.content, err = contentHash(tx)
				return err
			})
		})
	})
	return d, err
}

// swap replaces the old file with the new, verified one. After the rename a node may open the new
// file and commit to it, so the rename is never undone. The old file keeps another name until the
// name of the new one is durable.
func swap(fresh, path string, folder *os.File) error {
	kept := path + keptSuffix
	if err := removeIfThere(kept); err != nil {
		return err
	}
	if err := os.Link(path, kept); err != nil {
		return fmt.Errorf("keep the old file: %w", err)
	}
	err := os.Rename(fresh, path)
	if err == nil {
		err = folder.Sync()
	}
	if err = errors.Join(err, os.Remove(kept)); err != nil {
		return err
	}
	return folder.Sync()
}

// rewriteBytes is the size of one transaction of a rewrite, which bounds its memory.
const rewriteBytes = 64 << 20

// walkRows calls fn for every bucket and every row of a transaction, sub-buckets included, in byte
// order. A nil value is a bucket, which comes before its rows. path names the buckets that hold the
// row.
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

// contentHash hashes every row of the file, whatever its class, including the store's own.
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

// rewriter copies all rows of one transaction into a new file with full pages.
type rewriter struct {
	ctx      context.Context
	dst      *bolt.DB
	tx       *bolt.Tx     // open transaction of dst
	into     *bolt.Bucket // current bucket
	path     [][]byte     // of into
	pending  int64        // bytes written in tx
	done     int64
	total    int64
	progress func(done, total int64) // may be nil
}

// rewrite copies src to a new, synced file at path without deleted data and free pages, and returns
// its size. progress counts bytes of keys and values against total.
func rewrite(
	ctx context.Context,
	src *bolt.Tx,
	path string,
	total int64,
	progress func(done, total int64),
) (size int64, err error) {
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

// trim truncates the file to the end of its pages and syncs it.
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

// row copies one row, or creates one bucket.
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

// bucket returns the bucket at path in the open transaction.
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
