package front

import (
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

func TestSlowHeadersAreClosed(t *testing.T) {
	r := newRig(t, func(s *setup) { s.cfg.ReadTimeout = unit.Duration(100 * time.Millisecond) }).listening(t)
	for _, begun := range []string{"", "GET /he", "GET / HTTP/1.1\r\nHost: x\r\nX-A: "} {
		c := r.dial(t)
		if _, err := io.WriteString(c, begun); err != nil {
			t.Fatal(err)
		}
		if got := readStatus(t, c); got != 0 && got != http.StatusBadRequest {
			t.Errorf("%q: %d, want the connection closed", begun, got)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: the connection is still open: %v", begun, err)
		}
	}
	if r.calls.Load() != 0 {
		t.Error("a half request reached the handler")
	}
	if n := r.counted("node read"); n != 3 {
		t.Errorf("%d requests were not read in time, want 3", n)
	}
}

// An unread answer is counted once, where it comes from.
func TestUnreadAnswersAreCounted(t *testing.T) {
	t.Run("plain", func(t *testing.T) {
		r := newRig(t).listening(t)
		unreadAnswer(t, r, r.dial(t))
	})
	t.Run("TLS", func(t *testing.T) {
		r := newRig(t, withTLS(t)).listening(t)
		c, err := hello(t, r, nil)
		if err != nil {
			t.Fatal(err)
		}
		unreadAnswer(t, r, c)
	})
}

func unreadAnswer(t *testing.T, r *rig, c net.Conn) {
	t.Helper()
	if _, err := io.WriteString(c, "GET /unread HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := <-r.sent; !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("err = %v", err)
	}
	_, _ = io.Copy(io.Discard, c) // until the connection is closed
	if n := r.counted("bank write"); n != 1 {
		t.Errorf("%d answers were not written in time, want 1: %v", n, r.tally())
	}
}

func TestHugeHeadersAreRefused(t *testing.T) {
	r := newRig(t).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHost: x\r\nX-Big: "+strings.Repeat("x", 64<<10)+"\r\n\r\n")
	if got := readStatus(t, c); got != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("%d, want 431", got)
	}
}

// However a connection ends, its slot comes back.
func TestSlotsComeBack(t *testing.T) {
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
		waitFor(t, tt.doc+" to give back its slot, and what else it holds", func() bool {
			return r.Conns() == 0 && r.tcp.generation().conns.Load() == 0 && r.tcp.silent.Load() == 0 &&
				r.tcp.calls.Load() == 0
		})
	}
}
