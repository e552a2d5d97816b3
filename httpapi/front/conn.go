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
)

// Phases of a connection, as far as net/http shows them.
const (
	phaseHeader   int32 = iota // a request is awaited or its headers are being read
	phaseCall                  // the handler runs, or its answer is being sent
	phaseAnswered              // an answer has been sent
	phaseIdle                  // and the next request is awaited
	phaseOver                  // the connection has been refused, or has timed out
)

// How much has been read of a connection's first request.
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

// conn is the front's state of a connection, from accept to close.
type conn struct {
	e     *endpoint
	g     *generation
	raw   net.Conn
	since time.Time
	peer  Peer
	key   netip.Addr // in the table
	over  outcome    // the limit that was met when it got a reserved slot; admitted in an ordinary one

	head    headReader
	service string        // that answers; owned by the goroutine of the connection, as is the next
	window  time.Duration // for each part of the answer; 0: it has one deadline

	phase     atomic.Int32
	received  atomic.Int32 // of the first request; kept in reserved slots only
	examined  atomic.Int64 // bytes that were read and looked at
	delay     atomic.Int32 // of a refusal
	requested atomic.Bool  // its first request is here, or never comes
	released  atomic.Bool
}

// noteRequest notes that the first request is here, or never comes, and reports whether that is news.
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
	c.service, c.window = serviceNode, 0
	c.phase.Store(phaseCall)
}

// nextPhase follows net/http from one request to the next: it sets a deadline for the first bytes, then one for the headers.
func (c *conn) nextPhase() {
	switch c.phase.Load() {
	case phaseAnswered:
		c.phase.Store(phaseIdle)
	case phaseIdle:
		c.phase.Store(phaseHeader)
	}
}

// noteRead notes how much of the first request a read brought. A probe comes in one piece; a read that ends otherwise is
// half a request.
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

// endRead looks at how a read ended. Headers that do not come in time are counted; net/http closes without a word.
func (c *conn) endRead(err error) error {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && c.phase.CompareAndSwap(phaseHeader, phaseOver) {
		c.e.f.o.Counted(reasonTimeout)
		c.e.f.o.TimedOut(serviceNode, OpRead)
	}
	return err
}

// endWrite looks at how a write of an answer ended. net/http writes no more after one that failed.
func (c *conn) endWrite(err error) error {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		c.e.f.o.TimedOut(c.service, OpWrite)
	}
	return err
}

// release gives back all that the connection holds, once.
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

// evictable reports whether c may be evicted: nothing of a whole request is on the way from it. Unread bytes are looked
// for first: once there are none, they have been noted.
func (c *conn) evictable() bool {
	unread := c.hasUnread()
	received := c.received.Load()
	return received == receivedPart || received == receivedNothing && !unread
}

// hasUnread reports whether bytes have come that nothing has looked at: they wait in the kernel, or a Read has taken them
// from there and its goroutine waits for a processor.
func (c *conn) hasUnread() (some bool) {
	c.control(func(fd int) {
		info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
		some = err == nil && info.Bytes_received > uint64(c.examined.Load())
	})
	return some
}

// writable reports whether the kernel takes a few bytes for the client at once.
func (c *conn) writable() (room bool) {
	c.control(func(fd int) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}, 0)
		room = err == nil && n > 0
	})
	return room
}

// control calls f with the descriptor, if there still is one.
func (c *conn) control(f func(fd int)) {
	if sc, ok := c.raw.(syscall.Conn); ok {
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { f(int(fd)) })
		}
	}
}

// state returns the front's state of a connection that embeds c.
func (c *conn) state() *conn { return c }

// stateOf returns the front's state of a connection that net/http holds, nil of any other.
func stateOf(c net.Conn) *conn {
	if s, ok := c.(interface{ state() *conn }); ok {
		return s.state()
	}
	return nil
}

// netConn is a connection that net/http serves: of the admin socket as it is, else the base of tcpConn and tlsConn.
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
		return some, nil // an error comes again
	}
	return n, c.endRead(err)
}

func (c *netConn) Write(b []byte) (int, error) {
	if c.phase.Load() != phaseCall {
		return c.replaceRefusal(c.Conn, b)
	}
	n, err := c.send(c.Conn, b)
	return n, c.endWrite(err)
}

func (c *netConn) SetReadDeadline(t time.Time) error {
	c.nextPhase()
	return c.Conn.SetReadDeadline(t)
}

// CloseWrite is called by net/http before it closes a connection on which more may come.
func (c *netConn) CloseWrite() error { return c.Conn.(interface{ CloseWrite() error }).CloseWrite() }

func (c *netConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}

// tcpConn is a plain TCP connection.
type tcpConn struct{ netConn }

// ReadFrom is how files are sent.
func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.sendFrom(c.raw.(*net.TCPConn), r)
	return n, c.endWrite(err)
}
