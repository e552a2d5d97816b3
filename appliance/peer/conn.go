package peer

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Protocols of the peer port.
const (
	ProtoRaft = "ronbox-raft/1"
	ProtoPeer = "ronbox-peer/1"
	ProtoJoin = "ronbox-join/1"
)

// Conn is a connection of the peer port after its handshake. It does not show its TLS state,
// because package http would take the protocol for one that it does not know.
type Conn struct {
	net.Conn
	server  string // of the other side; "" for a connection of Join
	hello   Hello  // of a raft connection
	skew    Skew
	release func() // frees its slot; nil for a dialled one
	once    sync.Once
	served  atomic.Int32 // requests of a connection of Join
}

// Server returns the id of the other node, from its certificate, or "" for a connection of Join.
func (c *Conn) Server() string { return c.server }

// Hello returns the Hello of the other node, of a raft connection.
func (c *Conn) Hello() Hello { return c.hello }

// Skew returns how far the clock of the other node was ahead, of a raft connection.
func (c *Conn) Skew() Skew { return c.skew }

// Close closes the connection and frees its slot. It may be called again.
func (c *Conn) Close() error {
	c.once.Do(func() {
		if c.release != nil {
			c.release()
		}
	})
	return c.Conn.Close()
}

// CloseWrite ends the sending side, so that package http can let an answer arrive before it closes.
func (c *Conn) CloseWrite() error {
	if secure, ok := c.Conn.(*tls.Conn); ok {
		return secure.CloseWrite()
	}
	return nil
}

// baseConfig is the part of the TLS configuration that both sides share. There are no session
// tickets, so each connection shows its certificate.
func baseConfig(proto string) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		NextProtos:             []string{proto},
		SessionTicketsDisabled: true,
	}
}

// serverConfig returns the configuration of the accepting side for one protocol.
func (i *Identity) serverConfig(proto string) *tls.Config {
	c := baseConfig(proto)
	c.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return i.chain.Load(), nil }
	if proto != ProtoJoin {
		c.ClientAuth = tls.RequireAnyClientCert // VerifyConnection checks it
		c.VerifyConnection = i.verify
	}
	return c
}

// dispatch returns the configuration for the protocol that a client asks for.
func (i *Identity) dispatch() *tls.Config {
	byProto := map[string]*tls.Config{}
	for _, proto := range []string{ProtoRaft, ProtoPeer, ProtoJoin} {
		byProto[proto] = i.serverConfig(proto)
	}
	c := baseConfig(ProtoPeer)
	c.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if len(hello.SupportedProtos) != 1 || byProto[hello.SupportedProtos[0]] == nil {
			return nil, errors.New("the client asks for no protocol of the peer port")
		}
		return byProto[hello.SupportedProtos[0]], nil
	}
	return c
}

// verify returns ErrStranger unless the other side shows a node certificate of the cluster.
func (i *Identity) verify(s tls.ConnectionState) error {
	_, err := i.peerOf(s)
	return err
}

func (i *Identity) peerOf(s tls.ConnectionState) (server string, err error) {
	if len(s.PeerCertificates) == 0 {
		return "", fmt.Errorf("%w: it shows no certificate", ErrStranger)
	}
	if server, err = serverOf(s.PeerCertificates[0], i.ca); err != nil {
		return "", err
	}
	if now, sure := i.time(); sure {
		err = checkDates(s.PeerCertificates[0], now)
	}
	return server, err
}

// clientConfig returns the configuration of the dialling side.
func (i *Identity) clientConfig(proto string) *tls.Config {
	c := baseConfig(proto)
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return i.chain.Load(), nil }
	c.InsecureSkipVerify = true // VerifyConnection checks the certificate: it names no host
	c.VerifyConnection = i.verify
	return c
}

// Dial connects to the peer port at addr (host:port) with proto, ProtoRaft or ProtoPeer, and
// returns a *Conn. It blocks until ctx ends, and at most 5 s. For ProtoRaft it also exchanges the
// Hello. It returns ErrStranger if addr is not a node of the cluster, and a *RefusedError if either
// side refuses the other one.
func (i *Identity) Dial(ctx context.Context, addr, proto string) (net.Conn, error) {
	c, err := i.dial(ctx, addr, proto)
	if err != nil {
		return nil, fmt.Errorf("dial %s (%s): %w", addr, proto, err)
	}
	return c, nil
}

func (i *Identity) dial(ctx context.Context, addr, proto string) (*Conn, error) {
	if proto != ProtoRaft && proto != ProtoPeer {
		return nil, errors.New("not a protocol between nodes")
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	secure, err := dialTLS(ctx, addr, i.clientConfig(proto))
	if err != nil {
		return nil, err
	}
	c := &Conn{Conn: secure}
	if c.server, err = i.peerOf(secure.ConnectionState()); err == nil && proto == ProtoRaft {
		err = within(ctx, secure, func() error {
			c.hello, c.skew, err = i.greet(secure, c.server)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, secure.NetConn().Close())
	}
	return c, nil
}

func dialTLS(ctx context.Context, addr string, config *tls.Config) (*tls.Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	secure := tls.Client(raw, config)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	return secure, nil
}

// within calls fn, which uses c, and interrupts it when ctx ends.
func within(ctx context.Context, c net.Conn, fn func() error) error {
	stop := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	err := fn()
	if !stop() {
		return errors.Join(context.Cause(ctx), err)
	}
	return err
}

// Client is an HTTP client for peer ports.
type Client = http.Client

// Client returns an HTTP client for URLs https://HOST:PORT/… of peer ports. Every request goes to a
// node of the cluster, as Dial does; it follows no redirect and uses no proxy. The caller sets the
// deadline with the context of the request, and calls CloseIdleConnections at the end.
func (i *Identity) Client() *Client {
	return newClient(func(ctx context.Context, addr string) (net.Conn, error) {
		return i.Dial(ctx, addr, ProtoPeer)
	})
}

// JoinClient returns an HTTP client for POST /join of a peer port whose authority has the given
// pin. The caller calls CloseIdleConnections at the end.
func JoinClient(pin Pin, now func() time.Time) *http.Client {
	return newClient(func(ctx context.Context, addr string) (net.Conn, error) {
		config := baseConfig(ProtoJoin)
		config.InsecureSkipVerify = true // VerifyConnection checks the pin
		config.VerifyConnection = func(s tls.ConnectionState) error { return verifyPin(s, pin, now()) }
		ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
		defer cancel()
		secure, err := dialTLS(ctx, addr, config)
		if err != nil {
			return nil, fmt.Errorf("dial %s (%s): %w", addr, ProtoJoin, err)
		}
		return &Conn{Conn: secure}, nil
	})
}

// verifyPin returns ErrStranger unless the server shows a node certificate of an authority with the
// given pin.
func verifyPin(s tls.ConnectionState, pin Pin, now time.Time) error {
	for _, ca := range s.PeerCertificates[1:] {
		if pinOf(ca) == pin {
			_, err := serverOf(s.PeerCertificates[0], ca)
			if err == nil {
				err = checkDates(s.PeerCertificates[0], now)
			}
			return err
		}
	}
	return fmt.Errorf("%w: the authority of the server is not that of the token", ErrStranger)
}

// maxHeader bounds the header of a request or of an answer between nodes, bytes.
const maxHeader = 256 << 10

// Bounds of a client for one port, below those of the port: what is beyond them waits, and is not
// refused.
const (
	mostOpen  = mostPeer * 3 / 4 // connections
	mostDials = perNetwork / 2   // handshakes at once; raft does others
)

// dialSlots bounds the handshakes at once with each address. It is safe for concurrent use.
type dialSlots struct {
	mu sync.Mutex               // a leaf
	at map[string]chan struct{} // by address; guarded by mu
}

// take waits for a slot of addr, which the caller frees by receiving.
func (d *dialSlots) take(ctx context.Context, addr string) (<-chan struct{}, error) {
	d.mu.Lock()
	slots := d.at[addr]
	if slots == nil {
		//rawchan: it counts dials, and carries nothing
		slots = make(chan struct{}, mostDials)
		d.at[addr] = slots
	}
	d.mu.Unlock()
	select {
	case slots <- struct{}{}:
		return slots, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func newClient(dial func(ctx context.Context, addr string) (net.Conn, error)) *http.Client {
	dials := &dialSlots{at: map[string]chan struct{}{}}
	return &http.Client{
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			DialTLSContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
				slot, err := dials.take(ctx, addr)
				if err != nil {
					return nil, err
				}
				defer func() { <-slot }()
				return dialAgain(ctx, addr, dial)
			},
			DialContext: func(context.Context, string, string) (net.Conn, error) {
				return nil, errors.New("a peer port is reached over TLS only")
			},
			DisableCompression:     true,
			MaxConnsPerHost:        mostOpen,
			MaxIdleConnsPerHost:    mostOpen,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: maxHeader,
		},
	}
}

// Dials that the port refuses at once, because the handshakes before them have not ended on its
// side, are repeated: no byte of a request was sent.
const (
	moreDials = 3
	dialPause = 50 * time.Millisecond // before the first repetition; it doubles
)

func dialAgain(
	ctx context.Context, addr string, dial func(ctx context.Context, addr string) (net.Conn, error),
) (net.Conn, error) {
	for n := range moreDials {
		c, err := dial(ctx, addr)
		if !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, io.EOF) {
			return c, err
		}
		pause(ctx, dialPause<<n)
	}
	return dial(ctx, addr)
}

// connKey is the key of the *Conn in the context of a request.
type connKey struct{}

// PeerID returns the id of the node that sent r, from its verified certificate. It returns "" if r
// did not come from a connection of Peer through a server of NewServer.
func PeerID(r *http.Request) string {
	if c, ok := r.Context().Value(connKey{}).(*Conn); ok {
		return c.server
	}
	return ""
}

// NewServer returns an HTTP server for the connections of Peer. It has no timeout for bodies, which
// the handlers set.
func NewServer(h http.Handler) *http.Server {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	return &http.Server{
		Handler:           h,
		Protocols:         protocols,
		ReadHeaderTimeout: 10 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    maxHeader,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, connKey{}, c)
		},
	}
}

// joinRequests bounds the requests of one connection of Join, so that the bounds of handshakes also
// bound the rate of requests.
const joinRequests = 4

// NewJoinServer returns an HTTP server for the connections of Join. A connection serves 4 requests.
// A request must arrive within 10 s and be answered within 30 s. An idle connection is closed after
// 5 s.
func NewJoinServer(h http.Handler) *http.Server {
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(connKey{}).(*Conn); !ok || c.served.Add(1) >= joinRequests {
			w.Header().Set("Connection", "close")
		}
		h.ServeHTTP(w, r)
	}))
	s.ReadTimeout, s.WriteTimeout, s.IdleTimeout = 10*time.Second, 30*time.Second, 5*time.Second
	s.MaxHeaderBytes = 8 << 10
	return s
}
