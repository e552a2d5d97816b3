package hosttest

import (
	"fmt"
	"net"
	"os"
	"sync"
	"testing"
)

// given holds the addresses that FreeAddr has returned.
var given sync.Map

// FreeAddr returns an address that nothing listens on, now and later. Its IP address is one of the
// loopback network that no other process uses: a free port of 127.0.0.1 may become that of another
// test, which binds any port, or that of a connection.
func FreeAddr(t testing.TB) string {
	t.Helper()
	pid := os.Getpid()
	ip := fmt.Sprintf("127.%d.%d.%d:0", 64+pid>>16&63, pid>>8&255, pid&255)
	for {
		l, err := net.Listen("tcp", ip)
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		if _, twice := given.LoadOrStore(addr, true); !twice {
			return addr
		}
	}
}
