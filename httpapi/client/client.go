package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/oklog/ulid/v2"
)

// Options are the address of the node and the identity of the caller.
type Options struct {
	Socket string // path of the admin socket; takes precedence over URL
	URL    string // "http://127.0.0.1:8080"; a path is used as a prefix
	// URLs are those of the members of a cluster, in addition to URL. Requests go to the one that
	// leads, if the cluster names it by a URL in this list, and to the next one if no node is
	// reached or the node refuses as not_leader. The token is sent to no other URL.
	URLs      []string
	Token     string        // bearer token; may be empty
	CAFile    string        // PEM file of certificates that are trusted in addition to the system's
	Timeout   time.Duration // per request, 0: DefaultTimeout; does not apply to streams and snapshots
	UserAgent string
	Transport http.RoundTripper // for tests; nil: own connections

	// Starting, if not nil, reports whether a process is about to listen on Socket. While it does,
	// a call waits for the node to answer, until StartWithin after New.
	Starting func() bool
}

// DefaultTimeout exceeds every deadline of the node's routes, so that the node's own 504 arrives.
const DefaultTimeout = 30 * time.Second

// StartWithin is how long a client waits for a node that starts. A node with a file of usual size
// serves within a second. One that checks or migrates a large file takes longer, and the caller
// must try again.
const StartWithin = 5 * time.Second

// startPoll is the interval of tries to reach a node that starts.
const startPoll = 50 * time.Millisecond

// socketHost is the host in URLs of a node on a socket. The dialer ignores it.
const socketHost = "http://ronbox.socket"

// Client is a connection pool for one node, or for the members of a cluster.
type Client struct {
	hosts   *hosts
	socket  string // path, or "" for a URL
	where   string // for messages: the URLs or the path of the socket
	token   string
	agent   string
	timeout time.Duration
	http    *http.Client

	starting func() bool // Options.Starting, or nil
	until    time.Time   // deadline of starting
}

// New checks the options and returns a client. It does not connect.
func New(o Options) (*Client, error) {
	c := &Client{socket: o.Socket, where: o.Socket, token: o.Token, agent: o.UserAgent, timeout: o.Timeout}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	c.starting, c.until = o.Starting, time.Now().Add(StartWithin)
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("token: has characters that a token cannot have; it must be one line of base64url")
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	tr := &http.Transport{
		MaxIdleConns:          4,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       30 * time.Second, // less than the node's 60 s, so that the client closes first
		ResponseHeaderTimeout: 0,                // the context bounds it

		MaxResponseHeaderBytes: 64 << 10, // the node sends less than 2 KiB, a proxy may add some
		DialContext:            dialer.DialContext,
	}
	urls := o.URLs
	if o.URL != "" {
		urls = append([]string{o.URL}, urls...)
	}
	if o.Socket != "" {
		urls = []string{socketHost}
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			for {
				conn, err := dialer.DialContext(ctx, "unix", o.Socket)
				gone := errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.ECONNREFUSED)
				if !gone || !c.waitStart(ctx) {
					return conn, err
				}
			}
		}
	}
	var err error
	if c.hosts, err = newHosts(urls); err != nil {
		return nil, err
	}
	c.where = cmp.Or(c.where, strings.Join(c.hosts.urls, ", "))
	trust, err := trusted(o.CAFile)
	if err != nil {
		return nil, err
	}
	tr.DialTLSContext = dialTLS(dialer, trust)
	c.http = &http.Client{Transport: cmp.Or[http.RoundTripper](o.Transport, tr), CheckRedirect: refuseRedirect}
	return c, nil
}

// waitStart waits a moment for a node that starts, and reports whether to try again. It returns
// false if no process is about to listen, after the deadline, or if ctx has ended.
func (c *Client) waitStart(ctx context.Context) bool {
	if c.starting == nil || !time.Now().Before(c.until) || !c.starting() {
		return false
	}
	pause := time.NewTimer(startPoll)
	defer pause.Stop()
	select {
	case <-pause.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// refuseRedirect stops redirects, because the token must not be sent elsewhere. The node never
// redirects.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Where returns the node's URL or socket for messages. Several URLs are separated by commas.
func (c *Client) Where() string { return c.where }

// Close closes idle connections. Running calls continue.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func newCorrID() string { return ulid.MustNew(ulid.Now(), rand.Reader).String() }

// dialTimeout bounds the connect, and again the TLS handshake.
const dialTimeout = 5 * time.Second

// trusted returns the system's certificates and those of a PEM file, or nil for the system's only.
func trusted(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("CA file: %w", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the system has none
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s: holds no certificate in PEM", file)
	}
	return pool, nil
}

// handshakeError is returned if the TLS handshake failed, so that no request was sent.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// dialTLS connects with TLS 1.3.
func dialTLS(d *net.Dialer, trust *x509.CertPool) func(ctx context.Context, network, addr string) (net.Conn, error) {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return nil, err
		}
		raw, err := d.DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		conn := tls.Client(raw, &tls.Config{MinVersion: tls.VersionTLS13, ServerName: host, RootCAs: trust})
		if err := conn.HandshakeContext(ctx); err != nil {
			_ = raw.Close()
			return nil, &handshakeError{err}
		}
		return conn, nil
	}
}
