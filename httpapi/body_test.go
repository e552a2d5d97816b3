package httpapi

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"ronbox/appliance/unit"
)

func proposeBody(extra int) string {
	return `{"schema_version":"1.0.0","payload":{"pad":"` + strings.Repeat("x", extra) + `"}}`
}

func TestBodyHeaders(t *testing.T) {
	r := newRig(t)
	for _, tt := range []struct {
		doc, path, body string
		h               header
		status          int
		reason          string
	}{
		{"as it should be", "/registry/proposals", proposeBody(1), nil, 202, ""},
		{"with a charset", "/registry/proposals", proposeBody(1), header{"Content-Type": "application/json; charset=UTF-8"}, 202, ""},
		{"another charset", "/registry/proposals", proposeBody(1), header{"Content-Type": "application/json; charset=latin1"}, 415, "unsupported_type"},
		{"another type", "/registry/proposals", proposeBody(1), header{"Content-Type": "text/plain"}, 415, "unsupported_type"},
		{"encoded", "/registry/proposals", proposeBody(1), header{"Content-Encoding": "br"}, 415, "unsupported_type"},
		{"encoded twice", "/registry/proposals", proposeBody(1), header{"Content-Encoding": "gzip, gzip"}, 400, "malformed"},
		{"not what it says", "/registry/proposals", proposeBody(1), header{"Content-Encoding": "gzip"}, 400, "malformed"},
		{"no body", "/registry/proposals", "", nil, 411, "length_required"},
		{"2 MiB", "/registry/proposals", proposeBody(2 << 20), nil, 413, "body_cap"},
		{"a body where none belongs", "/registry/commit/" + proposal, `{}`, nil, 400, "malformed"},
	} {
		h := header{"Authorization": "Bearer good"}
		for k, v := range tt.h {
			h[k] = v
		}
		w := r.do(http.MethodPost, tt.path, tt.body, h)
		if w.Code != tt.status || tt.reason != "" && problemIn(t, w.Body.String()).Reason != tt.reason {
			t.Errorf("%s: %d %s, want %d %s", tt.doc, w.Code, w.Body, tt.status, tt.reason)
		}
	}
}

func TestNothingIsReadBeforeAuth(t *testing.T) {
	r := newRig(t)
	w := r.do(http.MethodPost, "/registry/proposals", proposeBody(2<<20), header{"Content-Type": "text/plain"})
	if w.Code != http.StatusUnauthorized {
		t.Errorf("%d, want 401 before any look at the body", w.Code)
	}
}

// Over a real connection: the cap, chunks, a body that never comes, and one that is cut.
func TestBodiesOnTheWire(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Server.ReadTimeout = unit.Duration(150 * time.Millisecond) }).listening(t)
	head := "POST /registry/proposals HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\nContent-Type: application/json\r\n"
	chunk := func(n int) string { return fmt.Sprintf("%x\r\n%s\r\n", n, strings.Repeat("x", n)) }
	for _, tt := range []struct {
		doc, raw string
		status   int
		close    bool
	}{
		{"2 MiB told ahead", head + "Content-Length: 2097152\r\n\r\n", 413, true},
		{"chunks beyond the cap", head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(1<<20) + chunk(1<<20), 413, true},
		{"a few chunks", head + "Transfer-Encoding: chunked\r\n\r\n" + chunk(10) + "0\r\n\r\n", 411, true},
		{"length beside chunks", head + "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(10) + "0\r\n\r\n", 411, true},
		{"never sent", head + "Content-Length: 100\r\n\r\n{", 408, true},
		{"two lengths", head + "Content-Length: 3\r\nContent-Length: 4\r\n\r\n{}", 400, true},
	} {
		c := r.dial(t)
		sent := make(chan struct{})
		go func() { // the server may answer before it has read all
			defer close(sent)
			_, _ = io.WriteString(c, tt.raw)
		}()
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Errorf("%s: %v", tt.doc, err)
			_ = c.Close()
			<-sent
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		if resp.StatusCode != tt.status || resp.Close != tt.close {
			t.Errorf("%s: %d close %v, want %d close %v", tt.doc, resp.StatusCode, resp.Close, tt.status, tt.close)
		}
		_ = c.Close()
		<-sent
	}
	if r.reg.calls != 0 {
		t.Errorf("the engine was called %d times", r.reg.calls)
	}
}

// A body that has arrived in full must not leave its read deadline behind: net/http would take it for a client that left.
func TestReadDeadlineEndsWithTheBody(t *testing.T) {
	r := newRig(t, func(c *Settings, _ *Deps) { c.Server.ReadTimeout = unit.Duration(100 * time.Millisecond) }).listening(t)
	r.reg.wait = true
	req, _ := http.NewRequest(http.MethodPost, r.url+"/registry/proposals", strings.NewReader(proposeBody(1)))
	req.Header.Set("Authorization", "Bearer good")
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Request-Timeout", "0.4")
	resp, err := r.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusGatewayTimeout {
		t.Errorf("%d, want 504: the wait must end at its own deadline", resp.StatusCode)
	}
}
