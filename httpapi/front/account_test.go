package front

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"testing"
	"time"
)

// However a connection ends, its place comes back.
func TestPlacesComeBack(t *testing.T) {
	for _, tt := range []struct {
		doc     string
		handler http.HandlerFunc
	}{
		{"a panic", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
		{"a hijack", func(w http.ResponseWriter, _ *http.Request) {
			c, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				t.Error(err)
				return
			}
			_ = c.Close()
			_ = c.Close() // twice is once
		}},
	} {
		r := newRig(t, func(s *setup) { s.o.Handler = tt.handler }).listening(t)
		for range 3 {
			if status, _, _ := ask(t, r.dial(t), "/"); status != 0 {
				t.Errorf("%s: %d", tt.doc, status)
			}
		}
		waitFor(t, "places to come back", func() bool { return r.Conns() == 0 })
		if g := r.tcp.generation(); g.conns.Load() != 0 || r.tcp.silent.Load() != 0 || r.tcp.calls.Load() != 0 {
			t.Errorf("%s: %d connections, %d silent, %d calls are left", tt.doc, g.conns.Load(), r.tcp.silent.Load(), r.tcp.calls.Load())
		}
	}
}

// Who has a reserved place, asks for what is no probe and never sends its body, does not keep the place.
func TestReservedPlaceIsNotHeldByABody(t *testing.T) {
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
	waitFor(t, "reserved places to come free", func() bool { return r.Conns() == 1 })
	for _, c := range all {
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%v, want the connection closed", err)
		}
	}
}

// Shutdown ends what older generations have in hand too, on the socket that was handed on and on the one that was left.
func TestShutdownEndsOlderGenerations(t *testing.T) {
	r := newRig(t).listening(t)
	var all []net.Conn
	for i := range 3 {
		idle, busy := r.dial(t), r.dial(t)
		if status, _, _ := ask(t, idle, "/"); status != http.StatusOK {
			t.Fatal(status)
		}
		_, _ = io.WriteString(busy, "GET /wait HTTP/1.1\r\nHost: x\r\n\r\n")
		waitFor(t, "call", func() bool { return r.tcp.calls.Load() == int64(i)+1 })
		all = append(all, idle, busy)
		r.reload(t, func(s *setup) {
			s.cfg.Bind, s.cfg.IdleTimeout = []string{s.cfg.Bind, "127.0.0.2:0", s.cfg.Bind}[i], s.cfg.IdleTimeout+1
		})
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if err := r.Shutdown(ctx); err != nil {
		t.Error(err)
	}
	for i, c := range all {
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("connection %d: %v, want it closed", i, err)
		}
	}
	waitFor(t, "connections to go", func() bool { return r.Conns() == 0 })
}
