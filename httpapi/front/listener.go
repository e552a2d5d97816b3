package front

import (
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"time"
)

// canned is all that a connection over the cap gets.
const canned = "HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n"

// capListener bounds the open connections and knows the peers of those it lets in. Before it closes it can be stopped:
// then it lets in who has connected by now, and nobody after.
type capListener struct {
	net.Listener
	e        *endpoint
	closed   atomic.Bool
	stopping atomic.Bool
	drained  bool          // the backlog was taken out; owned by Accept, as is late
	late     []net.Conn    // what was in it and is to be let in
	emptied  chan struct{} // closed once a stopped listener has let in everyone
	gone     chan struct{} // closed by Close
}

func newCapListener(inner net.Listener, e *endpoint) *capListener {
	return &capListener{Listener: inner, e: e, emptied: make(chan struct{}), gone: make(chan struct{})}
}

// Accept gives the next connection below the cap, of a peer that may call.
func (l *capListener) Accept() (net.Conn, error) {
	for {
		c, err := l.next()
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

// next gives the next connection. One that waits in the backlog when the listener is closed would be reset by the kernel,
// its request unread; so after a stop the backlog is taken out first.
func (l *capListener) next() (net.Conn, error) {
	if !l.drained {
		c, err := l.Listener.Accept()
		if err == nil || !l.stopping.Load() || l.closed.Load() {
			return c, err
		}
		l.late, l.drained = backlog(l.Listener, int(l.e.conns.max)), true
		_ = l.Listener.Close()
	}
	if len(l.late) > 0 {
		c := l.late[0]
		l.late = l.late[1:]
		return c, nil
	}
	if !l.closed.Load() {
		close(l.emptied)
		<-l.gone
	}
	return nil, net.ErrClosed
}

// stop makes Accept take what has connected by now and nothing after. It returns false when there is nothing to stop.
func (l *capListener) stop() bool {
	d, ok := l.Listener.(interface{ SetDeadline(time.Time) error })
	if !ok || l.closed.Load() || l.stopping.Swap(true) {
		return false
	}
	return d.SetDeadline(time.Unix(1, 0)) == nil
}

// admit wraps a connection of a peer that may call, nil of another.
func (l *capListener) admit(c net.Conn) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn:
		ap, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		return &tcpConn{TCPConn: c, tracked: l.track(&Peer{Addr: ap.Addr().Unmap()})}
	case *net.UnixConn:
		uid, gid, err := peerCred(c)
		if err != nil || !l.e.may(uid, gid) {
			return nil
		}
		return &unixConn{UnixConn: c, tracked: l.track(&Peer{Socket: true, UID: uid, GID: gid})}
	}
	return nil
}

func (l *capListener) track(p *Peer) *tracked {
	p.silent = &l.e.silent
	p.silent.Add(1)
	return &tracked{limit: l.e.conns, peer: p}
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

// Close ends Accept. Twice is once.
func (l *capListener) Close() error {
	if l.closed.Swap(true) {
		return nil
	}
	close(l.gone)
	if err := l.Listener.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

// tracked gives its place back once.
type tracked struct {
	limit *places
	peer  *Peer
	left  atomic.Bool
}

func (t *tracked) who() *Peer { return t.peer }

func (t *tracked) leave() {
	if !t.left.Swap(true) {
		t.peer.ask()
		t.limit.leave()
	}
}

// tcpConn embeds the connection itself, so that sendfile stays possible.
type tcpConn struct {
	*net.TCPConn
	*tracked
}

func (c *tcpConn) Close() error {
	defer c.leave()
	return c.TCPConn.Close()
}

type unixConn struct {
	*net.UnixConn
	*tracked
}

func (c *unixConn) Close() error {
	defer c.leave()
	return c.UnixConn.Close()
}
