package front

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ronbox/appliance/unit"
)

func TestReservedConnectionServesOneProbe(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.PerIP = 1 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	probe := r.dial(t)
	if status, body, h := ask(t, probe, "/probe"); status != http.StatusOK || body != "127.0.0.1" ||
		h.Get("Connection") != "close" {
		t.Errorf("%d %q %v, want one answer and the end", status, body, h)
	}
	if _, err := probe.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("%v, want the connection closed", err)
	}
	other := r.dial(t)
	if status, body, h := ask(t, other,
		"/"); status != http.StatusTooManyRequests || !strings.Contains(body, "conn_cap") ||
		h.Get("Connection") != "close" {
		t.Errorf("%d %q to what is no probe, want 429 and the end", status, body)
	}
	waitFor(t, "reserved slots to come free", func() bool { return r.Conns() == 1 })
	if r.calls.Load() != 2 {
		t.Errorf("%d calls, want the refused one kept out", r.calls.Load())
	}
}

func TestSilentReservedConnectionIsEvicted(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 1, 2 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	silent := r.dial(t)
	waitFor(t, "the first of the reserve", func() bool { return r.Conns() == 2 })
	slow := r.dial(t)
	_, _ = io.WriteString(slow, "GET /probe HTTP/1.1\r\nHo")
	waitFor(t, "half a request", func() bool {
		kept := r.tcp.conns.inReserve()
		return len(kept) == 2 && kept[1].received.Load() == receivedPart
	})
	for i, gone := range []net.Conn{slow, silent} { // half a request goes first
		waitFor(t, "moment to pass",
			func() bool { return time.Since(r.tcp.conns.inReserve()[0].since) > firstByteGrace })
		r.dial(t)
		if _, err := gone.Read(make([]byte, 1)); err == nil {
			t.Errorf("%d is still there", i)
		}
	}
	if got := sum(t, r.metrics, "conn_rejects_total", "reason", "reserve"); got != 2 {
		t.Errorf("conn_rejects_total{reserve} = %v, want 2", got)
	}
}

// A connection in a reserved slot that asks for no probe and never sends its body does not keep the
// slot.
func TestReservedSlotIsNotHeldByABody(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.PerIP = 1 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	var all []net.Conn
	for _, head := range []string{"Content-Length: 10", "Transfer-Encoding: chunked"} {
		c := r.dial(t)
		_, _ = io.WriteString(c, "POST / HTTP/1.1\r\nHost: x\r\n"+head+"\r\n\r\n")
		if status, _, _ := answer(t, c); status != http.StatusTooManyRequests {
			t.Errorf("%s: %d", head, status)
		}
		all = append(all, c)
	}
	waitFor(t, "reserved slots to come free", func() bool { return r.Conns() == 1 })
	for _, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%v, want the connection closed", err)
		}
	}
}

// 2,000 half-open requests from the very address that probes come from: probes are answered
// meanwhile, nearly all at once, and all are closed and counted when their time is over.
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
	again := 0 // probes that met more newcomers than may stand
	for range 50 {
		waitFor(t, "a probe to be answered", func() bool {
			c := r.dial(t)
			defer func() { _ = c.Close() }()
			status, _, _ := ask(t, c, "/probe")
			if status != http.StatusOK {
				again++
			}
			return status == http.StatusOK
		})
	}
	if again > 25 {
		t.Errorf("50 probes asked %d times again", again)
	}
	open.Wait()
	waitFor(t, "the half-open to be closed", func() bool { return r.Conns() == 0 })
	rejected := sum(t, r.metrics, "conn_rejects_total")
	if timeouts := float64(r.counted("timeout")); timeouts == 0 || timeouts+rejected < many-50 {
		t.Errorf("%v timed out and %v were refused, of %d", timeouts, rejected, many)
	}
}

// A request that has been taken from the kernel, and not been looked at yet, counts as one: its
// connection is not evicted.
func TestBytesBeingReadAreNoSilence(t *testing.T) {
	for _, secure := range []bool{false, true} {
		change := []func(*setup){func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 1, 2 }}
		if secure {
			change = append(change, withTLS(t))
		}
		r, e := loopless(t, change...)
		var in *conn
		var raw net.Conn
		for range 2 { // the first has the ordinary slot, the second is in the reserve
			raw = r.dial(t)
			accepted, err := e.generation().socket.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c := e.admit(e.generation(), accepted)
			defer func() { _ = accepted.Close() }()
			in = stateOf(c)
		}
		if !in.evictable() {
			t.Errorf("TLS %v: a silent connection is not evictable", secure)
		}
		_, _ = io.WriteString(raw, "GET /probe HTTP/1.1\r\nHost: x\r\n\r\n")
		if _, err := in.raw.Read(make([]byte, 512)); err != nil { // as a Read does that has not returned
			t.Fatal(err)
		}
		if in.evictable() {
			t.Errorf("TLS %v: a connection that has asked is evictable", secure)
		}
	}
}

// Under TLS too a connection that begins something and does not go on is evicted, in the handshake
// and after it.
func TestSlowClientsUnderTLSAreEvicted(t *testing.T) {
	for _, tt := range []struct {
		doc   string
		begin func(*testing.T, *rig) net.Conn
	}{
		{"silent", func(t *testing.T, r *rig) net.Conn { return r.dial(t) }},
		{"half a hello", func(t *testing.T, r *rig) net.Conn {
			c := r.dial(t)
			_, _ = io.WriteString(c, "\x16\x03\x01\x02\x00\x01")
			return c
		}},
		{"no request", func(t *testing.T, r *rig) net.Conn { return shaken(t, r) }},
		{"half a record", func(t *testing.T, r *rig) net.Conn {
			c := shaken(t, r)
			_, _ = io.WriteString(c.NetConn(), "\x17\x03\x03\x01\x00half")
			return c
		}},
		{"half a request", func(t *testing.T, r *rig) net.Conn {
			c := shaken(t, r)
			_, _ = io.WriteString(c, "GET /probe HTTP/1.1\r\nHo")
			return c
		}},
	} {
		r := newRig(t, withTLS(t), func(s *setup) {
			s.cfg.MaxConns, s.cfg.Reserved, s.cfg.ReadTimeout = 1, 1, unit.Duration(time.Minute)
		}).listening(t)
		first := shaken(t, r)
		if status, _, _ := ask(t, first, "/"); status != http.StatusOK {
			t.Fatal(status)
		}
		slow := tt.begin(t, r)
		waitFor(t, tt.doc+" to be idle", func() bool {
			idle, _ := splitSilent(r.tcp.conns.inReserve(), time.Now())
			return len(idle) == 1 && idle[0].evictable()
		})
		r.dial(t)
		if _, err := slow.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("%s: %v, want it gone", tt.doc, err)
		}
	}
}

func shaken(t *testing.T, r *rig) *tls.Conn {
	t.Helper()
	c, err := hello(t, r, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// The kernel counts an urgent byte as received, but a client that sends only that counts as silent.
func TestUrgentByteIsNoRequestOnTheWay(t *testing.T) {
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprint("tls ", secure), func(t *testing.T) {
			change := []func(*setup){
				func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved, s.cfg.ReadTimeout = 1, 2, unit.Duration(time.Minute) },
			}
			if secure {
				change = append(change, withTLS(t))
			}
			r := newRig(t, change...).listening(t)
			r.dial(t)
			for range 2 {
				c := r.dial(t)
				urgent(t, c)
				urgent(t, c)
			}
			waitFor(t, "the reserve to be taken", func() bool { return r.Conns() == 3 })
			waitFor(t, "moment to pass",
				func() bool { return time.Since(r.tcp.conns.inReserve()[1].since) > firstByteGrace })
			for _, c := range r.tcp.conns.inReserve() {
				waitFor(t, "one that sent nothing readable to be evictable", c.evictable)
			}
		})
	}
}

// A client that holds every slot beyond the reserve by an unreadable byte keeps no probe out.
func TestUrgentBytesDoNotStarveProbes(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.MaxConns, s.cfg.Reserved = 1, 2 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	for range maxNewcomers + 2 {
		urgent(t, r.dial(t))
	}
	waitFor(t, "the urgent bytes to be read", func() bool {
		all := r.tcp.conns.inReserve()
		return len(all) > 0 && !slices.ContainsFunc(all, func(c *conn) bool { return !c.evictable() })
	})
	for range 5 {
		c := r.dial(t)
		if status, _, _ := ask(t, c, "/probe"); status != http.StatusOK {
			t.Errorf("probe: %d", status)
		}
		_ = c.Close()
	}
}

func urgent(t *testing.T, c net.Conn) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if err := raw.Control(func(fd uintptr) { err = unix.Sendto(int(fd), []byte{'!'}, unix.MSG_OOB, nil) }); err != nil {
		t.Fatal(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A refusal in a reserved slot is delayed without the slot, so that one connection after the other
// costs the node little and keeps no probe out.
func TestRefusalsAreDelayed(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.PerIP = 1 }).listening(t)
	if status, _, _ := ask(t, r.dial(t), "/"); status != http.StatusOK {
		t.Fatal(status)
	}
	begun := time.Now()
	if status, _, h := ask(t, r.dial(t), "/"); status != http.StatusTooManyRequests || h.Get("Connection") != "close" {
		t.Errorf("%d %v", status, h)
	}
	if took := time.Since(begun); took < refusalDelay/2 {
		t.Errorf("refused after %s, before %s", took, refusalDelay/2)
	}
	waitFor(t, "no refusal to wait", func() bool { return r.delayed.Load() == 0 })
}

// A connection that has given its slot back counts until it is closed, however long its client
// takes to read or to send: beyond so many each keeps its slot, or they would take the file
// descriptors of all.
func TestDelayedRefusalsAreBounded(t *testing.T) {
	f := newRig(t).Front
	e := f.newEndpoint("x", "tcp", 1, limits{total: 1, reserved: 2 * maxDelayed})
	left, leave := context.WithCancel(t.Context())
	leave() // so that nothing waits here
	r := httptest.NewRequestWithContext(left, "POST", "/", nil)
	var all []*conn
	for range maxDelayed + 50 {
		c := &conn{e: e, g: &generation{}}
		if e.conns.acquire(c, true, true) != admitted {
			t.Fatal("no slot")
		}
		e.silent.Add(1)
		all = append(all, c)
	}
	for _, c := range all[1:] {
		c.delayRefusal(r)
	}
	if n := e.conns.open(); n != 50 {
		t.Errorf("%d have a slot, want the ordinary one and 49 beyond those that are delayed", n)
	}
	for _, c := range all {
		c.release()
	}
	if e.conns.open() != 0 || f.delayed.Load() != 0 {
		t.Errorf("%d have a slot and %d are delayed after all have left", e.conns.open(), f.delayed.Load())
	}
}
