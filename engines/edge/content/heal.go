package content

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"ronbox/appliance/b3"
	"ronbox/appliance/flow"
	"ronbox/engines/edge/asset"
	"ronbox/engines/edge/tables"
	"ronbox/store"
)

// Failed converts the error of a read or a change of the content store for callers. It shows the
// error in readiness until heal finds that the cause has gone.
func (s *Store) Failed(err error) error {
	switch {
	case errors.Is(err, store.ErrFull) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT):
		err = fmt.Errorf("%w: %w", asset.ErrFull, err)
	case ofDisk(err) && !errors.Is(err, store.ErrPoisoned):
		err = fmt.Errorf("%w: %w", asset.ErrDisk, err)
	}
	s.faults.Lock()
	s.broken.Store(err != nil)
	s.d.Owner.Fault(err)
	s.faults.Unlock()
	return err
}

// ofDisk reports whether the kernel has refused to read or write a file.
func ofDisk(err error) bool {
	_, ok := errors.AsType[syscall.Errno](err)
	return ok
}

// openStore opens the content store. If the disk does not read or write its folder, only the edge
// is unready: packs are served, nothing is fetched, and the store is opened again later. openStore
// returns only errors of the database.
func (s *Store) openStore(ctx context.Context) error {
	err := s.recoverStore(ctx)
	if err == nil || ctx.Err() != nil || errors.Is(err, store.ErrCorrupt) || s.d.Store.Err() != nil {
		return err
	}
	_ = s.Failed(err) // readiness shows it
	s.d.Log.Error("content store", "reason", err.Error(), "effect", "nothing is fetched, packs are served",
		"next", "look at the disk and the folder edge/cas; the node tries again every few seconds")
	return nil
}

// recoverStore opens the content store: it removes the remains of a crash and counts the content. A
// row without its file stays and is a miss. On a member of a cluster the [Shelf] has removed the
// unfinished objects of a crash, and may be writing others that must stay.
func (s *Store) recoverStore(ctx context.Context) error {
	prepare := s.d.Dir.Prepare
	if s.d.Members != nil {
		prepare = s.d.Dir.MakeFolders
	}
	if err := prepare(); err != nil {
		return err
	}
	if err := s.repairing(ctx, func() error { return s.countRows(ctx) }); err != nil {
		return err
	}
	err := s.d.Dir.Walk(ctx, func(path string, name b3.Digest) error {
		err := s.repairing(ctx, func() error { _, err := tables.Find(ctx, s.d.Store, tables.Blobs, name); return err })
		if !errors.Is(err, asset.ErrNotFound) {
			return err
		}
		return os.Remove(path)
	})
	if err == nil {
		s.opened.Store(true)
	}
	return s.Failed(err)
}

// countRows counts the content by its rows, and adds rows to edge/keys for URLs that an older
// release has stored.
func (s *Store) countRows(ctx context.Context) error {
	var has tables.Tally
	err := tables.Scan(ctx, s.d.Store, tables.Blobs, func(_ b3.Digest, b tables.BlobRow) error {
		has.Add(tables.Tally{Bytes: b.Size, Objects: 1, URLs: b.Refs})
		return nil
	})
	listed := int64(0)
	if err == nil {
		err = tables.Scan(ctx, s.d.Store, tables.Keys, func(_ tables.URLKey, row tables.KeyRow) error {
			has.Add(row.Pins())
			if !row.Lost {
				listed++
			}
			return nil
		})
	}
	if err == nil && listed != has.URLs {
		err = s.addKeys(ctx)
	}
	s.room.set(has)
	return err
}

// addKeys adds the missing rows of edge/keys.
func (s *Store) addKeys(ctx context.Context) error {
	var c tables.Repair
	err := s.eachURL(ctx, func(_ b3.Digest, row tables.Stored) error {
		_, err := tables.Find(ctx, s.d.Store, tables.Keys, tables.KeyOf(row.URL))
		if errors.Is(err, asset.ErrNotFound) {
			c.Keys = append(c.Keys, tables.NamedKey{URL: row.URL, Row: tables.KeyRow{Size: row.Size}})
			err = nil
		}
		return err
	})
	for _, part := range c.Parts() {
		if err == nil {
			_, err = store.Commit(ctx, s.d.Store, store.Work, part)
		}
	}
	return err
}

// heal opens the content store if that failed before; otherwise it tries to write to it. It shows
// the outcome in readiness. It is called by the task cas_writer.
func (s *Store) heal(ctx context.Context) error {
	if !s.opened.Load() {
		return s.Failed(s.recoverStore(ctx))
	}
	err := s.d.Store.Health()
	if err == nil {
		err = s.d.Dir.Try()
	}
	if err == nil {
		err = s.hasRoom(ctx, 1)
	}
	return s.Failed(err)
}

// hasRoom returns ErrFull if so many bytes cannot be stored even after the eviction of all unpinned
// objects. It is called by the task cas_writer.
func (s *Store) hasRoom(ctx context.Context, bytes int64) error {
	quota, disk, err := s.bounds()
	if err != nil {
		return err
	}
	has, reserved := s.room.held()
	more := reserved + bytes
	short := max(0, more-disk, has.Bytes+more-quota)
	switch loose, _ := has.Loose(); {
	case short <= loose:
		return nil
	case !s.room.mayFree(short):
		return asset.ErrFull
	}
	_, err = s.candidates(ctx, tables.Tally{Bytes: short})
	return err
}

// HealSoon asks the CAS writer to try the content store if readiness shows a fault.
func (s *Store) HealSoon() {
	if s.broken.Load() {
		// If the queue is full, the next look asks again.
		_ = s.writes.TrySend(&writeJob{tryStore{}, flow.NewReply[struct{}]()})
	}
}

// repair drops the rows that do not read and makes the others consistent. Lost objects can be
// fetched again; the file of an object without a row is set aside. It is called by Recover and
// afterwards only by the task cas_writer. It returns an error if bad rows remain.
func (s *Store) repair(ctx context.Context) error {
	var found *tables.Content
	var lost error // names that were lost; only rows that are written anew have all of them
	look := func() error {
		return s.d.Store.View(ctx, func(r store.Reader) error {
			found, lost = tables.Read(r), tables.CheckNames(r)
			return nil
		})
	}
	err := look()
	if err != nil || found.Fault() == nil {
		return err
	}
	for _, row := range found.Bad {
		s.d.Owner.Damaged("row", tables.Redact(row).Error())
	}
	var all []b3.Digest
	for _, anew := range []bool{false, true} {
		cmd, gone := found.Repairs()
		if anew {
			cmd = found.Whole()
		}
		all = append(all, gone...)
		if len(found.Bad) == 0 && !anew {
			n := len(cmd.Blobs) + len(cmd.Keys) + len(gone)
			s.d.Owner.Damaged("row", fmt.Sprintf("%d rows contradict those of %s", n, tables.Paths.Bucket().Name))
		}
		for _, part := range cmd.Parts() {
			if _, err = store.Commit(ctx, s.d.Store, store.Work, part); err != nil {
				break
			}
		}
		if err == nil {
			err = look()
		}
		if err == nil {
			err = cmp.Or(found.Fault(), lost)
		}
		if err == nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("rows of the edge stay damaged: %w", err)
	}
	s.room.set(found.Tally())
	s.epoch.Add(1)
	for _, name := range all {
		if _, stored := found.Blobs[name]; !stored {
			s.sums.forget(name)
			err = errors.Join(err, s.d.Dir.Quarantine(name))
		}
	}
	return err
}
