package front

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
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
	unlinked  atomic.Bool // its file, of a Unix socket of ours
	handover  atomic.Pointer[handover]
}

// handover is a connection that a generation accepted after its end, for the next one on the socket.
type handover struct {
	conn net.Conn
	next *handover
}

// Close ends every Accept. Twice is once.
func (s *socket) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	for c := s.takeHandover(); c != nil; c = s.takeHandover() {
		_ = c.Close()
	}
	_ = s.unlink()
	return s.Listener.Close()
}

// unlink takes the file of a Unix socket away, once: after that the name may be another's. It reports whether it did so now.
func (s *socket) unlink() bool {
	l, ok := s.Listener.(*net.UnixListener)
	return ok && !s.inherited && !s.unlinked.Swap(true) && os.Remove(l.Addr().String()) == nil
}

// handOver keeps a connection for the next generation.
func (s *socket) handOver(c net.Conn) {
	h := &handover{conn: c, next: s.handover.Load()}
	for !s.handover.CompareAndSwap(h.next, h) {
		h.next = s.handover.Load()
	}
}

// takeHandover returns a connection that was kept, nil for none.
func (s *socket) takeHandover() net.Conn {
	for h := s.handover.Load(); h != nil; h = s.handover.Load() {
		if s.handover.CompareAndSwap(h, h.next) {
			return h.conn
		}
	}
	return nil
}

// interruptAccept makes Accept return, until resumeAccept.
func (s *socket) interruptAccept() bool { return s.acceptUntil(time.Unix(1, 0)) }
func (s *socket) resumeAccept() bool    { return s.acceptUntil(time.Time{}) }

func (s *socket) acceptUntil(t time.Time) bool {
	d, ok := s.Listener.(interface{ SetDeadline(time.Time) error })
	return ok && d.SetDeadline(t) == nil
}

// stopAccept ends new connections, while those already made can still be accepted: else one made between the last accept
// and the close would be reset. Of TCP the kernel drops the segments that would open a connection, and the client tries
// again in a second, somewhere else or in vain; a socket file is taken away. It reports whether that was done: not where
// the system takes no filter, and not for an inherited socket, which stays open to the next process.
func (s *socket) stopAccept() bool {
	if s.inherited {
		return false
	}
	switch s.Listener.(type) {
	case *net.TCPListener:
		return s.control(func(fd int) error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, dropSYN())
		}) == nil
	case *net.UnixListener:
		return s.unlink()
	}
	return false
}

// dropSYN is a filter that drops segments with SYN and without ACK. It sees the TCP header, whose byte 13 is the flags.
func dropSYN() *unix.SockFprog {
	const syn, ack, flags, all = 0x02, 0x10, 13, 0xffff
	code := []unix.SockFilter{
		{Code: syscall.BPF_LD | syscall.BPF_B | syscall.BPF_ABS, K: flags},
		{Code: syscall.BPF_ALU | syscall.BPF_AND | syscall.BPF_K, K: syn | ack},
		{Code: syscall.BPF_JMP | syscall.BPF_JEQ | syscall.BPF_K, K: syn, Jt: 0, Jf: 1},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: 0},
		{Code: syscall.BPF_RET | syscall.BPF_K, K: all},
	}
	return &unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
}

// hasPending reports whether a connection waits to be accepted.
func (s *socket) hasPending() (some bool) {
	_ = s.control(func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		some = n > 0
		return err
	})
	return some
}

// inlineUrgent gives urgent bytes of TCP to Read like others, on every connection accepted from now on: the kernel counts
// them as received, and a client that sends one which nothing reads would seem to be about to ask for ever.
func (s *socket) inlineUrgent() {
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

// bindTCP opens a TCP address. One that is in use by those before, as 127.0.0.1:80 when 0.0.0.0:80 is wanted, is shared
// with them for as long as they are open, and with no other process.
func bindTCP(ctx context.Context, bind string, before []*socket) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: keepAlive}
	lc.SetMultipathTCP(false) // whose sockets take no filter, see stopAccept
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

// peerCred asks the kernel for the maker of the connection. The pid is of no use: it can be another's by now.
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

// uidAllowed admits the user that runs the node, and root.
func uidAllowed(uid, _ uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }

// dialWithin is the wait for a process that may still listen on a socket file: a live one answers at once.
const dialWithin = time.Second

// access are the modes of the socket file and its directory: open to the node's own user, or, when the configuration names
// others, to everyone, since the kernel then names the peer.
type access struct{ file, dir fs.FileMode }

func (c UDSConfig) access() access {
	if c.namesOthers() {
		return access{file: 0o666, dir: 0o711}
	}
	return access{file: 0o600, dir: 0o700}
}

// listenSocket binds the admin socket, in a directory that is made if it is missing. A socket file on which no process
// answers was left by one that is gone; one that is answered is another node's, and stays.
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
	l.(*net.UnixListener).SetUnlinkOnClose(false) // socket does it
	return l, nil
}

// openDir makes the directory of the socket. One that others are to pass through must be the socket's own: other files
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

// closedAbove returns the directory nearest to path that others cannot pass, "" if they can pass all.
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

// removeStale removes a socket that no process listens on, which is when the kernel refuses the connection, and nothing else.
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
