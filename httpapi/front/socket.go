package front

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const keepAlive = 60 * time.Second

// socket is a bound address, closed once.
type socket struct {
	net.Listener
	bind      string // as it was asked for: the same text is the same socket
	inherited bool
	closed    atomic.Bool
	over      atomic.Pointer[net.Conn] // accepted, for the next generation
}

// Close ends every Accept. Twice is once.
func (s *socket) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	if c := s.carry(nil); c != nil {
		_ = c.Close()
	}
	return s.Listener.Close()
}

// carry keeps a connection for the next generation, and gives what was kept.
func (s *socket) carry(c net.Conn) net.Conn {
	var next *net.Conn
	if c != nil {
		next = &c
	}
	if was := s.over.Swap(next); was != nil {
		return *was
	}
	return nil
}

// wake makes Accept return, until rest.
func (s *socket) wake() bool { return s.deadline(time.Unix(1, 0)) }
func (s *socket) rest() bool { return s.deadline(time.Time{}) }

func (s *socket) deadline(t time.Time) bool {
	d, ok := s.Listener.(interface{ SetDeadline(time.Time) error })
	return ok && d.SetDeadline(t) == nil
}

// bindTCP opens a TCP address. One that is in use by those before, as 127.0.0.1:80 when 0.0.0.0:80 is wanted, is shared with them
// for as long as they are open, and with nobody else.
func bindTCP(ctx context.Context, bind string, before []*socket) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: keepAlive}
	lc.SetMultipathTCP(false) // whose sockets take no filter, see shut
	l, err := lc.Listen(ctx, "tcp", bind)
	if !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	shared := false
	for _, s := range before {
		if !s.closed.Load() && samePort(bind, s.Addr()) && s.sharePort(true) == nil {
			defer func() { _ = s.sharePort(false) }()
			shared = true
		}
	}
	if !shared {
		return nil, err
	}
	lc.Control = func(_, _ string, raw syscall.RawConn) (err error) {
		cerr := raw.Control(func(fd uintptr) { err = setReusePort(int(fd), true) })
		return errors.Join(cerr, err)
	}
	if l, err = lc.Listen(ctx, "tcp", bind); err != nil {
		return nil, err
	}
	if err := (&socket{Listener: l}).sharePort(false); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func samePort(bind string, a net.Addr) bool {
	_, port, _ := net.SplitHostPort(bind)
	tcp, ok := a.(*net.TCPAddr)
	return ok && port == fmt.Sprint(tcp.Port)
}

// sharePort lets another socket be bound to the same port, and no more.
func (s *socket) sharePort(on bool) error {
	return s.control(func(fd int) error { return setReusePort(fd, on) })
}

func setReusePort(fd int, on bool) error {
	value := 0
	if on {
		value = 1
	}
	return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, value)
}

// inline gives urgent bytes of TCP to Read like others, on every connection accepted from now on: the kernel counts them as received, and who
// sends one that nobody reads would seem to be about to ask for ever.
func (s *socket) inline() {
	_ = s.control(func(fd int) error { return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1) })
}

// control calls f with the descriptor.
func (s *socket) control(f func(fd int) error) error {
	sc, ok := s.Listener.(syscall.Conn)
	if !ok {
		return errors.ErrUnsupported
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	if cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
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
func uidAllowed(uid, _ uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }
