package limit

import (
	"net/netip"
	"testing"
)

// A host has its whole /64, and one address however it is written.
func TestNetworks(t *testing.T) {
	for in, want := range map[string]string{
		"192.0.2.7": "192.0.2.7", "::ffff:192.0.2.7": "192.0.2.7", "2001:db8:1:2:3:4:5:6": "2001:db8:1:2::", "fe80::1%eth0": "fe80::",
		"2001:db8:1:2:ffff::1": "2001:db8:1:2::", "2001:db8:1:3::1": "2001:db8:1:3::",
	} {
		if got := Network(netip.MustParseAddr(in)); got != netip.MustParseAddr(want) {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
}
