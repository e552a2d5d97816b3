package store

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// lockRetry is the pause between two tries for the lock.
const lockRetry = 20 * time.Millisecond

// lockFile takes the flock of f, shared or exclusive, and gives up after wait with a LockedError. bbolt's own flock then finds it taken by
// the same descriptor.
func lockFile(f *os.File, exclusive bool, wait time.Duration) error {
	how := unix.LOCK_SH | unix.LOCK_NB
	if exclusive {
		how = unix.LOCK_EX | unix.LOCK_NB
	}
	for deadline := time.Now().Add(wait); ; time.Sleep(lockRetry) {
		err := unix.Flock(int(f.Fd()), how)
		if err == nil {
			return nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		if !time.Now().Before(deadline) {
			return holder(f)
		}
	}
}

// holder finds who has f locked, in /proc/locks.
func holder(f *os.File) *LockedError {
	e := &LockedError{Path: f.Name()}
	info, err := f.Stat()
	if err != nil {
		return e
	}
	st, ok := info.Sys().(*unixStat)
	if !ok {
		return e
	}
	table, err := os.ReadFile("/proc/locks")
	if err != nil {
		return e
	}
	if e.PID = lockHolder(table, uint64(st.Dev), st.Ino); e.PID > 0 {
		e.Command = commandOf(e.PID)
	}
	return e
}

// lockHolder reads lines such as "1: FLOCK  ADVISORY  WRITE 1234 fe:00:131073 0 EOF". Some file systems show another device number there
// than stat does, so the inode alone is the second choice.
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

// commandOf is the command line of a process, arguments joined by blanks.
func commandOf(pid int) string {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return "unknown command"
	}
	return strings.TrimSpace(strings.ReplaceAll(string(raw), "\x00", " "))
}
