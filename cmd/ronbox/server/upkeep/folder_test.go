package upkeep

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	nodehttp "ronbox/httpapi/node"
)

// A folder in a file system that is mounted read-only is told apart from one of another user.
func TestReadOnlySnapshotFolder(t *testing.T) {
	dir := t.TempDir()
	tmpfs(t, dir, 1<<20)
	must(t, CheckSnapshotDir(filepath.Join(dir, "not", "there")))
	must(t, unix.Mount("none", dir, "tmpfs", unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	err := CheckSnapshotDir(filepath.Join(dir, "x"))
	if e, ok := errors.AsType[*nodehttp.SnapshotDirError](err); !ok || e.Cause != syscall.EROFS ||
		e.Path != filepath.Join(dir, "x") || e.User == "" || e.Unit != "" {
		t.Errorf("%v", err)
	}
}

// tmpfs mounts a small disk on dir. Only root can, and CI is root.
func tmpfs(t *testing.T, dir string, size int64) {
	t.Helper()
	if err := unix.Mount("none", dir, "tmpfs", 0, fmt.Sprintf("size=%d,mode=0700", size)); err != nil {
		if os.Geteuid() == 0 {
			t.Fatalf("root cannot mount a tmpfs, which this test needs: %v", err)
		}
		t.Skipf("only root can mount a tmpfs: %v", err)
	}
	t.Cleanup(func() { must(t, unix.Unmount(dir, unix.MNT_DETACH)) })
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
