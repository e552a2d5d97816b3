package store

import (
	"errors"
	"fmt"
	"os"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"
)

// memoryName is what a store in memory has in the place of a path.
const memoryName = "memfd:ronbox"

// newMemory makes the file of a store in memory. Nobody can execute it; kernels before 6.3 do not know that flag.
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

// openMemory makes and opens a new, empty store in memory. It takes no lock and touches no folder: nobody else can reach it.
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
	o := opening{fresh: true, memory: f, maxBytes: s.maxBytes(), mlock: s.opt.Mlock}
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

// mayLock refuses memory that could not be locked as it grows: bbolt would meet the limit in the middle of a commit.
func (s *Store) mayLock() error {
	var limit unix.Rlimit
	if !s.opt.Mlock || locksFreely() {
		return nil
	}
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit); err != nil {
		return fmt.Errorf("getrlimit: %w", err)
	}
	if limit.Cur < uint64(s.maxBytes()) {
		return fmt.Errorf("amnesia.max_bytes: %d bytes cannot be locked in memory, RLIMIT_MEMLOCK is %d", s.maxBytes(), limit.Cur)
	}
	return nil
}

// locksFreely tells whether RLIMIT_MEMLOCK does not bind this process.
func locksFreely() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var sets [2]unix.CapUserData
	return unix.Capget(&header, &sets[0]) == nil && sets[0].Effective&(1<<unix.CAP_IPC_LOCK) != 0
}

// maxBytes is what the file may grow to.
func (s *Store) maxBytes() int64 {
	if s.opt.Memory != nil {
		return s.opt.Memory.MaxBytes.Bytes()
	}
	return s.config().MaxBytes.Bytes()
}

// step is how much the file grows by.
func (s *Store) step() int64 {
	if s.opt.Memory != nil {
		return memoryStep
	}
	return allocSize
}
