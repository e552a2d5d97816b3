package upstream

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// NodeRule decides which endpoints of other nodes may be called. The endpoints are texts of a
// registry, which others have written:
//
//   - an endpoint is https:// and a host, optionally with a port. With pins its key must be one
//     of them, and its chain, names and dates are not checked; without pins it is verified under
//     Roots.
//   - an http:// endpoint is called if Plain is set and its host is localhost or a loopback
//     address.
//   - a public address may be called; a private or loopback one only with pins, by an allowed
//     http:// endpoint, or if it is in Allow.
//   - link-local and multicast addresses, those of metadata services and those of Own are never
//     called, even if they are in Allow. Redirects are not followed.
type NodeRule struct {
	Plain bool             // this node's own endpoint is http:// as well
	Allow []netip.Prefix   // networks that may be called although they are not public
	Own   []netip.AddrPort // listeners of this node; an unspecified address is every address of this host
	Roots *x509.CertPool   // trusted roots; nil: the system's
}

// privateNets lists the networks of sites and of this host. neverNets lists networks without nodes:
// link-local, multicast, the metadata services of hosting providers, and IPv6 networks that embed
// such IPv4 addresses.
var (
	privateNets = prefixes("10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16",
		"fc00::/7", "::1/128")
	loopbackNets = prefixes("127.0.0.0/8", "::1/128")
	neverNets    = prefixes("0.0.0.0/8", "169.254.0.0/16", "224.0.0.0/4", "240.0.0.0/4", "100.100.100.200/32",
		"168.63.129.16/32",
		"192.0.0.192/32", "::/128", "fe80::/10", "fec0::/10", "ff00::/8", "fd00:ec2::254/128", "fd20:ce::254/128",
		"64:ff9b::/96", "64:ff9b:1::/48", "2002::/16")
)

// Spec returns s with the parts that decide who is called set for an endpoint. It returns ErrURL,
// and the endpoint must not be called, if its form breaks the rule. Addresses are checked when they
// are dialled.
func (r NodeRule) Spec(endpoint string, pins []Pin, s Spec) (Spec, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return s, fmt.Errorf("%w: it is malformed", ErrURL)
	}
	if err := r.endpoint(u); err != nil {
		return s, fmt.Errorf("%w: %w", ErrURL, err)
	}
	s.Guard = Guard{Allow: slices.Clone(r.Allow), Never: neverNets, Own: r.Own}
	switch {
	case u.Scheme == "http":
		s.Guard.Allow = append(s.Guard.Allow, loopbackNets...)
	case len(pins) > 0:
		s.Guard.Allow = append(s.Guard.Allow, privateNets...)
	}
	s.Roots, s.Pins, s.Redirects = r.Roots, slices.Clone(pins), 0
	s.URL = func(to *url.URL) error {
		if to.Scheme != u.Scheme || to.Host != u.Host {
			return fmt.Errorf("it is not on %s://%s", u.Scheme, u.Host)
		}
		return nil
	}
	return s, nil
}

// endpoint returns an error if the form of an endpoint breaks the rule.
func (r NodeRule) endpoint(u *url.URL) error {
	switch {
	case u.Host == "" || u.Hostname() == "" || u.User != nil || u.Opaque != "":
		return errors.New("it must have a host and no user")
	case strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" || u.ForceQuery:
		return errors.New("it must end after its host and port")
	case u.Scheme == "https":
		return nil
	case u.Scheme != "http":
		return errors.New("it must be https")
	case !local(u.Hostname()):
		return errors.New("without TLS only this host is called")
	case !r.Plain:
		return errors.New("it is http, and the endpoint of this node is not")
	}
	return nil
}

// isOwn reports whether an address is one of this node's listeners.
func isOwn(to netip.AddrPort, own []netip.AddrPort) bool {
	a := to.Addr().Unmap().WithZone("")
	for _, one := range own {
		if one.Port() != to.Port() {
			continue
		}
		if at := one.Addr().Unmap().WithZone(""); at == a || at.IsUnspecified() && ofThisHost(a) {
			return true
		}
	}
	return false
}

// ofThisHost reports whether an interface of this host has the address.
func ofThisHost(a netip.Addr) bool {
	if a.IsLoopback() {
		return true
	}
	all, _ := net.InterfaceAddrs() // an error leaves the address to the other checks
	for _, one := range all {
		if n, err := netip.ParsePrefix(one.String()); err == nil && n.Addr().Unmap() == a {
			return true
		}
	}
	return false
}
