package limit

import "net/netip"

// Network is what counts as one caller: the address, or of IPv6 the first of its /64, which one customer has to himself.
// Those who are not told share the zero Addr.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a
	}
	p, err := a.Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}
