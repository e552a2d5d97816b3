package store

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	bolt "go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
)

// Thresholds of the used pages, in percent of the capacity.
const (
	roomWarn = 85 // a warning is logged
	roomFull = 95 // the store is full
	roomHeal = 90 // a full store has space again
)

// A disk that refused a write counts as full for some time even if it reports free space. The time
// doubles if the refusals follow each other closely, so that readiness does not flap.
const (
	diskEvery   = 50 * time.Millisecond // interval of asking the disk for its free space
	diskRest    = 2 * time.Second       // after the first refusal
	diskRestMax = time.Minute
	diskAgain   = 10 * time.Minute // refusals within this time double the rest
)

// space describes the space in the file and on the disk at one moment, in bytes.
type space struct {
	size     int64 // end of the last page that was ever used
	used     int64 // pages that hold data or are pinned by readers
	reclaim  int64 // of them, pages of rows that are being deleted: new work may count on them
	capacity int64 // limit of used: max_bytes minus the slack of a growing file
	disk     int64 // free for this process; negative: unknown or unlimited
	own      int64 // disk space of the file
	total    int64 // size of the disk; 0: unknown or unlimited
	minFree  int64 // store.min_free
	step     int64 // growth step of the file
}

// reserve returns the space that must stay free on the disk. min_free suits disks with gigabytes to
// spare; on a small disk it would leave nothing to use, so the reserve is at most an eighth of the
// file size plus the free space. That sum does not change as the file grows. The reserve is at
// least one growth step of the file.
func (p space) reserve() int64 { return min(p.minFree, max((p.disk+p.own)/8, p.growth())) }

// growth returns the space beyond the reserve that a full store needs before it accepts writes
// again: the growth step of the file, or an eighth of a tiny disk.
func (p space) growth() int64 {
	if p.total == 0 {
		return p.step
	}
	return min(p.step, p.total/8)
}

// kept returns the bytes of pages that hold data which is not being deleted.
func (p space) kept() int64 { return max(0, p.used-p.reclaim) }

// short returns ErrFull with the reason if there is too little space, else nil.
func (p space) short() error {
	if p.kept()*100 >= p.capacity*roomFull {
		return fmt.Errorf("%w: %d%% of store.max_bytes are used; raise it and restart, or delete", ErrFull,
			p.kept()*100/max(p.capacity, 1))
	}
	if p.disk >= 0 && p.disk < p.reserve() {
		return fmt.Errorf(
			"%w: the disk has %d MiB left, %d MiB are kept free; make room on it, or lower store.min_free",
			ErrFull,
			p.disk>>20,
			p.reserve()>>20,
		)
	}
	return nil
}

// left returns the bytes that the file can still take before the space is short.
func (p space) left() int64 {
	left := p.capacity*roomFull/100 - p.kept()
	if p.disk >= 0 {
		left = min(left, p.disk-p.reserve())
	}
	return max(left, 0)
}

// healed reports whether a store that was full has enough space again. The margin keeps the next
// writes from filling it at once.
func (p space) healed() bool {
	return p.kept()*100 < p.capacity*roomHeal && (p.disk < 0 || p.disk >= p.reserve()+p.growth())
}

// room holds the verdict on the available space. Only the committer updates it; any goroutine may
// read it.
type room struct {
	file   *os.File
	memory bool // the store is in memory: there is no disk
	state  atomic.Pointer[fullness]
	last   atomic.Pointer[space]
	// when the disk was last asked, ns; owned by the committer, as are the fields below
	asked   int64
	refusal *refusal // the last refusal
	pending bool     // the last refusal still applies
	warned  bool
}

// fullness is the reason why work is refused. It is ErrFull.
type fullness struct{ error }

// refusal is a write that the disk refused although it reported free space, because of a quota or a
// limit on the file size.
type refusal struct {
	at   int64         // ns on the store's clock
	disk int64         // free space at that time
	rest time.Duration // how long the reported free space is ignored
}

// cause returns ErrFull if there is no space, else nil.
func (m *room) cause() error {
	if f := m.state.Load(); f != nil {
		return f.error
	}
	return nil
}

// disk returns the file, or nil if the store is in memory.
func (m *room) disk() *os.File {
	if m.memory {
		return nil
	}
	return m.file
}

// full reports whether work is refused.
func (m *room) full() bool { return m.state.Load() != nil }

// SetReclaimable sets a function that returns the bytes of rows that nothing reads any more and
// that are being deleted as room is needed: they do not count as used. The committer calls it, so
// it must not block. It must be called before Open.
func (s *Store) SetReclaimable(fn func() int64) {
	if s.db != nil {
		panic("store: SetReclaimable after Open")
	}
	s.reclaim = fn
}

// look updates the verdict on the space. size is the end of the pages of the last commit. The disk
// is asked at most every diskEvery, unless force is set.
func (s *Store) look(db *bolt.DB, size int64, force bool) {
	m, now := &s.room, s.mono()
	p := space{
		size: size, used: size - int64(db.Stats().FreePageN)*PageSize, capacity: s.maxBytes() - s.step(), disk: -1,
		minFree: s.config().MinFree.Bytes(), step: s.step(),
	}
	if s.reclaim != nil {
		p.reclaim = s.reclaim()
	}
	if last := m.last.Load(); !force && last != nil && now-m.asked < int64(diskEvery) {
		p.disk, p.own, p.total = last.disk, last.own, last.total
	} else if !m.memory {
		m.asked = now
		p.disk, p.own, p.total = diskSpace(m.file)
	}
	s.judge(p)
}

// judge updates the verdict and logs changes.
func (s *Store) judge(p space) {
	m := &s.room
	before := m.last.Swap(&p)
	more := before != nil && p.reclaim > before.reclaim // also when it is known for the first time, after a boot
	short := p.short()
	switch {
	case m.full():
		if short != nil {
			m.state.Store(&fullness{short})
		} else if (more || p.healed()) && s.forgiven(p) {
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

// warnFilling logs a warning when the file comes near its limit, and again after it has been well
// below.
func (s *Store) warnFilling(p space) {
	m, pct := &s.room, p.kept()*100/max(p.capacity, 1)
	if pct >= roomWarn && !m.warned {
		s.log.Warn("store_filling", "used_percent", pct, "max_bytes", s.maxBytes())
	}
	m.warned = pct >= roomWarn || m.warned && pct >= roomWarn-5
}

// refused records a commit that failed for lack of space. At the limit of the file itself nothing
// is recorded: either the computed space already shows it, or the group was too large for the
// contiguous free pages and the next one may fit. A refusal of the disk makes the store full.
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

// forgiven reports whether the disk would accept a write that it refused before: there is more free
// space, or some time has passed, and the growth step can be allocated.
func (s *Store) forgiven(p space) bool {
	m := &s.room
	if !m.pending {
		return true
	}
	more := p.disk >= m.refusal.disk+p.growth()
	return (more || s.mono()-m.refusal.at > int64(m.refusal.rest)) && grows(m.file, p.growth())
}

// grows reports whether n bytes can be allocated after the end of the file, and releases them. Only
// the caller may change the length of the file.
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
		// also releases the blocks of a failed attempt; punching a hole would not, on ext4
		return errors.Join(err, unix.Ftruncate(fd, info.Size()))
	})
	return !wantsRoom(err)
}

// wantsRoom reports whether an attempt to grow failed for lack of space. Any other error means that
// the file system does not support the attempt or that it was interrupted; the next commit will
// show.
func wantsRoom(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.EFBIG)
}

// spaceMax caps sizes of disks, bytes, so that sums and percentages do not overflow.
const spaceMax = 1 << 60

// bytesOf returns the size of a number of blocks, capped at spaceMax.
func bytesOf(blocks uint64, size int64) int64 {
	if high, low := bits.Mul64(blocks, uint64(max(size, 0))); high == 0 && low < spaceMax {
		return int64(low)
	}
	return spaceMax
}

// diskSpace returns the free space of the file system of f, the disk space of f, and the size of
// the file system. free is negative if the file system has no limit or does not report one.
func diskSpace(f *os.File) (free, own, total int64) {
	var fs unix.Statfs_t
	var st unix.Stat_t
	err := onFile(f, func(fd int) error { return errors.Join(unix.Fstatfs(fd, &fs), unix.Fstat(fd, &st)) })
	if err != nil || fs.Blocks == 0 {
		return -1, 0, 0
	}
	unit := int64(fs.Frsize) // the unit of Blocks; Bsize is the preferred transfer size, which may differ
	if unit == 0 {
		unit = int64(fs.Bsize)
	}
	return bytesOf(fs.Bavail, unit), bytesOf(uint64(st.Blocks), 512), bytesOf(fs.Blocks, unit)
}

// onFile runs fn with the descriptor of f, which stays open until fn returns.
func onFile(f *os.File, fn func(fd int) error) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = raw.Control(func(fd uintptr) { inner = fn(int(fd)) })
	return errors.Join(err, inner)
}

// networkFS returns the file systems, by number, on which locks and syncs cannot be trusted.
func networkFS() map[int64]string {
	return map[int64]string{
		0x6969:     "NFS",
		0x517B:     "SMB",
		0xFF534D42: "CIFS",
		0xFE534D42: "SMB2",
		0x01021997: "9p",
		0x65735546: "FUSE",
		0x00C36400: "Ceph",
		0x5346414F: "AFS",
		0x6B414653: "AFS",
		0x73757245: "Coda",
		0x564C:     "NCP",
		0x0BD00BD0: "Lustre",
		0x47504653: "GPFS",
		0x19830326: "BeeGFS",
		0x20030528: "OrangeFS",
		0x01161970: "GFS2",
		0x7461636F: "OCFS2",
		0x013111A8: "IBRIX",
		0xAAD7AAEA: "PanFS",
	}
}

// ext4 is the number of the ext4 file system.
const ext4 = 0xEF53

// checkDisk returns ErrNetwork for a file on a network file system, and logs a warning for a file
// system that is known to lose writes.
func (s *Store) checkDisk() error {
	var st unix.Statfs_t
	path := s.opt.Path
	if err := unix.Statfs(path, &st); err != nil {
		return &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	magic := int64(st.Type) & 0xFFFFFFFF
	if err := judgeDisk(path, magic, networkFS(), s.config().AllowNetwork); err != nil {
		return err
	}
	if magic == ext4 && fastCommits(path) && fastCommitBroken(kernelRelease()) {
		s.log.Warn("fast_commit", "reason", "this kernel can lose writes on ext4 with fast_commit", "kernel",
			kernelRelease(), "next", "run 5.17 or newer, or turn it off with tune2fs -O ^fast_commit")
	}
	return nil
}

func judgeDisk(path string, magic int64, refused map[int64]string, allow bool) error {
	if name, network := refused[magic]; network && !allow {
		return fmt.Errorf("%w: %s is on %s; move it to a local disk, or set store.allow_network", ErrNetwork, path,
			name)
	}
	return nil
}

// fastCommits reports whether the ext4 file system that holds path makes fast commits, according to
// its fc_info. It returns false if that cannot be read.
func fastCommits(path string) bool {
	var st unix.Stat_t
	if unix.Stat(path, &st) != nil {
		return false
	}
	device, err := os.Readlink(fmt.Sprintf("/sys/dev/block/%d:%d", unix.Major(st.Dev), unix.Minor(st.Dev)))
	if err != nil {
		return false
	}
	info, err := os.ReadFile(filepath.Join("/proc/fs/ext4", filepath.Base(device), "fc_info"))
	return err == nil && countsFastCommits(string(info))
}

// countsFastCommits parses text such as "fc stats:\n12 commits\n…".
func countsFastCommits(info string) bool {
	for line := range strings.Lines(info) {
		if n, ok := strings.CutSuffix(strings.TrimSpace(line), " commits"); ok {
			count, err := strconv.ParseUint(n, 10, 64)
			return err == nil && count > 0
		}
	}
	return false
}

func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// fastCommitBroken reports whether a kernel has fast commits (from 5.10) without the fixes of 5.17.
// On such a kernel a file that grows by truncation, as the database does, could lose writes to its
// new part. A release that cannot be parsed counts as fixed.
func fastCommitBroken(release string) bool {
	var major, minor int
	if n, _ := fmt.Sscanf(release, "%d.%d", &major, &minor); n != 2 {
		return false
	}
	return major == 5 && minor >= 10 && minor < 17
}
