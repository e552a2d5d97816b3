package front

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// dialWithin is the wait for whoever may still listen on a socket file: a live peer answers at once.
const dialWithin = time.Second

// listenSocket binds the admin socket, 0600 from its first moment in a directory that only its owner enters. A socket file
// that nobody answers on was left by a process that is gone; one that is answered is another node's, and stays.
func listenSocket(ctx context.Context, path string) (net.Listener, error) {
	if len(path) > maxSocketPath {
		return nil, fmt.Errorf("socket path has %d bytes, at most %d fit", len(path), maxSocketPath)
	}
	if err := removeStale(ctx, path); err != nil {
		return nil, err
	}
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

// removeStale removes a socket that nobody listens on, and nothing that is not one.
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
	if c, err := d.DialContext(ctx, "unix", path); err == nil {
		return errors.Join(unix.EADDRINUSE, c.Close())
	}
	return os.Remove(path)
}

// peerCred asks the kernel who made the connection. The pid is of no use: it can be another's by now.
func peerCred(c *net.UnixConn) (uid, gid uint32, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return 0, 0, err
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, 0, err
	}
	if cerr != nil {
		return 0, 0, cerr
	}
	return cred.Uid, cred.Gid, nil
}

// uidAllowed lets in who runs the node, and root.
func uidAllowed(uid uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }
