package host

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// SyncDir syncs dir, which makes a rename inside it durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReplaceFile creates or replaces the file at path with the bytes that write produces. The file is
// either complete or unchanged, and survives a power cut once ReplaceFile has returned nil.
func ReplaceFile(path string, mode os.FileMode, write func(io.Writer) error) error {
	if err := os.Remove(path + ".tmp"); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY|os.O_EXCL, mode)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	err = errors.Join(write(w), w.Flush(), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name())) // it may be what fills the disk
	}
	return SyncDir(filepath.Dir(path))
}

// PlaceFile gives the synced file temp the name path in the same directory, and takes its old name
// away. It returns fs.ErrExist if path exists, which stays, as temp does.
func PlaceFile(temp, path string) error {
	err := os.Link(temp, path)
	switch {
	case err == nil:
		err = os.Remove(temp)
	case errors.Is(err, unix.EPERM), errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EOPNOTSUPP),
		errors.Is(err, unix.EMLINK): // a file system without hard links
		err = unix.Renameat2(unix.AT_FDCWD, temp, unix.AT_FDCWD, path, unix.RENAME_NOREPLACE)
	}
	if err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// IsContents reports whether a name in a folder keeps the folder from being an empty one. The name
// of a temporary file, which a process writes now or has left when it was killed, does not, nor
// does that of the folder that mkfs makes.
func IsContents(name string) bool {
	return name != "lost+found" && !strings.HasPrefix(name, ".ronbox-")
}
