package front

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// Phases of a connection, as far as net/http shows them.
const (
	phaseHeader int32 = iota // a request is awaited or its headers are being read
	phaseCall                // the handler runs, or its answer is being sent
	phaseIdle                // an answer has been sent
	phaseWait                // and the next request is awaited
	phaseOver                // it has been refused, or has timed out
)

// What a connection may not get done in time.
const (
	OpRead  = "read"  // a request
	OpWrite = "write" // an answer
)

// life is a connection from accept to close.
type life struct {
	e     *endpoint
	g     *generation
	raw   net.Conn
	since time.Time
	peer  Peer
	key   netip.Addr // in the book
	over  verdict    // what was full when it got a reserved place; letIn in an ordinary one

	service string // whose the answer is; owned by the goroutine of the connection

	phase   atomic.Int32
	heard   atomic.Int32 // before the first request; kept in reserved places only
	seen    atomic.Int64 // bytes that have come and been looked at; under TLS in reserved places only
	lingers atomic.Int32
	asked   atomic.Bool // its first request is here, or never comes
	left    atomic.Bool
}

// ask notes that the first request is here, or never comes, and reports whether that is news.
func (l *life) ask() bool {
	if l.asked.Load() || l.asked.Swap(true) {
		return false
	}
	l.e.silent.Add(-1)
	return true
}

// begin is called before the handler, rest by net/http after each answer.
func (l *life) begin() {
	l.ask()
	l.service = serviceNode
	l.phase.Store(phaseCall)
}

func (l *life) rest() { l.phase.Store(phaseIdle) }

// step follows net/http from one request to the next: it sets a deadline for the first bytes, then one for the headers.
func (l *life) step() {
	switch l.phase.Load() {
	case phaseIdle:
		l.phase.Store(phaseWait)
	case phaseWait:
		l.phase.Store(phaseHeader)
	}
}

// saw looks at how a read ended. Headers that do not come in time are counted; net/http closes without a word.
func (l *life) saw(err error) error {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) && l.phase.CompareAndSwap(phaseHeader, phaseOver) {
		l.e.f.counted(reasonTimeout)
		l.e.f.o.TimedOut(serviceNode, OpRead)
	}
	return err
}

// wrote looks at how a write of an answer ended. net/http writes no more after one that failed.
func (l *life) wrote(err error) error {
	if err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		l.e.f.o.TimedOut(l.service, OpWrite)
	}
	return err
}

// leave gives everything back, once.
func (l *life) leave() {
	if l.left.Swap(true) {
		return
	}
	l.ask()
	l.e.book.leave(l)
	if l.lingers.Swap(lingersNever) == lingers {
		l.e.f.lingering.Add(-1)
	}
	l.g.conns.Add(-1)
}

// who is the life of a wrapped connection.
func (l *life) who() *life { return l }

// tcpConn embeds the connection itself, so that sendfile stays possible.
type tcpConn struct {
	*net.TCPConn
	*life
}

func (c *tcpConn) Read(b []byte) (int, error) {
	n, err := c.TCPConn.Read(b)
	c.hear(b[:n])
	c.seen.Add(int64(n))
	return n, c.saw(err)
}

func (c *tcpConn) Write(b []byte) (int, error) {
	if c.phase.Load() != phaseCall {
		return c.reword(c.TCPConn, b)
	}
	n, err := c.TCPConn.Write(b)
	return n, c.wrote(err)
}

// ReadFrom is how files are sent.
func (c *tcpConn) ReadFrom(r io.Reader) (int64, error) {
	n, err := c.TCPConn.ReadFrom(r)
	return n, c.wrote(err)
}

func (c *tcpConn) SetReadDeadline(t time.Time) error {
	c.step()
	return c.TCPConn.SetReadDeadline(t)
}

func (c *tcpConn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

// unixConn is a connection of the admin socket.
type unixConn struct {
	*net.UnixConn
	*life
}

func (c *unixConn) Read(b []byte) (int, error) {
	n, err := c.UnixConn.Read(b)
	return n, c.saw(err)
}

func (c *unixConn) Write(b []byte) (int, error) {
	if c.phase.Load() != phaseCall {
		return c.reword(c.UnixConn, b)
	}
	n, err := c.UnixConn.Write(b)
	return n, c.wrote(err)
}

func (c *unixConn) SetReadDeadline(t time.Time) error {
	c.step()
	return c.UnixConn.SetReadDeadline(t)
}

func (c *unixConn) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}
