package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"ronbox/store/lock"
	"ronbox/store/page"
)

// opening holds the options for opening a file, and the file that was opened.
type opening struct {
	readOnly bool
	maxBytes int64         // limit and map size; 0: the size of the file
	wait     time.Duration // for the lock
	fresh    bool          // the file is new: there is nothing to check
	memory   *os.File      // used instead of the file at the path; nil: that file
	mlock    bool          // keep the pages in memory
	uncached bool          // drop the page cache before reading
	noSync   bool          // the caller syncs before it renames the file
	file     *os.File      // set by openBolt: the file that bbolt uses
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
			_ = o.file.Close() // bbolt has closed it unless it panicked
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

// open is the OpenFile hook of bbolt. If the store is in memory it returns the memory file for path
// and ErrAmnesia for any other name.
func (o *opening) open(path, name string, flag int, mode os.FileMode) (*os.File, error) {
	if o.memory == nil {
		return openChecked(name, flag, mode, *o)
	}
	if name != path {
		return nil, fmt.Errorf("open %s: %w", name, ErrAmnesia)
	}
	return o.memory, nil
}

// openChecked opens and locks a file, then checks its meta pages and its freelist.
func openChecked(name string, flag int, mode os.FileMode, o opening) (*os.File, error) {
	if !o.fresh {
		flag &^= os.O_CREATE // a missing file is an error, never a new empty one
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() { // opening a named pipe blocks
		return nil, fmt.Errorf("%w: it is no regular file, its mode is %s", ErrCorrupt, info.Mode())
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
	if err := lock.File(f, !o.readOnly, o.wait); err != nil {
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
		return &LockedError{Path: f.Name()} // a restore replaced the file while this call waited for the lock
	}
	if o.uncached {
		err = dropCache(f)
	}
	if err != nil {
		return err
	}
	w, err := page.NewWalk(f, info.Size())
	if err == nil {
		_, err = w.Freelist() // bbolt would leave a file with a damaged freelist mapped and locked
	}
	return err
}

// guarded runs fn, which reads mapped pages, and converts a memory fault or a panic of bbolt to
// ErrCorrupt.
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

// openError converts an error of bbolt.Open to an error of this package.
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

// dropPages drops the clean pages of the file from the page cache, so that later reads come from
// the disk: after a failed sync, pages that never reached the disk are marked clean. Mapped pages
// stay.
func dropPages(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(dropCache(f), f.Close())
}

func dropCache(f *os.File) error {
	return onFile(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_DONTNEED) })
}

// Create creates a new file and its folder (mode 0700). The file is built under another name,
// synced and renamed, and the folder is synced, because bbolt does not survive a power cut during
// its first write. Create returns fs.ErrExist if the file exists, ErrLocked if another process is
// creating it, and ErrFull if the disk has no space.
func Create(path string, id Identity) (err error) {
	path, folder, err := lock.Folder(path)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	defer func() { err = errors.Join(err, folder.Close()) }()
	if _, err := os.Lstat(path); err == nil {
		return &fs.PathError{Op: "create", Path: path, Err: fs.ErrExist}
	}
	fresh := path + newSuffix
	if err := removeIfThere(fresh); err != nil {
		return err
	}
	if err = build(fresh, newInfo(id, Schema)); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("create %s: %w", path, roomError(err)), removeIfThere(fresh))
	}
	return folder.Sync()
}

func build(path string, info Info) error {
	db, err := openBolt(path, &opening{fresh: true})
	if err != nil {
		return err
	}
	err = db.Update(func(tx *bolt.Tx) error { return firstRows(tx, info) })
	if err == nil {
		err = db.Sync()
	}
	return errors.Join(err, db.Close())
}

// newInfo returns the Info of a new file.
func newInfo(id Identity, schema int) Info {
	return Info{
		NodeID:      id.NodeID,
		Incarnation: id.Incarnation,
		Schema:      schema,
		CreatedAt:   id.CreatedAt.UnixNano(),
		AuthEpoch:   1,
		Clean:       true,
		AuditFirst:  1,
	}
}

// firstRows creates the store's own buckets.
func firstRows(tx *bolt.Tx, info Info) error {
	if err := writeInfo(tx, info); err != nil {
		return err
	}
	_, err := tx.CreateBucketIfNotExists([]byte(auditBucket.Name))
	return err
}

// memoryName is the path of a store in memory.
const memoryName = "memfd:ronbox"

// newMemory creates the memory file of a store in memory. It is not executable on kernels from 6.3;
// older kernels do not support the flag.
func newMemory() (*os.File, error) {
	const name = "ronbox"
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	}
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), memoryName), nil
}

// openMemory creates and opens a new, empty store in memory. It takes no lock and touches no
// folder: no other process can reach the store.
func (s *Store) openMemory() (*bolt.DB, error) {
	id, err := NewIdentity(s.now())
	if err != nil {
		return nil, err
	}
	if err := s.mayLock(); err != nil {
		return nil, err
	}
	f, err := newMemory()
	if err != nil {
		return nil, err
	}
	o := opening{fresh: true, memory: f, maxBytes: s.mostBytes(), mlock: s.opt.Mlock}
	db, err := openBolt(memoryName, &o)
	if err != nil {
		return nil, err
	}
	s.room.file, s.room.memory = f, true
	if err := db.Update(func(tx *bolt.Tx) error { return firstRows(tx, newInfo(id, s.target())) }); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return db, nil
}

// mayLock returns an error if RLIMIT_MEMLOCK does not allow the memory to be locked up to
// max_bytes: bbolt would meet the limit in the middle of a commit.
func (s *Store) mayLock() error {
	var limit unix.Rlimit
	if !s.opt.Mlock || locksFreely() {
		return nil
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	if limit.Cur < uint64(s.maxBytes()) {
		return fmt.Errorf("amnesia.max_bytes: %d bytes cannot be locked in memory, RLIMIT_MEMLOCK is %d", s.maxBytes(),
			limit.Cur)
	}
	return nil
}

// locksFreely reports whether the process may lock memory beyond RLIMIT_MEMLOCK.
func locksFreely() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}

// maxBytes returns the limit of the file size.
func (s *Store) maxBytes() int64 {
	if s.opt.Memory != nil {
		return s.opt.Memory.MaxBytes.Bytes()
	}
	return s.config().MaxBytes.Bytes()
}

// step returns the growth step of the file in bytes.
func (s *Store) step() int64 {
	if s.opt.Memory != nil {
		return memoryStep
	}
	return allocSize
}

// ownedLike sets the owner of path to the owner of other if the process is root. Otherwise the node
// could not open the file.
func ownedLike(path, other string) error {
	var st unix.Stat_t
	if os.Geteuid() != 0 {
		return nil
	}
	if err := unix.Stat(other, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: other, Err: err}
	}
	return os.Chown(path, int(st.Uid), int(st.Gid))
}

// closing closes c and joins its error to err.
func closing(c io.Closer, err error) error { return errors.Join(err, c.Close()) }

// removeIfThere removes path and ignores a missing file.
func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
