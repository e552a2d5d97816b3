package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// opening says how a file is to be opened.
type opening struct {
	readOnly bool
	maxBytes int64         // limit and size of the map; 0: as large as the file
	wait     time.Duration // for the lock
	fresh    bool          // the file is being made: there is nothing to check yet
	memory   *os.File      // in the place of the file at the path; nil: that one
	mlock    bool          // keep the pages in memory
	uncached bool          // what is read comes from the disk
	noSync   bool          // the caller syncs in the end: the file has no name yet that matters
	file     *os.File      // set by openBolt: what bbolt reads and writes
}

// openBolt locks and checks the file before bbolt maps it.
func openBolt(path string, o *opening) (db *bolt.DB, err error) {
	hook := func(name string, flag int, mode os.FileMode) (*os.File, error) {
		o.file, err = o.open(path, name, flag, mode)
		return o.file, err
	}
	opts := &bolt.Options{
		ReadOnly: o.readOnly, Timeout: time.Second, PageSize: PageSize, FreelistType: bolt.FreelistMapType,
		InitialMmapSize: int(o.maxBytes), MaxSize: int(o.maxBytes), OpenFile: hook, Mlock: o.mlock, NoSync: o.noSync,
	}
	err = guarded(func() error {
		db, err = bolt.Open(path, 0o600, opts)
		return err
	})
	if err != nil {
		if o.file != nil {
			_ = o.file.Close() // bbolt has closed it already unless it panicked
		}
		return nil, openError(path, err)
	}
	if got := db.Info().PageSize; got != PageSize {
		return nil, errors.Join(fmt.Errorf("open %s: %w: pages of %d bytes", path, ErrCorrupt, got), db.Close())
	}
	db.AllocSize = allocSize
	if o.memory != nil {
		db.AllocSize = memoryStep
	}
	return db, nil
}

// open is bbolt's way to the file: memory for the one path of the database if there is any, never for another.
func (o *opening) open(path, name string, flag int, mode os.FileMode) (*os.File, error) {
	if o.memory == nil {
		return openChecked(name, flag, mode, *o)
	}
	if name != path {
		return nil, fmt.Errorf("open %s: %w", name, ErrAmnesia)
	}
	return o.memory, nil
}

// openChecked takes the lock first, then looks at the meta pages and the freelist.
func openChecked(name string, flag int, mode os.FileMode, o opening) (*os.File, error) {
	if !o.fresh {
		flag &^= os.O_CREATE // a missing file is an error, never a new empty one
	}
	f, err := os.OpenFile(name, flag|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, err
	}
	if err := checkOpened(f, o); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func checkOpened(f *os.File, o opening) error {
	if err := lockFile(f, !o.readOnly, o.wait); err != nil {
		return err
	}
	if o.fresh {
		return nil
	}
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if named, err := os.Stat(f.Name()); err != nil || !os.SameFile(info, named) {
		return &LockedError{Path: f.Name()} // a restore has put another file in its place while we waited for the lock
	}
	if o.uncached {
		err = dropCache(f)
	}
	if err != nil {
		return err
	}
	w, err := newPageWalk(f, info.Size())
	if err == nil {
		_, err = w.freelist() // bbolt reads it as it opens, and would leave a damaged one mapped and locked
	}
	return err
}

// guarded runs fn, which reads the map, and turns a fault or a panic of bbolt into ErrCorrupt.
func guarded(fn func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			if row, ok := v.(*RowError); ok {
				err = row
				return
			}
			err = fmt.Errorf("%w: %v", ErrCorrupt, v)
		}
	}()
	return fn()
}

// openError sorts what bbolt says.
func openError(path string, err error) error {
	for _, damaged := range []error{berrors.ErrInvalid, berrors.ErrChecksum, berrors.ErrVersionMismatch} {
		if errors.Is(err, damaged) {
			return fmt.Errorf("open %s: %w: %w", path, ErrCorrupt, err)
		}
	}
	if errors.Is(err, berrors.ErrTimeout) {
		return &LockedError{Path: path}
	}
	said, ok := errors.AsType[*fs.PathError](err)
	if errors.Is(err, ErrLocked) || errors.Is(err, fs.ErrNotExist) || ok && said.Op == "open" && said.Path == path {
		return err
	}
	return fmt.Errorf("open %s: %w", path, err)
}

// forget drops the file's clean pages from the page cache, so that what is read comes from the disk: a failed sync leaves pages marked
// clean that never reached it. Mapped pages stay.
func forget(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dropCache(f), f.Close())
}

func dropCache(f *os.File) error {
	return onFile(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}
