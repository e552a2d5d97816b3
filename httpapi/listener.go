package httpapi

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// canned is all that a connection over the cap gets.
const canned = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

// capListener bounds the open connections and knows the peers of those it lets in.
type capListener struct {
	net.Listener
	e      *endpoint
	closed atomic.Bool
}

// Accept gives the next connection below the cap, of a peer that may call.
func (l *capListener) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if !l.e.conns.enter() {
			l.refuse(c, rejectTotal)
			continue
		}
		if t := l.admit(c); t != nil {
			return t, nil
		}
		l.e.conns.leave()
		l.refuse(c, rejectPeer)
	}
}

// admit wraps a connection of a peer that may call, nil of another.
func (l *capListener) admit(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn:
		ap, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		return &tcpConn{TCPConn: c, tracked: tracked{limit: l.e.conns, peer: &peer{addr: ap.Addr().Unmap()}}}
	case *net.UnixConn:
		uid, err := peerUID(c)
		if err != nil || !l.e.may(uid) {
			return nil
		}
		return &unixConn{UnixConn: c, tracked: tracked{limit: l.e.conns, peer: &peer{socket: true, uid: uid}}}
	}
	return nil
}

// refuse closes c at once; what it is told fits every socket buffer.
func (l *capListener) refuse(c net.Conn, reason string) {
	l.e.rejects[reason](1)
	if reason == rejectTotal {
		_ = c.SetWriteDeadline(time.Now().Add(10 * time.Millisecond))
		_, _ = c.Write([]byte(canned))
	}
	_ = c.Close()
}

// Close stops accepting. Twice is once.
func (l *capListener) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// tracked gives its place back once.
type tracked struct {
	limit *limiter
	peer  *peer
	left  atomic.Bool
}

func (t *tracked) who() *peer { return t.peer }

func (t *tracked) leave() {
	if !t.left.Swap(true) {
		t.limit.leave()
	}
}

// tcpConn embeds the connection itself, so that sendfile stays possible.
type tcpConn struct {
	*net.TCPConn
	tracked
}

func (c *tcpConn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

type unixConn struct {
	*net.UnixConn
	tracked
}

func (c *unixConn) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}
