package front

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/httpapi/egress"
)

// Phases of a connection, as far as net/http shows them.
const (
	phaseHeader   int32 = iota // waiting for a request or reading its headers
	phaseCall                  // the handler runs, or its answer is being sent
	phaseAnswered              // an answer has been sent
	phaseIdle                  // waiting for the next request
	phaseOver                  // refused or timed out
)

// How much of the first request has been read.
const (
	receivedNothing int32 = iota
	receivedPart
	receivedWhole
)

// The operations that can time out.
const (
	OpRead  = "read"  // of a request
	OpWrite = "write" // of an answer
)

// conn is the state of a connection from accept to close.
type conn struct {
	e     *endpoint
	g     *generation
	raw   net.Conn
	since time.Time
	peer  Peer
	key   netip.Addr // its key in the table
	over  outcome    // the limit that put it into a reserved slot; admitted in an ordinary slot

	head    headReader
	sender  *egress.Sender
	out     *egress.Writer // of answers
	service string         // service that answers; owned by the connection's goroutine

	phase     atomic.Int32
	received  atomic.Int32 // of the first request; set in reserved slots only
	examined  atomic.Int64 // bytes read and examined
	delay     atomic.Int32 // state of a delayed refusal
	requested atomic.Bool  // the first request has arrived, or will never
	released  atomic.Bool
}

// noteRequest records that the first request has arrived, or never will. It returns true the first
// time.
func (c *conn) noteRequest() bool {
	if c.requested.Load() || c.requested.Swap(true) {
		return false
	}
	c.e.silent.Add(-1)
	return true
}

// startCall is called before the handler.
func (c *conn) startCall() {
	c.noteRequest()
	c.service = serviceNode
	c.sender.SetWindow(0)
	c.out.Begin()
	c.phase.Store(phaseCall)
}

// nextPhase is called before each read. It sets one deadline for the first bytes of a request and
// another for the rest of its headers.
func (c *conn) nextPhase() {
	switch c.phase.Load() {
	case phaseAnswered:
		c.phase.Store(phaseIdle)
	case phaseIdle:
		c.phase.Store(phaseHeader)
	}
}

// noteRead records how much of the first request a read returned. A probe arrives in one piece, so
// a read without the end of a request is half a request.
func (c *conn) noteRead(b []byte) {
	if c.over == admitted || len(b) == 0 {
		return
	}
	if n := len(b); n >= 4 && string(b[n-4:]) == "\r\n\r\n" {
		c.received.Store(receivedWhole)
		return
	}
	c.received.Store(receivedPart)
}

// endRead handles the result of a read. Headers that time out are counted; net/http then closes the
// connection without an answer.
func (c *conn) endRead(err error) error {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && c.phase.CompareAndSwap(phaseHeader, phaseOver) {
		c.e.f.o.Counted(reasonTimeout)
		c.e.f.o.TimedOut(serviceNode, OpRead)
	}
	return err
}

// endWrite handles the result of a write of an answer. After a failed write net/http writes no
// more.
func (c *conn) endWrite(err error) error {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		c.e.f.o.TimedOut(c.service, OpWrite)
	}
	return err
}

// release releases everything that the connection holds, once.
func (c *conn) release() {
	if c.released.Swap(true) {
		return
	}
	c.noteRequest()
	c.e.conns.release(c)
	if c.delay.Swap(delayNever) == delayed {
		c.e.f.delayed.Add(-1)
	}
	c.g.conns.Add(-1)
}

// evictable reports whether c may be evicted because it has not sent a whole request. Unread bytes
// are checked first: if there are none, all received bytes have been recorded.
func (c *conn) evictable() bool {
	unread := c.hasUnread()
	received := c.received.Load()
	return received == receivedPart || received == receivedNothing && !unread
}

// hasUnread reports whether there are bytes that were not examined: they are in the kernel, or a
// Read has returned them and its goroutine has not run yet.
func (c *conn) hasUnread() (some bool) {
	c.control(func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		some = err == nil && info.Bytes_received > uint64(c.examined.Load())
	})
	return some
}

// writable reports whether the kernel accepts a few bytes for the client without blocking.
func (c *conn) writable() (room bool) {
	c.control(func(fd int) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
		room = err == nil && n > 0
	})
	return room
}

// control calls f with the descriptor, if the connection is open.
func (c *conn) control(f func(fd int)) {
	if sc, ok := c.raw.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}

// state returns the state of a connection that embeds c.
func (c *conn) state() *conn { return c }

// stateOf returns the state of a connection that net/http holds, or nil if it is not from this
// package.
func stateOf(c net.Conn) *conn {
	if s, ok := c.(interface{ state() *conn }); ok {
		return s.state()
	}
	return nil
}

// netConn is a connection served by net/http: directly for the admin socket, and as the base of
// tcpConn and tlsConn.
type netConn struct {
	net.Conn
	*conn
}

func (c *netConn) Read(b []byte) (int, error) {
	if n := c.head.take(b); n > 0 {
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.noteRead(b[:n])
	c.examined.Add(int64(n))
	if some := c.head.give(b[:n]); some < n {
		return some, nil // the next Read returns the error again
	}
	return n, c.endRead(err)
}

func (c *netConn) Write(b []byte) (int, error) {
	if c.phase.Load() != phaseCall {
		return c.replaceRefusal(c.Conn, b)
	}
	n, err := c.out.Write(b)
	return n, c.endWrite(err)
}

func (c *netConn) SetReadDeadline(t time.Time) error {
	c.nextPhase()
	return c.Conn.SetReadDeadline(t)
}

// CloseWrite is called by net/http before it closes a connection that may receive more.
func (c *netConn) CloseWrite() error {
	if err := c.endWrite(c.out.Flush()); err != nil {
		return err
	}
	return c.Conn.(interface{ CloseWrite() error }).CloseWrite()
}

func (c *netConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// tcpConn is a plain TCP connection.
type tcpConn struct{ netConn }

// ReadFrom sends files.
func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.out.ReadFrom(r)
	return n, c.endWrite(err)
}
