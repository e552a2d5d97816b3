package front

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Reasons of what is refused before a handler sees it.
const (
	reasonMalformed = "malformed"
	reasonHeader    = "bad_header"
	reasonTimeout   = "timeout"
	reasonCap       = "conn_cap"
)

// refusalWithin is the time that the answer to a request which is refused gets to be sent.
const refusalWithin = time.Second

// reword answers in place of net/http, which refuses what it cannot read as a request with a line of plain text: nothing
// but that is written before a handler runs. It reports b as written.
func (l *life) reword(w net.Conn, b []byte) (int, error) {
	if !l.phase.CompareAndSwap(phaseHeader, phaseOver) {
		return len(b), nil // the rest of what has been said better
	}
	status, text := statusLine(b)
	reason := reasonMalformed
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge:
		reason, text = reasonHeader, "the request line and headers are longer than server.max_header"
	case status == http.StatusNotImplemented:
		text = "the transfer encoding is not supported"
	case status == http.StatusExpectationFailed:
		text = "of expectations only 100-continue is known"
	case text == "":
		text = "this is not an HTTP/1.1 request"
	}
	_ = w.SetWriteDeadline(time.Now().Add(refusalWithin))
	_, err := w.Write(l.e.f.refusal(status, reason, text))
	return len(b), err
}

// statusLine reads the status of an answer of net/http, and what it says about it: its own words, never the request's.
func statusLine(b []byte) (status int, text string) {
	line, _, _ := strings.Cut(string(b), "\r\n")
	fields := strings.SplitN(line, " ", 3)
	if len(fields) < 2 {
		return http.StatusBadRequest, ""
	}
	status, err := strconv.Atoi(fields[1])
	if err != nil || http.StatusText(status) == "" || status < http.StatusBadRequest {
		return http.StatusBadRequest, ""
	}
	_, text, _ = strings.Cut(line, ": ")
	return status, text
}

// refusal counts and words an answer that ends its connection.
func (f *Front) refusal(status int, reason, detail string) []byte {
	f.counted(reason)
	header, body := f.o.Problem(status, reason, detail)
	header = header.Clone()
	header.Set("Connection", "close")
	header.Set("Content-Length", strconv.Itoa(len(body)))
	header.Set("Date", time.Now().UTC().Format(http.TimeFormat))
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\n", status, http.StatusText(status))
	_ = header.Write(&out)
	out.WriteString("\r\n")
	out.Write(body)
	return out.Bytes()
}

// bare is the Problem of a front that has none.
func bare(int, string, string) (http.Header, []byte) { return http.Header{}, nil }

// status of an answer to one connection too many, with what to say.
func (v verdict) status() (status int, detail string) {
	if v == overPerIP {
		return http.StatusTooManyRequests, "too many connections from this address"
	}
	return http.StatusServiceUnavailable, "too many connections"
}

// A connection that is to be refused waits for that for a moment, without a place, so that who opens one after the other
// cannot keep a core busy: a hundred milliseconds, give or take a half lest they all come back at once. So many at a time are
// without a place, from then until they are closed; the others keep theirs and are refused at once.
const (
	lingerFor  = 100 * time.Millisecond
	lingerMost = 256
)

// Whether a connection is one of them.
const (
	lingersNot int32 = iota
	lingers
	lingersNever // it is closed
)

// linger gives the reserved place to the next, and waits.
func (l *life) linger(r *http.Request) {
	all := &l.e.f.lingering
	if all.Add(1) > lingerMost || !l.lingers.CompareAndSwap(lingersNot, lingers) {
		all.Add(-1)
		return
	}
	l.e.book.leave(l)
	pause := time.NewTimer(lingerFor/2 + rand.N(lingerFor))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.Context().Done():
	}
}

// turnAway refuses a connection that has just been accepted, reading nothing and waiting for nothing: what it is told
// fits every socket buffer, or is not told.
func (e *endpoint) turnAway(c net.Conn, v verdict, secure bool) {
	reason := rejectTotal
	if v == overPerIP {
		reason = rejectPerIP
	}
	e.rejects[reason](1)
	if sc, ok := c.(syscall.Conn); ok && !secure {
		status, detail := v.status()
		answer := e.f.refusal(status, reasonCap, detail)
		if raw, err := sc.SyscallConn(); err == nil {
			_ = raw.Write(func(fd uintptr) bool {
				_, _ = unix.Write(int(fd), answer)
				return true
			})
		}
	}
	_ = c.Close()
}

// refuse answers a request, on a connection that was for a probe. A body that does not come keeps it no longer than a
// client that does not read: net/http waits for the rest of what was announced.
func (f *Front) refuse(w http.ResponseWriter, v verdict) {
	control, end := http.NewResponseController(w), time.Now().Add(refusalWithin)
	_, _ = control.SetReadDeadline(end), control.SetWriteDeadline(end)
	status, detail := v.status()
	f.counted(reasonCap)
	header, body := f.o.Problem(status, reasonCap, detail)
	for k, values := range header {
		w.Header()[k] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
