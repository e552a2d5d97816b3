package front

import (
	"errors"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// backlog takes out of l what the kernel has connected and nobody has accepted, at most so many. It does not wait.
func backlog(l net.Listener, most int) []net.Conn {
	var out []net.Conn
	for _, fd := range acceptAll(l, most) {
		f := os.NewFile(uintptr(fd), "backlog")
		if c, err := net.FileConn(f); err == nil { // with a descriptor of its own
			out = append(out, c)
		}
		_ = f.Close()
	}
	return out
}

// acceptAll gives the descriptors. A net.Listener past its deadline accepts nothing, and one before it waits.
func acceptAll(l net.Listener, most int) (fds []int) {
	sc, ok := l.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(listener uintptr) {
		for len(fds) < most {
			fd, _, err := unix.Accept4(int(listener), unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK)
			switch {
			case err == nil:
				fds = append(fds, fd)
			case !errors.Is(err, unix.EINTR) && !errors.Is(err, unix.ECONNABORTED):
				return
			}
		}
	})
	return fds
}
