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

	"ronbox/appliance/systemd"
)

const keepAlive = 60 * time.Second

// socket is a bound address that is closed once.
type socket struct {
	net.Listener
	bind      string // as configured: the same text means the same socket
	inherited bool
	kept      atomic.Bool // it outlives this run: connections not yet accepted wait for the next
	closed    atomic.Bool
	unlinked  atomic.Bool // the file of our own Unix socket was removed
	handover  atomic.Pointer[handover]
}

// handover is a connection that a generation accepted after its end. The next generation on the
// socket takes it.
type handover struct {
	conn net.Conn
	next *handover
}

// Close ends every Accept. It may be called again.
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

// unlink removes the file of a Unix socket, once, because another process may then use the name. It
// reports whether this call removed it.
func (s *socket) unlink() bool {
	l, ok := s.Listener.(*net.UnixListener)
	return ok && !s.inherited && !s.kept.Load() && !s.unlinked.Swap(true) && os.Remove(l.Addr().String()) == nil
}

// handOver keeps a connection for the next generation.
func (s *socket) handOver(c net.Conn) {
	h := &handover{conn: c, next: s.handover.Load()}
	for !s.handover.CompareAndSwap(h.next, h) {
		h.next = s.handover.Load()
	}
}

// takeHandover returns a connection kept by handOver, or nil.
func (s *socket) takeHandover() net.Conn {
	for h := s.handover.Load(); h != nil; h = s.handover.Load() {
		if s.handover.CompareAndSwap(h, h.next) {
			return h.conn
		}
	}
	return nil
}

// interruptAccept makes Accept return until resumeAccept is called.
func (s *socket) interruptAccept() bool { return s.acceptUntil(time.Unix(1, 0)) }
func (s *socket) resumeAccept() bool    { return s.acceptUntil(time.Time{}) }

func (s *socket) acceptUntil(t time.Time) bool {
	d, ok := s.Listener.(interface{ SetDeadline(time.Time) error })
	return ok && d.SetDeadline(t) == nil
}

// stopAccept stops new connections. Those already made can still be accepted; closing the socket
// would reset them. For TCP the kernel drops segments that open a connection, and the client tries
// again after a second. The file of a Unix socket is removed. stopAccept reports whether it
// succeeded: it fails if the system does not support the filter, and for an inherited socket, which
// stays open for the next process.
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

// dropSYN returns a filter that drops segments with SYN and without ACK. Its input is the TCP
// header with the flags in byte 13.
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

// inlineUrgent makes Read return urgent TCP bytes like others, on every connection accepted later.
// Without it the kernel would count urgent bytes as received though no Read returns them, and the
// client would seem to be about to send a request forever.
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

// bindTCP binds a TCP address. If an earlier socket of this process uses the port, as 127.0.0.1:80
// does when 0.0.0.0:80 is bound, both share it while they are open. No other process can share it.
func bindTCP(ctx context.Context, bind string, before []*socket) (net.Listener, error) {
	lc := net.ListenConfig{KeepAlive: keepAlive}
	lc.SetMultipathTCP(false) // Multipath TCP sockets do not support filters; see stopAccept
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

// sharePort permits or forbids another socket on the same port.
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

// peerCred returns the credentials of the peer from the kernel. The pid is not used, because it may
// have been reused.
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

// uidAllowed reports whether uid is the node's own user or root.
func uidAllowed(uid, _ uint32) bool { return uid == 0 || uid == uint32(os.Getuid()) }

// dialWithin bounds the wait for a process that may listen on a socket file. A live one answers at
// once.
const dialWithin = time.Second

// access holds the modes of the socket file and its directory. If the configuration names other
// users, they are open to everyone, because the kernel identifies each peer.
type access struct{ file, dir fs.FileMode }

func (c UDSConfig) access() access {
	if c.namesOthers() {
		return access{file: 0o666, dir: 0o711}
	}
	return access{file: 0o600, dir: 0o700}
}

// listenSocket binds the admin socket and creates its directory if necessary. It replaces a socket
// file on which no process answers. If a process answers, it is that of another node, and the file
// stays.
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
	l.(*net.UnixListener).SetUnlinkOnClose(false) // socket.unlink does
	return l, nil
}

// openDir creates the directory of the socket. A directory that other users may traverse must hold
// only the socket, because its other files would become accessible too.
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
			return fmt.Errorf("users in [uds] cannot access %s, which is closed and contains more than the socket: "+
				"set uds.path to a path in a directory of its own", dir)
		}
	}
	return os.Chmod(dir, a.dir)
}

// closedAbove returns the innermost parent of path that other users cannot traverse, or "".
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

// removeStale removes a socket file if the kernel refuses a connection to it, which means that no
// process listens. It does not remove other files.
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
	// for example because its queue is full
	return fmt.Errorf("%w: another process may be listening there; stop it, or remove %s", err, path)
}

// takeOver returns the socket for a run that inherits l. A socket of an earlier run counts as bound
// by this one, or is replaced if the configured address is another one by now.
func takeOver(ctx context.Context, l net.Listener, bind, network string, a access) (net.Listener, bool, error) {
	kept, ok := l.(*systemd.Kept)
	if !ok {
		return l, true, nil
	}
	if kept.Bind == bind {
		return kept.Listener, false, nil
	}
	if err := kept.Close(); err != nil {
		return nil, false, err
	}
	if network == "unix" {
		_ = os.Remove(kept.Bind) // the path was this node's own
		l, err := listenSocket(ctx, bind, a)
		return l, false, err
	}
	l, err := bindTCP(ctx, bind, nil)
	return l, false, err
}
