package store

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// When the file counts as filling, full, and as having room again: used pages in percent of what they may come to.
const (
	roomWarn = 85
	roomFull = 95
	roomHeal = 90
)

// How often the disk is asked for its free space, and how long a disk that refused a write counts as full although it claims to have room:
// refusals that follow each other within diskAgain double that, so that readiness cannot flap with them.
const (
	diskEvery   = 50 * time.Millisecond
	diskRest    = 2 * time.Second
	diskRestMax = time.Minute
	diskAgain   = 10 * time.Minute
)

// space is one look at the room there is, in bytes.
type space struct {
	size     int64 // up to the last page that was ever used
	used     int64 // pages of the file that hold something, or are pinned by readers
	capacity int64 // what used may come to: max_bytes less the slack that a growing file wants
	disk     int64 // free for this process; negative: not known, or without a limit
	own      int64 // what the file takes of the disk
	total    int64 // size of the disk; 0: not known, or without a limit
	minFree  int64 // store.min_free
	step     int64 // growth step of the file
}

// reserve is what has to stay free on the disk. min_free is meant for disks with gigabytes to spare; elsewhere it would leave nothing to
// use, so the reserve is never more than an eighth of what file and free space come to together, which does not change as the file grows:
// whoever has 300 MB free can use 260 of them. It is not less than a growth of the file either.
func (p space) reserve() int64 { return min(p.minFree, max((p.disk+p.own)/8, p.growth())) }

// growth is the room a full store must see again beyond its reserve: the growth step of the file, or what a tiny disk has instead.
func (p space) growth() int64 {
	if p.total == 0 {
		return p.step
	}
	return min(p.step, p.total/8)
}

// short tells what there is too little of; nil: nothing.
func (p space) short() error {
	if p.used*100 >= p.capacity*roomFull {
		return fmt.Errorf("%w: %d%% of store.max_bytes are used; raise it and restart, or delete", ErrFull, p.used*100/max(p.capacity, 1))
	}
	if p.disk >= 0 && p.disk < p.reserve() {
		return fmt.Errorf("%w: the disk has %d MiB left, %d MiB are kept free; make room on it, or lower store.min_free", ErrFull, p.disk>>20, p.reserve()>>20)
	}
	return nil
}

// healed tells whether a store that was full has room again: by a margin, so that the writes it then takes do not fill it at once.
func (p space) healed() bool {
	return p.used*100 < p.capacity*roomHeal && (p.disk < 0 || p.disk >= p.reserve()+p.growth())
}

// room is the verdict on the space there is. The committer steps it, anyone reads it.
type room struct {
	file    *os.File
	memory  bool // there is no disk to ask
	state   atomic.Pointer[fullness]
	last    atomic.Pointer[space]
	asked   int64    // when the disk was, ns on the store's clock; owned by the committer, like what follows
	refusal *refusal // the last one
	pending bool     // it is not forgiven yet
	warned  bool
}

// fullness is why work is refused. It is ErrFull.
type fullness struct{ error }

// refusal is a write that the disk did not take although its free space said it would: a quota, a limit on the size of files.
type refusal struct {
	at   int64         // ns on the store's clock
	disk int64         // free then
	rest time.Duration // how long the disk's word is not taken
}

// cause is nil while there is room.
func (m *room) cause() error {
	if f := m.state.Load(); f != nil {
		return f.error
	}
	return nil
}

// disk is the file; nil in memory.
func (m *room) disk() *os.File {
	if m.memory {
		return nil
	}
	return m.file
}

// full tells whether work is refused.
func (m *room) full() bool { return m.state.Load() != nil }

// look judges the space as of now: size is where the pages of the last commit end. The disk is asked now and then, or by force.
func (s *Store) look(db *bolt.DB, size int64, force bool) {
	m, now := &s.room, s.mono()
	p := space{
		size: size, used: size - int64(db.Stats().FreePageN)*PageSize, capacity: s.maxBytes() - s.step(), disk: -1,
		minFree: s.config().MinFree.Bytes(), step: s.step(),
	}
	if last := m.last.Load(); !force && last != nil && now-m.asked < int64(diskEvery) {
		p.disk, p.own, p.total = last.disk, last.own, last.total
	} else if !m.memory {
		m.asked = now
		p.disk, p.own, p.total = diskSpace(m.file)
	}
	s.judge(p)
}

// usedBytes are those of the last look.
func (s *Store) usedBytes() int64 {
	if p := s.room.last.Load(); p != nil {
		return p.used
	}
	return 0
}

// judge moves the verdict, and logs where it turns.
func (s *Store) judge(p space) {
	m := &s.room
	m.last.Store(&p)
	short := p.short()
	switch {
	case m.full():
		if short != nil {
			m.state.Store(&fullness{short})
		} else if p.healed() && s.forgiven(p) {
			m.pending = false
			m.state.Store(nil)
			s.log.Info("store_has_room", "used_bytes", p.used, "disk_free_bytes", p.disk)
		}
	case short != nil:
		m.state.Store(&fullness{short})
		s.log.Warn("store_full", "reason", short.Error(), "used_bytes", p.used, "disk_free_bytes", p.disk)
	}
	s.warnFilling(p)
}

// warnFilling tells once that the file comes near its limit, and again after it has been well below.
func (s *Store) warnFilling(p space) {
	m, pct := &s.room, p.used*100/max(p.capacity, 1)
	if pct >= roomWarn && !m.warned {
		s.log.Warn("store_filling", "used_percent", pct, "max_bytes", s.maxBytes())
	}
	m.warned = pct >= roomWarn || m.warned && pct >= roomWarn-5
}

// refused takes note of a commit that failed for want of room. At the file's own limit the arithmetic speaks, or the group was too large
// for the free pages that lie together: the next one may fit. What the disk refuses it refuses to all.
func (s *Store) refused(err error) {
	if errors.Is(err, berrors.ErrMaxSizeReached) {
		return
	}
	m, now := &s.room, s.mono()
	rest := diskRest
	if m.refusal != nil && now-m.refusal.at < int64(diskAgain) {
		rest = min(2*m.refusal.rest, diskRestMax)
	}
	disk, _, _ := diskSpace(m.file)
	if !m.full() {
		s.log.Warn("store_full", "reason", err.Error(), "disk_free_bytes", disk)
	}
	m.refusal, m.pending = &refusal{at: now, disk: disk, rest: rest}, true
	m.state.Store(&fullness{fullError(err)})
}

// forgiven tells whether what the disk once refused it would take now: there is more room than then, or some time has passed, and the
// growth step can be allotted.
func (s *Store) forgiven(p space) bool {
	m := &s.room
	if !m.pending {
		return true
	}
	more := p.disk >= m.refusal.disk+p.growth()
	return (more || s.mono()-m.refusal.at > int64(m.refusal.rest)) && grows(m.file, p.growth())
}

// grows tries to allot n bytes behind the end of the file, and gives them back. The caller alone changes the length of the file.
func grows(f *os.File, n int64) bool {
	info, err := f.Stat()
	if err != nil {
		return false
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_FSIZE, &limit) == nil && uint64(info.Size()+n) > limit.Cur {
		return false
	}
	err = onFile(f, func(fd int) error {
		err := unix.Fallocate(fd, unix.FALLOC_FL_KEEP_SIZE, info.Size(), n)
		return errors.Join(err, unix.Ftruncate(fd, info.Size())) // gives back too what an attempt that failed has got; a hole there would not, on ext4
	})
	return !wantsRoom(err)
}

// wantsRoom tells whether an attempt to grow failed for want of room. Any other error is of a file system that cannot be asked, or was
// interrupted: the next commit will tell.
func wantsRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

// spaceMax is as large as anything on a disk counts as, bytes: sums of a few, and hundredfolds of what fits into a file, do not wrap.
const spaceMax = 1 << 60

// bytesOf is the size of so many blocks.
func bytesOf(blocks uint64, size int64) int64 {
	if high, low := bits.Mul64(blocks, uint64(max(size, 0))); high == 0 && low < spaceMax {
		return int64(low)
	}
	return spaceMax
}

// diskSpace asks the file system of f for what is free, what f takes of it, and its size. A negative number: it has no limit, or does not
// say.
func diskSpace(f *os.File) (free, own, total int64) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	err := onFile(f, func(fd int) error { return errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)) })
	if err != nil || fs.Blocks == 0 {
		return -1, 0, 0
	}
	unit := int64(fs.Frsize) // what blocks are counted in; Bsize is the best length to transfer, which differs on some
	if unit == 0 {
		unit = int64(fs.Bsize)
	}
	return bytesOf(fs.Bavail, unit), bytesOf(uint64(st.Blocks), 512), bytesOf(fs.Blocks, unit)
}

// onFile runs fn with the descriptor, which stays open meanwhile.
func onFile(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = fn(int(fd)) })
	return errors.Join(err, inner)
}
