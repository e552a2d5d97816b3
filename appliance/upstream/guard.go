package upstream

import (
	"errors"
	"fmt"
	"net/netip"
)

// ErrAddress is returned for an address that Guard refuses.
var ErrAddress = errors.New("upstream: address is not allowed")

// Guard permits public addresses and those of listed networks.
type Guard struct {
	Allow []netip.Prefix   // networks that are permitted although they are not public
	Never []netip.Prefix   // networks that are refused, also if Allow has them
	Own   []netip.AddrPort // listeners of this node, which are refused; see NodeRule
}

// notPublic lists the networks without public hosts. The last four embed IPv4 addresses, which a
// gateway would connect to.
var notPublic = prefixes("0.0.0.0/8", "10.0.0.0/8", "100.64.0.0/10", "127.0.0.0/8", "169.254.0.0/16", "172.16.0.0/12",
	"192.0.0.0/24", "192.0.2.0/24", "192.88.99.0/24", "192.168.0.0/16", "198.18.0.0/15", "198.51.100.0/24",
	"203.0.113.0/24", "224.0.0.0/4", "240.0.0.0/4", "::/64", "100::/64", "2001:db8::/32", "3fff::/20", "5f00::/16",
	"fc00::/7", "fe80::/10", "fec0::/10", "ff00::/8", "64:ff9b::/96", "64:ff9b:1::/48", "2001::/23", "2002::/16")

func prefixes(texts ...string) (out []netip.Prefix) {
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// Check returns ErrAddress for an address that is neither public nor in an allowed network, or that
// is in a network of Never. An IPv4 address in IPv6 form is treated as IPv4.
func (g Guard) Check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	if a.IsValid() && !within(a, g.Never) && (within(a, g.Allow) || !within(a, notPublic)) {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrAddress, a)
}

// checkPort is Check for an address to dial. It refuses the listeners of this node.
func (g Guard) checkPort(to netip.AddrPort) error {
	if isOwn(to, g.Own) {
		return fmt.Errorf("%w: %s is a listener of this node", ErrAddress, to)
	}
	return g.Check(to.Addr())
}

func within(a netip.Addr, networks []netip.Prefix) bool {
	for _, n := range networks {
		if n.Contains(a) {
			return true
		}
	}
	return false
}
