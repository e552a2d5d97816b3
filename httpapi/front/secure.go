package front

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// secureConn is a TLS connection on the way to net/http, which takes it for a plain one: so that what net/http says on
// its own passes Write, like everywhere, and a failed handshake is ours to count.
type secureConn struct {
	*tls.Conn
	*life
	failed atomic.Bool // the handshake did
}

func newSecure(c *net.TCPConn, l *life) *secureConn {
	var under net.Conn = c
	if l.over != letIn {
		under = &sealedConn{Conn: c, life: l}
	}
	return &secureConn{Conn: tls.Server(under, l.g.tls), life: l}
}

// sealedConn is what TLS reads from. Its bytes have been looked at once TLS wants more: a whole request has been heard by then.
type sealedConn struct {
	net.Conn
	life *life
	got  atomic.Int64
}

func (c *sealedConn) Read(b []byte) (int, error) {
	c.life.seen.Store(c.got.Load())
	n, err := c.Conn.Read(b)
	c.got.Add(int64(n))
	return n, err
}

// ConnectionState is what net/http asks for before it reads the first byte, on the connection's own goroutine: there the
// handshake takes place, within the time for headers.
func (c *secureConn) ConnectionState() tls.ConnectionState {
	_ = c.raw.SetDeadline(time.Now().Add(c.g.settings.header))
	if err := c.Handshake(); err != nil {
		c.failed.Store(true)
		c.tell(err)
	}
	_ = c.raw.SetDeadline(time.Time{})
	return c.Conn.ConnectionState()
}

// tell counts a handshake that failed, unless the client left without a word, and answers who takes the port for one of
// plain HTTP.
func (c *secureConn) tell(err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	c.e.f.handshakes(1)
	c.e.f.o.Log.Debug("tls.handshake_failed", "peer_addr", c.peer.String(), "error", err.Error())
	var record tls.RecordHeaderError
	switch {
	case isTimeout(err):
		_ = c.saw(err)
	case errors.As(err, &record) && record.Conn != nil && looksLikeHTTP(record.RecordHeader):
		c.phase.Store(phaseOver)
		_ = c.raw.SetWriteDeadline(time.Now().Add(refusalWithin))
		_, _ = c.raw.Write(c.e.f.refusal(http.StatusBadRequest, reasonMalformed, "this port speaks TLS: use https"))
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}

// looksLikeHTTP tells the beginning of a request in what should have been a record.
func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}

// Read gives nothing after a failed handshake: net/http then closes without a word.
func (c *secureConn) Read(b []byte) (int, error) {
	if c.failed.Load() {
		return 0, io.EOF
	}
	n, err := c.Conn.Read(b)
	c.hear(b[:n])
	return n, c.saw(err)
}

func (c *secureConn) Write(b []byte) (int, error) {
	if c.phase.Load() != phaseCall {
		return c.reword(c.Conn, b)
	}
	n, err := c.Conn.Write(b)
	return n, c.wrote(err)
}

func (c *secureConn) SetReadDeadline(t time.Time) error {
	c.step()
	return c.Conn.SetReadDeadline(t)
}

// Close says so to the client, unless that would have to be waited for: for one that never spoke TLS, or reads nothing.
func (c *secureConn) Close() error {
	defer c.leave()
	if c.failed.Load() || c.g.cut.Load() || !c.roomy() {
		return c.raw.Close()
	}
	return c.Conn.Close()
}
