package lock

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/host"
)

// ErrLocked is returned when another process holds a lock.
var ErrLocked = errors.New("store: file is in use")

// HeldError names the process that holds the file. It is ErrLocked.
type HeldError struct {
	Path    string
	PID     int    // 0: not known
	Command string // of that process
}

func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%v: %s is held by another process; stop it, or reach a running node over its socket",
			ErrLocked, e.Path)
	}
	return fmt.Sprintf("%v: %s is held by process %d (%s); a running node is reached over its socket", ErrLocked,
		e.Path, e.PID, e.Command)
}

// Is reports whether target is ErrLocked.
func (e *HeldError) Is(target error) bool { return target == ErrLocked }

const (
	// lockRetry is the pause between two tries for the lock.
	lockRetry = 20 * time.Millisecond

	// lockMoment is the shortest wait. A lock may outlive its holder by a moment: a child that was
	// just forked holds it, too, until it runs another program.
	lockMoment = 200 * time.Millisecond
)

// File takes the flock of f, shared or exclusive. It returns a HeldError if the lock is not
// available within wait, or within lockMoment if wait is shorter. The later flock of bbolt
// succeeds because it uses the same descriptor.
func File(f *os.File, exclusive bool, wait time.Duration) error {
	how := unix.LOCK_SH | unix.LOCK_NB
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	for deadline := time.Now().Add(max(wait, lockMoment)); ; time.Sleep(lockRetry) {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !time.Now().Before(deadline) {
			return holder(f, false)
		}
	}
}

// Holder returns the process that holds an exclusive lock of path, as a node does of its file, or
// nil if it finds no such process. It takes no lock itself, so that it cannot interfere with a
// process that starts.
func Holder(path string) *HeldError {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0) // does not wait for the writer of a pipe
	if err != nil {
		return nil
	}
	defer func() { _ = f.Close() }()
	if e := holder(f, true); e.PID > 0 {
		return e
	}
	return nil
}

// holder finds the process that has locked f in /proc/locks. If exclusive is set, shared locks are
// ignored.
func holder(f *os.File, exclusive bool) *HeldError {
	e := &HeldError{Path: f.Name()}
	info, err := f.Stat()
	if err != nil {
		return e
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return e
	}
	for try := range holderTries {
		if try > 0 {
			time.Sleep(holderPause)
		}
		table, err := os.ReadFile("/proc/locks")
		if err != nil {
			return e
		}
		if exclusive {
			lines := slices.DeleteFunc(
				bytes.Split(table, []byte("\n")),
				func(line []byte) bool { return !bytes.Contains(line, []byte(" WRITE ")) },
			)
			table = bytes.Join(lines, []byte("\n"))
		}
		if e.PID = lockHolder(table, uint64(st.Dev), st.Ino); e.PID > 0 {
			e.Command = commandOf(e.PID)
			return e
		}
	}
	return e
}

// holderTries bounds the readings of /proc/locks until the holder is found. The kernel gives the
// table in pieces: when a lock ends between two of them, the lock that follows may be skipped.
const (
	holderTries = 5
	holderPause = 2 * time.Millisecond
)

// lockHolder parses lines such as "1: FLOCK ADVISORY WRITE 1234 fe:00:131073 0 EOF". Some file
// systems show another device number there than stat returns, so a line that matches only the inode
// is used if no line matches both.
func lockHolder(table []byte, dev, inode uint64) (pid int) {
	want := fmt.Sprintf("%02x:%02x:%d", unix.Major(dev), unix.Minor(dev), inode)
	suffix := fmt.Sprintf(":%d", inode)
	lines := bufio.NewScanner(bytes.NewReader(table))
	for lines.Scan() {
		field := strings.Fields(lines.Text())
		if len(field) < 6 || field[1] != "FLOCK" || !strings.HasSuffix(field[5], suffix) {
			continue
		}
		p, err := strconv.Atoi(field[4])
		if err != nil || p <= 0 {
			continue
		}
		if field[5] == want {
			return p
		}
		pid = p
	}
	return pid
}

// commandOf returns the command line of a process, arguments separated by spaces.
func commandOf(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "unknown command"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
}

// makeDir creates a folder (mode 0700) and its missing parents, and syncs each parent.
func makeDir(dir string) error {
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	above := filepath.Dir(dir)
	if err := makeDir(above); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return host.SyncDir(above)
}

// maxLinks bounds a chain of symbolic links, as Linux does.
const maxLinks = 40

// Target returns the path at which the symbolic link at path, or a chain of links, ends, and path
// itself if it is no link. There need not be a file. A file that is replaced by a rename is
// replaced there: otherwise the rename would replace the link. If the folder of the file is
// missing, Target returns the path in that folder with an error, since a disk may not be mounted.
func Target(path string) (string, error) {
	at := path
	for range maxLinks {
		to, err := os.Readlink(at)
		if err != nil {
			return at, nil // no link; other errors are left to the open
		}
		if !filepath.IsAbs(to) {
			dir, _ := filepath.Split(at) // unlike Dir, it does not resolve ".."
			to = dir + to
		}
		dir, name := filepath.Split(to)
		if dir, err = filepath.EvalSymlinks(dir); err != nil {
			return to, fmt.Errorf("%s is a link to %s: %w", path, to, err)
		}
		at = filepath.Join(dir, name)
	}
	return path, &fs.PathError{Op: "open", Path: path, Err: unix.ELOOP}
}

// Folder creates the folder of the Target of path and locks it exclusively, so that only one
// process creates or replaces the database in it. It returns the target. Closing the returned
// handle releases the lock.
func Folder(path string) (target string, folder *os.File, err error) {
	if target, err = Target(path); err != nil {
		return target, nil, err
	}
	dir := filepath.Dir(target)
	if err := makeDir(dir); err != nil {
		return target, nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return target, nil, err
	}
	if err := File(d, true, 0); err != nil {
		return target, nil, errors.Join(err, d.Close())
	}
	return target, d, nil
}

// ShareFolder creates a folder of snapshots and locks it in shared mode, so that a sweep does not
// remove files that are being written.
func ShareFolder(dir string) (*os.File, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := File(d, false, sweepPatience); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// sweepPatience bounds the wait of a snapshot for a sweep of its folder, which takes milliseconds.
const sweepPatience = 2 * time.Second
