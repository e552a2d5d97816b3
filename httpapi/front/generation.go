package front

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/httpapi/limit"
)

// How a generation stops accepting.
const (
	endNone    int32 = iota
	endHanded        // another one accepts from the same socket
	endMoved         // another one accepts, from another socket
	endStopped       // nobody accepts any more
)

// errEnded is how Accept tells that its generation accepts no more. The connections it has let in live on.
var errEnded = errors.New("accepts no more")

// generation is one http.Server and the socket it takes connections from. Its settings never change: net/http reads them
// without a lock, so new settings are a new generation, which takes over while the old one finishes what it has.
type generation struct {
	e        *endpoint
	http     *http.Server
	socket   *socket
	settings settings
	tls      *tls.Config // nil: none

	conns   atomic.Int64  // open
	serving atomic.Bool   // it accepts, or lets in the last that it has accepted
	end     atomic.Int32  // set once
	closed  atomic.Bool   // by net/http
	cut     atomic.Bool   // its connections are dropped
	called  bool          // for the last time; owned by Accept, as are the next two
	last    time.Time     // when a door that could not be shut is left; else zero
	quiet   time.Time     // when a door that was shut may be, if nobody waits
	emptied chan struct{} // closed once a generation that has ended has let in everyone
}

// settings are what a generation is made from.
type settings struct {
	bind         string
	header, idle time.Duration
	maxHeader    int
	secure       bool
}

func (e *endpoint) newGeneration(s settings, socket *socket) *generation {
	g := &generation{e: e, settings: s, socket: socket, emptied: make(chan struct{})}
	if s.secure {
		g.tls = e.f.certs.config()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	g.http = &http.Server{
		Handler:           http.HandlerFunc(g.serveHTTP),
		Protocols:         protocols,
		ReadHeaderTimeout: s.header,
		IdleTimeout:       s.idle,
		MaxHeaderBytes:    s.maxHeader,
		ConnContext:       withPeer,
		ConnState:         watchState,
		// OPTIONS * is counted and carries a correlation id like any other request.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     e.f.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return g
}

// withPeer puts who is at the other end into the context of every request of c.
func withPeer(ctx context.Context, c net.Conn) context.Context {
	if l, ok := c.(interface{ who() *life }); ok {
		return WithPeer(ctx, &l.who().peer)
	}
	return ctx
}

// watchState learns when an answer is out.
func watchState(c net.Conn, s http.ConnState) {
	if s != http.StateIdle {
		return
	}
	if l, ok := c.(interface{ who() *life }); ok {
		l.who().rest()
	}
}

// serveHTTP hands a request on. The last one of a connection is told so: of one in a reserved place, which serves one
// probe, and of a generation that another has followed.
func (g *generation) serveHTTP(w http.ResponseWriter, r *http.Request) {
	g.e.calls.Add(1)
	defer g.e.calls.Add(-1)
	l := connPeer(r).life
	l.begin()
	if l.over != letIn || g.end.Load() != endNone {
		w.Header()["Connection"] = []string{"close"}
	}
	if l.over != letIn && !g.e.f.o.Bypass(r) {
		l.linger(r)
		g.e.f.refuse(w, l.over)
		return
	}
	g.e.f.o.Handler.ServeHTTP(w, r)
}

// stop ends accepting, unless it has ended.
func (g *generation) stop() bool {
	return g.end.CompareAndSwap(endNone, endStopped) && g.socket.wake()
}

// waits tells whether who has connected to a socket that was left is still to be let in.
func (g *generation) waits() bool { return g.end.Load() == endMoved && !g.closed.Load() }

// serve accepts until the generation has ended, which is errEnded, or is cut.
func (g *generation) serve() error {
	g.serving.Store(true)
	defer g.serving.Store(false)
	return g.http.Serve(g)
}

// drop cuts every connection, and leaves the socket, which net/http does only for one that has accepted from it.
func (g *generation) drop() error {
	g.cut.Store(true)
	return errors.Join(g.http.Close(), g.socket.Close())
}

// Accept gives the next connection that has a place.
func (g *generation) Accept() (net.Conn, error) {
	for {
		c, err := g.next()
		if err != nil {
			return nil, err
		}
		if in := g.e.admit(g, c); in != nil {
			return in, nil
		}
	}
}

// next gives the next connection. A generation that has ended gives none to one on its own socket; else it first shuts
// the door and takes in who has connected: the kernel would reset them when the socket is closed, their requests unread.
func (g *generation) next() (net.Conn, error) {
	for {
		end := g.end.Load()
		if end == endHanded {
			return nil, errEnded
		}
		if c := g.socket.carry(nil); c != nil {
			return c, nil
		}
		if end != endNone && !g.lastCall() {
			return nil, g.finish()
		}
		c, err := g.socket.Accept()
		switch {
		case err == nil && g.end.Load() == endHanded:
			g.socket.carry(c) // it came after the one that follows
		case err == nil:
			return c, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			g.e.noteAccept(err)
			return nil, err
		case end == endNone:
			g.socket.rest() // woken, or the one before was and has already gone
		case !time.Now().Before(g.quiet) && !g.socket.waiting():
			return nil, g.finish()
		}
	}
}

const (
	quietFor = 20 * time.Millisecond  // for handshakes that are under way when the door is shut
	lateMost = 250 * time.Millisecond // for all, when the door could not be shut
)

// lastCall shuts the door when it is first called, and gives Accept a moment for one more. It reports whether there is
// time for that: always behind a shut door, where an empty queue is the end. Owned by Accept.
func (g *generation) lastCall() bool {
	now := time.Now()
	if !g.called {
		g.called = true
		if !g.socket.shut() {
			g.last = now.Add(lateMost)
		}
	}
	g.quiet = now.Add(quietFor)
	g.socket.deadline(g.quiet)
	return g.last.IsZero() || now.Before(g.last)
}

// finish leaves the socket.
func (g *generation) finish() error {
	_ = g.socket.Close()
	close(g.emptied)
	return errEnded
}

// Addr is the socket's.
func (g *generation) Addr() net.Addr { return g.socket.Addr() }

// Close is called by net/http. It leaves a socket alone that another generation has.
func (g *generation) Close() error {
	g.closed.Store(true)
	if g.end.Load() == endHanded {
		return nil
	}
	return g.socket.Close()
}

// admit wraps a connection that gets a place, and refuses another.
func (e *endpoint) admit(g *generation, c net.Conn) net.Conn {
	l := &life{e: e, g: g, raw: c, since: time.Now()}
	exempt, probe := true, false
	switch c := c.(type) {
	case *net.TCPConn:
		if at, ok := c.RemoteAddr().(*net.TCPAddr); ok {
			l.peer.Addr = at.AddrPort().Addr().Unmap().WithZone("")
		}
		l.key = limit.Network(l.peer.Addr)
		exempt, probe = e.f.live.Load().trusts(l.peer.Addr), e.f.live.Load().probes(l.peer.Addr)
	case *net.UnixConn:
		uid, gid, err := peerCred(c)
		if err != nil || !e.f.o.SocketMay(uid, gid) {
			e.rejects[rejectPeer](1)
			_ = c.Close()
			return nil
		}
		l.peer.Socket, l.peer.UID, l.peer.GID = true, uid, gid
	}
	l.peer.life = l
	e.silent.Add(1)
	v := e.book.enter(l, exempt, probe)
	if v != letIn && probe {
		in, yield := e.makeRoom(l, v)
		for _, old := range yield {
			e.rejects[rejectReserve](1)
			_ = old.raw.Close()
		}
		if in {
			v = letIn
		}
	}
	if v != letIn {
		e.silent.Add(-1)
		e.turnAway(c, v, g.tls != nil)
		return nil
	}
	g.conns.Add(1)
	return g.wrap(c, l)
}

func (g *generation) wrap(c net.Conn, l *life) net.Conn {
	switch c := c.(type) {
	case *net.TCPConn:
		if g.tls != nil {
			return newSecure(c, l)
		}
		return &tcpConn{TCPConn: c, life: l}
	case *net.UnixConn:
		return &unixConn{UnixConn: c, life: l}
	}
	return c
}
