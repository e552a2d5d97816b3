package hosttest

import (
	"net"
	"testing"
)

func TestFreeAddr(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		addr := FreeAddr(t)
		host, _, err := net.SplitHostPort(addr)
		if ip := net.ParseIP(host); err != nil || !ip.IsLoopback() || host == "127.0.0.1" || seen[addr] {
			t.Fatalf("%s, %v", addr, err)
		}
		seen[addr] = true
	}
	addr := FreeAddr(t)
	for range 2 { // a node that stops and starts again
		l, err := net.Listen("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
