package console

import (
	"net/netip"
	"strings"
	"testing"

	"ronbox/httpapi/front"
)

// The console is there for a peer of an allowed network that reached the node by one of its names,
// beyond this machine over TLS only, and through a proxy only if the node trusts it.
func TestAdmits(t *testing.T) {
	certified := func(host string) bool { // as a certificate of *.example
		label, rest, _ := strings.Cut(host, ".")
		return label != "" && rest == "example"
	}
	r := newRules(Config{
		Allow: []string{"127.0.0.0/8", "::1/128", "10.0.0.0/8"}, Hosts: []string{"ron.test"},
	})
	const here, near, far = "127.0.0.1", "10.1.2.3", "192.0.2.1"
	for _, tt := range []struct {
		peer   string // "": the admin socket
		origin string
		proxy  string
		want   bool
	}{
		{here, "http://127.0.0.1:8080", "", true},
		{"::1", "http://[::1]:8080", "", true},
		{"::ffff:127.0.0.1", "http://[::1]", "", true},
		{here, "http://localhost", "", true},
		{here, "http://LOCALHOST:1", "", true},
		{here, "http://a.localhost:8080", "", true},
		{here, "http://ron.test:8080", "", true},
		{here, "http://a.example:8080", "", true},
		{here, "http://a.b.example", "", false},
		{here, "http://example", "", false},
		{here, "http://evil.test", "", false},
		{here, "http://localhost.evil.test", "", false},
		{here, "http://", "", false},
		{near, "https://a.example", "", true},
		{near, "https://ron.test", "", true},
		{near, "https://10.0.0.1:8443", "", true},
		{near, "https://a.b.example", "", false},
		{near, "https://evil.test", "", false},
		{near, "http://10.0.0.1:8080", "", false},
		{near, "http://ron.test", "", false},
		{near, "http://a.example", "", false},
		{far, "https://ron.test", "", false},
		{far, "https://ron.test", "trusted", false},
		{"", "http://localhost", "", false},
		{here, "http://localhost", "foreign", false},
		{near, "https://ron.test", "foreign", false},
		{here, "http://localhost", "trusted", true},
		{near, "http://ron.test", "trusted", true}, // the proxy ends TLS, and ron.test is its name
		{near, "http://a.example", "trusted", false},
		{near, "http://10.0.0.1", "trusted", false},
		{near, "https://a.example", "trusted", true},
		{near, "https://evil.test", "trusted", false},
	} {
		scheme, host, _ := strings.Cut(tt.origin, "://")
		s := sender{
			peer: &front.Peer{Socket: tt.peer == ""}, scheme: scheme, host: host,
			named: tt.proxy != "", trusted: tt.proxy == "trusted",
		}
		if tt.peer != "" {
			s.peer.Addr = netip.MustParseAddr(tt.peer)
		}
		if got := r.admit(s, certified); got != tt.want {
			t.Errorf("%q at %s, proxy %q: %v, want %v", tt.peer, tt.origin, tt.proxy, got, tt.want)
		}
	}
}
