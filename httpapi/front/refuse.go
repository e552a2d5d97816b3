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

// Reasons of refusals before a handler.
const (
	reasonMalformed = "malformed"
	reasonHeader    = "bad_header"
	reasonTimeout   = "timeout"
	reasonCap       = "conn_cap"
)

const headerTooLong = "the request line and headers are longer than server.max_header"

// refusalWithin is the time that the answer to a refused request gets to be sent.
const refusalWithin = time.Second

// replaceRefusal answers in place of net/http, which refuses what it cannot read as a request with a line of plain text:
// nothing but that is written before a handler runs. It reports b as written.
func (c *conn) replaceRefusal(w net.Conn, b []byte) (int, error) {
	if !c.phase.CompareAndSwap(phaseHeader, phaseOver) {
		return len(b), nil // the rest of a refusal that has been replaced
	}
	status, text := statusLine(b)
	reason := reasonMalformed
	switch {
	case status == http.StatusRequestHeaderFieldsTooLarge:
		reason, text = reasonHeader, headerTooLong
	case status == http.StatusNotImplemented:
		text = "the transfer encoding is not supported"
	case status == http.StatusExpectationFailed:
		text = "of expectations only 100-continue is known"
	case text == "":
		text = "this is not an HTTP/1.1 request"
	}
	_ = w.SetWriteDeadline(time.Now().Add(refusalWithin))
	_, err := w.Write(c.e.f.refusal(status, reason, text))
	return len(b), err
}

// statusLine reads the status of an answer of net/http, and its explanation: its own words, never the request's.
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
	f.o.Counted(reason)
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

// status returns the answer to one connection too many.
func (o outcome) status() (status int, detail string) {
	if o == overPerIP {
		return http.StatusTooManyRequests, "too many connections from this address"
	}
	return http.StatusServiceUnavailable, "too many connections"
}

// reject refuses a connection that has just been accepted, reading nothing and waiting for nothing: its answer fits every
// socket buffer, or is dropped.
func (e *endpoint) reject(c net.Conn, over outcome, secure bool) {
	reason := rejectTotal
	if over == overPerIP {
		reason = rejectPerIP
	}
	e.rejects[reason](1)
	if sc, ok := c.(syscall.Conn); ok && !secure {
		status, detail := over.status()
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

// A refusal in a reserved slot is delayed, the slot given back, so that a client which opens one connection after the other
// cannot keep a core busy: by a hundred milliseconds, give or take a half lest all come back at once. So many connections
// at a time are without a slot, from then until they are closed; the others keep theirs and are refused at once.
const (
	refusalDelay = 100 * time.Millisecond
	maxDelayed   = 256
)

// Whether a connection is one of them.
const (
	delayNone int32 = iota
	delayed
	delayNever // it is closed
)

// delayRefusal gives the reserved slot back, and waits.
func (c *conn) delayRefusal(r *http.Request) {
	all := &c.e.f.delayed
	if all.Add(1) > maxDelayed || !c.delay.CompareAndSwap(delayNone, delayed) {
		all.Add(-1)
		return
	}
	c.e.conns.release(c)
	pause := time.NewTimer(refusalDelay/2 + rand.N(refusalDelay))
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-r.Context().Done():
	}
}

// refuse answers a request in place of the handler, on a connection that it ends. A body that does not come keeps it no longer than a
// client that does not read: net/http waits for the rest of the announced length.
func (f *Front) refuse(w http.ResponseWriter, r *http.Request, status int, reason, detail string) {
	control, end := http.NewResponseController(w), time.Now().Add(refusalWithin)
	_, _ = control.SetReadDeadline(end), control.SetWriteDeadline(end)
	f.o.Counted(reason)
	header, body := f.o.Problem(status, reason, detail)
	for k, values := range header {
		w.Header()[k] = values
	}
	w.WriteHeader(status)
	_, _ = w.Write(body)
	PeerOf(r).DropBody(w, r)
}
