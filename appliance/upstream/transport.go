package upstream

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"sync/atomic"
	"syscall"
	"time"
)

// Transport holds the connections to one upstream, and the rules of who is called. Clients with
// different labels, bounds and breakers may share it. Its methods may be called from any goroutine.
type Transport struct {
	who      Spec // whose fields Guard, URL, Roots, Pins, Redirects and Timeout count
	rounds   *http.Transport
	resolver *net.Resolver // nil: the system's
	shut     atomic.Bool
}

// NewTransport returns a transport for the hosts that s permits. Its Timeout bounds a dial and a
// handshake. NewTransport does no I/O.
func NewTransport(s Spec) *Transport {
	secure := &tls.Config{RootCAs: s.Roots, MinVersion: tls.VersionTLS12}
	if len(s.Pins) > 0 {
		pinned(secure, s.Pins)
	}
	t := &Transport{who: s}
	t.rounds = &http.Transport{
		DialContext:            t.dial,
		TLSClientConfig:        secure,
		TLSHandshakeTimeout:    s.Timeout,
		DisableCompression:     true,
		MaxResponseHeaderBytes: maxHeader,
		MaxIdleConnsPerHost:    8,
		IdleConnTimeout:        time.Minute,
	}
	return t
}

// Close closes idle connections.
func (t *Transport) Close() { t.rounds.CloseIdleConnections() }

// Shut closes idle connections, and closes those in use when their calls end. So no call that
// begins later meets a connection that was made before.
func (t *Transport) Shut() {
	t.shut.Store(true)
	t.Close()
}

// ended is called when a call ends.
func (t *Transport) ended() {
	if t.shut.Load() {
		t.Close()
	}
}

// dial connects to an address that the guard permits. A name of this host must resolve to this
// host, because it may be called without TLS.
func (t *Transport) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	host, _, _ := net.SplitHostPort(addr)
	d := net.Dialer{
		Timeout:  t.who.Timeout,
		Resolver: t.resolver,
		ControlContext: func(_ context.Context, _, address string, _ syscall.RawConn) error {
			to, err := netip.ParseAddrPort(address)
			if err != nil || local(host) && !to.Addr().Unmap().IsLoopback() {
				return fmt.Errorf("%w: %s", ErrAddress, address)
			}
			return t.who.Guard.checkPort(to)
		},
	}
	return d.DialContext(ctx, network, addr)
}

// local reports whether the host of a URL is a name of this host.
func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.Unmap().IsLoopback()
}

// redirect checks each redirect before it is followed.
func (t *Transport) redirect(r *http.Request, via []*http.Request) error {
	if len(via) > t.who.Redirects {
		return fmt.Errorf("%w: there are more than %d", ErrRedirect, t.who.Redirects)
	}
	return t.allowed(r.URL)
}

func (t *Transport) allowed(u *url.URL) error {
	if u.Host == "" || u.User != nil || u.Scheme != "https" && !(u.Scheme == "http" && local(u.Hostname())) {
		return fmt.Errorf("%w: it must be https, without a password", ErrURL)
	}
	if t.who.URL == nil {
		return nil
	}
	if err := t.who.URL(u); err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	return nil
}
