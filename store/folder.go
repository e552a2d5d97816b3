package store

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// makeDir makes a folder (0700) and those above it that are missing, each durable in the one that holds it.
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
	return SyncDir(above)
}

// lockFolder makes the folder of path and locks it: whoever makes or replaces the database in it does so alone. The lock goes with the
// handle.
func lockFolder(path string) (*os.File, error) {
	dir := filepath.Dir(path)
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := lockFile(d, true, 0); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// shareFolder makes a folder of snapshots and locks it together with others who write to it, so that a sweep leaves their files alone.
func shareFolder(dir string) (*os.File, error) {
	if err := makeDir(dir); err != nil {
		return nil, err
	}
	d, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	if err := lockFile(d, false, sweepPatience); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	return d, nil
}

// sweepPatience is how long a snapshot waits for a sweep of its folder, which takes milliseconds.
const sweepPatience = 2 * time.Second

// ownedLike gives what root has made to the owner of another file: the node could not open it else.
func ownedLike(path, other string) error {
	var st unix.Stat_t
	if os.Geteuid() != 0 {
		return nil
	}
	if err := unix.Stat(other, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: other, Err: err}
	}
	return os.Chown(path, int(st.Uid), int(st.Gid))
}

// closing closes c and joins what that says.
func closing(c io.Closer, err error) error { return errors.Join(err, c.Close()) }

// SyncDir makes a rename inside dir durable.
func SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// ReplaceFile has write fill a file that is there whole or not at all, whatever was in its place. It survives a power cut once this returns nil.
func ReplaceFile(path string, mode os.FileMode, write func(io.Writer) error) error {
	f, err := os.OpenFile(path+".tmp", os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	if err = errors.Join(write(w), w.Flush(), f.Sync(), f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return err
	}
	return SyncDir(filepath.Dir(path))
}

// removeIfThere is os.Remove that takes a missing file as removed.
func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
