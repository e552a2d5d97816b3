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
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"
)

// Options are the address of the node and the identity of the caller.
type Options struct {
	Socket    string        // path of the admin socket; wins over URL
	URL       string        // "http://127.0.0.1:8080"; a path is kept as a prefix
	Token     string        // sent as a bearer token unless empty
	CAFile    string        // PEM file of certificates that https is trusted with beside the system's
	Timeout   time.Duration // per request, DefaultTimeout when 0; streams and snapshots have their own
	UserAgent string
	Transport http.RoundTripper // instead of connections of its own; for tests
}

// DefaultTimeout is above every budget of the node's routes, so that the node's own 504 can still be read.
const DefaultTimeout = 30 * time.Second

// socketHost stands in URLs for a node reached by its socket; the dialer ignores it.
const socketHost = "http://ronbox.socket"

// Client is a connection pool to one node.
type Client struct {
	base    string // URL without a trailing slash
	where   string // for messages: the URL or the socket's path
	token   string
	agent   string
	timeout time.Duration
	http    *http.Client
}

// New checks the options; it does not dial.
func New(o Options) (*Client, error) {
	c := &Client{base: socketHost, where: o.Socket, token: o.Token, agent: o.UserAgent, timeout: o.Timeout}
	if c.timeout == 0 {
		c.timeout = DefaultTimeout
	}
	if strings.ContainsFunc(o.Token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, errors.New("token: holds what no token does; it is one line of base64url")
	}
	dialer := &net.Dialer{Timeout: dialTimeout}
	tr := &http.Transport{
		MaxIdleConns:          4,
		MaxIdleConnsPerHost:   4,
		IdleConnTimeout:       30 * time.Second, // below the node's 60 s, so that the client closes first
		ResponseHeaderTimeout: 0,                // the context bounds it

		MaxResponseHeaderBytes: 64 << 10, // the node sends less than 2 KiB, a proxy before it some more
		DialContext:            dialer.DialContext,
	}
	if o.Socket != "" {
		tr.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", o.Socket)
		}
	} else if err := c.setURL(o.URL); err != nil {
		return nil, err
	}
	trust, err := trusted(o.CAFile)
	if err != nil {
		return nil, err
	}
	tr.DialTLSContext = dialTLS(dialer, trust)
	c.http = &http.Client{Transport: cmp.Or[http.RoundTripper](o.Transport, tr), CheckRedirect: refuseRedirect}
	return c, nil
}

func (c *Client) setURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("node URL: %w", err)
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.User != nil {
		return fmt.Errorf("node URL %q: want http://host:port or https://host:port", raw)
	}
	c.base = strings.TrimRight(u.String(), "/")
	c.where = c.base
	return nil
}

// refuseRedirect keeps the token where it was sent: the node never redirects, so that the answer is a stranger's.
func refuseRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

// Where names the node in messages: its URL or its socket.
func (c *Client) Where() string { return c.where }

// Close drops idle connections. Calls in flight go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func newCorrID() string { return ulid.MustNew(ulid.Now(), rand.Reader).String() }

// dialTimeout bounds the connection, and once more the handshake on it.
const dialTimeout = 5 * time.Second

// trusted are the system's certificates and those of a PEM file; nil stands for the system's alone.
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
		pool = x509.NewCertPool() // a system without any
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("CA file %s: holds no certificate in PEM", file)
	}
	return pool, nil
}

// handshakeError is returned when TLS did not come about, so that no request was sent.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "TLS: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// dialTLS connects and shakes hands: the node speaks TLS 1.3 and nothing older.
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
