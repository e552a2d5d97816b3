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
)

// RestoreOptions says how a snapshot becomes a node's file.
type RestoreOptions struct {
	KeepTokens bool // do not raise the auth epoch: tokens stay valid, and so do those revoked since the snapshot
	Now        time.Time
	By         Event // who asked; written to the audit chain
	Buckets    []*Bucket
	Checks     []Check
}

// Restore verifies a snapshot, copies it beside dst, gives the copy a new incarnation and the mark of a restored file, and moves it to
// dst. A file that was there is kept as <dst>.before-restore-<time>, and the new one belongs to whom it belonged. No process may have dst open, nor be making it: that is ErrLocked. A
// snapshot that does not verify is ErrCorrupt, a disk without room ErrFull. After any error, and after a crash, dst is as before, or the
// restored file whole. The restored store takes no work until AcceptRestore.
func Restore(ctx context.Context, snapshot, dst string, o RestoreOptions, progress func(done, total int64)) (info Info, err error) {
	rep, err := Verify(ctx, snapshot, o.Buckets, o.Checks, half(progress, 0))
	if err != nil {
		return info, fmt.Errorf("restore: %w", err)
	}
	if !rep.OK {
		return info, fmt.Errorf("restore: %w: %s", ErrCorrupt, rep.Problem)
	}
	folder, err := lockFolder(dst)
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

// half makes one bar of two passes over the same bytes.
func half(progress func(done, total int64), pass int64) func(done, total int64) {
	if progress == nil {
		return nil
	}
	return func(done, total int64) { progress(pass*total+done, 2*total) }
}

// claimOld locks the file that is to be replaced, nil if there is none. The lock is held until the new file has its name.
func claimOld(dst string) (*os.File, error) {
	f, err := os.OpenFile(dst, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if err := lockFile(f, true, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// pastEpoch is at least every auth epoch that a file at dst has had: tokens of none of them may come to life again when one snapshot is
// restored twice. Where no file tells, the clock does: epochs count restores, and no node has had one a second.
func pastEpoch(dst string, now time.Time) uint64 {
	r, err := OpenReader(dst)
	if err != nil {
		return uint64(max(now.Unix(), 0))
	}
	past := r.Info().AuthEpoch
	_ = r.Close() // was read only
	return past
}

// restoreOver makes the new file beside dst and exchanges the two. The caller has the folder to itself.
func restoreOver(ctx context.Context, snapshot, dst string, rep Report, o RestoreOptions, progress func(done, total int64)) (info Info, err error) {
	past := pastEpoch(dst, o.Now)
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
	defer func() { err = errors.Join(err, removeIfThere(fresh)) }() // gone by then if it has become dst
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

// restoreCopy makes the file that is to take the place, complete and synced.
func restoreCopy(ctx context.Context, snapshot, fresh string, rep Report, past uint64, o RestoreOptions, progress func(done, total int64)) (info Info, err error) {
	c := &copier{ctx: ctx, hash: b3.New(), total: rep.Size, progress: half(progress, 1)}
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
			info, err = relife(tx, past, o)
			return err
		})
	})
	return info, errors.Join(err, db.Close())
}

// relife gives a copy its new life: incarnation, auth epoch, the mark, an audit row.
func relife(tx *bolt.Tx, past uint64, o RestoreOptions) (Info, error) {
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
	p.at = max(o.Now.UnixNano(), p.at+1)
	if _, err := appendAudit(rows, &p, noRing, p.at, o.By.bounded()); err != nil {
		return info, err
	}
	info = *info.with(p)
	return info, writeInfo(tx, info)
}

// acceptRestore lifts the mark of a restored file. A file without it stays as it is.
type acceptRestore struct{ By Event }

func (acceptRestore) Kind() string { return "store.accept_restore/1" }

// Apply rewrites the identity row and audits who accepted.
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

// AcceptRestore opens a restored store for work; by goes to the audit chain. On a store that is not restored it changes nothing.
func (s *Store) AcceptRestore(ctx context.Context, by Event) error {
	_, err := Commit(ctx, s, Control, acceptRestore{by}, func(struct{}) {
		info := *s.info.Load()
		info.Restored = false
		s.info.Store(&info)
		s.restored.Store(false)
	})
	return err
}
