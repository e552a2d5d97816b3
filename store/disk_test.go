package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// noRoom simulates a page write on a full disk.
func noRoom([]byte, int64) (int, error) {
	return 0, &fs.PathError{Op: "write", Path: "db", Err: syscall.ENOSPC}
}

// small runs fn with a folder on a separate tmpfs of the given size in bytes. Root must be able to
// mount it, so that CI skips no test. For other users, TestNoMoreRoom (a limit on file sizes, which
// any process may set) and TestFailedWrites cover the same behaviour.
func small(t *testing.T, size int, fn func(dir string)) {
	t.Helper()
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		if os.Geteuid() == 0 {
			t.Fatalf("root cannot mount a tmpfs, which this test needs: %v", err)
		}
		t.Logf("only root can mount a tmpfs: %v", err)
		return
	}
	defer func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
	}()
	fn(dir)
}

// While another process fills the disk, work is refused before the disk is full and reads continue.
// A completely full disk refuses all writes with ErrFull. Once there is space, work is accepted
// again and Health does not flap.
func TestFullDisk(t *testing.T) {
	small(t, 64<<20, func(dir string) {
		raw, err := template()
		if err != nil {
			t.Fatal(err)
		}
		path, ballast := filepath.Join(dir, "ronbox.db"), filepath.Join(dir, "ballast")
		if err := os.WriteFile(path, raw, 0o600); err != nil {
			t.Fatal(err)
		}
		s := New(testConfig(), Options{Path: path})
		s.Declare("test", testRows, testDerived, testLog)
		if err := ready(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		r := (&rig{Store: s, t: t}).start()
		mustCommit(r, put{Key: "k", Value: "v"})

		fillDisk(t, ballast, 4<<20)
		awaitHealth(t, r, ErrFull)
		if _, err := Commit(t.Context(), s, Work, put{Key: "x"}); !errors.Is(err, ErrFull) {
			t.Errorf("work on a disk with 4 MiB: %v", err)
		}
		if _, err := Commit(t.Context(), s, Control, put{Key: "control", Value: "v"}); err != nil {
			t.Errorf("control, from the reserve: %v", err)
		}
		fillDisk(t, ballast, 0)
		if _, err := Commit(t.Context(), s, Control,
			put{Key: "large", Value: strings.Repeat("v", 1<<20)}); !errors.Is(err, ErrFull) ||
			r.Err() != nil {
			t.Errorf("control on a disk with nothing: %v, store %v", err, r.Err())
		}
		if r.get("k") != "v" || r.get("control") != "v" || r.get("large") != "" {
			t.Error("reads do not go on, or show what was refused")
		}
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
		awaitHealth(t, r, nil)
		keys := fillUp(r, 1<<20)
		if n := len(keys); n < 32 || r.Err() != nil {
			t.Errorf("of 64 MiB %d MiB could be used; store %v", n, r.Err())
		}
		r.stop()
		if rep, err := Verify(t.Context(), path, nil, nil, nil); err != nil || !rep.OK {
			t.Errorf("%+v, %v", rep, err)
		}
	})
}

// fillDisk writes a file until the disk has no more than left bytes.
func fillDisk(t *testing.T, path string, left int64) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	block := make([]byte, 4096)
	for {
		if free, _, _ := diskSpace(f); free <= left {
			return
		}
		if _, err := f.Write(block); err != nil {
			t.Fatal(err)
		}
	}
}

// awaitHealth waits until Health returns want. The committer checks once a second.
func awaitHealth(t *testing.T, r *rig, want error) {
	t.Helper()
	for end := time.Now().Add(time.Minute); time.Now().Before(end); {
		if err := r.Health(); errors.Is(err, want) {
			return
		}
		<-time.After(10 * time.Millisecond)
	}
	t.Fatalf("health: %v, want %v", r.Health(), want)
}

func TestCountsFastCommits(t *testing.T) {
	for info, want := range map[string]bool{
		"fc stats:\n12 commits\n0 ineligible\n": true, "fc stats:\n0 commits\n": false, "": false, "x commits\n": false,
	} {
		if countsFastCommits(info) != want {
			t.Errorf("%q: want %v", info, want)
		}
	}
	for release, want := range map[string]bool{
		"5.10.0-8-amd64": true, "5.16.20": true, "5.17.0": false, "5.9.1": false, "6.1.0": false, "4.19.0": false,
		"": false, "none": false,
	} {
		if fastCommitBroken(release) != want {
			t.Errorf("%q: want %v", release, want)
		}
	}
	_ = fastCommits(t.TempDir()) // must not panic; the result depends on the machine
}

// A file on a network file system is refused by the number of the file system, unless the config
// allows it.
func TestNetworkDisk(t *testing.T) {
	var st unix.Statfs_t
	path := newFile(t)
	if err := unix.Statfs(path, &st); err != nil {
		t.Fatal(err)
	}
	magic := int64(st.Type) & 0xFFFFFFFF
	for _, tt := range []struct {
		on    int64
		allow bool
		want  error
	}{{magic + 1, false, nil}, {magic, false, ErrNetwork}, {magic, true, nil}} {
		err := judgeDisk(path, magic, map[int64]string{tt.on: "test"}, tt.allow)
		if !errors.Is(err, tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	for _, name := range []string{"NFS", "CIFS", "SMB2", "9p", "FUSE"} {
		found := false
		for _, n := range networkFS() {
			found = found || n == name
		}
		if !found {
			t.Errorf("%s is not in the list", name)
		}
	}
}
