package front

import (
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

// shortRead is soon over, yet long enough for a busy machine to ask in time.
const shortRead = unit.Duration(time.Second)

// What net/http refuses on its own leaves as a problem, and is counted once.
func TestOwnAnswersOfNetHTTPAreProblems(t *testing.T) {
	for _, tt := range []struct {
		doc, request string
		status       int
		reason, text string
	}{
		{"not HTTP", "hello\r\n\r\n", 400, "malformed", "not an HTTP/1.1 request"},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400, "malformed", "missing required Host header"},
		{"two hosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "malformed", ""},
		{"a bad header", "GET / HTTP/1.1\r\nHost: a\r\nB d: x\r\n\r\n", 400, "malformed", ""},
		{"a length that is none", "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -1\r\n\r\n", 400, "malformed", ""},
		{"an unknown coding", "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "malformed", "transfer encoding"},
		{"a future protocol", "GET / HTTP/3.7\r\nHost: a\r\n\r\n", 505, "malformed", "unsupported protocol version"},
		{"an expectation", "GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417, "malformed", "100-continue"},
		{"huge headers", "GET / HTTP/1.1\r\nHost: a\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, "bad_header", "server.max_header"},
		{"a huge target", "GET /" + strings.Repeat("x", 64<<10) + " HTTP/1.1\r\nHost: a\r\n\r\n", 431, "bad_header", "server.max_header"},
	} {
		r := newRig(t).listening(t)
		c := r.dial(t)
		_, _ = io.WriteString(c, tt.request)
		status, body, h := answer(t, c)
		if status != tt.status || !strings.Contains(body, `"reason":"`+tt.reason+`"`) ||
			!strings.Contains(body, tt.text) {
			t.Errorf("%s: %d %q", tt.doc, status, body)
		}
		if h.Get("Content-Type") != "application/problem+json" || h.Get("X-Corr-Id") == "" ||
			h.Get("Connection") != "close" ||
			h.Get("Date") == "" {
			t.Errorf("%s: header %v", tt.doc, h)
		}
		if rest, _ := io.ReadAll(c); len(rest) > 0 {
			t.Errorf("%s: then %q", tt.doc, rest)
		}
		if got := r.counted(tt.reason); got != 1 || len(r.tally()) != 1 {
			t.Errorf("%s: counted %v, want %s once", tt.doc, r.tally(), tt.reason)
		}
		if r.calls.Load() != 0 {
			t.Errorf("%s: a handler saw it", tt.doc)
		}
	}
}

// Answers of the handler are never replaced, also to the second request of a connection.
func TestOwnAnswersAfterAGoodRequest(t *testing.T) {
	r := newRig(t).listening(t)
	c := r.dial(t)
	if status, body, _ := ask(t, c, "/"); status != 200 || body != "127.0.0.1" {
		t.Fatalf("%d %q", status, body)
	}
	_, _ = io.WriteString(c, "GET / HTTP/1.1\r\n\r\n")
	if status, body, _ := answer(t, c); status != 400 || !strings.Contains(body, "malformed") {
		t.Errorf("%d %q", status, body)
	}
	if r.counted("malformed") != 1 {
		t.Errorf("counted %v", r.tally())
	}
}

func TestStatusLineOfNetHTTP(t *testing.T) {
	for _, tt := range []struct {
		line, text string
		status     int
	}{
		{"HTTP/1.1 431 Request Header Fields Too Large\r\nA: b\r\n\r\n", "", 431},
		{"HTTP/1.1 400 Bad Request: missing required Host header\r\n", "missing required Host header", 400},
		{"HTTP/1.1 200 OK\r\n", "", 400}, {"HTTP/1.1 999 X\r\n", "", 400}, {"x", "", 400}, {"", "", 400},
	} {
		if status, text := statusLine([]byte(tt.line)); status != tt.status || text != tt.text {
			t.Errorf("%q: %d %q", tt.line, status, text)
		}
	}
}

func TestSlowHeadersAreCountedAndIdleOnesAreNot(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *setup) {
		s.cfg.ReadTimeout, s.cfg.IdleTimeout = shortRead, shortRead
	}).listening(t)
	end := func(c net.Conn) {
		t.Helper()
		if n, err := c.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("%d %v, want the connection closed without a word", n, err)
		}
	}
	idle := r.dial(t)
	if status, _, _ := ask(t, idle, "/"); status != 200 {
		t.Fatal(status)
	}
	end(idle)
	if len(r.tally()) != 0 {
		t.Errorf("an idle connection was counted: %v", r.tally())
	}
	end(r.dial(t)) // never said a word
	again := r.dial(t)
	if status, _, _ := ask(t, again, "/"); status != 200 {
		t.Fatal(status)
	}
	_, _ = io.WriteString(again, "GET / HTTP/1.1\r\nHos")
	end(again)
	if got := r.counted("timeout"); got != 2 {
		t.Errorf("counted %v, want two timeouts", r.tally())
	}
}

func TestStalledCallIsNoTimeout(t *testing.T) {
	t.Parallel()
	r := newRig(t, func(s *setup) { s.cfg.ReadTimeout = shortRead }).listening(t)
	c := r.dial(t)
	release := time.AfterFunc(shortRead.D()+100*time.Millisecond, func() { close(r.hold) })
	defer release.Stop()
	if status, _, _ := ask(t, c, "/hold"); status != http.StatusOK || len(r.tally()) != 0 {
		t.Errorf("%d, counted %v: want a handler to take longer than headers may", status, r.tally())
	}
}
