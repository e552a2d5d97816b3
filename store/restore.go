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

// Restore verifies a snapshot, copies it beside dst, gives the copy a new incarnation and the mark of a restored file, and moves it to dst.
// A file that was there is kept as <dst>.before-restore-<time>. No process may have dst open: that is ErrLocked. A snapshot that does not
// verify is ErrCorrupt, and dst is as before. The restored store takes no work until AcceptRestore.
func Restore(ctx context.Context, snapshot, dst string, o RestoreOptions, progress func(done, total int64)) (Info, error) {
	rep, err := Verify(ctx, snapshot, o.Buckets, o.Checks, half(progress, 0))
	if err != nil {
		return Info{}, fmt.Errorf("restore: %w", err)
	}
	if !rep.OK {
		return Info{}, fmt.Errorf("restore: %w: %s", ErrCorrupt, rep.Problem)
	}
	if err := os.MkdirAll(filepath.Dir(dst), 0o700); err != nil {
		return Info{}, err
	}
	old, err := claimOld(dst)
	if err != nil {
		return Info{}, fmt.Errorf("restore: %w", err)
	}
	info, err := restoreOver(ctx, snapshot, dst, rep, o, progress)
	if old != nil {
		err = errors.Join(err, old.Close())
	}
	return info, err
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

func restoreOver(ctx context.Context, snapshot, dst string, rep Report, o RestoreOptions, progress func(done, total int64)) (Info, error) {
	fresh := dst + ".restoring"
	if err := removeIfThere(fresh); err != nil {
		return Info{}, err
	}
	info, err := restoreCopy(ctx, snapshot, fresh, rep, o, progress)
	if err != nil {
		return Info{}, errors.Join(fmt.Errorf("restore: %w", err), removeIfThere(fresh))
	}
	kept := fmt.Sprintf("%s.before-restore-%s", dst, o.Now.UTC().Format("20060102T150405.000Z"))
	if err := os.Link(dst, kept); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Info{}, errors.Join(fmt.Errorf("restore: keep the old file: %w", err), removeIfThere(fresh))
	}
	if err := os.Rename(fresh, dst); err != nil {
		return Info{}, errors.Join(err, removeIfThere(fresh))
	}
	return info, syncDir(filepath.Dir(dst))
}

// restoreCopy makes the file that is to take the place, complete and synced.
func restoreCopy(ctx context.Context, snapshot, fresh string, rep Report, o RestoreOptions, progress func(done, total int64)) (info Info, err error) {
	c := &copier{ctx: ctx, hash: b3.New(), total: rep.Size, progress: half(progress, 1)}
	sum, err := copyFile(snapshot, fresh, c)
	if err != nil {
		return info, err
	}
	if sum != rep.B3 {
		return info, fmt.Errorf("%w: the snapshot changed while it was copied", ErrCorrupt)
	}
	db, err := openBolt(fresh, opening{})
	if err != nil {
		return info, err
	}
	err = guarded(func() error {
		return db.Update(func(tx *bolt.Tx) error {
			info, err = relife(tx, o)
			return err
		})
	})
	return info, errors.Join(err, db.Close())
}

// relife gives a copy its new life: incarnation, auth epoch, the mark, an audit row.
func relife(tx *bolt.Tx, o RestoreOptions) (Info, error) {
	info, err := readInfo(tx)
	if err != nil {
		return info, err
	}
	info.RestoredFrom, info.Restored, info.Clean = info.Incarnation, true, true
	if info.Incarnation, err = newID(o.Now); err != nil {
		return info, err
	}
	if !o.KeepTokens {
		info.AuthEpoch++
	}
	rows, err := tx.CreateBucketIfNotExists([]byte(auditBucket.Name))
	if err != nil {
		return info, err
	}
	p := info.position()
	p.at = max(o.Now.UnixNano(), p.at+1)
	if err := appendAudit(rows, &p, auditRows, p.at, o.By.bounded()); err != nil {
		return info, err
	}
	info = *info.with(p)
	return info, writeInfo(tx, info)
}

// acceptRestore lifts the mark of a restored file. A file without it stays as it is.
type acceptRestore struct{ By Event }

func (acceptRestore) Kind() string { return "store.accept_restore/1" }

// Apply rewrites the identity row and audits who accepted.
func (c acceptRestore) Apply(r Reader, _ Stamp, w *Writes) (Info, error) {
	var row identRow
	if err := decodeCBOR(r.Get(metaBucket, keyIdent), &row); err != nil {
		return Info{}, fmt.Errorf("%w: meta identity: %w", ErrCorrupt, err)
	}
	if row.Restored {
		row.Restored = false
		raw, err := encodeCBOR(row)
		if err != nil {
			return Info{}, err
		}
		w.Put(metaBucket, keyIdent, raw)
		w.Audit(c.By)
	}
	return Info{RestoredFrom: row.RestoredFrom}, nil
}

// AcceptRestore opens a restored store for work; by goes to the audit chain. On a store that is not restored it changes nothing.
func (s *Store) AcceptRestore(ctx context.Context, by Event) error {
	_, err := Commit(ctx, s, Control, acceptRestore{by}, func(Info) {
		info := *s.info.Load()
		info.Restored = false
		s.info.Store(&info)
		s.restored.Store(false)
	})
	return err
}
