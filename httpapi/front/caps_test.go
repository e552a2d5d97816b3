package front

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
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

func TestConnectionsOfOneAddressAreCapped(t *testing.T) {
	r := newRig(t, noReserve, func(s *setup) { s.cfg.PerIP = 2 }).listening(t)
	for range 2 {
		if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
			t.Fatalf("%d below the cap", status)
		}
	}
	status, body, h := answer(t, r.dial(t))
	if status != http.StatusTooManyRequests || !strings.Contains(body, `"reason":"conn_cap"`) || h.Get("X-Corr-Id") == "" {
		t.Errorf("%d %q %v over the cap, want a 429 that says why", status, body, h)
	}
	if h.Get("Connection") != "close" {
		t.Errorf("%v: the connection is not said to end", h)
	}
	if status, _, _ := ask(t, r.dialFrom(t, "127.0.0.2"), "/"); status != http.StatusOK {
		t.Errorf("%d to another address, want it let in", status)
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", "per_ip"); got != 1 || r.counted("conn_cap") != 1 {
		t.Errorf("conn_rejects_total %v, rejected_total %d, want 1 each", got, r.counted("conn_cap"))
	}
}

func TestTrustedProxiesHaveNoCapOfTheirOwn(t *testing.T) {
	r := newRig(t, noReserve, func(s *setup) { s.cfg.PerIP, s.cfg.MaxConns, s.cfg.Trusted = 1, 3, []string{"127.0.0.1/32"} }).listening(t)
	for range 3 {
		if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
			t.Fatalf("%d, want the proxy let in", status)
		}
	}
	if status, _, _ := answer(t, r.dial(t)); status != http.StatusServiceUnavailable {
		t.Errorf("%d over the total, want 503", status)
	}
}

func TestReservedConnectionServesOneProbe(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.PerIP = 1 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	probe := r.dial(t)
	if status, body, h := ask(t, probe, "/probe"); status != http.StatusOK || body != "127.0.0.1" || h.Get("Connection") != "close" {
		t.Errorf("%d %q %v, want one answer and the end", status, body, h)
	}
	if _, err := probe.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want the connection closed", err)
	}
	other := r.dial(t)
	if status, body, h := ask(t, other, "/"); status != http.StatusTooManyRequests || !strings.Contains(body, "conn_cap") || h.Get("Connection") != "close" {
		t.Errorf("%d %q to what is no probe, want 429 and the end", status, body)
	}
	waitFor(t, "reserved places to come free", func() bool { return r.Conns() == 1 })
	if r.calls.Load() != 2 {
		t.Errorf("%d calls, want the refused one kept out", r.calls.Load())
	}
}

func TestReservedPlaceOfWhoAsksNothingIsGivenAway(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 1, 2 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	silent := r.dial(t)
	waitFor(t, "the first of the reserve", func() bool { return r.Conns() == 2 })
	dawdler := r.dial(t)
	_, _ = io.WriteString(dawdler, "GET /probe HTTP/1.1\r\nHo")
	waitFor(t, "half a request", func() bool {
		kept := r.tcp.book.reserved()
		return len(kept) == 2 && kept[1].heard.Load() == heardPart
	})
	for i, gone := range []net.Conn{dawdler, silent} { // who has begun and dawdles goes first
		waitFor(t, "moment to pass", func() bool { return time.Since(r.tcp.book.reserved()[0].since) > moment })
		r.dial(t)
		if _, err := gone.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d is still there", i)
		}
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", "reserve"); got != 2 {
		t.Errorf("conn_rejects_total{reserve} = %v, want 2", got)
	}
}

// 300 connections of one address beside 10 clients that ask now and then: those get every answer.
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

// 2,000 half-open requests from the very address that probes come from: every probe is answered meanwhile, and all are
// closed and counted when their time is over.
func TestSlowHeadersDoNotStarveProbes(t *testing.T) {
	const many = 2000
	r := newRig(t, func(s *setup) { s.cfg.ReadTimeout = shortRead }).listening(t)
	var open sync.WaitGroup
	for range 20 {
		open.Go(func() {
			for range many / 20 {
				_, _ = io.WriteString(r.dial(t), "GET / HTTP/1.1\r\nHost: x\r\nX-Slow: ")
			}
		})
	}
	for range 50 {
		c := r.dial(t)
		if status, _, _ := ask(t, c, "/probe"); status != http.StatusOK {
			t.Errorf("probe: %d", status)
		}
		_ = c.Close()
	}
	open.Wait()
	waitFor(t, "the half-open to be closed", func() bool { return r.Conns() == 0 })
	rejected := sum(t, r.metrics, "conn_rejects_total")
	if timeouts := float64(r.counted("timeout")); timeouts == 0 || timeouts+rejected < many-50 {
		t.Errorf("%v timed out and %v were refused, of %d", timeouts, rejected, many)
	}
}

// Whatever comes and goes, no limit is passed, a probe finds a place while any reserved one is silent, and an empty
// house is empty.
func TestBookKeepsItsLimits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		max := limits{total: rapid.IntRange(1, 6).Draw(t, "total"), perIP: rapid.IntRange(0, 3).Draw(t, "per ip"), reserved: rapid.IntRange(0, 3).Draw(t, "reserved")}
		b := newBook(flow.NewCatalog(nil, nil), max)
		e := &endpoint{book: b}
		var inside []*life
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			if len(inside) > 0 && rapid.Bool().Draw(t, "leaves") {
				i := rapid.IntRange(0, len(inside)-1).Draw(t, "who")
				b.leave(inside[i])
				inside = slices.Delete(inside, i, i+1)
				continue
			}
			l := &life{e: e, since: time.Now().Add(-time.Duration(rapid.IntRange(0, 2).Draw(t, "age")) * moment), key: netip.AddrFrom4([4]byte{10, 0, 0, byte(rapid.IntRange(0, 2).Draw(t, "ip"))})}
			probe := rapid.Bool().Draw(t, "probe")
			v := b.enter(l, false, probe)
			if v != letIn && probe {
				in, yield := e.makeRoom(l, v)
				for _, old := range yield {
					inside = slices.Delete(inside, slices.Index(inside, old), slices.Index(inside, old)+1)
					b.leave(old) // as its Close does; its place is another's already
				}
				if in {
					v = letIn
				}
			}
			if v == letIn {
				inside = append(inside, l)
			} else if probe && max.reserved > 0 {
				t.Fatal("a probe was turned away from silent places")
			}
			check(t, b, inside, max)
		}
		for _, l := range inside {
			b.leave(l)
		}
		if b.open() != 0 || len(b.byIP) != 0 {
			t.Fatalf("%d open, %v by address, in an empty house", b.open(), b.byIP)
		}
	})
}

func check(t *rapid.T, b *book, inside []*life, max limits) {
	if b.open() != len(inside) || b.n > max.total || len(b.kept) > max.reserved+newcomers {
		t.Fatalf("%d ordinary and %d reserved of %+v, %d inside", b.n, len(b.kept), max, len(inside))
	}
	for ip, n := range b.byIP {
		if max.perIP > 0 && n > max.perIP {
			t.Fatalf("%d of %s, limit %d", n, ip, max.perIP)
		}
	}
}

// Who is refused in a reserved place waits for it without the place, so that one connection after the other costs the node
// little and keeps no probe out.
func TestRefusalsAreNotHurried(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.PerIP = 1 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	begun := time.Now()
	if status, _, h := ask(t, r.dial(t), "/"); status != http.StatusTooManyRequests || h.Get("Connection") != "close" {
		t.Errorf("%d %v", status, h)
	}
	if took := time.Since(begun); took < lingerFor/2 {
		t.Errorf("refused after %s, before %s", took, lingerFor/2)
	}
	waitFor(t, "nobody to wait", func() bool { return r.lingering.Load() == 0 })
}

// Who has given its place back counts until its connection is closed, however long its client takes to read or to send: beyond so
// many each keeps its place, or they would take the file descriptors of all.
func TestTheRefusedAreBounded(t *testing.T) {
	f := newRig(t).Front
	e := f.newEndpoint("x", "tcp", limits{total: 1, reserved: 2 * lingerMost})
	left, leave := context.WithCancel(t.Context())
	leave() // nobody waits here
	r := httptest.NewRequestWithContext(left, "POST", "/", nil)
	var all []*life
	for range lingerMost + 50 {
		l := &life{e: e, g: &generation{}}
		if e.book.enter(l, true, true) != letIn {
			t.Fatal("no place")
		}
		e.silent.Add(1)
		all = append(all, l)
	}
	for _, l := range all[1:] {
		l.linger(r)
	}
	if n := e.book.open(); n != 50 {
		t.Errorf("%d have a place, want the ordinary one and 49 beyond those that linger", n)
	}
	for _, l := range all {
		l.leave()
	}
	if e.book.open() != 0 || f.lingering.Load() != 0 {
		t.Errorf("%d have a place and %d linger in an empty house", e.book.open(), f.lingering.Load())
	}
}

// The admin socket has so many places, and one more is told so.
func TestPeersOfTheSocketAreCapped(t *testing.T) {
	path := filepath.Join(t.TempDir(), "admin.sock")
	r := newRig(t, withSocket(path)).listening(t)
	knock := func() net.Conn {
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
		c := knock()
		if status, _, _ := ask(t, c, "/"); status != http.StatusOK {
			t.Fatalf("peer %d: %d", i+1, status)
		}
		all = append(all, c)
	}
	if status, body, _ := answer(t, knock()); status != http.StatusServiceUnavailable || !strings.Contains(body, "conn_cap") {
		t.Errorf("%d %q to one more", status, body)
	}
	_ = all[0].Close()
	waitFor(t, "a place to come free", func() bool { return r.admin.book.open() == maxPeers-1 })
	if status, _, _ := ask(t, knock(), "/"); status != http.StatusOK {
		t.Errorf("%d once a place is free", status)
	}
}
