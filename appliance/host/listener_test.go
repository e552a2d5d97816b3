package host

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
)

func TestListenerNamesTheProcess(t *testing.T) {
	for _, bind := range []string{"127.0.0.1:0", "[::1]:0", "0.0.0.0:0"} {
		l, err := net.Listen("tcp", bind)
		if err != nil {
			t.Logf("%s: %v", bind, err) // a machine without IPv6
			continue
		}
		defer func() { _ = l.Close() }()
		p, ok := Listener(l.Addr().String())
		if !ok || p.PID != os.Getpid() || p.Command == "" {
			t.Errorf("%s: %+v %v, want process %d", l.Addr(), p, ok, os.Getpid())
		}
	}
	free, err := net.Listen("tcp", "127.0.53.55:0") // an address that is not used elsewhere
	if err != nil {
		t.Fatal(err)
	}
	at := free.Addr().String()
	_ = free.Close()
	for _, addr := range []string{at, "127.0.0.1", "127.0.0.1:x"} {
		if p, ok := Listener(addr); ok {
			t.Errorf("%s: %+v", addr, p)
		}
	}
}

func TestListeningReadsTheTable(t *testing.T) {
	const table = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 11 1 0000000000000000 100 0 0 10 0
   1: 00000000:0050 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 12 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F91 0100007F:1F90 01 00000000:00000000 00:00000000 00000000  1000        0 13 1 0000000000000000 100 0 0 10 0
   3: 00000000000000000000000001000000:1F90 00000000000000000000000000000000:0000 0A 0:0 00:0 0 0 0 14 1 0 100 0 0 10 0
   4: short
   5: XXXXXXXX:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 15 1 0000000000000000 100 0 0 10 0
`
	for addr, want := range map[string][]string{
		"127.0.0.1:8080": {"11"}, "127.0.0.2:8080": nil, "0.0.0.0:8080": {"11", "14"}, "127.0.0.1:80": {"12"}, "[::1]:8080": {"14"},
		"127.0.0.1:8081": nil,
	} {
		if got := listening([]byte(table), netip.MustParseAddrPort(addr)); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", addr, got, want)
		}
	}
}
