package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"net/http/httptest"

	"ronbox/appliance/unit"
	"ronbox/httpapi/front"
)

const proposeHead = "POST /registry/proposals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\n"

func chunk(n int) string { return fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("x", n)) }

// What arrives on the wire and is no whole body is refused, counted once, ends its connection, and reaches no engine.
func TestHostileBodies(t *testing.T) {
	for _, tt := range []struct {
		doc, raw string
		gone     bool // the client closes its side
		status   int
		reason   string
	}{
		{"2 MiB told ahead", proposeHead + "Content-Length: 2097152\r\n\r\n", false, 413, "body_cap"},
		{"chunks beyond the cap", proposeHead + "Transfer-Encoding: chunked\r\n\r\n" + chunk(1<<20) + chunk(1<<20), false, 413, "body_cap"},
		{"a few chunks", proposeHead + "Transfer-Encoding: chunked\r\n\r\n" + chunk(10) + "0\r\n\r\n", false, 411, "length_required"},
		{"a length beside chunks", proposeHead + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(10) + "0\r\n\r\n", false, 411, "length_required"},
		{"a chunk that is none", proposeHead + "Transfer-Encoding: chunked\r\n\r\nzz\r\n", false, 400, "malformed"},
		{"begun and never sent", proposeHead + "Content-Length: 100\r\n\r\n{", false, 408, "timeout"},
		{"a chunk begun and never sent", proposeHead + "Transfer-Encoding: chunked\r\n\r\n5\r\nab", false, 408, "timeout"},
		{"cut short by a client that still listens", proposeHead + "Content-Length: 100\r\n\r\n{", true, 400, "malformed"},
		{"a length that is less than it sends", proposeHead + "Content-Length: 5\r\n\r\n" + proposeBody(1), false, 400, "schema"},
	} {
		r := newRig(t, func(c *Settings, _ *Deps) {
			if tt.status == http.StatusRequestTimeout { // yet time for the headers to come, on a busy machine too
				c.Server.ReadTimeout = unit.Duration(2 * time.Second)
			}
		}).listening(t)
		c := r.dial(t)
		sent := make(chan struct{})
		go func() { // the server may answer before it has read all
			defer close(sent)
			_, _ = io.WriteString(c, tt.raw)
			if tt.gone {
				_ = c.(*net.TCPConn).CloseWrite()
			}
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatalf("%s: %v", tt.doc, err)
		}
		body, _ := io.ReadAll(resp.Body)
		if p := problemIn(t, string(body)); resp.StatusCode != tt.status || p.Reason != tt.reason || tt.reason != "schema" && !resp.Close {
			t.Errorf("%s: %d %s close %v, want %d %s", tt.doc, resp.StatusCode, p.Reason, resp.Close, tt.status, tt.reason)
		}
		if got := sum(t, r.metrics, "rejected_total", "reason", tt.reason, "service", "registry"); got != 1 || r.reg.calls != 0 {
			t.Errorf("%s: counted %v times, %d calls of the engine", tt.doc, got, r.reg.calls)
		}
		late := 0.
		if tt.status == http.StatusRequestTimeout {
			late = 1
		}
		if got := sum(t, r.metrics, "io_timeouts_total", "op", "read", "service", "registry"); got != late {
			t.Errorf("%s: %v were not read in time", tt.doc, got)
		}
		_ = c.Close()
		<-sent
	}
}

// Who leaves in the middle of a body is counted, and nothing of it is enqueued.
func TestClientGoneInTheMiddleOfABody(t *testing.T) {
	r := newRig(t).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, proposeHead+"Content-Length: 100\r\n\r\n{\"schema")
	waitFor(t, "call to begin", func() bool { return sum(t, r.metrics, "inflight_requests", "route", "/registry/proposals") == 1 })
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
	waitFor(t, "refusal", func() bool { return sum(t, r.metrics, "rejected_total", "reason", "malformed") == 1 })
	if r.reg.calls != 0 {
		t.Errorf("the engine was called %d times", r.reg.calls)
	}
}

// A body is the same, wherever the network splits it.
func TestABodySplitAnywhereIsReadAsOne(t *testing.T) {
	r := newRig(t).listening(t)
	body := proposeBody(8)
	raw := fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", proposeHead, len(body), body)
	for at := len(raw) - len(body) - 4; at < len(raw); at++ {
		c := r.dial(t)
		_, _ = io.WriteString(c, raw[:at])
		_, _ = io.WriteString(c, raw[at:])
		if got := readStatus(t, c); got != http.StatusAccepted {
			t.Errorf("split at %d: %d", at, got)
		}
		_ = c.Close()
	}
	req := httptest.NewRequest(http.MethodPost, "/registry/proposals", iotest.OneByteReader(strings.NewReader(body)))
	req.ContentLength = int64(len(body))
	req.Header = http.Header{"Content-Type": {"application/json"}, "Authorization": {"Bearer good"}}
	w := httptest.NewRecorder()
	r.router.ServeHTTP(w, req.WithContext(front.WithPeer(req.Context(), &front.Peer{})))
	if w.Code != http.StatusAccepted {
		t.Errorf("byte by byte: %d %s", w.Code, w.Body)
	}
}

// A body that drips is cut at the read timeout, however alive it looks.
func TestADripIsCut(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Server.ReadTimeout = unit.Duration(2 * time.Second) }).listening(t)
	c := r.dial(t)
	_, _ = io.WriteString(c, proposeHead+"Content-Length: 1000\r\n\r\n")
	drip, stopped := time.NewTicker(20*time.Millisecond), make(chan struct{})
	defer drip.Stop()
	go func() {
		defer close(stopped)
		for range drip.C {
			if _, err := io.WriteString(c, "x"); err != nil {
				return
			}
		}
	}()
	if got := readStatus(t, c); got != http.StatusRequestTimeout || r.reg.calls != 0 {
		t.Errorf("%d, %d calls of the engine", got, r.reg.calls)
	}
	_ = c.Close()
	<-stopped
}

// What the listeners refuse before there is a call has the one form, and is counted once.
func TestRefusalsOfTheListenersHaveTheOneForm(t *testing.T) {
	for _, tt := range []struct {
		doc, raw string
		status   int
		reason   string
	}{
		{"no request at all", "\x16\x03\x01 hello\r\n\r\n", 400, "malformed"},
		{"two lengths", proposeHead + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}", 400, "malformed"},
		{"a header without a colon", "GET /healthz HTTP/1.1\r\nHost: x\r\nbad header\r\n\r\n", 400, "malformed"},
		{"no host", "GET /healthz HTTP/1.1\r\n\r\n", 400, "malformed"},
		{"headers beyond the cap", "GET /healthz HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n", 431, "bad_header"},
		{"an unknown transfer coding", "POST /registry/proposals HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501, "malformed"},
	} {
		r := newRig(t).listening(t)
		c := r.dial(t)
		_, _ = io.WriteString(c, tt.raw)
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", tt.doc, err)
			continue
		}
		body, _ := io.ReadAll(resp.Body)
		if p := problemIn(t, string(body)); resp.StatusCode != tt.status || p.Reason != tt.reason || p.CorrID == "" || resp.Header.Get("X-Corr-ID") != p.CorrID {
			t.Errorf("%s: %d %s %v", tt.doc, resp.StatusCode, body, resp.Header)
		}
		if err := checker.Check("GET", "/nowhere", resp.StatusCode, resp.Header, body); checker.Checker != nil && err != nil {
			t.Errorf("%s: %v", tt.doc, err)
		}
		if got := sum(t, r.metrics, "rejected_total"); got != 1 || sum(t, r.metrics, "rejected_total", "reason", tt.reason) != 1 {
			t.Errorf("%s: counted %v times", tt.doc, got)
		}
	}
}
