package front

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
)

// ErrPlaintext is returned if other hosts could connect without TLS, which would expose tokens on
// the network, and the configuration does not permit it.
var ErrPlaintext = errors.New("reachable from other hosts without TLS")

// CheckPlaintext returns ErrPlaintext if bind is an unspecified or non-loopback IP address and
// neither TLS nor plaintext is on. The address of a host name is checked when it is bound.
func CheckPlaintext(c Config, tls TLSConfig) error {
	host, port, err := net.SplitHostPort(c.Bind)
	if err != nil || tls.Enabled || c.Plaintext {
		return nil
	}
	if host == "" {
		host = "::"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil || addr.Unmap().IsLoopback() {
		return nil
	}
	return plaintextError(net.JoinHostPort(host, port))
}

// Exposed reports whether the configuration lets other hosts connect without TLS.
func Exposed(c Config, tls TLSConfig) bool {
	c.Plaintext = false
	return CheckPlaintext(c, tls) != nil
}

func plaintextError(addr string) error {
	return fmt.Errorf("%s is %w: tokens and answers would be readable on the network", addr, ErrPlaintext)
}

// allows returns ErrPlaintext if s does not permit to serve on addr. The admin socket is always
// permitted.
func (s settings) allows(addr net.Addr) error {
	if s.secure || s.plaintext || !beyondLoopback(addr) {
		return nil
	}
	return plaintextError(addr.String())
}

// beyondLoopback reports whether other hosts may be able to connect to addr.
func beyondLoopback(addr net.Addr) bool {
	tcp, ok := addr.(*net.TCPAddr)
	return ok && !tcp.IP.IsLoopback()
}

// warnPlaintext logs that other hosts can connect without TLS.
func (f *Front) warnPlaintext() {
	g := f.tcp.generation()
	if g == nil || g.settings.secure || !beyondLoopback(g.Addr()) {
		return
	}
	f.o.Log.Warn("listen.plaintext", "addr", g.Addr().String(),
		"advice", "anyone on the way can read tokens: set tls.enabled, or let only a proxy with TLS reach this port")
}
