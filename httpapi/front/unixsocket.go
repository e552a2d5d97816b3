package front

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// dialWithin is the wait for whoever may still listen on a socket file: a live peer answers at once.
const dialWithin = time.Second

// access is who can reach the socket file: only the node's own user, or, when the configuration names others, everyone,
// since the kernel then says who it is.
type access struct{ file, dir fs.FileMode }

func (c UDSConfig) access() access {
	if c.namesOthers() {
		return access{file: 0o666, dir: 0o711}
	}
	return access{file: 0o600, dir: 0o700}
}

// listenSocket binds the admin socket, in a directory that is made if it is missing. A socket file that nobody answers
// on was left by a process that is gone; one that is answered is another node's, and stays.
func listenSocket(ctx context.Context, path string, a access) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path has %d bytes, at most %d fit", len(path), maxSocketPath)
	}
	if err := a.openDir(path); err != nil {
		return nil, err
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, a.file); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// openDir makes the directory of the socket. One that others are to pass through must be the socket's own: what else is
// in it would be opened with it.
func (a access) openDir(path string) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, a.dir); err != nil {
		return err
	}
	if a.dir&0o001 == 0 {
		return nil
	}
	info, err := os.Stat(dir)
	if err != nil || info.Mode().Perm()&0o001 != 0 {
		return err
	}
	inside, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range inside {
		if e.Name() != filepath.Base(path) {
			return fmt.Errorf("users that [uds] names cannot pass %s, which is closed and holds more than the socket: "+
				"give uds.path a directory of its own", dir)
		}
	}
	return os.Chmod(dir, a.dir)
}

// closedAbove is the directory nearest to path that others cannot pass, "" if they can pass all.
func closedAbove(path string) string {
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		if info, err := os.Stat(dir); err == nil && info.Mode().Perm()&0o001 == 0 {
			return dir
		}
		if dir == filepath.Dir(dir) {
			return ""
		}
	}
}

// removeStale removes a socket that nobody listens on, which is when the kernel refuses the connection, and nothing else.
func removeStale(ctx context.Context, path string) error {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("%s is not a socket", path)
	}
	d := net.Dialer{Timeout: dialWithin}
	c, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(unix.EADDRINUSE, c.Close())
	case errors.Is(err, unix.ECONNREFUSED):
		return os.Remove(path)
	}
	return fmt.Errorf("%w, so somebody may listen there: end them, or remove %s", err, path) // such as one whose queue is full
}
