package front

import (
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// shut lets nobody in who has not connected by now, while who has can still be accepted: else a connection made between
// the last accept and the close would be reset. Of TCP the kernel drops what would open a connection, and the client
// tries again in a second, somewhere else or in vain; a socket file is taken away. It reports whether the door is shut: not
// where the system takes no filter, and not one that is another's to close for good and stays open to the next process.
func (s *socket) shut() bool {
	if s.inherited {
		return false
	}
	switch l := s.Listener.(type) {
	case *net.TCPListener:
		return s.control(func(fd int) error {
			return unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, noSYN())
		}) == nil
	case *net.UnixListener:
		l.SetUnlinkOnClose(false) // the name may be another's by then
		return os.Remove(l.Addr().String()) == nil
	}
	return false
}

// waiting tells whether a connection waits to be accepted.
func (s *socket) waiting() (some bool) {
	_ = s.control(func(fd int) error {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		some = n > 0
		return err
	})
	return some
}

// noSYN is a filter that drops segments with SYN and without ACK. It sees the TCP header, whose byte 13 is the flags.
func noSYN() *unix.SockFprog {
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
