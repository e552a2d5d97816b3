package store

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	bolt "go.etcd.io/bbolt"

	"ronbox/appliance/b3"
	"ronbox/store/lock"
)

// RestoreOptions holds the options of a restore.
type RestoreOptions struct {
	// keep the auth epoch: tokens stay valid, also those revoked after the snapshot
	KeepTokens bool
	Now        time.Time
	By         Event // written to the audit chain
	Buckets    []*Bucket
	Checks     []Check
}

// Restore verifies a snapshot, copies it beside dst, writes a new incarnation into the copy, marks
// it as restored and renames it to dst. An existing file is kept as <dst>.before-restore-<time>;
// the new file gets its owner. If dst is a symbolic link, all of this happens at its Target. The
// restored store accepts no work until AcceptRestore. Restore returns ErrLocked if a process has
// dst open or is creating it, ErrClustered if dst belongs to a cluster, ErrCorrupt if the snapshot
// does not verify, and ErrFull if the disk has no space. The restored file is that of a node alone.
// After any error or crash dst is either unchanged or the complete restored file.
func Restore(
	ctx context.Context,
	snapshot, dst string,
	o RestoreOptions,
	progress func(done, total int64),
) (info Info, err error) {
	rep, err := Verify(ctx, snapshot, o.Buckets, o.Checks, halfProgress(progress, 0))
	if err != nil {
		return info, fmt.Errorf("restore: %w", err)
	}
	if !rep.OK {
		return info, fmt.Errorf("restore: %w: %s", ErrCorrupt, rep.Problem)
	}
	dst, folder, err := lock.Folder(dst)
	if err == nil {
		defer func() { err = errors.Join(err, folder.Close()) }()
		info, err = restoreOver(ctx, snapshot, dst, rep, o, progress)
	}
	if err == nil {
		err = folder.Sync()
	}
	if err != nil {
		return info, fmt.Errorf("restore: %w", roomError(err))
	}
	return info, nil
}

// halfProgress maps the progress of one of two passes over the same bytes to one total.
func halfProgress(progress func(done, total int64), pass int64) func(done, total int64) {
	if progress == nil {
		return nil
	}
	return func(done, total int64) { progress(pass*total+done, 2*total) }
}

// claimOld locks the file that is to be replaced, or returns nil if the file does not exist. The
// lock is held until the new file has its name.
func claimOld(dst string) (*os.File, error) {
	f, err := os.OpenFile(dst, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := lock.File(f, true, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// pastEpoch returns a number at least as large as every auth epoch that a file at dst has had, so
// that restoring a snapshot twice does not make older tokens valid again. If there is no readable
// file it uses the Unix time: epochs count restores, and a node is restored less than once a
// second. It returns ErrClustered if the file belongs to a cluster.
func pastEpoch(dst string, now time.Time) (uint64, error) {
	r, err := OpenReader(dst)
	if err != nil {
		return uint64(max(now.Unix(), 0)), nil
	}
	if r.members != nil {
		err = fmt.Errorf("%w: %s is not replaced", ErrClustered, dst)
	}
	return r.Info().AuthEpoch, closing(r, err)
}

// restoreOver creates the new file beside dst and renames it. The caller holds the lock of the
// folder.
func restoreOver(
	ctx context.Context,
	snapshot, dst string,
	rep Report,
	o RestoreOptions,
	progress func(done, total int64),
) (info Info, err error) {
	past, err := pastEpoch(dst, o.Now)
	if err != nil {
		return info, err
	}
	old, err := claimOld(dst)
	if err != nil {
		return info, err
	}
	if old != nil {
		defer func() { err = errors.Join(err, old.Close()) }()
	}
	fresh := dst + restoreSuffix
	if err := removeIfThere(fresh); err != nil {
		return info, err
	}
	defer func() { err = errors.Join(err, removeIfThere(fresh)) }() // already renamed on success
	if info, err = restoreCopy(ctx, snapshot, fresh, rep, past, o, progress); err != nil {
		return info, err
	}
	owner := dst
	if old == nil {
		owner = filepath.Dir(dst)
	}
	if err := ownedLike(fresh, owner); err != nil {
		return info, err
	}
	if old == nil {
		return info, os.Rename(fresh, dst)
	}
	kept := fmt.Sprintf("%s.before-restore-%s", dst, o.Now.UTC().Format("20060102T150405.000Z"))
	if err := os.Link(dst, kept); err != nil {
		return info, fmt.Errorf("keep the old file: %w", err)
	}
	if err := os.Rename(fresh, dst); err != nil {
		return info, errors.Join(err, os.Remove(kept))
	}
	return info, nil
}

// restoreCopy creates the complete, synced new file.
func restoreCopy(
	ctx context.Context,
	snapshot, fresh string,
	rep Report,
	past uint64,
	o RestoreOptions,
	progress func(done, total int64),
) (info Info, err error) {
	c := &copier{ctx: ctx, hash: b3.New(), total: rep.Size, progress: halfProgress(progress, 1)}
	sum, err := copyFile(snapshot, fresh, c)
	if err != nil {
		return info, err
	}
	if sum != rep.B3 {
		return info, fmt.Errorf("%w: the snapshot changed while it was copied", ErrCorrupt)
	}
	db, err := openBolt(fresh, &opening{})
	if err != nil {
		return info, err
	}
	err = guarded(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			info, err = renew(tx, past, o)
			return err
		})
	})
	return info, errors.Join(err, db.Close())
}

// renew sets the new incarnation, the auth epoch and the restored mark of a copy, appends an audit
// row and deletes the membership.
func renew(tx *bolt.Tx, past uint64, o RestoreOptions) (Info, error) {
	info, err := readInfo(tx)
	if err != nil {
		return info, err
	}
	info.RestoredFrom, info.Restored, info.Clean = info.Incarnation, true, true
	if info.Incarnation, err = newID(o.Now); err != nil {
		return info, err
	}
	if !o.KeepTokens {
		info.AuthEpoch = max(info.AuthEpoch, past) + 1
	}
	rows, err := tx.CreateBucketIfNotExists([]byte(auditBucket.Name))
	if err != nil {
		return info, err
	}
	p := info.position()
	p.at = offlineStamp(o.Now, p.at)
	if _, err := appendAudit(rows, &p, noRing, p.at, o.By.bounded()); err != nil {
		return info, err
	}
	info = *info.with(p)
	return info, errors.Join(writeInfo(tx, info), writeMembership(localRows(tx), nil))
}

// acceptRestore clears the restored mark. It has no effect on a file without it.
type acceptRestore struct{ By Event }

func (acceptRestore) Kind() string { return "store.accept_restore/1" }

// Apply rewrites the identity row and appends an audit row.
func (c acceptRestore) Apply(r Reader, _ Stamp, w *Writes) (done struct{}, err error) {
	var row identRow
	if err := decodeSummed(keyIdent, r.Get(metaBucket, keyIdent), &row); err != nil {
		return done, fmt.Errorf("%w: meta identity: %w", ErrCorrupt, err)
	}
	if !row.Restored {
		return done, nil
	}
	row.Restored = false
	raw, err := encodeSummed(keyIdent, row)
	if err != nil {
		return done, err
	}
	w.Put(metaBucket, keyIdent, raw)
	w.Audit(c.By)
	return done, nil
}

// Restored reports whether the file was restored and is not accepted yet.
func (s *Store) Restored() bool { return s.restored.Load() }

// AcceptRestore lets a restored store accept work and appends the event by to the audit chain. It
// has no effect on a store that is not restored.
func (s *Store) AcceptRestore(ctx context.Context, by Event) error {
	_, err := Commit(ctx, s, Control, acceptRestore{by}, func(struct{}) {
		info := *s.info.Load()
		info.Restored = false
		s.info.Store(&info)
		s.restored.Store(false)
	})
	return err
}

// copyFile copies a whole file to a new file, synced.
func copyFile(from, to string, c *copier) (d b3.Digest, err error) {
	dst, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return d, err
	}
	c.to = dst
	if d, err = hashFile(from, c); err == nil {
		err = dst.Sync()
	}
	return d, errors.Join(err, dst.Close())
}
