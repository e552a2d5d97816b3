package front

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ronbox/appliance/flow"
)

// noReserve leaves no address for probes.
func noReserve(s *setup) { s.cfg.HealthCIDRs = []string{} }

func TestConnectionsAreCapped(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 2, 0 }).listening(t)
	get := "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
	first, second := r.dial(t), r.dial(t)
	for _, c := range []net.Conn{first, second} { // both are accepted before the third comes
		_, _ = io.WriteString(c, get)
		if got := readStatus(t, c); got != http.StatusOK {
			t.Fatalf("%d below the cap", got)
		}
	}
	if got := readStatus(t, r.dial(t)); got != http.StatusServiceUnavailable {
		t.Errorf("%d over the cap, want a canned 503", got)
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", rejectTotal); got != 1 {
		t.Errorf("conn_rejects_total = %v, want 1", got)
	}
	if got := sum(t, r.metrics, "conns_open", "listener", "http"); got != 2 {
		t.Errorf("conns_open = %v, want 2", got)
	}
	_, _ = io.WriteString(first, "GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	if got := readStatus(t, first); got != http.StatusOK {
		t.Fatal(got)
	}
	waitFor(t, "a slot to come free", func() bool { return r.Conns() == 1 })
	c := r.dial(t)
	_, _ = io.WriteString(c, get)
	if got := readStatus(t, c); got != http.StatusOK {
		t.Errorf("%d, want the freed slot", got)
	}
}

func TestConnectionsOfOneAddressAreCapped(t *testing.T) {
	r := newRig(t, noReserve, func(s *setup) { s.cfg.PerIP = 2 }).listening(t)
	for range 2 {
		if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
			t.Fatalf("%d below the cap", status)
		}
	}
	status, body, h := answer(t, r.dial(t))
	if status != http.StatusTooManyRequests || !strings.Contains(body, `"reason":"conn_cap"`) ||
		h.Get("X-Corr-Id") == "" {
		t.Errorf("%d %q %v over the cap, want a 429 that says why", status, body, h)
	}
	if h.Get("Connection") != "close" {
		t.Errorf("%v: the connection is not said to end", h)
	}
	if status, _, _ := ask(t, r.dialFrom(t, "127.0.0.2"), "/"); status != http.StatusOK {
		t.Errorf("%d to another address, want it admitted", status)
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", "per_ip"); got != 1 || r.counted("conn_cap") != 1 {
		t.Errorf("conn_rejects_total %v, rejected_total %d, want 1 each", got, r.counted("conn_cap"))
	}
}

func TestTrustedProxiesHaveNoCapOfTheirOwn(t *testing.T) {
	r := newRig(t, noReserve,
		func(s *setup) { s.cfg.PerIP, s.cfg.MaxConns, s.cfg.Trusted = 1, 3, []string{"127.0.0.1/32"} }).listening(t)
	for range 3 {
		if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
			t.Fatalf("%d, want the proxy admitted", status)
		}
	}
	if status, _, _ := answer(t, r.dial(t)); status != http.StatusServiceUnavailable {
		t.Errorf("%d over the total, want 503", status)
	}
}

// The admin socket has so many slots, and one more peer gets a 503.
func TestPeersOfTheSocketAreCapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	r := newRig(t, withSocket(path)).listening(t)
	dial := func() net.Conn {
		c, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		return c
	}
	var all []net.Conn
	for i := range maxPeers {
		c := dial()
		if status, _, _ := ask(t, c, "/"); status != http.StatusOK {
			t.Fatalf("peer %d: %d", i+1, status)
		}
		all = append(all, c)
	}
	if status, body, _ := answer(t, dial()); status != http.StatusServiceUnavailable ||
		!strings.Contains(body, "conn_cap") {
		t.Errorf("%d %q to one more", status, body)
	}
	_ = all[0].Close()
	waitFor(t, "a slot to come free", func() bool { return r.admin.conns.open() == maxPeers-1 })
	if status, _, _ := ask(t, dial(), "/"); status != http.StatusOK {
		t.Errorf("%d once a slot is free", status)
	}
}

// During 300 connections from one address, 10 modest clients get every answer.
func TestFloodLeavesQuietClientsAlone(t *testing.T) {
	r := newRig(t, noReserve).listening(t)
	stop := make(chan struct{})
	var flood, quiet sync.WaitGroup
	for range 300 {
		flood.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if c, err := net.Dial("tcp", r.Addr()); err == nil {
					_ = c.SetDeadline(time.Now().Add(time.Second))
					_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
					_, _ = c.Read(make([]byte, 512))
					_ = c.Close()
				}
			}
		})
	}
	for i := range 10 {
		quiet.Go(func() {
			for n := range 20 {
				d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 1, byte(i))}}
				c, err := d.DialContext(t.Context(), "tcp", r.Addr())
				if err != nil {
					t.Errorf("client %d: %v", i, err)
					return
				}
				_ = c.SetDeadline(time.Now().Add(time.Minute))
				if status, body, _ := ask(t, c, "/"); status != http.StatusOK || body != fmt.Sprintf("127.0.1.%d", i) {
					t.Errorf("client %d, request %d: %d %q", i, n, status, body)
				}
				_ = c.Close()
			}
		})
	}
	quiet.Wait()
	close(stop)
	flood.Wait()
}

// Whatever comes and goes, no limit is passed, a probe finds a slot while any reserved one is
// silent, and the table is empty once all have left.
func TestConnTableKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := limits{
			total:    rapid.IntRange(1, 6).Draw(t, "total"),
			perIP:    rapid.IntRange(0, 3).Draw(t, "per ip"),
			reserved: rapid.IntRange(0, 3).Draw(t, "reserved"),
		}
		b := newConnTable(flow.NewCatalog(nil, nil), max)
		e := &endpoint{conns: b}
		var inside []*conn
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(inside) > 0 && rapid.Bool().Draw(t, "leaves") {
				i := rapid.IntRange(0, len(inside)-1).Draw(t, "which")
				b.release(inside[i])
				inside = slices.Delete(inside, i, i+1)
				continue
			}
			c := &conn{
				e:     e,
				since: time.Now().Add(-time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * firstByteGrace),
				key:   netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 2).Draw(t, "ip"))}),
			}
			probe := rapid.Bool().Draw(t, "probe")
			v := b.acquire(c, false, probe)
			if v != admitted && probe {
				in, evicted := e.conns.makeRoom(c, v)
				for _, old := range evicted {
					inside = slices.Delete(inside, slices.Index(inside, old), slices.Index(inside, old)+1)
					b.release(old) // as its Close does; its slot is another's already
				}
				if in {
					v = admitted
				}
			}
			if v == admitted {
				inside = append(inside, c)
			} else if probe && max.reserved > 0 {
				t.Fatal("a probe was rejected beside silent connections")
			}
			check(t, b, inside, max)
		}
		for _, c := range inside {
			b.release(c)
		}
		if b.open() != 0 || len(b.byIP) != 0 {
			t.Fatalf("%d open, %v by address, after all have left", b.open(), b.byIP)
		}
	})
}

func check(t *rapid.T, b *connTable, inside []*conn, max limits) {
	if b.open() != len(inside) || b.ordinary > max.total || len(b.reserved) > max.reserved+maxNewcomers {
		t.Fatalf("%d ordinary and %d reserved of %+v, %d inside", b.ordinary, len(b.reserved), max, len(inside))
	}
	for ip, n := range b.byIP {
		if max.perIP > 0 && n > max.perIP {
			t.Fatalf("%d of %s, limit %d", n, ip, max.perIP)
		}
	}
}
