package edge

import (
	"net/netip"
	"testing"
	"time"
)

// A network that has begun all searches of its share is refused while another is served.
func TestShare(t *testing.T) {
	now := time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)
	share := NewShare(func() time.Time { return now })
	one, other := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::")
	for range 8 {
		if ok, wait := share(one, 10); !ok || wait != 0 {
			t.Fatalf("within the share: %v, %s", ok, wait)
		}
	}
	if ok, wait := share(one, 10); ok || wait != time.Second/8 {
		t.Errorf("beyond the share: %v, %s", ok, wait)
	}
	if ok, _ := share(other, 10); !ok {
		t.Error("another network is refused")
	}
	now = now.Add(time.Second / 8)
	if ok, _ := share(one, 10); !ok {
		t.Error("the next token is not there")
	}
	if ok, _ := share(netip.MustParseAddr("192.0.2.3"), 1); !ok {
		t.Error("the share of the smallest rate is empty")
	}
}
