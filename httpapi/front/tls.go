package front

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net"
	"net/http"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"

	"ronbox/httpapi/egress"
)

// checkEvery is the least time between two checks of the files by handshakes.
const checkEvery = 10 * time.Second

// certs holds the current certificate. A handshake reads a pointer. The first handshake after
// checkEvery also checks the files.
type certs struct {
	log     hclog.Logger
	current atomic.Pointer[keyPair] // nil if TLS is off
	born    time.Time
	checked atomic.Int64              // nanoseconds since born, so that setting the clock back does not stop the checks
	warned  atomic.Pointer[fileStamp] // the files last logged as unusable
}

func newCerts(log hclog.Logger) *certs { return &certs{log: log, born: time.Now()} }

// keyPair is a certificate with its key and the state of its files.
type keyPair struct {
	cert  *tls.Certificate
	from  TLSConfig
	files fileStamp
}

// fileStamp changes if a file or its permissions change.
type fileStamp [2]struct {
	inode, size, seconds, nanos int64
}

// config returns the TLS configuration of a generation. Go's default curves begin with
// X25519MLKEM768.
func (c *certs) config() *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, GetCertificate: c.certificate}
}

// certificate returns the certificate for a handshake.
func (c *certs) certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	now := int64(time.Since(c.born))
	if last := c.checked.Load(); now-last >= int64(checkEvery) && c.checked.CompareAndSwap(last, now) {
		c.checkFiles()
	}
	if p := c.current.Load(); p != nil {
		return p.cert, nil
	}
	return nil, errors.New("no certificate")
}

// checkFiles reads the files again if they have changed. If they are unusable, it logs that once,
// keeps the current certificate, and tries again at the next check.
func (c *certs) checkFiles() {
	was := c.current.Load()
	if was == nil {
		return
	}
	files := stampOf(was.from)
	if files == was.files {
		return
	}
	next, err := readPair(was.from)
	if err != nil {
		if warned := c.warned.Swap(&files); warned == nil || *warned != files {
			c.log.Warn("tls.certificate_kept", "error", err.Error())
		}
		return
	}
	if c.current.CompareAndSwap(was, next) {
		c.log.Info("tls.certificate_loaded", "cert_path", next.from.CertPath, "not_after", next.cert.Leaf.NotAfter)
	}
}

// certificateExpiry returns the expiry of the current certificate in Unix time, or NaN without TLS.
func (f *Front) certificateExpiry() float64 {
	g, p := f.tcp.generation(), f.certs.current.Load()
	if g == nil || !g.settings.secure || p == nil {
		return math.NaN()
	}
	return float64(p.cert.Leaf.NotAfter.Unix())
}

// Certified reports whether the node serves TLS with a certificate that names a host.
func (f *Front) Certified(host string) bool {
	g, p := f.tcp.generation(), f.certs.current.Load()
	return g != nil && g.settings.secure && p != nil && p.cert.Leaf.VerifyHostname(host) == nil
}

// set makes p the current certificate. p may be nil.
func (c *certs) set(p *keyPair) {
	c.current.Store(p)
	c.checked.Store(int64(time.Since(c.born)))
}

// ErrCertificate is returned if the certificate or its key cannot be read.
var ErrCertificate = errors.New("no usable certificate")

// certError is ErrCertificate with the text of its cause.
type certError struct{ error }

func (e certError) Unwrap() error { return e.error }

func (e certError) Is(target error) bool { return target == ErrCertificate }

// readPair reads a certificate and its key. It does not check dates, because a node with a wrong
// clock must start.
func readPair(from TLSConfig) (*keyPair, error) {
	files := stampOf(from) // before reading, so that a change meanwhile is noticed later
	cert, err := os.ReadFile(from.CertPath)
	if err != nil {
		return nil, certError{fmt.Errorf("tls.cert_path: %w", err)}
	}
	key, err := readKey(from.KeyPath)
	if err != nil {
		return nil, certError{fmt.Errorf("tls.key_path: %w", err)}
	}
	defer clear(key)
	both, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, certError{fmt.Errorf("tls.cert_path %s with tls.key_path %s: %w", from.CertPath, from.KeyPath, err)}
	}
	return &keyPair{cert: &both, from: from, files: files}, nil
}

// readKey reads a file that group and others cannot access.
func readKey(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if st, ok := info.Sys().(*syscall.Stat_t); !ok || !closedKey(info.Mode(), st.Uid) {
		return nil, fmt.Errorf(
			"%s has mode %04o: close it to group and others (chmod 600); "+
				"only root's may be read by its group (chmod 640)",
			path,
			info.Mode().Perm(),
		)
	}
	return io.ReadAll(io.LimitReader(f, maxKey))
}

// closedKey reports whether group and others have no access to a file with this owner. A file of
// root may be readable by its group, because a node that does not run as root has no other access
// to a shared key.
func closedKey(mode fs.FileMode, uid uint32) bool {
	open := mode.Perm() & 0o077
	return open == 0 || uid == 0 && open == 0o040
}

// maxKey is much larger than any key in PEM.
const maxKey = 1 << 20

func stampOf(c TLSConfig) (s fileStamp) {
	for i, path := range []string{c.CertPath, c.KeyPath} {
		info, err := os.Stat(path)
		if err != nil {
			continue
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			s[i].inode, s[i].size, s[i].seconds, s[i].nanos = int64(st.Ino), st.Size, int64(st.Ctim.Sec), int64(
				st.Ctim.Nsec,
			)
		}
	}
	return s
}

// tlsConn is a TLS connection that net/http treats as a plain one. So answers of net/http itself
// pass Write as on other connections, and this package counts failed handshakes.
type tlsConn struct {
	netConn
	tls    *tls.Conn
	failed atomic.Bool // the handshake failed
}

func newTLSConn(c *net.TCPConn, state *conn) *tlsConn {
	records := &egress.Records{Sender: state.sender}
	secure := tls.Server(&wireConn{Conn: c, conn: state, records: records}, state.g.tls)
	records.TLS, state.out = secure, egress.NewWriter(records)
	return &tlsConn{netConn: netConn{Conn: secure, conn: state}, tls: secure}
}

// wireConn is the connection under TLS. Its bytes count as examined when TLS reads more, because a
// whole request was recorded by then.
type wireConn struct {
	net.Conn
	conn    *conn
	records *egress.Records
	got     atomic.Int64
}

func (c *wireConn) Read(b []byte) (int, error) {
	c.conn.examined.Store(c.got.Load())
	n, err := c.Conn.Read(b)
	c.got.Add(int64(n))
	return n, err
}

func (c *wireConn) Write(b []byte) (int, error) { return c.records.WriteRecord(b) }

// ConnectionState is called by net/http before it reads the first byte, on the connection's
// goroutine. It does the handshake, with the timeout for headers.
func (c *tlsConn) ConnectionState() tls.ConnectionState {
	_ = c.raw.SetDeadline(time.Now().Add(c.g.settings.header))
	if err := c.tls.Handshake(); err != nil {
		c.failed.Store(true)
		c.handshakeFailed(err)
	}
	_ = c.raw.SetDeadline(time.Time{})
	return c.tls.ConnectionState()
}

// handshakeFailed counts a failed handshake, unless the client just left. It answers a client that
// speaks plain HTTP.
func (c *tlsConn) handshakeFailed(err error) {
	if errors.Is(err, io.EOF) {
		return
	}
	c.e.f.handshakes(1)
	c.e.f.o.Log.Debug("tls.handshake_failed", "peer_addr", c.peer.String(), "error", err.Error())
	var record tls.RecordHeaderError
	switch {
	case isTimeout(err):
		_ = c.endRead(err)
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

// looksLikeHTTP reports whether the first bytes, instead of a TLS record, begin an HTTP request.
func looksLikeHTTP(header [5]byte) bool {
	switch string(header[:]) {
	case "GET /", "HEAD ", "POST ", "PUT /", "OPTIO", "DELET", "PATCH":
		return true
	}
	return false
}

// Read returns an error after a failed handshake, and net/http closes the connection without an
// answer.
func (c *tlsConn) Read(b []byte) (int, error) {
	if c.failed.Load() {
		return 0, io.EOF
	}
	if n := c.head.take(b); n > 0 {
		return n, nil
	}
	n, err := c.Conn.Read(b)
	c.noteRead(b[:n])
	if some := c.head.give(b[:n]); some < n {
		return some, nil
	}
	return n, c.endRead(err)
}

// Close ends the TLS session with an alert, unless it would have to wait for a client that never
// spoke TLS or does not read.
func (c *tlsConn) Close() error {
	defer c.release()
	if c.failed.Load() || c.g.cut.Load() || !c.writable() {
		return c.raw.Close()
	}
	return c.Conn.Close()
}
