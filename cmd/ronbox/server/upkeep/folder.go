package upkeep

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"ronbox/appliance/systemd"
	nodehttp "ronbox/httpapi/node"
	"ronbox/store"
)

// CheckSnapshotDir returns a SnapshotDirError if the process cannot write the folder, or make it in
// the folder above. It writes nothing.
func CheckSnapshotDir(dir string) error {
	for at := dir; ; at = filepath.Dir(at) {
		err := unix.Access(at+"/.", unix.W_OK|unix.X_OK) // ENOTDIR if it is no folder
		var disk unix.Statfs_t
		if errors.Is(err, syscall.EACCES) && unix.Statfs(at, &disk) == nil && disk.Flags&unix.ST_RDONLY != 0 {
			err = syscall.EROFS // the permission alone would not help
		}
		if !errors.Is(err, fs.ErrNotExist) || at == filepath.Dir(at) {
			return snapshotDirError(dir, err)
		}
	}
}

// snapshotDirError converts an error of the system about the folder of a snapshot: to store.ErrFull
// if its disk is full, else to a SnapshotDirError. It returns other errors unchanged.
func snapshotDirError(dir string, err error) error {
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case !ok, errors.Is(err, store.ErrFull), errors.Is(err, store.ErrCorrupt):
		return err
	case errno == syscall.ENOSPC, errno == syscall.EDQUOT:
		return fmt.Errorf("%w: %w", store.ErrFull, err)
	}
	out := &nodehttp.SnapshotDirError{Cause: errno}
	out.Path, out.User, out.Unit = dir, strconv.Itoa(os.Geteuid()), systemd.OwnUnit()
	if self, err := user.Current(); err == nil {
		out.User = self.Username
	}
	return out
}
