package store

import (
	"context"
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
)

// Behind the name of a database: of one that is being made, compacted or restored, and of the old file until the compacted one's name is durable.
// What was killed leaves them.
const (
	newSuffix     = ".new"
	compactSuffix = ".compacting"
	restoreSuffix = ".restoring"
	keptSuffix    = ".before-compact"
)

// SweepBeside removes what killed runs have left beside the file at path, which the caller has open, and gives the paths. Where one of them runs
// it leaves all to it.
func SweepBeside(path string) (removed []string, err error) {
	folder, err := lockFolder(path)
	if errors.Is(err, ErrLocked) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer func() { err = closing(folder, err) }()
	if err := folder.Sync(); err != nil { // the name of the file is durable before what it replaced goes
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

// Compacted says what a compaction has done.
type Compacted struct {
	File      string    `json:"file"`
	Before    int64     `json:"before_bytes"` // bytes of the file
	After     int64     `json:"after_bytes"`
	StateHash b3.Digest `json:"state_hash"`
}

// Compact writes the rows of a file that no process has open (ErrLocked) into a new one without deleted data and free pages, proves that
// it holds the same rows, and puts it in the place of the old one at once. It needs as much room on the disk as the rows take; without it
// ErrFull. After any error, when ctx ends, and after a crash, the file is the old one or the new one, whole. Progress, which may be nil,
// counts bytes against the size of the old file.
func Compact(ctx context.Context, path string, progress func(done, total int64)) (done Compacted, err error) {
	if _, err := os.Stat(path); err != nil { // before the folder is made
		return done, err
	}
	folder, err := lockFolder(path)
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

// make writes the new file and holds it against the old one, as it is on the disk.
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
	if err := errors.Join(ownedLike(fresh, old.path), forget(fresh)); err != nil {
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

// digests tell whether two files hold the same.
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

// swap puts the new file, which was verified, in the place of the old one. From the rename on a node may have it open and commit to it, so
// there is no way back. The old file keeps a name of its own until the new one's is durable.
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
