package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/netip"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/appliance/flow"
)

// Bounds of the port; doc.go explains them.
const (
	acceptors       = 32 // handshakes at once
	reserved        = 8  // of them, for networks of known members
	perNetwork      = 12
	handshakeWithin = 5 * time.Second
	strangerPause   = 100 * time.Millisecond // before a slot of an unknown network is free again
	queued          = 16                     // connections that wait for Accept, per protocol
	mostConns       = 4096
	mostRaft        = 64  // per server
	mostPeer        = 512 // per server
	mostJoin        = 64
	mostJoinEach    = 16 // per network
)

const service = "cluster"

// Options are the dependencies of a Port.
type Options struct {
	Catalog *flow.Catalog
	Log     hclog.Logger // nil: none
	// Member reports whether a server may open raft connections; it must not block. It must return
	// true on a node that does not lead, whose list of members may be old. nil: every server with a
	// certificate may.
	Member func(server string) bool
}

// Port is the peer port of a node. Its methods are safe for concurrent use.
type Port struct {
	ln     net.Listener
	id     *Identity
	config *tls.Config
	log    hclog.Logger
	member func(string) bool

	handshakes *slots[netip.Addr]
	known      familiar
	raft       *slots[string]
	peer       *slots[string]
	join       *slots[netip.Addr]
	listeners  map[string]*listener // by protocol
}

// Listen returns a port that accepts from ln, which it owns from now on, and declares its queues.
// Nothing is accepted before the Tasks run.
func Listen(ln net.Listener, id *Identity, o Options) *Port {
	if o.Log == nil {
		o.Log = hclog.NewNullLogger()
	}
	p := &Port{
		ln: ln, id: id, config: id.dispatch(), log: o.Log.Named("peer"), member: o.Member,
		handshakes: newSlots[netip.Addr](acceptors, perNetwork),
		raft:       newSlots[string](mostConns, mostRaft),
		peer:       newSlots[string](mostConns, mostPeer),
		join:       newSlots[netip.Addr](mostJoin, mostJoinEach),
		listeners:  map[string]*listener{},
	}
	for proto, name := range map[string]string{ProtoRaft: "raft", ProtoPeer: "peer", ProtoJoin: "join"} {
		consumer := name + "_server"
		if proto == ProtoRaft {
			consumer = "*" // goroutines of the library
		}
		p.listeners[proto] = &listener{addr: ln.Addr(), queue: flow.NewQueue[*Conn](o.Catalog, flow.Spec{
			Service: service, Name: name + "_conns", Kind: flow.KindQueue, Cap: queued, Policy: flow.RejectNew,
			Producers: []string{"acceptor"}, Consumers: []string{consumer},
			Doc: "connections of " + proto + " after their handshake; a rejected one is closed",
		})}
	}
	return p
}

// Tasks returns the acceptors.
func (p *Port) Tasks() []flow.Task {
	return []flow.Task{{
		Service: service, Name: "acceptor", Count: acceptors, Restart: flow.Always, Run: p.runAcceptor,
		Doc: "accepts a connection of the peer port and does its handshake",
	}}
}

// ServeTasks returns the tasks that serve the connections of Peer and Join with servers of
// NewServer and NewJoinServer. They end when the port is closed or the servers are shut down.
func (p *Port) ServeTasks(peer, join *http.Server) []flow.Task {
	task := func(name, doc string, ln net.Listener, s *http.Server) flow.Task {
		return flow.Task{Service: service, Name: name, Restart: flow.Always, Doc: doc,
			Run: func(ctx context.Context) error {
				stop := context.AfterFunc(ctx, func() { _ = s.Close() })
				defer stop()
				err := s.Serve(ln)
				if errors.Is(err, http.ErrServerClosed) || errors.Is(err, net.ErrClosed) {
					err = context.Cause(ctx) // nil if this is the drain
				}
				return err
			}}
	}
	return []flow.Task{
		task("peer_server", "serves requests of members", p.Peer(), peer),
		task("join_server", "serves nodes that join", p.Join(), join),
	}
}

// Raft returns the listener of raft connections. Each is a *Conn that has exchanged its Hello.
func (p *Port) Raft() net.Listener { return p.listeners[ProtoRaft] }

// Peer returns the listener of HTTP connections of members. Each is a *Conn.
func (p *Port) Peer() net.Listener { return p.listeners[ProtoPeer] }

// Join returns the listener of HTTP connections without a client certificate. Each is a *Conn.
func (p *Port) Join() net.Listener { return p.listeners[ProtoJoin] }

// Close closes the socket and the three listeners. Connections that Accept has returned stay open.
// It may be called again.
func (p *Port) Close() error {
	err := p.ln.Close()
	if errors.Is(err, net.ErrClosed) {
		err = nil
	}
	for _, l := range p.listeners {
		err = errors.Join(err, l.Close())
	}
	return err
}

// runAcceptor accepts connections and does their handshakes, one at a time. It returns nil once the
// socket is closed.
func (p *Port) runAcceptor(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.ln.Close() })
	defer stop()
	for {
		raw, err := p.ln.Accept()
		switch {
		case err == nil:
			p.admit(ctx, raw)
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, net.ErrClosed):
			return nil
		default:
			return err
		}
	}
}

// admit accepts a connection within the bounds of handshakes. A network without a known member gets
// its slot back after a pause, which bounds the rate of its handshakes.
func (p *Port) admit(ctx context.Context, raw net.Conn) {
	network := networkOf(raw.RemoteAddr())
	reserve := reserved
	if p.known.has(network) {
		reserve = 0
	}
	release, ok := p.handshakes.take(network, reserve)
	if !ok {
		_ = raw.Close()
		return
	}
	defer release()
	p.accept(ctx, raw, network)
	if !p.known.has(network) {
		pause(ctx, strangerPause)
	}
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// accept does the handshake of a connection and passes the connection on, or closes it.
func (p *Port) accept(ctx context.Context, raw net.Conn, network netip.Addr) {
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	var c *Conn
	var proto string
	err := within(ctx, raw, func() (err error) {
		c, proto, err = p.handshake(ctx, raw, network)
		return err
	})
	if err != nil {
		p.refused(raw, err)
		_ = raw.Close() // first, so that closing TLS does not wait for the other side
		if c != nil {
			_ = c.Close()
		}
		return
	}
	if proto != ProtoJoin {
		p.known.add(network)
	}
	if p.listeners[proto].queue.TrySend(c) != nil {
		_ = c.Close()
	}
}

// errMany is returned for a connection beyond the bound of its server or network.
var errMany = errors.New("too many connections are open")

// handshake does the TLS handshake and, for raft, exchanges the Hello. After an error the returned
// Conn, if any, holds a slot.
func (p *Port) handshake(ctx context.Context, raw net.Conn, network netip.Addr) (*Conn, string, error) {
	from := p.id.now()
	secure := tls.Server(raw, p.config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, "", err
	}
	state := secure.ConnectionState()
	proto := state.NegotiatedProtocol
	c := &Conn{Conn: secure}
	var ok bool
	if proto == ProtoJoin {
		if c.release, ok = p.join.take(network, 0); !ok {
			return nil, proto, errMany
		}
		return c, proto, nil
	}
	server, err := p.id.peerOf(state)
	if err != nil {
		return nil, proto, err
	}
	c.server = server
	table := p.peer
	if proto == ProtoRaft {
		table = p.raft
	}
	if c.release, ok = table.take(server, 0); !ok {
		return nil, proto, errMany
	}
	if proto == ProtoRaft {
		c.hello, c.skew, err = p.id.answer(secure, server, from, p.member)
	}
	return c, proto, err
}

// refused logs a failed handshake. Those of strangers are logged for debugging only.
func (p *Port) refused(raw net.Conn, err error) {
	const event = "peer_handshake_failed"
	switch at := raw.RemoteAddr().String(); {
	case errors.Is(err, ErrRefused):
		p.log.Warn(event, "peer_addr", at, "error", err.Error())
	case !errors.Is(err, io.EOF):
		p.log.Debug(event, "peer_addr", at, "error", err.Error())
	}
}

// listener returns the connections of one protocol.
type listener struct {
	addr  net.Addr
	queue *flow.Queue[*Conn]
}

// Accept waits for a connection. It returns net.ErrClosed after Close.
func (l *listener) Accept() (net.Conn, error) {
	c, ok := <-l.queue.C()
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

// Close closes the connections that Accept has not returned.
func (l *listener) Close() error {
	for _, c := range l.queue.Discard("the listener was closed") {
		_ = c.Close()
	}
	return nil
}

// Addr returns the address of the port.
func (l *listener) Addr() net.Addr { return l.addr }
