package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// FileSystem describes the file system of a folder.
type FileSystem struct {
	Type       string // "ext4", "" if unknown
	Source     string // "/dev/nvme0n1p2"
	Network    bool   // its locks and syncs depend on another machine or process
	Memory     bool   // its content is lost with the power
	Free       int64  // bytes that this process may write
	Total      int64  // bytes
	FastCommit Answer // ext4 only
}

// Answer is yes, no, or unknown.
type Answer string

// The answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// networkTypes are file systems with unreliable locks and syncs.
var networkTypes = [...]string{
	"nfs",
	"nfs4",
	"cifs",
	"smb3",
	"smbfs",
	"9p",
	"ceph",
	"glusterfs",
	"lustre",
	"afs",
	"ocfs2",
	"gfs2",
	"virtiofs",
}

// ReadFileSystem describes the file system of path, or of its nearest existing parent.
func ReadFileSystem(path string) (FileSystem, error) {
	dir, err := existing(path)
	if err != nil {
		return FileSystem{}, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return FileSystem{}, &os.PathError{Op: "statfs", Path: dir, Err: err}
	}
	size := uint64(st.Frsize) // the unit of block counts; st.Bsize is the preferred read size
	if size == 0 {
		size = uint64(st.Bsize)
	}
	out := FileSystem{Free: int64(st.Bavail * size), Total: int64(st.Blocks * size), FastCommit: No}
	mounts, err := here().mounts()
	if err != nil {
		return out, err
	}
	m, _ := mountOf(mounts, dir)
	out.Type, out.Source = m.Type, m.Source
	out.Network = slices.Contains(networkTypes[:], m.Type) || strings.HasPrefix(m.Type, "fuse")
	out.Memory = m.Type == "tmpfs" || m.Type == "ramfs"
	if m.Type == "ext4" {
		out.FastCommit = fastCommit(m.Source)
	}
	return out, nil
}

// SameDisk reports whether two paths, or their nearest existing parents, are on one file system or
// on one device, as subvolumes are.
func SameDisk(a, b string) (bool, error) {
	var devices [2]uint64
	var sources [2]string
	for i, path := range [...]string{a, b} {
		dir, err := existing(path)
		if err != nil {
			return false, err
		}
		var st unix.Stat_t
		if err := unix.Stat(dir, &st); err != nil {
			return false, &os.PathError{Op: "stat", Path: dir, Err: err}
		}
		mounts, err := here().mounts()
		if err != nil {
			return false, err
		}
		m, _ := mountOf(mounts, dir)
		devices[i], sources[i] = st.Dev, m.Source
	}
	return devices[0] == devices[1] || sources[0] == sources[1] && strings.HasPrefix(sources[0], "/dev/"), nil
}

// existing returns path, absolute and without symbolic links, or its nearest existing parent.
func existing(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return real, nil
		}
		if up := filepath.Dir(path); up != path && (errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)) {
			path = up
			continue
		}
		return "", err
	}
}

// fastCommit reads the superblock of a device, which needs permission.
func fastCommit(device string) Answer {
	f, err := os.Open(device)
	if err != nil {
		return Unknown
	}
	defer func() { _ = f.Close() }()
	on, err := parseFastCommit(f)
	switch {
	case err != nil:
		return Unknown
	case on:
		return Yes
	}
	return No
}

// Offsets and values of an ext4 superblock.
const (
	superAt      = 1024
	superSize    = 1024
	superMagicAt = 0x38
	superMagic   = 0xEF53
	compatAt     = 0x5C
	compatFast   = 0x400 // COMPAT_FAST_COMMIT
)

// parseFastCommit reports whether fast commits are enabled in an ext4 file system.
func parseFastCommit(r io.ReaderAt) (bool, error) {
	var super [superSize]byte
	if _, err := r.ReadAt(super[:], superAt); err != nil {
		return false, fmt.Errorf("superblock: %w", err)
	}
	if binary.LittleEndian.Uint16(super[superMagicAt:]) != superMagic {
		return false, errors.New("superblock: not that of an ext4 file system")
	}
	return binary.LittleEndian.Uint32(super[compatAt:])&compatFast != 0, nil
}

// Latency holds the durations of single syncs.
type Latency struct {
	Median, Most time.Duration
	Samples      int
}

// syncBlock is the size of the write before each sync: one page, as in a small commit.
const syncBlock = 4096

// SyncLatency measures n writes and syncs of a page, in a temporary file in dir. It ends early if
// ctx ends, but a sync that hangs blocks it.
func SyncLatency(ctx context.Context, dir string, n int) (l Latency, err error) {
	f, err := os.CreateTemp(dir, ".ronbox-sync-*")
	if err != nil {
		return Latency{}, err
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	took := make([]time.Duration, 0, n)
	block := make([]byte, syncBlock)
	for i := range n {
		if ctx.Err() != nil {
			break
		}
		if _, err := f.WriteAt(block, int64(i)*syncBlock); err != nil {
			return Latency{}, err
		}
		began := time.Now()
		if err := unix.Fdatasync(int(f.Fd())); err != nil {
			return Latency{}, fmt.Errorf("syncing %s: %w", f.Name(), err)
		}
		took = append(took, time.Since(began))
	}
	return summarize(took)
}

var errNoSample = errors.New("no sync was made")

func summarize(took []time.Duration) (Latency, error) {
	if len(took) == 0 {
		return Latency{}, errNoSample
	}
	slices.Sort(took)
	return Latency{Median: took[len(took)/2], Most: took[len(took)-1], Samples: len(took)}, nil
}
