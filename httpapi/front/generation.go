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

	"ronbox/appliance/flow"
	"ronbox/httpapi/egress"
	"ronbox/httpapi/limit"
)

// How a generation stops accepting.
const (
	endNone       int32 = iota
	endHandedOver       // another one accepts from the same socket
	endMoved            // another one accepts from another socket
	endStopped          // nothing accepts any more
)

// errEnded is returned by Accept if its generation has ended. Its admitted connections stay open.
var errEnded = errors.New("accepts no more")

// generation is one http.Server with its socket. Its settings never change, because net/http reads
// them without a lock. New settings create a new generation, which accepts while the old one
// finishes its connections.
type generation struct {
	e        *endpoint
	http     *http.Server
	socket   *socket
	settings settings
	tls      *tls.Config // nil: no TLS

	conns       atomic.Int64  // open connections
	serving     atomic.Bool   // it accepts, or admits the last connections
	accepting   atomic.Int32  // running acceptors
	end         atomic.Int32  // set once
	closed      atomic.Bool   // by net/http
	cut         atomic.Bool   // drop was called
	admittedAll chan struct{} // closed when an ended generation has admitted its backlog
}

// settings configure a generation.
type settings struct {
	bind         string
	header, idle time.Duration
	secure       bool
	plaintext    bool // permit other hosts without TLS
}

func (e *endpoint) newGeneration(s settings, socket *socket) *generation {
	g := &generation{e: e, settings: s, socket: socket, admittedAll: make(chan struct{})}
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
		MaxHeaderBytes:    e.f.maxHeader,
		ConnContext:       withConnPeer,
		BaseContext:       func(net.Listener) context.Context { return e.f.base },
		ConnState:         watchState,
		// So that OPTIONS * is counted and has a correlation id like other requests.
		DisableGeneralOptionsHandler: true,
		ErrorLog:                     e.f.o.Log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug}),
	}
	return g
}

// withConnPeer adds the peer to the context of every request on c.
func withConnPeer(ctx context.Context, c net.Conn) context.Context {
	if s := stateOf(c); s != nil {
		return WithPeer(ctx, &s.peer)
	}
	return ctx
}

// watchState records when an answer was sent.
func watchState(c net.Conn, state http.ConnState) {
	if s := stateOf(c); s != nil && state == http.StateIdle {
		s.phase.Store(phaseAnswered)
	}
}

// serveHTTP calls the handler. It closes the connection after the answer if the connection has a
// reserved slot, which serves one probe, or if its generation has ended.
func (g *generation) serveHTTP(w http.ResponseWriter, r *http.Request) {
	g.e.calls.Add(1)
	defer g.e.calls.Add(-1)
	c := connPeer(r).conn
	c.startCall()
	if c.over != admitted || g.end.Load() != endNone {
		w.Header()["Connection"] = []string{"close"}
	}
	if status, reason, detail := c.head.request(r); status != 0 {
		w.Header()["Connection"] = []string{"close"}
		g.e.f.refuse(w, r, status, reason, detail)
		return
	}
	if c.over != admitted && !g.e.f.o.Bypass(r) {
		c.delayRefusal(r)
		status, detail := c.over.status()
		g.e.f.refuse(w, r, status, reasonCap, detail)
		return
	}
	g.e.f.o.Handler.ServeHTTP(w, r)
}

// stop ends accepting, unless it has ended. It reports whether it did.
func (g *generation) stop() bool {
	return g.end.CompareAndSwap(endNone, endStopped) && g.socket.interruptAccept()
}

// hasBacklog reports whether connections to a replaced socket are still to be admitted.
func (g *generation) hasBacklog() bool { return g.end.Load() == endMoved && !g.closed.Load() }

// serve accepts until the generation ends, and then returns errEnded, or until drop is called.
func (g *generation) serve(ctx context.Context) error {
	g.serving.Store(true)
	defer g.serving.Store(false)
	n := g.e.acceptors
	g.accepting.Store(int32(n))
	return flow.Fan(ctx, n, func(context.Context, int) error { return g.http.Serve(&acceptor{generation: g}) })
}

// drop closes every connection and the socket. net/http closes the socket only if it has accepted
// from it.
func (g *generation) drop() error {
	g.cut.Store(true)
	return errors.Join(g.http.Close(), g.socket.Close())
}

// acceptor is one of the accept loops of a generation, each with its own Serve of net/http.
type acceptor struct {
	*generation
	left     atomic.Bool // it has ended and others continue
	last     bool        // the last one to end; owned by Accept, as are the next two
	giveUpAt time.Time   // deadline if new connections could not be stopped; else zero
	quietAt  time.Time   // when it may finish if no connection waits
}

// Accept returns the next connection that has a slot.
func (a *acceptor) Accept() (net.Conn, error) {
	for {
		c, err := a.next()
		if err != nil {
			return nil, err
		}
		if in := a.e.admit(a.generation, c); in != nil {
			return in, nil
		}
	}
}

// next returns the next connection. If the generation has ended and another one accepts from the
// same socket, that one gets them. Otherwise the last acceptor stops new connections and accepts
// those already made, because the kernel would reset them, with their requests unread, when the
// socket closes.
func (a *acceptor) next() (net.Conn, error) {
	for {
		end := a.end.Load()
		if end == endHandedOver {
			return nil, errEnded
		}
		if c := a.socket.takeHandover(); c != nil {
			return c, nil
		}
		if end != endNone && !a.drainBacklog() {
			return nil, errEnded
		}
		c, err := a.socket.Accept()
		switch {
		case err == nil && a.end.Load() == endHandedOver:
			a.socket.handOver(c) // accepted after the generation has ended
		case err == nil:
			return c, nil
		case !errors.Is(err, os.ErrDeadlineExceeded):
			a.e.logAccept(err)
			return nil, err
		case end == endNone:
			a.socket.resumeAccept() // interrupted, or a previous generation was
			if a.end.Load() != endNone {
				a.socket.interruptAccept() // the other acceptors must see the end as well
			}
		case !time.Now().Before(a.quietAt) && !a.socket.hasPending():
			return nil, a.finish()
		}
	}
}

const (
	quietFor   = 20 * time.Millisecond  // for handshakes in progress when new connections are stopped
	maxBacklog = 250 * time.Millisecond // in total, if they could not be stopped
)

// drainBacklog ends a, unless it is the last acceptor of its generation. The last one stops new
// connections and gets a moment for each further one. If new connections could not be stopped,
// there is a limit to that; otherwise it ends when the queue is empty. drainBacklog reports whether
// a continues.
func (a *acceptor) drainBacklog() bool {
	now := time.Now()
	if !a.last {
		if a.accepting.Add(-1) > 0 {
			a.left.Store(true)
			return false
		}
		a.last = true
		if a.socket.kept.Load() {
			_ = a.finish()
			return false
		}
		if !a.socket.stopAccept() {
			a.giveUpAt = now.Add(maxBacklog)
		}
	}
	if !a.giveUpAt.IsZero() && !now.Before(a.giveUpAt) {
		_ = a.finish()
		return false
	}
	a.quietAt = now.Add(quietFor)
	a.socket.acceptUntil(a.quietAt)
	return true
}

// finish closes the socket.
func (g *generation) finish() error {
	_ = g.socket.Close()
	close(g.admittedAll)
	return errEnded
}

// Addr returns the address of the socket.
func (g *generation) Addr() net.Addr { return g.socket.Addr() }

// Close is called by net/http. It does not close a socket that another acceptor or generation uses.
func (a *acceptor) Close() error {
	if a.left.Load() {
		return nil
	}
	a.closed.Store(true)
	if a.end.Load() == endHandedOver {
		return nil
	}
	return a.socket.Close()
}

// admit wraps a connection that gets a slot. It refuses the connection and returns nil if there is
// no slot.
func (e *endpoint) admit(g *generation, raw net.Conn) net.Conn {
	c := &conn{e: e, g: g, raw: raw, since: time.Now(), head: headReader{limit: e.f.maxHeader}}
	exempt, probe := true, false
	switch raw := raw.(type) {
	case *net.TCPConn:
		if at, ok := raw.RemoteAddr().(*net.TCPAddr); ok {
			c.peer.Addr = at.AddrPort().Addr().Unmap().WithZone("")
		}
		c.key = limit.Network(c.peer.Addr)
		networks := e.f.networks.Load()
		exempt, probe = networks.trusts(c.peer.Addr), networks.probes(c.peer.Addr)
	case *net.UnixConn:
		uid, gid, err := peerCred(raw)
		if err != nil {
			e.rejects[rejectPeer](1)
			_ = raw.Close()
			return nil
		}
		if !e.f.o.SocketMay(uid, gid) {
			e.rejectPeer(raw, uid)
			return nil
		}
		c.peer.Socket, c.peer.UID, c.peer.GID = true, uid, gid
	}
	c.peer.conn = c
	e.silent.Add(1)
	out := e.conns.acquire(c, exempt, probe)
	if out != admitted && probe {
		in, evicted := e.conns.makeRoom(c, out)
		for _, old := range evicted {
			e.rejects[rejectReserve](1)
			_ = old.raw.Close()
		}
		if in {
			out = admitted
		}
	}
	if out != admitted {
		e.silent.Add(-1)
		e.reject(raw, out, g.tls != nil)
		return nil
	}
	g.conns.Add(1)
	return g.wrap(raw, c)
}

func (g *generation) wrap(raw net.Conn, c *conn) net.Conn {
	if socket, ok := raw.(egress.Socket); ok {
		c.sender = egress.NewSender(socket, g.e.f.writes)
		c.out = egress.NewWriter(c.sender)
	}
	switch raw := raw.(type) {
	case *net.TCPConn:
		if g.tls != nil {
			return newTLSConn(raw, c)
		}
		return &tcpConn{netConn{Conn: raw, conn: c}}
	case *net.UnixConn:
		return &netConn{Conn: raw, conn: c}
	}
	return raw
}
